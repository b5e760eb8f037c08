"""Network: places by id, ways out, endpoints, flow logs."""

from __future__ import annotations

import re
from ipaddress import IPv4Network
from itertools import combinations

import pytest
from assemblies import Template, changed, environment, resources

from stacks.network import compute_subnet_range
from tandem.declarations.interface_endpoints import list_endpoint_services
from tandem.ops.people.rights import RUNNER_RIGHTS

pytestmark = pytest.mark.cdk

ZONE_NAME = re.compile(r"\b[a-z]{2}(-[a-z]+)+-\d[a-z]\b")


def test_no_template_holds_a_zone_name(stacks):
    assert [stack for stack, template in stacks.items() if ZONE_NAME.search(str(template))] == []


@pytest.mark.parametrize(("variant", "gateways"), [("closed", 0), ("efa-nat-per-zone", 3)], ids=str)
def test_nat_gateways_are_as_many_as_declared(stacks, variant, gateways):
    assert len(resources(stacks[f"{variant}-Network"], "AWS::EC2::NatGateway")) == gateways


@pytest.mark.parametrize(("declared", "zone"), [(None, "use2-az1"), ("use2-az2", "use2-az2")])
def test_a_single_gateway_stands_in_its_own_zone_or_the_first(declared, zone):
    network = changed(environment("post-us-east-2"), network={"nat_zone": declared}).network
    assert network.nat_zones == (zone,)


def test_a_closed_network_has_no_way_to_the_internet(stacks):
    closed_environment = stacks["closed-Network"]
    assert (
        resources(closed_environment, "AWS::EC2::InternetGateway")
        + resources(closed_environment, "AWS::EC2::Route")
        == []
    )


def services(template: Template) -> set[str]:
    result = resources(template, "AWS::EC2::VPCEndpoint")
    return {
        item["ServiceName"].partition("us-east-2.")[2]
        for item in result
        if item["VpcEndpointType"] == "Interface"
    }


def test_nodes_reach_the_services_of_a_private_cluster_inside_the_vpc(stacks):
    wanted_values = {"ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "logs", "monitoring", "sts"}
    # what the runner calls where nothing leads out
    of_the_guard = {"autoscaling", "lambda", "scheduler", "sns"}
    assert services(stacks["closed-Network"]) == wanted_values | of_the_guard


# prefix of the actions -> last part of the endpoint, where they differ
ENDPOINTS = {"cloudwatch": "monitoring"}


@pytest.mark.parametrize("delivery", ["post-us-east-2", "native-us-east-2"], ids=["cdk", "gitops"])
def test_the_runner_reaches_each_service_that_it_may_call_where_nothing_leads_out(delivery):
    closed_environment = changed(
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
    needed_endpoints = {ENDPOINTS.get(prefix, prefix) for prefix in prefixes - elsewhere}
    assert needed_endpoints - set(list_endpoint_services(closed_environment)) == set()


@pytest.mark.parametrize(("secret", "reached"), [("tandem/hub-token", True), (None, False)])
def test_only_a_declared_secret_has_an_endpoint(secret, *, reached):
    closed_environment = changed(
        environment("post-us-east-2"), network={"nat": "none"}, hub={"token_secret": secret}
    )
    assert ("secretsmanager" in list_endpoint_services(closed_environment)) is reached


@pytest.mark.parametrize("cidr", ["10.42.0.0/16", "10.0.0.0/20"])
def test_subnets_lie_in_the_vpc_apart_from_each_other_and_are_as_large_as_aws_wants(cidr):
    zones = [f"use2-az{number}" for number in range(10)]
    uses = ("private", "public", "control-plane")
    plan = [IPv4Network(compute_subnet_range(cidr, zone, use)) for use in uses for zone in zones]
    assert [pair for pair in combinations(plan, 2) if pair[0].overlaps(pair[1])] == []
    assert all(subnet.subnet_of(IPv4Network(cidr)) and subnet.prefixlen <= 28 for subnet in plan)
