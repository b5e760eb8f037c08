"""Network: places by id, ways out, endpoints, flow logs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from assemblies import Synth, Template, Templates, changed, environment, one, resources, templates

from tandem.spec.interface_endpoints import list_endpoint_services

pytestmark = pytest.mark.cdk

ZONE_NAME = re.compile(r"\b[a-z]{2}(-[a-z]+)+-\d[a-z]\b")


@pytest.fixture(scope="session")
def network(stacks: Templates) -> Template:
    return stacks["post-us-east-2-Network"]


def private_subnets(template: Template) -> list[dict[str, object]]:
    return [subnet for subnet in resources(template, "AWS::EC2::Subnet") if "private" in str(subnet["Tags"])]


def test_subnets_stand_in_the_declared_zones_by_id(network: Template) -> None:
    zones = [subnet["AvailabilityZoneId"] for subnet in private_subnets(network)]

    assert zones == ["use2-az1", "use2-az2", "use2-az3"]


def test_no_subnet_says_a_zone_by_name(stacks: Templates) -> None:
    named = [
        stack
        for stack, template in stacks.items()
        for subnet in resources(template, "AWS::EC2::Subnet")
        if "AvailabilityZone" in subnet or ZONE_NAME.search(str(subnet["AvailabilityZoneId"]))
    ]

    assert named == []


def test_no_template_holds_a_zone_name(stacks: Templates) -> None:
    assert [stack for stack, template in stacks.items() if ZONE_NAME.search(str(template))] == []


@pytest.mark.parametrize(("variant", "gateways"), [("closed", 0), ("capacity-block", 1), ("nat-per-zone", 3)], ids=str)
def test_nat_gateways_are_as_many_as_declared(stacks: Templates, variant: str, gateways: int) -> None:
    assert len(resources(stacks[f"{variant}-Network"], "AWS::EC2::NatGateway")) == gateways


def test_a_single_gateway_stands_in_the_capacitys_zone(stacks: Templates) -> None:
    (public,) = [
        subnet
        for subnet in resources(stacks["capacity-block-Network"], "AWS::EC2::Subnet")
        if "public" in str(subnet["Tags"])
    ]

    assert public["AvailabilityZoneId"] == environment("post-us-east-2").capacity.zone == "use2-az3"


def test_a_closed_network_has_no_way_to_the_internet(stacks: Templates) -> None:
    closed = stacks["closed-Network"]

    assert resources(closed, "AWS::EC2::InternetGateway") + resources(closed, "AWS::EC2::Route") == []


def test_a_gateway_per_zone_serves_its_own_zone(stacks: Templates) -> None:
    routes = {
        name: found["Properties"]["NatGatewayId"]["Ref"]
        for name, found in stacks["nat-per-zone-Network"]["Resources"].items()
        if "NatGatewayId" in found.get("Properties", {})
    }

    assert sorted(re.findall(r"az\d", name)[0] for name in routes) == ["az1", "az2", "az3"]
    assert all(re.findall(r"az\d", name) == re.findall(r"az\d", gateway) for name, gateway in routes.items())


def test_every_private_subnet_has_the_free_way_to_s3(network: Template) -> None:
    (gateway,) = [
        found for found in resources(network, "AWS::EC2::VPCEndpoint") if found["VpcEndpointType"] == "Gateway"
    ]

    assert gateway["ServiceName"] == "com.amazonaws.us-east-2.s3"
    assert len(gateway["RouteTableIds"]) == 3


def services(template: Template) -> set[str]:
    found = resources(template, "AWS::EC2::VPCEndpoint")
    return {each["ServiceName"].partition("us-east-2.")[2] for each in found if each["VpcEndpointType"] == "Interface"}


def test_nodes_reach_the_services_of_a_private_cluster_inside_the_vpc(stacks: Templates) -> None:
    wanted = {"ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "logs", "monitoring", "sts"}

    assert services(stacks["closed-Network"]) - {"lambda", "autoscaling"} == wanted


@pytest.mark.parametrize(("secret", "reached"), [("tandem/hub-token", True), (None, False)])
def test_only_a_declared_secret_has_an_endpoint(secret: str | None, *, reached: bool) -> None:
    closed = changed(environment("post-us-east-2"), network={"nat": "none"}, hub={"token_secret": secret})

    assert ("secretsmanager" in list_endpoint_services(closed)) is reached


def test_the_kubectl_handler_reaches_lambda_inside_the_vpc(stacks: Templates) -> None:
    assert "lambda" in services(stacks["closed-Network"])


def test_auto_scaling_is_reached_where_nothing_leads_out(stacks: Templates) -> None:
    assert "autoscaling" in services(stacks["closed-Network"])


@pytest.mark.parametrize("name", ["post-us-east-2", "native-us-east-2", "nat-per-zone"])
def test_where_a_nat_leads_out_no_endpoint_is_paid_for(stacks: Templates, name: str) -> None:
    assert services(stacks[f"{name}-Network"]) == set()


def test_interface_endpoints_can_be_had_beside_a_nat() -> None:
    place = changed(environment("post-us-east-2"), network={"interface_endpoints": True})

    assert {"ecr.dkr", "sts"} < set(list_endpoint_services(place))
    assert "autoscaling" not in list_endpoint_services(place)


def test_endpoints_admit_https_from_the_vpc_only(stacks: Templates) -> None:
    (rule,) = one(stacks["closed-Network"], "AWS::EC2::SecurityGroup")["SecurityGroupIngress"]

    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"], rule["CidrIp"]) == ("tcp", 443, 443, "10.42.0.0/16")


def test_endpoints_call_nobody(stacks: Templates) -> None:
    (rule,) = one(stacks["closed-Network"], "AWS::EC2::SecurityGroup")["SecurityGroupEgress"]

    assert rule["CidrIp"] == "127.0.0.1/32"


def test_an_existing_network_has_no_stack(stacks: Templates) -> None:
    assert "customer-keys-Network" not in stacks


def test_another_zone_moves_no_subnet(synth: Synth, stacks: Templates) -> None:
    post = environment("post-us-east-2")
    fewer = changed(post, network={"zones": ("use2-az3", "use2-az2")}, experiments=("post",))

    subnets = templates(synth(fewer))["post-us-east-2-Network"]["Resources"]

    before = stacks["post-us-east-2-Network"]["Resources"]
    moved = [name for name, found in subnets.items() if found["Type"] == "AWS::EC2::Subnet" and "Private" in name]
    assert [subnets[name] for name in moved] == [before[name] for name in moved]


def gateway_policy(template: Template) -> list[dict[str, Any]]:
    (gateway,) = [
        found for found in resources(template, "AWS::EC2::VPCEndpoint") if found["VpcEndpointType"] == "Gateway"
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
def test_the_way_to_s3_writes_into_the_own_bucket_alone(stacks: Templates, name: str, answers: list[str]) -> None:
    written = [
        resource
        for statement in gateway_policy(stacks[f"{name}-Network"])
        if "s3:PutObject" in statement["Action"]
        for resource in statement["Resource"]
    ]

    assert written == [f"arn:aws:s3:::tandem-{name}-111122223333/*", *answers]


def test_the_way_to_s3_reads_layers_of_others(network: Template) -> None:
    assert [statement["Action"] for statement in gateway_policy(network) if statement["Resource"] == ["*"]] == [
        ["s3:GetObject"]
    ]
