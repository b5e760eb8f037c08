"""Pods by script: their state follows from the time that went by."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from rehearsal.cluster.pods import PodScript, VirtualPods

START = datetime(2026, 11, 24, 12, tzinfo=UTC)


class VirtualClock:
    def __init__(self) -> None:
        self.moment = START

    def now(self) -> datetime:
        return self.moment

    def set(self, seconds: float) -> None:
        self.moment = START + timedelta(seconds=seconds)


def build_pod(policy: str = "Always", grace_s: int = 30, **labels) -> dict:
    metadata = {"name": "one", "uid": "u1", "labels": labels, "deletionGracePeriodSeconds": grace_s}
    return {
        "metadata": metadata,
        "spec": {"restartPolicy": policy, "containers": [{"name": "main"}]},
    }


@pytest.fixture
def clock():
    return VirtualClock()


def run_script(clock: VirtualClock, script: PodScript, seconds: float, policy: str = "Always"):
    clock.set(0)
    pods = VirtualPods(clock.now, lambda _: script)
    pods.start_pod(build_pod(policy))
    clock.set(seconds)
    return pods.look_at_pod(build_pod(policy))


def test_a_pod_is_pending_until_its_container_starts(clock):
    script = PodScript(start_s=30)
    assert [run_script(clock, script, moment).phase for moment in (29, 30)] == [
        "Pending",
        "Running",
    ]


def test_a_pod_is_ready_only_after_its_time(clock):
    script = PodScript(start_s=5, ready_after_s=60)
    assert [run_script(clock, script, moment).is_ready for moment in (64, 65)] == [False, True]


@pytest.mark.parametrize(("exit_code", "phase"), [(0, "Succeeded"), (3, "Failed")])
def test_the_exit_code_decides_the_phase(clock, exit_code, phase):
    state = run_script(clock, PodScript(run_s=10, exit_code=exit_code), 10, "Never")
    assert (state.phase, state.exit_code, state.restarts) == (phase, exit_code, 0)


def test_backoff_doubles_to_five_minutes(clock):
    script = PodScript(run_s=1, exit_code=1)
    states = [run_script(clock, script, moment + 0.5) for moment in range(1300)]
    ends = [index for index in range(1299) if states[index].restarts < states[index + 1].restarts]
    delays = [later - earlier - 1 for earlier, later in pairwise(ends)]
    assert delays[:7] == [10, 20, 40, 80, 160, 300, 300]


def test_crashes_come_before_the_scripted_run(clock):
    script = PodScript(run_s=50, ready_after_s=5, crashes=2)
    states = [run_script(clock, script, moment, "OnFailure") for moment in (5, 10, 20, 70)]
    assert [(state.restarts, state.phase) for state in states] == [
        (1, "Running"),
        (1, "Running"),
        (2, "Running"),
        (2, "Succeeded"),
    ]


@pytest.mark.parametrize(("grace_s", "gone_after_s"), [(30, 20), (5, 5)])
def test_stopping_takes_its_time_up_to_the_grace_period(clock, grace_s, gone_after_s):
    pods = VirtualPods(clock.now, lambda _: PodScript(stop_s=20))
    pod = build_pod(grace_s=grace_s)
    pods.start_pod(pod)
    assert not pods.stop_pod(pod)
    clock.set(gone_after_s - 0.1)
    assert not pods.stop_pod(pod)
    clock.set(gone_after_s)
    assert pods.stop_pod(pod)
