"""What follows from one look at the fleet, at the edges of each span of time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from guard_world import START

from tandem.guard.capacity_block import BlockReservation
from tandem.guard.fleet_state import FleetInstance, FleetState
from tandem.guard.lease import Lease

LEASE = Lease(
    run="r1",
    who="anna",
    experiment="first",
    node_label={},
    created=START,
    deadline=START + timedelta(hours=2),
    beats=False,
    schedule="stop-r1",
    nodes=1,
    ending=START,
)


@pytest.mark.parametrize(
    ("minutes", "is_ending"), [(-6, False), (-5, True), (29, True), (30, False)]
)
def test_an_end_counts_from_5_minutes_before_for_30(minutes, is_ending):
    fleet = FleetState(now=START + timedelta(minutes=minutes), lease=LEASE)

    assert fleet.is_ending is is_ending


@pytest.mark.parametrize(("minutes", "live_lease"), [(119, LEASE), (120, None)])
def test_a_lease_is_live_until_its_deadline(minutes, live_lease):
    fleet = FleetState(now=START + timedelta(minutes=minutes), lease=LEASE)

    assert fleet.live_lease == live_lease


@pytest.mark.parametrize(("state", "is_paid"), [("active", True), ("payment-failed", False)])
def test_a_block_that_ec2_calls_inactive_costs_nothing(state, is_paid):
    fleet = FleetState(
        now=START,
        block_starts=START,
        block_ends=START + timedelta(hours=1),
        reservation=BlockReservation(id="cr-0123456789abcdef0", state=state),
    )

    assert fleet.is_block_paid is is_paid


@pytest.mark.parametrize(("has_node_group", "can_scale"), [(None, True), (False, False)])
def test_own_instances_prove_a_group_unless_it_is_gone(has_node_group, can_scale):
    instance = FleetInstance(id="i-1", launched_at=START, state="running", is_ours=True)
    fleet = FleetState(now=START, has_node_group=has_node_group, instances=(instance,))

    assert fleet.can_scale is can_scale
