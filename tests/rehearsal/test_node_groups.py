"""Fleets with machines behind them: what EC2 lists when a node group is raised, lowered, broken or
deleted."""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from twin_fleet import TwinFleet
from twin_looking import until
from twin_resources import launch_template, nodegroup

from rehearsal.aws.endpoint import AwsEndpoint
from rehearsal.aws.fleet_behavior import FleetBehavior

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint"), pytest.mark.proof]

QUICK = FleetBehavior(start_delay_s=0.1, stop_delay_s=0.1)
FROZEN = FleetBehavior(start_delay_s=3600, stop_delay_s=3600)
_NUMBER = itertools.count()


@pytest.fixture(autouse=True)
def quick(endpoint):
    endpoint.set_fleet(QUICK)
    yield
    endpoint.set_fleet()


class DeployedFleet(TwinFleet):
    """A node group of a stack."""

    def __init__(self, endpoint, stack, name):
        super().__init__(endpoint, name)
        self.stack = stack

    def update(self, answer):
        """Return the state of an update."""
        return self.eks.describe_update(
            name=self.name, nodegroupName="fleet", updateId=answer["id"]
        )["update"]["status"]


@pytest.fixture
def group(endpoint, deploy):
    """A new node group named fleet, and what AWS says of it."""

    def act(**more):
        name = f"fleet-{next(_NUMBER)}"
        stack = deploy(
            {**nodegroup(name, **more), "Template": launch_template("cr-0123456789abcdef0")}
        )
        assert (stack.status, stack.reasons) == ("CREATE_COMPLETE", [])
        return DeployedFleet(endpoint, stack, name)

    return act


# updates


def test_an_update_is_in_progress_until_the_instances_run(endpoint, group):
    fleet = group()
    endpoint.set_fleet(FROZEN)
    update = fleet.scale(1)
    before = fleet.update(update)
    endpoint.set_fleet(replace(FROZEN, clock_offset_s=3601))

    assert (before, fleet.states(), fleet.update(update)) == (
        "InProgress",
        ["running"],
        "Successful",
    )


def test_a_deploy_that_touches_a_raised_node_group_terminates_its_instances(group, deploy):
    fleet = group()
    fleet.raise_to(2)
    resources = {
        **nodegroup(fleet.name, Labels={"new": "label"}),
        "Template": launch_template("cr-0123456789abcdef0"),
    }
    deploy(resources, fleet.stack.name, update=True)

    assert until(fleet.states, []) == []
    assert fleet.size() == 0


# what an instance says of itself


@pytest.fixture
def from_template(group):
    """A raised node group with a launch template of its own."""
    template = {
        "Id": {"Ref": "Template"},
        "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]},
    }
    fleet = group(CapacityType="CAPACITY_BLOCK", LaunchTemplate=template)
    fleet.raise_to(1)
    return fleet


def test_an_instance_is_of_the_launch_template_type_and_reservation(from_template):
    [instance] = from_template.instances()
    assert instance["InstanceType"] == "trn2.48xlarge"
    assert instance["InstanceLifecycle"] == "capacity-block"
    assert instance["CapacityReservationId"] == "cr-0123456789abcdef0"


# the Auto Scaling group


def held(fleet, *processes):
    fleet.scaling.suspend_processes(
        AutoScalingGroupName=fleet.group_name(), ScalingProcesses=list(processes)
    )


def resized(fleet, **sizes):
    fleet.scaling.update_auto_scaling_group(AutoScalingGroupName=fleet.group_name(), **sizes)


def described(fleet):
    [auto_scaling_group] = fleet.scaling.describe_auto_scaling_groups(
        AutoScalingGroupNames=[fleet.group_name()]
    )["AutoScalingGroups"]
    return auto_scaling_group


def test_an_ended_instance_says_when_it_began_to_end(group):
    fleet = group()
    fleet.raise_to(1)
    [instance] = fleet.instances()
    fleet.scale(0)
    until(fleet.states, [])
    [reservation] = fleet.ec2.describe_instances(InstanceIds=[instance["InstanceId"]])[
        "Reservations"
    ]

    assert re.fullmatch(
        r"User initiated \(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d GMT\)",
        reservation["Instances"][0]["StateTransitionReason"],
    )


def test_no_instance_starts_while_launches_are_suspended_whatever_eks_wants(group):
    fleet = group()
    held(fleet, "Launch")
    update = fleet.scale(2)
    time.sleep(0.3)

    assert (fleet.states(), described(fleet)["DesiredCapacity"], fleet.update(update)) == (
        [],
        2,
        "InProgress",
    )


def test_resumed_launches_bring_what_is_wanted(group):
    fleet = group()
    held(fleet, "Launch")
    fleet.scale(1)
    fleet.scaling.resume_processes(
        AutoScalingGroupName=fleet.group_name(), ScalingProcesses=["Launch"]
    )

    assert until(fleet.states, ["running"]) == ["running"]
    assert described(fleet)["SuspendedProcesses"] == []


def test_an_auto_scaling_group_at_0_ends_its_instances_while_eks_refuses(endpoint, group):
    fleet = group()
    fleet.raise_to(2)
    endpoint.set_fleet(replace(QUICK, refuses_update=True))
    resized(fleet, MinSize=0, DesiredCapacity=0)

    assert until(fleet.states, []) == []
    assert fleet.size() == 0


# deletion


def test_a_node_group_is_deleting_until_its_instances_are_gone(endpoint, group, refusal):
    fleet = group()
    fleet.raise_to(1)
    endpoint.set_fleet(FROZEN)
    fleet.eks.delete_nodegroup(**fleet.identity)
    during = fleet.describe()["status"], fleet.states()
    endpoint.set_fleet(replace(FROZEN, clock_offset_s=3601))

    assert during == ("DELETING", ["shutting-down"])
    assert refusal(fleet.eks.describe_nodegroup, **fleet.identity) == "ResourceNotFoundException"
    assert fleet.states() == []


# knobs: each of the tests above is the same without it


def test_without_capacity_no_instance_starts(endpoint, group):
    fleet = group()
    endpoint.set_fleet(replace(QUICK, no_capacity=True))
    update = fleet.scale(2)
    time.sleep(0.3)

    node_group = fleet.describe()

    assert (fleet.instances(), node_group["status"], fleet.update(update)) == (
        [],
        "DEGRADED",
        "InProgress",
    )
    [issue] = node_group["health"]["issues"]
    assert (issue["code"], issue["resourceIds"]) == (
        "AsgInstanceLaunchFailures",
        [fleet.group_name()],
    )
    assert "InsufficientInstanceCapacity" in issue["message"]


@pytest.mark.parametrize(("fault", "size"), [("ignores_request", 1), ("keeps_surplus", 0)])
def test_a_node_stays_with_an_ignored_request_or_a_kept_surplus(endpoint, group, fault, size):
    fleet = group()
    fleet.raise_to(1)
    endpoint.set_fleet(replace(QUICK, **{fault: True}))
    update = fleet.scale(0)
    time.sleep(0.4)

    assert (fleet.states(), fleet.update(update)) == (["running"], "InProgress")
    assert fleet.size() == size


def test_a_refused_update_leaves_the_group_updating_and_as_it_was(endpoint, group, refusal):
    fleet = group()
    fleet.raise_to(1)
    endpoint.set_fleet(replace(QUICK, refuses_update=True))

    code = refusal(
        fleet.eks.update_nodegroup_config, **fleet.identity, scalingConfig={"desiredSize": 0}
    )

    assert (code, fleet.describe()["status"]) == ("ResourceInUseException", "UPDATING")
    assert (fleet.states(), fleet.size()) == (["running"], 1)


def test_a_throttled_update_is_refused_and_changes_nothing(endpoint, group, refusal):
    fleet = group()
    fleet.raise_to(1)
    endpoint.set_fleet(replace(QUICK, throttles=True))

    code = refusal(
        fleet.eks.update_nodegroup_config, **fleet.identity, scalingConfig={"desiredSize": 0}
    )

    assert (code, fleet.describe()["status"], fleet.states()) == (
        "ThrottlingException",
        "ACTIVE",
        ["running"],
    )


def test_the_clock_moves_delays_and_launch_times(endpoint, group):
    fleet = group()
    endpoint.set_fleet(replace(FROZEN, clock_offset_s=7200))
    fleet.scale(1)
    [instance] = fleet.instances()

    assert abs(instance["LaunchTime"] - endpoint.now()) < timedelta(minutes=1)
    assert endpoint.now() - datetime.now(UTC) > timedelta(minutes=119)


def test_instances_can_say_that_they_are_older(endpoint, group):
    fleet = group()
    fleet.raise_to(1)
    endpoint.set_fleet(replace(QUICK, older_s=7200))
    [instance] = fleet.instances()
    endpoint.set_fleet(QUICK)
    [again] = fleet.instances()

    assert instance["LaunchTime"] == again["LaunchTime"] - timedelta(hours=2)


def test_a_reset_forgets_fleets_and_knobs():
    with AwsEndpoint(region="us-east-2") as running:
        running.set_fleet(replace(FROZEN, clock_offset_s=60))
        fleet = TwinFleet(running, "c").make(1)
        before = fleet.states()
        running.reset()

        assert (before, fleet.instances()) == (["pending"], [])
        assert running.read_fleet()["clock_offset_s"] == 0
        assert fleet.scaling.describe_auto_scaling_groups()["AutoScalingGroups"] == []


def test_a_fleet_outlives_a_restart_where_state_is_kept(tmp_path):
    with AwsEndpoint(state_dir=tmp_path / "state") as running:
        fleet = TwinFleet(running, "c").make(1)
        assert until(fleet.states, ["running"]) == ["running"]
        [before] = [instance["InstanceId"] for instance in fleet.instances()]
    with AwsEndpoint(state_dir=tmp_path / "state") as running:
        fleet = TwinFleet(running, "c")
        [after] = [instance["InstanceId"] for instance in fleet.instances()]
        fleet.scale(0)

        assert (after, until(fleet.states, [])) == (before, [])
