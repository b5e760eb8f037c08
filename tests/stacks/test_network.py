"""Network: places by id, ways out, endpoints, flow logs."""

from __future__ import annotations

import re
from ipaddress import IPv4Network
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from assemblies import (
    KEY,
    Synth,
    Template,
    Templates,
    changed,
    environment,
    resources,
    synth_alone,
    templates,
)

from stacks.network import NetworkStack, SubnetUse, compute_subnet_range
from tandem.declarations.interface_endpoints import list_endpoint_services
from tandem.declarations.network_settings import NewNetwork
from tandem.ops.people.rights import RUNNER_RIGHTS

pytestmark = pytest.mark.cdk

ZONE_NAME = re.compile(r"\b[a-z]{2}(-[a-z]+)+-\d[a-z]\b")


@pytest.fixture(scope="session")
def network(stacks: Templates) -> Template:
    return stacks["post-us-east-2-Network"]


def private_subnets(template: Template) -> list[dict[str, object]]:
    return [
        subnet
        for subnet in resources(template, "AWS::EC2::Subnet")
        if "private" in str(subnet["Tags"])
    ]


def test_subnets_stand_in_the_declared_zones_by_id(network: Template) -> None:
    zones = [subnet["AvailabilityZoneId"] for subnet in private_subnets(network)]
    assert zones == ["use2-az1", "use2-az2", "use2-az3"]


def test_no_template_holds_a_zone_name(stacks: Templates) -> None:
    assert [stack for stack, template in stacks.items() if ZONE_NAME.search(str(template))] == []


@pytest.mark.parametrize(
    ("variant", "gateways"), [("closed", 0), ("capacity-block", 1), ("nat-per-zone", 3)], ids=str
)
def test_nat_gateways_are_as_many_as_declared(
    stacks: Templates, variant: str, gateways: int
) -> None:
    assert len(resources(stacks[f"{variant}-Network"], "AWS::EC2::NatGateway")) == gateways


@pytest.mark.parametrize(("declared", "zone"), [(None, "use2-az1"), ("use2-az2", "use2-az2")])
def test_a_single_gateway_stands_in_its_own_zone_or_the_first(
    declared: str | None, zone: str
) -> None:
    network = changed(environment("post-us-east-2"), network={"nat_zone": declared}).network
    assert isinstance(network, NewNetwork)
    assert network.nat_zones == (zone,)


def test_the_control_plane_has_a_subnet_in_each_of_the_first_two_zones(network: Template) -> None:
    subnets = [
        subnet
        for subnet in resources(network, "AWS::EC2::Subnet")
        if "control-plane" in str(subnet["Tags"])
    ]
    assert [subnet["AvailabilityZoneId"] for subnet in subnets] == ["use2-az1", "use2-az2"]


def test_routes_back_from_the_control_plane_are_those_of_its_zone(network: Template) -> None:
    """A route to a peering or a VPN stands in the private subnet's table alone."""
    tables: dict[str, set[str]] = {}
    for association in resources(network, "AWS::EC2::SubnetRouteTableAssociation"):
        subnet = network["Resources"][association["SubnetId"]["Ref"]]["Properties"]
        zone = subnet["AvailabilityZoneId"]
        if "public" not in str(subnet["Tags"]):
            tables.setdefault(zone, set()).add(association["RouteTableId"]["Ref"])
    assert {zone: len(ids) for zone, ids in tables.items()} == {
        "use2-az1": 1,
        "use2-az2": 1,
        "use2-az3": 1,
    }


def test_a_closed_network_has_no_way_to_the_internet(stacks: Templates) -> None:
    closed = stacks["closed-Network"]
    assert (
        resources(closed, "AWS::EC2::InternetGateway") + resources(closed, "AWS::EC2::Route") == []
    )


def test_every_private_subnet_has_the_free_way_to_s3(network: Template) -> None:
    (gateway,) = [
        found
        for found in resources(network, "AWS::EC2::VPCEndpoint")
        if found["VpcEndpointType"] == "Gateway"
    ]

    assert gateway["ServiceName"] == "com.amazonaws.us-east-2.s3"
    assert len(gateway["RouteTableIds"]) == 3


def services(template: Template) -> set[str]:
    found = resources(template, "AWS::EC2::VPCEndpoint")
    return {
        each["ServiceName"].partition("us-east-2.")[2]
        for each in found
        if each["VpcEndpointType"] == "Interface"
    }


def test_nodes_reach_the_services_of_a_private_cluster_inside_the_vpc(stacks: Templates) -> None:
    wanted = {"ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "logs", "monitoring", "sts"}
    # what the runner calls where nothing leads out
    of_the_guard = {"autoscaling", "lambda", "scheduler", "sns"}
    assert services(stacks["closed-Network"]) == wanted | of_the_guard


# prefix of the actions -> last part of the endpoint, where they differ
ENDPOINTS = {"cloudwatch": "monitoring"}


@pytest.mark.parametrize("delivery", ["post-us-east-2", "native-us-east-2"], ids=["cdk", "gitops"])
def test_the_runner_reaches_each_service_that_it_may_call_where_nothing_leads_out(
    delivery: str,
) -> None:
    closed = changed(
        environment("post-us-east-2"),
        network={"nat": "none"},
        delivery=environment(delivery).delivery,
    )
    prefixes = {right.action.partition(":")[0] for right in RUNNER_RIGHTS if right.action}
    elsewhere = {
        "s3",  # by its gateway
        "budgets",  # no endpoint anywhere
        "iam",  # PassRole is no call
        "kms",  # called by S3 and SNS
    }
    needed = {ENDPOINTS.get(prefix, prefix) for prefix in prefixes - elsewhere}
    assert needed - set(list_endpoint_services(closed)) == set()


@pytest.mark.parametrize(("secret", "reached"), [("tandem/hub-token", True), (None, False)])
def test_only_a_declared_secret_has_an_endpoint(secret: str | None, *, reached: bool) -> None:
    closed = changed(
        environment("post-us-east-2"), network={"nat": "none"}, hub={"token_secret": secret}
    )
    assert ("secretsmanager" in list_endpoint_services(closed)) is reached


@pytest.mark.parametrize("name", ["post-us-east-2", "native-us-east-2", "nat-per-zone"])
def test_where_a_nat_leads_out_no_endpoint_is_paid_for(stacks: Templates, name: str) -> None:
    assert services(stacks[f"{name}-Network"]) == set()


@pytest.mark.parametrize("key", [KEY, None], ids=["declared", "none"])
def test_flow_logs_have_the_declared_key(tmp_path: Path, key: str | None) -> None:
    place = changed(environment("post-us-east-2"), log_kms_key_arn=key)
    template = synth_alone(place, tmp_path, NetworkStack, environment=place, network=place.network)
    (flow_log,) = resources(template, "AWS::EC2::FlowLog")
    group = template["Resources"][flow_log["LogGroupName"]["Ref"]]
    assert group["Properties"].get("KmsKeyId") == key


def test_another_zone_moves_no_subnet(synth: Synth, stacks: Templates) -> None:
    post = environment("post-us-east-2")
    fewer = changed(post, network={"zones": ("use2-az3", "use2-az2")}, experiments=("post",))

    subnets = templates(synth(fewer))["post-us-east-2-Network"]["Resources"]

    before = stacks["post-us-east-2-Network"]["Resources"]
    moved = [
        name
        for name, found in subnets.items()
        if found["Type"] == "AWS::EC2::Subnet" and "Private" in name
    ]
    assert [subnets[name] for name in moved] == [before[name] for name in moved]


def gateway_policy(template: Template) -> list[dict[str, Any]]:
    (gateway,) = [
        found
        for found in resources(template, "AWS::EC2::VPCEndpoint")
        if found["VpcEndpointType"] == "Gateway"
    ]
    found: list[dict[str, Any]] = gateway["PolicyDocument"]["Statement"]
    return found


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("post-us-east-2", ["arn:aws:s3:::cloudformation-custom-resource-response-useast2/*"]),
        ("native-us-east-2", []),
    ],
)
def test_the_way_to_s3_writes_into_the_own_bucket_alone(
    stacks: Templates, name: str, answers: list[str]
) -> None:
    written = [
        resource
        for statement in gateway_policy(stacks[f"{name}-Network"])
        if "s3:PutObject" in statement["Action"]
        for resource in statement["Resource"]
    ]

    assert written == [f"arn:aws:s3:::tandem-{name}-111122223333/*", *answers]


@pytest.mark.parametrize("cidr", ["10.42.0.0/16", "10.0.0.0/20"])
def test_subnets_lie_in_the_vpc_apart_from_each_other_and_are_as_large_as_aws_wants(
    cidr: str,
) -> None:
    zones = [f"use2-az{number}" for number in range(10)]
    uses: tuple[SubnetUse, ...] = ("private", "public", "control-plane")
    plan = [IPv4Network(compute_subnet_range(cidr, zone, use)) for use in uses for zone in zones]
    assert [pair for pair in combinations(plan, 2) if pair[0].overlaps(pair[1])] == []
    assert all(subnet.subnet_of(IPv4Network(cidr)) and subnet.prefixlen <= 28 for subnet in plan)


def test_a_private_subnet_holds_the_addresses_of_many_nodes() -> None:
    assert compute_subnet_range("10.42.0.0/16", "use2-az3") == "10.42.48.0/20"
