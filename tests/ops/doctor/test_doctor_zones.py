"""Zones by id, and the subnets of somebody else's network."""

from __future__ import annotations

import pytest
from doctor_world import ZONE, World, existing

from tandem.spec.environment import NewNetwork


@pytest.fixture(scope="module")
def vpc(place) -> tuple[str, dict[str, str]]:
    """A VPC that somebody else owns, and its subnets by zone id."""
    ec2 = place.endpoint.client("ec2")
    made = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnets = {}
    for index, zone in enumerate(("use2-az1", ZONE)):
        row = ec2.create_subnet(VpcId=made, CidrBlock=f"10.9.{index}.0/24", AvailabilityZoneId=zone)["Subnet"]
        subnets[row["AvailabilityZoneId"]] = row["SubnetId"]
    return made, subnets


def test_a_zone_that_the_account_has_is_named_with_its_letter(world: World) -> None:
    line = world.only("zones")

    assert line.level == "ok"
    assert "use2-az3 is us-east-2c" in line.said


def test_a_zone_id_that_the_region_has_not_is_bad_input(world: World) -> None:
    world.change(network=NewNetwork(kind="new", cidr="10.0.0.0/16", zones=("use2-az1", "use2-az9")))

    line = world.only("zones")

    assert (line.level, line.code) == ("fail", 2)
    assert "use2-az9" in line.said


def test_a_new_network_has_no_subnets_to_look_at(world: World) -> None:
    world.lines("subnets")

    assert "DescribeSubnets" not in {one.operation for one in world.proxy.log}


def test_subnets_that_lie_where_the_file_says_are_ok(world: World, vpc: tuple[str, dict[str, str]]) -> None:
    world.change(network=existing(vpc[0], *((id_, zone) for zone, id_ in vpc[1].items())))

    assert world.only("subnets").level == "ok"


def test_a_subnet_in_another_zone_is_bad_input(world: World, vpc: tuple[str, dict[str, str]]) -> None:
    (first, id_), *_ = vpc[1].items()
    world.change(network=existing(vpc[0], (id_, "use2-az2")))

    line = world.only("subnets")

    assert (line.level, line.code) == ("fail", 2)
    assert f"lies in {first}, not in use2-az2" in line.said


def test_a_subnet_of_another_vpc_is_bad_input(world: World, vpc: tuple[str, dict[str, str]]) -> None:
    (zone, id_), *_ = vpc[1].items()
    world.change(network=existing("vpc-00000000", (id_, zone)))

    assert world.levels("subnets") == ["fail"]


def test_subnets_that_do_not_exist_are_told_once(world: World, vpc: tuple[str, dict[str, str]]) -> None:
    world.change(network=existing(vpc[0], ("subnet-00000000", "use2-az1"), ("subnet-00000001", "use2-az2")))

    assert set(world.levels("subnets")) == {"fail"}


def test_a_zone_without_the_system_nodes_type_is_warned_of(world: World) -> None:
    world.facts.offered["m7i.xlarge"] = ["use2-az1"]

    assert world.levels("system-nodes") == ["warn"]


def test_no_zone_with_the_system_nodes_type_fails(world: World) -> None:
    world.facts.offered["m7i.xlarge"] = []

    assert world.levels("system-nodes") == ["fail"]
