"""The load guard: what a busy machine or a busy client does to the figures is told."""

from __future__ import annotations

import asyncio
import dataclasses
import time

import pytest

from tandem.bench import host

IDLE = host.HostLoad(
    load_1m_start=0.2, load_1m_end=0.4, cpu_busy=0.3, client_cpu=0.2, lag_p50_s=0.0001, lag_p99_s=0.001, lag_max_s=0.01
)  # fmt: skip


def watched(work):
    async def main():
        watch = host.HostWatch()
        await work()
        return await watch.end()

    return asyncio.run(main())


def test_a_loop_that_is_held_up_shows_in_its_lag():
    async def work():
        await asyncio.sleep(0)  # so that the sleeper has begun to sleep
        time.sleep(0.2)  # noqa: ASYNC251 - this is the hold-up
        await asyncio.sleep(0.05)

    assert watched(work).lag_max_s > 0.1


def test_a_client_that_computes_shows_in_its_share_of_a_cpu():
    async def work():
        ends = time.process_time() + 0.1
        while time.process_time() < ends:
            pass
        await asyncio.sleep(0)

    assert watched(work).client_cpu > 0


def watched_apart(apart, otherwise):
    async def main():
        watch = host.HostWatch()
        await otherwise()
        with watch.exclude():
            await apart()
        return await watch.end()

    return asyncio.run(main())


async def at_once():
    pass


async def compute():
    ends = time.process_time() + 0.5
    while time.process_time() < ends:
        pass


def test_the_lag_while_nothing_is_measured_is_left_out():
    async def work():
        await asyncio.sleep(0.1)

    assert watched_apart(work, at_once).lag_max_s is None
    assert watched_apart(at_once, work).lag_max_s is not None


def test_what_the_client_takes_while_nothing_is_measured_is_left_out():
    async def idle():
        await asyncio.sleep(0.2)

    assert watched_apart(compute, idle).client_cpu < 0.5


def test_an_idle_machine_gives_no_warning():
    assert IDLE.warnings(cpus=2) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"load_1m_start": 2.5}, "this machine was busy before the run began (load 2.5 on 2 CPUs)"),
        (
            {"lag_p99_s": 0.02},
            "times may be late by up to 20.0 ms (p99 of the event loop's lag; at most 5): other work",
        ),
        ({"client_cpu": 0.95}, "this client took 95% of a CPU; lower --concurrency"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_may_spoil_the_figures_is_told(changed, said):
    (warning,) = dataclasses.replace(IDLE, **changed).warnings(cpus=2)

    assert said in warning


def test_a_system_without_these_figures_gives_none(monkeypatch, tmp_path):
    monkeypatch.setattr(host, "PROC_STAT", tmp_path / "none")

    async def work():
        await asyncio.sleep(0)

    assert watched(work).cpu_busy is None
