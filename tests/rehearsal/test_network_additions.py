"""EC2 networks and launch templates beyond plain MiniStack, seen through boto3."""

from __future__ import annotations

import pytest
from twin_resources import NETWORK, subnet

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]


@pytest.mark.parametrize(("zone", "name"), [("use2-az1", "us-east-2a"), ("use2-az3", "us-east-2c")])
def test_a_subnet_by_zone_id_lies_in_that_zone(endpoint, deploy, check_resources, zone, name):
    stack = deploy({**NETWORK, "Subnet": subnet(AvailabilityZoneId=zone)})
    identity = check_resources(stack.name)["Subnet"].physical_id
    (row,) = endpoint.client("ec2").describe_subnets(SubnetIds=[identity])["Subnets"]
    assert (row["AvailabilityZoneId"], row["AvailabilityZone"]) == (zone, name)


def test_a_deleted_network_leaves_nothing(endpoint, deploy, delete, check_resources, templates):
    before = len(endpoint.client("ec2").describe_nat_gateways()["NatGateways"])
    template = {
        "Resources": templates["producer"]["Resources"],
        "Parameters": templates["producer"]["Parameters"],
    }
    stack = deploy(template)
    address = check_resources(stack.name)["Address"].physical_id

    assert delete(stack) == "DELETE_COMPLETE"
    assert len(endpoint.client("ec2").describe_nat_gateways()["NatGateways"]) == before
    assert address not in {
        item["AllocationId"] for item in endpoint.client("ec2").describe_addresses()["Addresses"]
    }
