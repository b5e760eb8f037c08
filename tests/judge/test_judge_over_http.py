"""Whole runs against twins over HTTP: known ratios are seen, and no broken server can win.

Each arm is a twin of the baseline with one thing changed; all are measured in one run, with control
rounds.
"""

from __future__ import annotations

import io
import math

import pytest
import uvloop
from doubles.simulator_thread import SimulatorThread
from planned import suite_file

from tandem.bench.figures.request_table import read_request_table
from tandem.bench.load.run import MeasurementRun
from tandem.bench.plan.settings import RunSettings, draft_manifest
from tandem.bench.records.manifest import ManifestArm
from tandem.bench.suites.suite import load_suite
from tandem.judge.schema import CellVerdict, Headline, Verdict
from tandem.judge.verdict import JudgeOptions, judge_run
from tandem.simulator.settings import FaultSettings, PromptClassSettings, SimulatorSettings

PROMPTS = 8
TOKENS = 8
BASE = SimulatorSettings(
    step_ms=(15.0,),  # many times what a busy machine's clock is late by
    prefill_base_ms=30.0,
    prefill_ms_per_token=0.0,
    classes={"default": PromptClassSettings(output_tokens=TOKENS)},
)
SHORT = {"default": PromptClassSettings(output_tokens=TOKENS // 4)}
ARMS = {
    "base": BASE,
    "faster": BASE.scale_time(1.5),
    "garbage": (
        BASE.scale_time(2).model_copy(update={"faults": (FaultSettings(kind="garbage", rate=1.0),)})
    ),
    "cutting": BASE.model_copy(update={"classes": SHORT}),
    "failing": (
        BASE.scale_time(2).model_copy(
            update={"faults": (FaultSettings(kind="status_500", requests=tuple(range(8, 200, 2))),)}
        )
    ),
}


@pytest.fixture(scope="module")
def verdict(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged")
    suite = suite_file(
        folder, {"chat": [f"Tell me about the {number}th day." for number in range(PROMPTS)]}
    )
    twins = {name: SimulatorThread(knobs).start() for name, knobs in ARMS.items()}
    try:
        arms = tuple(
            ManifestArm(
                name=name,
                role="variant" if name != "base" else "baseline",
                url=twin.url,
                model="twin",
            )
            for name, twin in twins.items()
        )
        run_manifest = draft_manifest(
            arms=arms,
            rounds=4,
            control_rounds=1,
            max_tokens=2 * TOKENS,
            schedule="interleaved",
            seed=0,
            api="chat",
        )
        suites = (load_suite(suite),)
        settings = RunSettings(
            manifest=run_manifest, suites=suites, concurrency=(PROMPTS,), warm_up=2
        )
        uvloop.run(
            MeasurementRun(settings=settings, folder=folder / "run", out=io.StringIO()).run()
        )
    finally:
        for twin in twins.values():
            twin.stop()
    # how busy the machine is that runs all tests at once is not judged here
    (folder / "run" / "rounds.jsonl").unlink()
    return judge_run(read_request_table(folder / "run"), JudgeOptions())


def cell(verdict: Verdict, variant: str, metric: str = "e2e_ms") -> CellVerdict:
    return next(cell for cell in verdict.cells if (cell.variant, cell.metric) == (variant, metric))


def headline(verdict: Verdict, variant: str) -> Headline:
    return next(line for line in verdict.headlines if line.variant == variant)


def test_a_known_speed_up_is_measured_and_called(verdict):
    log = math.log(cell(verdict, "faster").speed_up.value)
    assert abs(log - math.log(1.5)) < abs(log)
    assert headline(verdict, "faster").finding == "faster"


def test_the_baseline_against_itself_passes(verdict):
    assert verdict.controls.void == ()
    assert {floor.metric for floor in verdict.controls.floors} >= {"e2e_ms", "tpot_ms", "ttft_ms"}


def test_other_output_cannot_win(verdict):
    assert cell(verdict, "garbage").speed_up.value > 1
    word = headline(verdict, "garbage").verdict
    assert word == "faster but not the same output (one server start; restarts not tested)"


def test_an_arm_that_cuts_answers_does_not_win(verdict):
    assert cell(verdict, "cutting").speed_up.value > 1
    assert (headline(verdict, "cutting").metric, headline(verdict, "cutting").output) == (
        "tpot_ms",
        "not the same",
    )
    assert headline(verdict, "cutting").finding != "faster"


def test_a_server_that_fails_requests_cannot_win(verdict):
    assert headline(verdict, "failing").verdict == "not comparable"


def test_equal_outputs_are_called_the_same(verdict):
    results = {entry.variant: entry.result for entry in verdict.equality}
    assert results["faster"] == "the same"
