"""What a release writes, and a release of nothing."""

from __future__ import annotations

import pytest
from guard_world import GUARDED

from tandem.errors import InputError
from tandem.guard.fence import FENCE_KEY
from tandem.guard.lease import lease_key
from tandem.guard.release import release_fence


def test_without_a_fence_nothing_is_released(world):
    with pytest.raises(InputError, match="there is no fence"):
        release_fence(world.clients, GUARDED, who="berta", now=world.now)


def test_a_lifted_fence_says_who_and_keeps_the_stops_reason(world, halt):
    halt(why="too dear")
    release_fence(world.clients, GUARDED, who="berta", now=world.now)
    fence = world.read(FENCE_KEY)

    assert (fence["who"], "too dear" in fence["why"]) == ("berta", True)


def test_a_release_keeps_the_moment_since_which_a_lease_ends(world, start, halt, passes):
    start("r1", hours=8)
    first_ending = world.now.isoformat()
    world.change(lease_key("r1"), ending=first_ending)
    halt()
    passes(10)
    release_fence(world.clients, GUARDED, who="berta", now=world.now)

    assert world.read(lease_key("r1"))["ending"] == first_ending
