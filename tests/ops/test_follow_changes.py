"""What a follower of a stop says between two looks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fleet_seen import NOW, SPOT, fence, instance, seen

from tandem.ops.guard_config import build_guard_config
from tandem.ops.stop_progress import follow_stop, list_changes


def test_the_first_look_says_all() -> None:
    assert list(list_changes(None, seen(instance(), fence=fence()))) == [
        "node group wants now 1, at least 0", "i-1 is running", "fence: stopping",
    ]  # fmt: skip


def test_the_same_look_says_nothing() -> None:
    look = seen(instance(), fence=fence())

    assert list(list_changes(look, look)) == []


def test_a_state_that_changed_is_said() -> None:
    before, after = seen(instance()), seen(instance(state="shutting-down"))

    assert list(list_changes(before, after)) == ["i-1 is shutting-down"]


def test_what_ec2_lists_no_more_is_gone() -> None:
    before, after = replace(seen(instance()), desired_size=0), seen()

    assert list(list_changes(before, after)) == ["i-1 is gone"]


def test_an_instance_of_somebody_else_is_said_to_be_left_alone() -> None:
    assert list(list_changes(seen(), replace(seen(instance(ours=False)), desired_size=0))) == [
        "i-1 is running, and not ours: it is left alone",
    ]  # fmt: skip


def test_a_size_and_a_fence_that_changed_are_said() -> None:
    before, after = seen(instance(), fence=fence()), seen(instance(), fence=fence(state="terminating"))

    assert list(list_changes(before, replace(after, desired_size=0))) == [
        "node group wants 0, at least 0", "fence: terminating",
    ]  # fmt: skip


def test_one_empty_list_ends_no_following(monkeypatch: pytest.MonkeyPatch) -> None:
    """EC2 may miss in one list what it listed before, and lists in the next."""
    alive, empty = replace(seen(instance()), desired_size=0), seen()
    looks = [alive, empty, alive, empty, empty]
    monkeypatch.setattr("tandem.ops.stop_progress.fleet_stop.observe_fleet", lambda *_: looks.pop(0))
    monkeypatch.setattr("tandem.ops.stop_progress.time.sleep", lambda _: None)

    told = [line for _, line in follow_stop(None, build_guard_config(SPOT), lambda: NOW, alive)]  # type: ignore[arg-type]

    assert (looks, told) == ([], ["i-1 is gone", "i-1 is running", "i-1 is gone"])


def test_a_blind_look_between_two_empty_ones_counts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [seen(), replace(seen(), unknown={"instances": "denied"}), seen(), seen()]
    monkeypatch.setattr("tandem.ops.stop_progress.fleet_stop.observe_fleet", lambda *_: looks.pop(0))
    monkeypatch.setattr("tandem.ops.stop_progress.time.sleep", lambda _: None)

    list(follow_stop(None, build_guard_config(SPOT), lambda: NOW))  # type: ignore[arg-type]

    assert looks == []
