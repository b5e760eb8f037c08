"""What a simulated server announces, over HTTP, and what the files of a run keep of it."""

from __future__ import annotations

import dataclasses
import json

import pytest
from doubles.simulator_thread import SimulatorThread
from independent_server import MODEL, Schedule, Server
from measured import arm, record, write_run
from one_request import run
from running import QUICK, measure

from tandem.bench.figures import summary, summary_table
from tandem.bench.figures.request_table import read_request_table
from tandem.bench.llmperf.run import _ask_simulated
from tandem.bench.load.client import CompletionClient
from tandem.bench.load.probe import ProbeResult, probe_server
from tandem.bench.records.simulation import SIMULATED_BAND, SIMULATOR_OWNER, combine_simulated
from tandem.judge.verdict import JudgeOptions, judge_run
from tandem.simulator.settings import SimulatorSettings

OURS = [{"id": MODEL, "owned_by": SIMULATOR_OWNER}]
OTHERS = [{"id": MODEL, "owned_by": "vllm"}]
SIMULATED = dataclasses.replace(QUICK, simulated="1")


def found(header: str | None, models: list[dict[str, str]]) -> ProbeResult:
    async def ask(client: CompletionClient, server: Server) -> ProbeResult:
        server.models = models
        return await probe_server(client)

    return run(ask, Schedule(ttft_ms=1, step_ms=1, simulated=header))


@pytest.fixture(scope="module")
def twin():
    with SimulatorThread(
        SimulatorSettings(model=MODEL, step_ms=(1.0,), prefill_base_ms=1, law="none")
    ) as running:
        yield running


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    return measure(tmp_path_factory.mktemp("mixed"), schedules=(QUICK, SIMULATED))


def test_the_probe_and_llmperf_take_the_twin_for_a_simulator(twin):
    async def ask(_: CompletionClient, __: Server) -> ProbeResult:
        async with CompletionClient(arm("arm", url=twin.url, model=MODEL), limit=1) as client:
            return await probe_server(client)

    came = run(ask)

    assert (came.arm.simulated, came.arm.owned_by) == (True, SIMULATOR_OWNER)
    assert _ask_simulated(arm("a", url=twin.url)) is True
    assert _ask_simulated(arm("a")) is None


def test_one_simulated_arm_makes_a_run_simulated():
    arms = ((True, False), (True, None), (False, None), (False, False))
    assert list(map(combine_simulated, arms)) == [True, True, None, False]


@pytest.mark.parametrize(
    ("header", "models", "is_simulated"),
    [
        ("1", OTHERS, True),
        ("0", OURS, True),
        ("0", OTHERS, False),
        (None, [*OTHERS, {"id": "other", "owned_by": SIMULATOR_OWNER}], False),
    ],
)
def test_one_announcement_makes_a_server_simulated(header, models, is_simulated):
    assert found(header, models).arm.simulated is is_simulated


def test_all_files_of_a_simulated_run_say_so(mixed):
    remaining = json.loads((mixed.folder / summary.FILE).read_text())
    verdict = judge_run(read_request_table(mixed.folder), JudgeOptions())

    assert mixed.manifest["simulated"] is True
    assert [arm["simulated"] for arm in mixed.manifest["arms"]] == [False, True]
    assert (remaining["schema"], remaining["simulated"]) == (2, True)
    assert verdict.simulated is True


@pytest.mark.parametrize(
    ("is_simulated", "first"),
    [(True, SIMULATED_BAND), (False, "concurrency 4: latencies")],
)
def test_the_table_of_a_simulated_run_begins_with_it(tmp_path, is_simulated, first):
    run = write_run(tmp_path, [record()], simulated=is_simulated)
    assert next(summary_table.format_lines(summary.summarize_run(run))).startswith(first)
