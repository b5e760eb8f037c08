"""Processes that freeze between any two calls leave no fleet that nobody may have, and no stop of
another deleted.

A part of the 50,000 histories that `make proof` runs, with a fixed seed.
"""

from __future__ import annotations

from collections import Counter

import pytest
from guard_races import run_races

SEED = "12"
HISTORIES = 80
PROOF_PARTS = 20
PROOF_HISTORIES = 2_500


def test_whoever_freezes_leaves_no_fleet_that_nobody_may_have():
    wrong, seen = run_races(SEED, HISTORIES)
    assert wrong == {}
    assert (
        min(
            seen[what]
            for what in ("raised in the gap", "ended", "usurped", "schedules deleted", "killed")
        )
        > 5
    )


@pytest.mark.proof
@pytest.mark.parametrize("part", range(PROOF_PARTS))
def test_histories_of_processes_that_freeze(part, proof_seed, record_property):
    wrong, seen = run_races(f"{proof_seed} {part}", PROOF_HISTORIES)
    print(f"seed {proof_seed}, part {part}: {dict(seen)}")  # noqa: T201 - the proof's figures
    record_property("seen", dict(seen))
    assert wrong == {}


# the histories can tell


def disturb(monkeypatch, name, value, seed=SEED):
    monkeypatch.setattr(name, value)
    return run_races(seed, 100, until_wrong=True)[0]


@pytest.mark.parametrize(
    ("name", "value", "seed"),
    [
        ("ownership.LeaseOwner.find_loss", lambda _: "", SEED),
        ("ownership.LeaseOwner.find_other_owner", lambda _: "", SEED),
        # a seed whose first history meets the fleet that SEED's meet late
        ("plan._list_missing_lease_reasons", lambda *_: iter(()), "6"),
        ("plan._list_misuse_reasons", lambda *_: iter(()), SEED),
        ("fleet_state.FleetState.is_ending", False, SEED),
        ("normal_end.follow_fleet", lambda *_, **__: (), SEED),
        ("apply._StopPass._find_release", lambda *_, **__: "", SEED),
    ],
    ids=[
        "a start that does not read again",
        "a take back of another's fleet",
        "a reaper that knows no unleased fleet",
        "a reaper that reads no lease",
        "a reaper that fences an ending lease",
        "an end that does not wait",
        "a stop that does not look at its fence again",
    ],
)
def test_a_guard_that_lacks_a_look_is_caught(monkeypatch, name, value, seed):
    assert disturb(monkeypatch, f"tandem.guard.{name}", value, seed)


def test_a_start_that_deletes_the_schedules_of_others_is_caught(monkeypatch):
    from tandem.guard.fleet_start import _FleetStart  # noqa: PLC0415
    from tandem.guard.schedules import delete_schedule, list_foreign_schedules  # noqa: PLC0415

    arm = _FleetStart.arm_stop

    def arm_alone(self):
        arn = arm(self)
        for schedule in list_foreign_schedules(self.clients, self.config, self.lease):
            delete_schedule(self.clients, self.config, schedule.name)
        return arn

    assert disturb(monkeypatch, "tandem.guard.fleet_start._FleetStart.arm_stop", arm_alone)


def test_a_seed_repeats_its_histories():
    assert run_races("3", 10)[1] == run_races("3", 10)[1] != Counter()
