"""Edges of the checks before a start, which a whole start does not show."""

from __future__ import annotations

from datetime import timedelta

import pytest
from guard_world import GUARDED, SCALING_GROUP, START

from tandem.errors import InputError
from tandem.guard.capacity_block import BlockReservation, BlockWindow
from tandem.guard.fleet_state import FleetState
from tandem.guard.start_checks import require_launch_process, require_window

BLOCK_ENDS = START + timedelta(hours=4)
BLOCK_FLEET = FleetState(
    now=START,
    capacity_kind="capacity-block",
    reservation=BlockReservation(
        id="cr-0123456789abcdef0",
        state="active",
        window=BlockWindow(starts=START, ends=BLOCK_ENDS),
    ),
)


def test_a_lease_may_last_from_the_blocks_start_to_its_margin():
    require_window(GUARDED, BLOCK_FLEET, BLOCK_ENDS - timedelta(minutes=45))


def test_a_lease_one_second_into_the_margin_is_refused():
    deadline = BLOCK_ENDS - timedelta(minutes=44, seconds=59)

    with pytest.raises(InputError, match="fewer hours"):
        require_window(GUARDED, BLOCK_FLEET, deadline)


def test_only_suspended_launches_keep_a_start_away(world):
    world.suspended = {"AZRebalance"}
    fleet = FleetState(now=START, scaling_groups=(SCALING_GROUP,))

    require_launch_process(world.clients, GUARDED, fleet)
