"""No order of starts, stops, crashes, deploys, faults and passes leaves an instance that nobody
ends or cries about.

A part of proofs/test_stop_interleavings.py, with a fixed seed.
"""

from __future__ import annotations

import json

import pytest
from guard_interleavings import History, many

from tandem.guard import fleet_start

SEED = "7"


@pytest.fixture(autouse=True)
def _printed():
    print(f"seed {SEED}")  # noqa: T201 - of a test that fails


def test_no_history_ends_with_an_instance_alive_and_neither_a_stop_to_come_nor_an_alarm():
    wrong, seen = many(SEED, 75)
    assert wrong == {}
    assert (
        min(
            seen[what]
            for what in ("raised", "lifted", "crashes", "in between", "stops due", "alarms")
        )
        > 15
    )


def test_the_reaper_alone_ends_every_history():
    wrong, seen = many(SEED, 40, schedules=False)
    assert wrong == {}
    assert seen["raised"] > 12


def test_the_one_shot_stops_alone_end_every_start():
    """Without the reaper, and so without what only it can see: raises by hand, and an AWS that
    fails."""
    wrong, seen = many(SEED, 100, reaper=False, hostile=False)
    assert wrong == {}
    assert seen["raised"] > 70
    assert seen["passes"] == 0


def test_a_reaper_that_sees_no_fence_is_caught(monkeypatch):
    """The histories can tell: without its reasons the reaper leaves instances alive."""
    monkeypatch.setattr("tandem.guard.plan._list_stop_reasons", lambda *_: iter(()))
    assert many(SEED, 10, schedules=False)[0] != {}


def test_a_start_that_does_not_look_again_is_caught(monkeypatch):
    monkeypatch.setattr("tandem.guard.ownership.LeaseOwner.find_loss", lambda _: "")
    assert (
        many(SEED, 20, reaper=False, schedules=False, hostile=False, judge=History.stopped)[0] != {}
    )


def test_a_one_shot_that_keeps_a_node_is_caught(monkeypatch):
    build = fleet_start.build_stop_schedule

    def keep_one(config, lease):
        schedule = build(config, lease)
        payload = json.loads(schedule["Target"]["Input"])
        payload["ScalingConfig"]["DesiredSize"] = 1
        schedule["Target"]["Input"] = json.dumps(payload)
        return schedule

    monkeypatch.setattr("tandem.guard.fleet_start.build_stop_schedule", keep_one)
    assert many(SEED, 10, reaper=False, hostile=False)[0] != {}


def test_a_stop_has_the_last_word_over_a_start_in_any_order():
    wrong, seen = many(
        SEED, 150, reaper=False, schedules=False, hostile=False, judge=History.stopped
    )
    assert wrong == {}
    assert seen["raised"] > 20
