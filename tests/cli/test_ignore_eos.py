"""`tandem bench run --ignore-eos`: equal lengths, and what the verdict and its report say of them."""

from __future__ import annotations

import json

import pytest
from bench_cli import however_busy, records, without_page
from doubles.simulator_thread import SimulatorThread
from planned import suite_file

from tandem.cli.program import main
from tandem.simulator.settings import SimulatorSettings

SHORT = ("--concurrency", "1", "--warm-up", "0", "--control-rounds", "0", "--rounds", "1")


@pytest.fixture(scope="module")
def forced_run(tmp_path_factory):
    """The folder of a run against two simulated servers, which keep ignore_eos."""
    folder = tmp_path_factory.mktemp("forced")
    suite = suite_file(folder, {"code": ["a", "b"], "chat": ["c", "d"]})
    settings = SimulatorSettings(model="m", step_ms=(0.2,), prefill_base_ms=0.2)
    with SimulatorThread(settings) as base, SimulatorThread(settings) as spec:
        arms = ["--baseline", f"base={base.url}", "--variant", f"spec={spec.url}"]
        flags = [*arms, "--suite", str(suite), *SHORT, "--max-tokens", "40", "--ignore-eos"]
        with without_page(), however_busy():
            assert main(["bench", "run", *flags, "--out", str(folder / "out")]) == 0
    return folder / "out"


def test_every_answer_has_its_most_tokens(forced_run):
    lines = records(forced_run)
    assert {line["completion_tokens"] for line in lines} == {line["max_tokens"] for line in lines}


def test_the_verdict_says_that_lengths_are_forced(forced_run):
    verdict = json.loads((forced_run / "verdict.json").read_text())
    [headline] = verdict["headlines"]
    forced = "Answers were forced to equal lengths (--ignore-eos), which biases acceptance"
    assert headline["sentence"].startswith(forced)
    checks = "The content check read 0 of 4 answers of base and 0 of 4 answers of spec"
    assert [reason for reason in headline["reasons"] if reason.startswith(checks)]


def test_a_resumed_run_forces_lengths_too(forced_run):
    manifest = json.loads((forced_run / "manifest.json").read_text())
    assert manifest["flags"]["--ignore-eos"] == []
    assert [arm["extra_body"] for arm in manifest["arms"]] == [{"ignore_eos": True}] * 2
