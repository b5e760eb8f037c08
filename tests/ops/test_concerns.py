"""What of a fleet somebody has to look after: each case alone, and nothing where all is as it
should be."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from fleet_seen import BLOCK, NOW, SPOT, fence, instance, lease, seen, status

from tandem.declarations.environment import CapacityBlock
from tandem.guard.capacity_block import BlockReservation, BlockWindow
from tandem.ops.status_warnings import list_warnings
from tandem.ops.stop_paths import StopPath

PAID = {
    "CapacityReservationId": "cr-0123456789abcdef0",
    "State": "active",
    "StartDate": NOW - timedelta(hours=2),
    "EndDate": NOW + timedelta(hours=20),
    "TotalInstanceCount": 1,
    "AvailableInstanceCount": 1,
}
WINDOW = BlockWindow(starts=PAID["StartDate"], ends=PAID["EndDate"])
PLAN = BlockWindow(starts=NOW - timedelta(hours=2), ends=NOW + timedelta(hours=22))
DECLARED_BLOCK = CapacityBlock(starts=PLAN.starts, ends=PLAN.ends)
DECLARED = BLOCK.model_copy(
    update={"capacity": BLOCK.capacity.model_copy(update={"block": DECLARED_BLOCK})}
)
MOVED = seen(
    reservation_id=PAID["CapacityReservationId"],
    planned_window=PLAN,
    reservation=BlockReservation(id=PAID["CapacityReservationId"], state="active", window=WINDOW),
)
SILENT = StopPath(name="reaper", state="unarmed", sentence="silent")


@pytest.mark.parametrize(
    "report",
    [
        status(seen()),
        status(seen(instance(), lease=lease())),
        status(seen(fence=fence(state="stopped"))),
        status(seen(fence=fence(state="lifted"))),
        status(seen(instance(), lease=lease()), BLOCK, reservation=PAID),
        status(seen(), deployment="nothing", paths=()),
        status(replace(seen(instance(ours=False)), has_owner_tag=False)),
    ],
    ids=[
        "parked",
        "leased",
        "fenced and gone",
        "lifted",
        "a block in use",
        "not deployed",
        "another's",
    ],
)
def test_nothing_needs_attention(report):
    assert list_warnings(report) == ()


@pytest.mark.parametrize(
    ("report", "problem"),
    [
        (status(seen(instance())), "i-1: alive without a live lease"),
        (status(seen(instance(), lease=lease(minutes=-1))), "the lease of run r1 ends"),
        (
            status(seen(instance(), lease=lease(), fence=fence())),
            "a stop is under way and 1 of its",
        ),
        (
            status(seen(instance(minutes=90), lease=lease(), fence=fence(minutes=60))),
            "the stop is failing: i-1",
        ),
        (status(seen(instance(minutes=600), lease=lease())), "older than 8 hours"),
        (status(seen(instance(), lease=lease()), paths=(SILENT,)), "reaper stops nothing: silent"),
        (
            status(replace(seen(lease=lease()), desired_size=64)),
            "the node group wants 64 nodes and has 0, and the lease",
        ),
        (
            status(replace(seen(), capacity_kind="capacity-block")),
            "is of capacity-block, the file declares spot",
        ),
        (status(replace(seen(), desired_size=1)), "the node group wants 1 without a live lease"),
        (
            status(replace(seen(), faults=("stop.json: not understood",))),
            "stop.json: not understood",
        ),
        (
            status(seen(), node_group={"health": {"issues": [{"code": "AsgInstanceLaunch"}]}}),
            "AsgInstanceLaunch",
        ),
        (status(seen(), BLOCK, reservation=PAID), "is paid for and nothing runs on it"),
        (
            status(seen(instance(), fence=fence()), BLOCK, reservation=PAID),
            "is paid for and nothing runs on it",
        ),
        (status(seen(), BLOCK), "EC2 knows no cr-0123456789abcdef0"),
        (
            status(seen(reservation_id="cr-00000000000000001"), BLOCK, reservation=PAID),
            "the file names cr-0123456789",
        ),
        (
            status(MOVED, DECLARED, reservation=PAID),
            "capacity.block says 2026-11-21T10:00:00Z to 2026-11-22T10:00:00Z",
        ),
        (
            status(MOVED, DECLARED, reservation=PAID),
            "the reaper stops the fleet at 2026-11-22T09:15:00Z",
        ),
        (status(seen(), alarms=("post-us-east-2-too-old",)), "post-us-east-2-too-old is in ALARM"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_needs_attention(report, problem):
    warnings = [warning for warning in list_warnings(report) if problem in warning.problem]
    assert warnings
    assert all(warning.change for warning in warnings)


@pytest.mark.parametrize(
    ("region", "change"), [("us-east-2", "deploy the stack Guard"), ("eu-north-1", "by hand")]
)
def test_missing_budget_is_made_by_a_deploy_or_by_hand(region, change):
    missing = StopPath(name="budget", state="unarmed", sentence="missing")
    report = status(seen(), SPOT.model_copy(update={"region": region}), paths=(missing,))

    (concern,) = list_warnings(report)

    assert change in concern.change
    assert ("deploy" in concern.change) is (region == "us-east-2")


@pytest.mark.parametrize("source", ["lease", "fence"])
def test_an_unknown_lease_is_not_told_as_none(source):
    report = status(
        replace(seen(instance()), unknown={source: "denied"}), unknown={source: "denied"}
    )
    assert [
        warning for warning in list_warnings(report) if "without a live lease" in warning.problem
    ] == []


def test_block_of_unknown_instances_is_not_idle():
    report = status(seen(), BLOCK, reservation=PAID, unknown={"instances": "denied"})
    assert report.is_block_idle is False


@pytest.mark.parametrize(
    "changes",
    [{"State": "scheduled"}, {"StartDate": NOW + timedelta(hours=1)}, {"EndDate": NOW}],
    ids=str,
)
def test_a_block_that_is_not_active_is_not_idle(changes):
    assert status(seen(), BLOCK, reservation=PAID | changes).is_block_idle is False


def test_money_is_of_each_instance_since_its_own_launch():
    report = status(seen(instance("i-1", minutes=90), instance("i-2", minutes=30)))
    assert (report.node_hours, report.cost_usd) == (2.0, pytest.approx(2 * 35.76))


def test_an_instance_launched_by_a_faster_clock_costs_nothing_yet():
    assert status(seen(instance(minutes=-5))).cost_usd == 0
