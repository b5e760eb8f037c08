"""Who may hold and resume the node group's Auto Scaling group, at the local AWS endpoint, where
policies bind."""

from __future__ import annotations

from typing import Any

import pytest
from assemblies import changed, environment
from botocore.exceptions import ClientError
from doubles.aws_principal import create_principal
from twin_fleet import TwinFleet

from rehearsal.aws.endpoint import AwsEndpoint
from stacks.guard_rights import list_function_statements
from tandem.declarations import names
from tandem.declarations.names import PeopleKind
from tandem.ops.people.policies import build_policy

pytestmark = [pytest.mark.cdk, pytest.mark.endpoint, pytest.mark.xdist_group("scaling-rights")]

ACCOUNT = "333344445555"
REGION = "us-east-2"
PLACE = changed(environment("post-us-east-2"), account=ACCOUNT)
ZERO = {"MinSize": 0, "DesiredCapacity": 0}


@pytest.fixture(scope="module")
def account():
    """The environment's cluster with its node group and one of another tool; neither has an
    instance."""
    with AwsEndpoint(
        account=ACCOUNT, region=REGION, enforces_policies=True, report=lambda _: None
    ) as endpoint:
        own = TwinFleet(endpoint, names.cluster_name(PLACE), names.node_group_name(PLACE)).make()
        TwinFleet(endpoint, own.name, "other").add_group(own.describe()["nodeRole"])
        yield endpoint


def scaling_group(account: AwsEndpoint, node_group: str) -> str:
    return TwinFleet(account, names.cluster_name(PLACE), node_group).group_name()


def function(account: AwsEndpoint, service: str) -> Any:
    """A client with the rights of the guard's functions."""
    arn = f"arn:aws:sns:{REGION}:{ACCOUNT}:{names.topic_name(PLACE)}"
    statements = list_function_statements(
        PLACE, topic_arn=arn, key_arn=f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1"
    )
    return create_principal(account, *statements).client(service)


def person(account: AwsEndpoint, kind: PeopleKind) -> Any:
    return create_principal(account, *build_policy(PLACE, kind)["Statement"]).client("autoscaling")


def is_denied(call: Any, **request: Any) -> bool:
    try:
        call(**request)
    except ClientError as error:
        if "AccessDenied" not in error.response["Error"]["Code"]:
            raise
        return True
    return False


@pytest.mark.parametrize(
    ("node_group", "refusal"), [(names.node_group_name(PLACE), False), ("other", True)]
)
def test_a_function_holds_the_auto_scaling_group_of_its_node_group_alone(
    account, node_group, refusal
):
    scaling = function(account, "autoscaling")
    name = scaling_group(account, node_group)
    assert (
        is_denied(scaling.suspend_processes, AutoScalingGroupName=name, ScalingProcesses=["Launch"])
        == refusal
    )
    assert (
        is_denied(scaling.update_auto_scaling_group, AutoScalingGroupName=name, **ZERO) == refusal
    )
    assert is_denied(scaling.resume_processes, AutoScalingGroupName=name)


@pytest.mark.parametrize(
    ("kind", "refusal"), [("viewer", True), ("engineer", True), ("operator", False)]
)
def test_an_operator_alone_resumes_launches_and_of_this_node_group_alone(account, kind, refusal):
    somebody = person(account, kind)
    own, result = (scaling_group(account, name) for name in (names.node_group_name(PLACE), "other"))
    assert is_denied(somebody.resume_processes, AutoScalingGroupName=own) == refusal
    assert is_denied(somebody.resume_processes, AutoScalingGroupName=result)
