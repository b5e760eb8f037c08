"""Capacity Blocks at the local endpoint: EC2's word, extensions, and what EKS and EC2 do before the
end."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from twin_fleet import TwinFleet
from twin_looking import until
from twin_resources import launch_template

from rehearsal.aws.capacity_block import BlockExtension, CapacityBlock
from rehearsal.aws.endpoint import AwsEndpoint
from rehearsal.aws.fleet_behavior import FleetBehavior

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("capacity-blocks"), pytest.mark.proof]

NOW = datetime.now(UTC).replace(microsecond=0)
QUICK = FleetBehavior(start_delay_s=0.1, stop_delay_s=0.1)
BLOCK = CapacityBlock(starts=NOW - timedelta(hours=1), ends=NOW + timedelta(hours=23))
EXTENSION = BlockExtension(ends=BLOCK.ends + timedelta(days=1), purchased=NOW)
EKS_ACTION_NAME = "Amazon EKS Node Group Capacity Scaledown Before Reservation End"
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def shared():
    with AwsEndpoint(region="us-east-2") as running:
        yield running


@pytest.fixture
def endpoint(shared):
    shared.set_fleet(QUICK)
    yield shared
    shared.set_fleet(QUICK)


class Fleet(TwinFleet):
    """A node group of its own reservation, and what AWS says of it."""

    def __init__(self, endpoint: AwsEndpoint, block: CapacityBlock = BLOCK) -> None:
        number = next(_NUMBERS)
        super().__init__(endpoint, f"fleet-{number}")
        self.id = f"cr-{number:017x}"
        self.become(block)
        template = self.ec2.create_launch_template(
            LaunchTemplateName=self.name,
            LaunchTemplateData=launch_template(self.id)["Properties"]["LaunchTemplateData"],
        )["LaunchTemplate"]
        self.make(
            capacityType="CAPACITY_BLOCK", launchTemplate={"id": template["LaunchTemplateId"]}
        )

    def become(self, block: CapacityBlock) -> None:
        self.endpoint.set_blocks({self.id: block})

    def reservation(self) -> tuple[str, datetime]:
        [row] = self.ec2.describe_capacity_reservations(CapacityReservationIds=[self.id])[
            "CapacityReservations"
        ]
        return row["State"], row["EndDate"]

    def status(self) -> str:
        return str(self.describe()["status"])

    def scale_downs(self) -> list[datetime]:
        answer = self.scaling.describe_scheduled_actions(
            AutoScalingGroupName=self.group_name(), ScheduledActionNames=[EKS_ACTION_NAME]
        )
        return [action["StartTime"] for action in answer["ScheduledUpdateGroupActions"]]

    def pass_time(self, until_moment: datetime) -> None:
        offset_s = max((until_moment - datetime.now(UTC)).total_seconds(), 0)
        self.endpoint.set_fleet(replace(QUICK, clock_offset_s=offset_s))


def test_a_block_is_scheduled_before_its_start_and_launches_nothing(endpoint):
    fleet = Fleet(endpoint, replace(BLOCK, starts=NOW + timedelta(hours=1)))
    fleet.scale(1)
    assert (fleet.reservation()[0], until(fleet.status, "DEGRADED"), fleet.states()) == (
        "scheduled",
        "DEGRADED",
        [],
    )


@pytest.mark.parametrize(
    ("status", "ends"),
    [
        ("payment-failed", BLOCK.ends),
        ("payment-succeeded", EXTENSION.ends),
    ],
)
def test_only_a_paid_extension_moves_the_end_of_the_same_id(endpoint, status, ends):
    fleet = Fleet(endpoint)
    fleet.become(replace(BLOCK, extensions=(replace(EXTENSION, status=status),)))
    history = fleet.ec2.describe_capacity_block_extension_history(CapacityReservationIds=[fleet.id])
    [row] = history["CapacityBlockExtensions"]

    assert fleet.reservation() == ("active", ends)
    assert (row["CapacityBlockExtensionStatus"], row["CapacityBlockExtensionEndDate"]) == (
        status,
        EXTENSION.ends,
    )


def test_eks_plans_its_scale_down_once_and_leaves_it_where_it_is(endpoint):
    fleet = Fleet(endpoint)
    first_moments = until(fleet.scale_downs, [BLOCK.ends - timedelta(minutes=40)])
    fleet.become(replace(BLOCK, extensions=(replace(EXTENSION, status="payment-succeeded"),)))

    assert first_moments == fleet.scale_downs() == [BLOCK.ends - timedelta(minutes=40)]


def test_eks_empties_the_group_40_minutes_before_the_end(endpoint):
    fleet = Fleet(endpoint)
    fleet.scale(1)
    running = until(fleet.states, ["running"])
    fleet.pass_time(BLOCK.ends - timedelta(minutes=40))

    assert (running, until(fleet.states, []), fleet.scale_downs()) == (["running"], [], [])


def test_ec2_takes_the_instances_30_minutes_before_an_end_that_comes_early(endpoint):
    fleet = Fleet(endpoint)
    fleet.scale(1)
    running = until(fleet.states, ["running"])
    fleet.become(replace(BLOCK, ends=NOW + timedelta(minutes=29)))

    assert (running, until(fleet.states, [])) == (["running"], [])
    assert len(fleet.scale_downs()) == 1
