"""The address plan of a new VPC."""

from __future__ import annotations

from ipaddress import IPv4Network
from itertools import combinations

import pytest

from stacks.network import private_range, public_range

ZONES = [f"use2-az{number}" for number in range(10)]


@pytest.mark.parametrize("cidr", ["10.42.0.0/16", "10.0.0.0/20"])
def test_no_two_subnets_overlap(cidr: str) -> None:
    plan = [IPv4Network(plan(cidr, zone)) for plan in (private_range, public_range) for zone in ZONES]

    assert [pair for pair in combinations(plan, 2) if pair[0].overlaps(pair[1])] == []


@pytest.mark.parametrize("plan", [private_range, public_range])
def test_a_subnet_lies_in_the_vpc(plan: object) -> None:
    vpc = IPv4Network("10.42.0.0/16")

    assert all(IPv4Network(plan(str(vpc), zone)).subnet_of(vpc) for zone in ZONES)  # type: ignore[operator]


def test_the_smallest_legal_vpc_has_public_subnets_that_aws_accepts() -> None:
    assert IPv4Network(public_range("10.0.0.0/20", "use2-az1")).prefixlen <= 28


def test_a_private_subnet_holds_the_addresses_of_many_nodes() -> None:
    assert private_range("10.42.0.0/16", "use2-az3") == "10.42.48.0/20"
