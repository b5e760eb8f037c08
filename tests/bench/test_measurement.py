"""A measurement from Python: with and without an event loop, and what ends it."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest
from doubles.simulator_thread import SimulatorThread

from tandem.bench import RunOptions, read_request_table
from tandem.bench.load.run import MeasurementRun, RunOutcome
from tandem.bench.measurement import measure_servers, measure_servers_async, run_until_end
from tandem.bench.plan.settings import RunSettings
from tandem.bench.records.manifest import read_manifest
from tandem.errors import InputError
from tandem.simulator.settings import SimulatorSettings

FAST = SimulatorSettings(model="m", step_ms=(1.0,), prefill_base_ms=1.0, prefill_ms_per_token=0.0)
SLOW = SimulatorSettings(model="m", step_ms=(40.0,), prefill_base_ms=1.0, prefill_ms_per_token=0.0)
READY_S = 30
PROGRAM = """
import asyncio, sys
from tandem.bench import RunOptions, measure_servers, measure_servers_async

options = RunOptions(
    servers={"plain": sys.argv[2]}, model="m", classes=("chat",), max_tokens=8, rounds=500, control_rounds=0, warm_up=0
)
try:
    if sys.argv[1] == "async":
        asyncio.run(measure_servers_async(options, "run"))
    else:
        measure_servers(options, "run")
except KeyboardInterrupt:
    print("interrupted")
"""
LIMITED_PROGRAM = """
import resource, sys
from tandem.bench import RunOptions, measure_servers

resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
options = RunOptions(servers={"plain": sys.argv[1]}, model="m", classes=("chat",), max_tokens=2, rounds=1, warm_up=0)
measure_servers(options, "run")
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.fixture(scope="module")
def url():
    with SimulatorThread(FAST) as server:
        yield server.url


@pytest.fixture(scope="module")
def slow_url():
    with SimulatorThread(SLOW) as server:
        yield server.url


def make_options(url: str, **options: Any) -> RunOptions:
    small = {
        "classes": ("chat",),
        "prompts_per_class": 2,
        "max_tokens": 4,
        "rounds": 1,
        "control_rounds": 0,
    }
    return RunOptions(servers={"plain": url}, model="m", **{**small, "warm_up": 0, **options})


def wait_for_record(folder: Path) -> None:
    end_s = time.monotonic() + READY_S
    while time.monotonic() < end_s:
        if (folder / "records.jsonl").exists() and (folder / "records.jsonl").stat().st_size:
            return
        time.sleep(0.01)
    raise AssertionError("no record came")


def test_both_forms_return_the_requests_of_the_run(url, tmp_path):
    table = measure_servers(make_options(url), str(tmp_path / "blocking"))
    async_table = asyncio.run(measure_servers_async(make_options(url), tmp_path / "async"))
    assert (len(table), table.failed.sum(), len(async_table)) == (2, 0, 2)


def test_the_blocking_form_refuses_a_running_loop(url, tmp_path):
    async def call_blocking_form() -> None:
        measure_servers(make_options(url), tmp_path / "run")

    with pytest.raises(InputError, match=r"write `await measure_servers_async\(...\)` instead"):
        asyncio.run(call_blocking_form())
    assert not (tmp_path / "run").exists()


def test_plan_and_progress_go_to_the_given_stream_alone(url, tmp_path, capsys):
    stream = io.StringIO()
    measure_servers(make_options(url), tmp_path / "shown", progress=stream)
    measure_servers(make_options(url), tmp_path / "silent")
    assert "plan: plain" in stream.getvalue()
    assert capsys.readouterr() == ("", "")


def test_an_interrupted_run_goes_on_with_the_same_options(slow_url, tmp_path):
    options = make_options(slow_url, rounds=6)

    async def measure_until_first_record() -> None:
        measurement = asyncio.create_task(measure_servers_async(options, tmp_path / "run"))
        await asyncio.to_thread(wait_for_record, tmp_path / "run")
        measurement.cancel()
        await measurement

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(measure_until_first_record())
    end = read_manifest(tmp_path / "run").ended
    record_count = len(read_request_table(tmp_path / "run"))
    table = measure_servers(options, tmp_path / "run", resume=True)

    assert end is not None
    assert end.reason == "interrupted"
    assert 0 < record_count < len(table) == 12


@pytest.mark.parametrize("form", ["blocking", "async"])
def test_ctrl_c_ends_either_form_as_an_interrupted_run(form, url, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, form, url], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        wait_for_record(tmp_path / "run")
        process.send_signal(2)
        output, _ = process.communicate(timeout=READY_S)

    end = read_manifest(tmp_path / "run").ended
    assert (output, process.returncode) == ("interrupted\n", 0)
    assert end is not None
    assert end.reason == "interrupted"


def test_the_file_limit_is_raised_for_a_run(url, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LIMITED_PROGRAM, url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == 1024


@pytest.fixture
def interrupt_handler():
    """Python's own handler of SIGINT, which a shell in the background takes from its programs."""
    former_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, former_handler)


def test_interrupt_while_the_loop_ends_is_ignored(monkeypatch, interrupt_handler):
    sent_signals = []

    def interrupt_once_ignored() -> None:
        end_s = time.monotonic() + READY_S
        while signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            if time.monotonic() > end_s:
                return  # a signal now would end the tests
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        sent_signals.append(signal.SIGINT)

    async def run_briefly(_run: MeasurementRun) -> RunOutcome:
        # the loop's end waits for it
        asyncio.get_running_loop().run_in_executor(None, interrupt_once_ignored)
        return RunOutcome(reason="done")

    monkeypatch.setattr(MeasurementRun, "run", run_briefly)
    run = MeasurementRun(settings=cast("RunSettings", None), folder=Path("run"))

    assert run_until_end(run).reason == "done"
    assert sent_signals == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is interrupt_handler
