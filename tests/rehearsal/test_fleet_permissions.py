"""What a policy about node groups and their instances is held against, where policies bind."""

from __future__ import annotations

import itertools

import pytest
from doubles.aws_principal import create_principal
from twin_fleet import TwinFleet

from rehearsal.aws.fleet_behavior import FleetBehavior

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]

_NUMBER = itertools.count()
DENIED = "AccessDeniedException"


class PermittedFleet(TwinFleet):
    """A node group whose policies bind."""

    def running(self):
        """Return the ids of the instances that run."""
        return [row["InstanceId"] for row in self.instances() if row["State"]["Name"] == "running"]


@pytest.fixture
def fleet(enforcing):
    """A raised node group and its instance, made by the account itself."""
    enforcing.set_fleet(FleetBehavior(start_delay_s=0.1, stop_delay_s=0.1))
    result = PermittedFleet(enforcing, f"permitted-{next(_NUMBER)}")
    result.make(tags={"team": "blue"})
    result.raise_to(1)
    yield result
    enforcing.set_fleet()


def allowed(action, resource, **condition):
    return {
        "Effect": "Allow",
        "Action": action,
        "Resource": resource,
        **({"Condition": {"StringEquals": condition}} if condition else {}),
    }


def who_may_terminate(fleet, key):
    """The EC2 client of somebody who may end the instances whose tag names the cluster."""
    statement = allowed("ec2:TerminateInstances", "*", **{key: fleet.name})
    return create_principal(fleet.endpoint, statement).client("ec2")


@pytest.mark.parametrize("resource", ["cluster/{name}", "nodegroup/{name}/other/*"])
def test_rejects_a_call_about_another_node_group_than_the_policy_names(fleet, refusal, resource):
    arn = f"arn:aws:eks:us-east-2:{fleet.endpoint.account}:{resource.format(name=fleet.name)}"
    somebody = create_principal(fleet.endpoint, allowed("eks:UpdateNodegroupConfig", arn)).client(
        "eks"
    )
    code = refusal(
        somebody.update_nodegroup_config, **fleet.identity, scalingConfig={"desiredSize": 0}
    )
    assert (code, len(fleet.running())) == (DENIED, 1)


def test_a_node_group_may_be_allowed_by_its_tag(fleet, refusal):
    ours, others = (
        create_principal(
            fleet.endpoint,
            allowed("eks:UpdateNodegroupConfig", "*", **{"aws:ResourceTag/team": team}),
        ).client("eks")
        for team in ("blue", "red")
    )

    code = refusal(
        others.update_nodegroup_config, **fleet.identity, scalingConfig={"desiredSize": 0}
    )

    assert code == DENIED
    assert ours.update_nodegroup_config(**fleet.identity, scalingConfig={"desiredSize": 0})[
        "update"
    ]


@pytest.mark.parametrize(
    "key", ["aws:ResourceTag/eks:cluster-name", "ec2:ResourceTag/eks:cluster-name"]
)
def test_an_instance_may_be_terminated_where_the_policy_names_its_tag(fleet, key):
    somebody = who_may_terminate(fleet, key)
    [instance] = fleet.running()

    [answer] = somebody.terminate_instances(InstanceIds=[instance])["TerminatingInstances"]

    assert answer["CurrentState"]["Name"] == "shutting-down"
