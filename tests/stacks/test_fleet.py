"""Fleet: how each kind of capacity is bought, and zero nodes of it until somebody raises them."""

from __future__ import annotations

from typing import Any

import pytest
from assemblies import RESERVATION, Templates, of_type, one

pytestmark = pytest.mark.cdk

# how the template says each kind: capacity type, market, reservation
KINDS = {
    "capacity-block": ("CAPACITY_BLOCK", "capacity-block", RESERVATION),
    "reservation-public": ("ON_DEMAND", None, RESERVATION),
    "spot-unprotected": ("SPOT", None, None),
    "on-demand-bounded": ("ON_DEMAND", None, None),
}


def launch(stacks: Templates, variant: str) -> dict[str, Any]:
    template = one(stacks[f"{variant}-Fleet"], "AWS::EC2::LaunchTemplate")
    return template["LaunchTemplateData"]


def test_no_deploy_starts_a_node(stacks):
    sizes = [
        group["ScalingConfig"]["DesiredSize"]
        for name, group in of_type(stacks, "AWS::EKS::Nodegroup")
        if name.endswith("-Fleet")
    ]
    assert set(sizes) == {0}


@pytest.mark.parametrize("variant", KINDS)
def test_capacity_is_bought_as_declared(stacks, variant):
    data = launch(stacks, variant)
    market = data.get("InstanceMarketOptions", {}).get("MarketType")
    specification = data.get("CapacityReservationSpecification", {})
    target = specification.get("CapacityReservationTarget", {}).get("CapacityReservationId")
    group = one(stacks[f"{variant}-Fleet"], "AWS::EKS::Nodegroup")
    assert (group["CapacityType"], market, target) == KINDS[variant]


@pytest.mark.parametrize("variant", KINDS)
def test_node_group_names_the_deployed_reservation(stacks, variant):
    group = one(stacks[f"{variant}-Fleet"], "AWS::EKS::Nodegroup")
    assert group["Tags"].get("tandem:reservation") == KINDS[variant][2]


@pytest.mark.parametrize(
    ("type_", "other"),
    [
        ("AWS::EC2::SecurityGroupIngress", "SourceSecurityGroupId"),
        ("AWS::EC2::SecurityGroupEgress", "DestinationSecurityGroupId"),
    ],
)
def test_efa_group_admits_itself_only(stacks, type_, other):
    rule = one(stacks["efa-nat-per-zone-Fleet"], type_)
    assert rule["GroupId"] == rule[other]
    assert "CidrIp" not in rule


def test_first_efa_interface_alone_carries_ip(stacks):
    interfaces = launch(stacks, "efa-nat-per-zone")["NetworkInterfaces"]
    types = [interface["InterfaceType"] for interface in interfaces]
    assert types == ["efa", *["efa-only"] * 15]
