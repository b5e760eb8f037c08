"""A fleet's histories in virtual time: starts, stops, crashes, deploys, raises by hand, faults,
missed passes.

However they interleave, in the end no instance is alive, or an alarm is of the last hour; once AWS
works, none lives.
"""

from __future__ import annotations

import pytest
from guard_interleavings import History, lives, many

pytestmark = pytest.mark.proof

PATHS = {
    "all paths": {},
    "the reaper alone": {"schedules": False},
    "the one-shot stops alone": {"reaper": False, "hostile": False},
}
HISTORIES = {"all paths": 10_000, "the reaper alone": 3_000, "the one-shot stops alone": 10_000}


@pytest.mark.parametrize("paths", PATHS)
def test_histories_of_a_fleet(paths, chance, report):
    wrong, seen = many(str(chance.random()), HISTORIES[paths], judge=lives, **PATHS[paths])

    report(
        paths=paths,
        histories=HISTORIES[paths],
        starts=seen["start"],
        raised=seen["raised"],
        stops=seen["halt"],
        crashes=seen["crashes"],
        acts_between_two_calls=seen["in between"],
        passes=seen["passes"],
        alarms=seen["alarms"],
        left_alive=len(wrong),
    )
    assert wrong == {}


def test_a_stop_and_a_start_that_meet(chance, report):
    wrong, seen = many(
        str(chance.random()),
        10_000,
        judge=History.stopped,
        reaper=False,
        schedules=False,
        hostile=False,
    )

    report(
        meetings=10_000,
        raised=seen["raised"],
        refused=seen["InputError"],
        raised_behind_a_fence=len(wrong),
    )
    assert wrong == {}
