"""The load guard: what a busy machine or a busy client does to the figures is told."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from tandem.bench.load import host
from tandem.bench.records.manifest import HostInfo

IDLE = HostInfo(
    cpus=2, python="3.11", load_1m_start=0.2, cpu_busy=0.3, client_cpu=0.2, lag_p99_s=0.001
)


async def at_once():
    pass


async def compute():
    ends = time.process_time() + 0.2
    while time.process_time() < ends:
        pass


async def hold_up():
    await asyncio.sleep(0)  # so that the sleeper has begun to sleep
    time.sleep(0.2)  # noqa: ASYNC251 - this is the hold-up
    await asyncio.sleep(0.05)


def watched(work, apart=at_once):
    async def main():
        watch = host.HostWatch()
        for number in range(2):
            watch.begin_round()
            await work()
            watch.end_round(number)
            await apart()
        return watch.complete_host(IDLE)

    return asyncio.run(main())


def test_a_blocked_loop_shows_in_its_lag():
    assert watched(hold_up).lag_max_s > 0.1
    assert watched(at_once, apart=hold_up).lag_max_s is None


def test_a_computing_client_shows_in_its_cpu_share():
    assert watched(compute).client_cpu > 2 * watched(hold_up, apart=compute).client_cpu >= 0


def test_a_run_without_loads_of_rounds_has_none(tmp_path):
    assert list(host.read_round_loads(tmp_path)) == []


def test_the_load_of_a_round_is_its_own():
    async def main():
        watch = host.HostWatch()
        loads = []
        for number, work in enumerate((compute, at_once)):
            watch.begin_round()
            await work()
            loads.append(watch.end_round(number))
        return loads

    first, second = asyncio.run(main())
    assert (first.round, first.wall_s >= 0.2, second.round, second.wall_s < first.wall_s) == (
        0,
        True,
        1,
        True,
    )


def test_an_idle_machine_gives_no_warning():
    assert host.list_warnings(IDLE) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"load_1m_start": 2.5}, "this machine was busy before the run began (load 2.5 on 2 CPUs)"),
        (
            {"lag_p99_s": 0.02},
            (
                "times may be late by up to 20.0 ms (p99 of the event loop's lag; at most 5): the"
                " machine was busy"
            ),
        ),
        ({"client_cpu": 0.95}, "this client took 95% of a CPU; lower the concurrency"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_may_spoil_the_figures_is_told(changes, words):
    (warning,) = host.list_warnings(msgspec.structs.replace(IDLE, **changes))
    assert words in warning


def test_a_system_without_these_figures_gives_none(monkeypatch, tmp_path):
    monkeypatch.setattr(host, "PROC_STAT", tmp_path / "none")
    assert watched(at_once).cpu_busy is None
