"""What a follower of a stop says between two looks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fleet_seen import NOW, SPOT, fence, instance, seen

from tandem.guard.fleet_changes import follow_fleet, list_changes
from tandem.ops.guard_config import build_guard_config

PARKED = replace(seen(instance()), desired_size=0)
FENCED = seen(instance(), fence=fence())
STRANGE = replace(seen(instance(ours=False)), desired_size=0)
ENDED = replace(seen(instance(), fence=fence(state="terminating")), desired_size=0)


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (None, FENCED, ["the node group wants 1", "i-1 is running", "fence: stopping"]),
        (FENCED, FENCED, []),
        (seen(instance()), seen(instance(state="shutting-down")), ["i-1 is shutting-down"]),
        (PARKED, seen(), ["i-1 is gone"]),
        (seen(), STRANGE, ["i-1 is running, and not ours: it is left alone"]),
        (FENCED, ENDED, ["the node group wants 0", "fence: terminating"]),
    ],
)
def test_what_differs_between_two_looks_is_said(before, after, lines):
    assert list(list_changes(before, after)) == lines


def test_one_empty_list_ends_no_following(monkeypatch):
    """EC2 may miss in one list what it listed before, and lists in the next."""
    alive = replace(seen(instance()), desired_size=0)
    empty = seen()
    looks = [alive, empty, alive, empty, empty]
    monkeypatch.setattr("tandem.guard.fleet_changes.observe_fleet", lambda *_: looks.pop(0))

    lines = [
        line
        for _, line in follow_fleet(
            None, build_guard_config(SPOT), lambda: NOW, lambda _: None, previous=alive
        )
    ]  # type: ignore[arg-type]

    assert (looks, lines) == ([], ["i-1 is gone", "i-1 is running", "i-1 is gone"])


def test_a_blind_look_between_two_empty_ones_counts_anew(monkeypatch):
    looks = [seen(), replace(seen(), unknown={"instances": "denied"}), seen(), seen()]
    monkeypatch.setattr("tandem.guard.fleet_changes.observe_fleet", lambda *_: looks.pop(0))

    list(follow_fleet(None, build_guard_config(SPOT), lambda: NOW, lambda _: None))  # type: ignore[arg-type]

    assert looks == []
