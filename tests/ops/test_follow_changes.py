"""What a follower of a stop says between two looks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fleet_seen import NOW, SPOT, fence, instance, seen

from tandem.ops.follow import changes, follow
from tandem.ops.guarded import guarded


def test_the_first_look_says_all() -> None:
    assert list(changes(None, seen(instance(), fence=fence()))) == [
        "node group wants now 1, at least 0", "i-1 is running", "fence: stopping",
    ]  # fmt: skip


def test_the_same_look_says_nothing() -> None:
    look = seen(instance(), fence=fence())

    assert list(changes(look, look)) == []


def test_a_state_that_changed_is_said() -> None:
    before, after = seen(instance()), seen(instance(state="shutting-down"))

    assert list(changes(before, after)) == ["i-1 is shutting-down"]


def test_what_ec2_lists_no_more_is_gone() -> None:
    before, after = replace(seen(instance()), desired=0), seen()

    assert list(changes(before, after)) == ["i-1 is gone"]


def test_an_instance_of_somebody_else_is_said_to_be_left_alone() -> None:
    assert list(changes(seen(), replace(seen(instance(ours=False)), desired=0))) == [
        "i-1 is running, and not ours: it is left alone",
    ]  # fmt: skip


def test_a_size_and_a_fence_that_changed_are_said() -> None:
    before, after = seen(instance(), fence=fence()), seen(instance(), fence=fence(state="terminating"))

    assert list(changes(before, replace(after, desired=0))) == [
        "node group wants 0, at least 0", "fence: terminating",
    ]  # fmt: skip


def test_one_empty_list_ends_no_following(monkeypatch: pytest.MonkeyPatch) -> None:
    """EC2 may miss in one list what it listed before, and lists in the next."""
    alive, empty = replace(seen(instance()), desired=0), seen()
    looks = [alive, empty, alive, empty, empty]
    monkeypatch.setattr("tandem.ops.follow.stop.look", lambda *_: looks.pop(0))
    monkeypatch.setattr("tandem.ops.follow.time.sleep", lambda _: None)

    told = [line for _, line in follow(None, guarded(SPOT), lambda: NOW, alive)]  # type: ignore[arg-type]

    assert (looks, told) == ([], ["i-1 is gone", "i-1 is running", "i-1 is gone"])


def test_a_blind_look_between_two_empty_ones_counts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [seen(), replace(seen(), unknown={"instances": "denied"}), seen(), seen()]
    monkeypatch.setattr("tandem.ops.follow.stop.look", lambda *_: looks.pop(0))
    monkeypatch.setattr("tandem.ops.follow.time.sleep", lambda _: None)

    list(follow(None, guarded(SPOT), lambda: NOW))  # type: ignore[arg-type]

    assert looks == []
