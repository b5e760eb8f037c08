"""What follows from a network's declaration: zones, control plane, endpoints and ranges."""

from __future__ import annotations

import pytest
from complete import ENVIRONMENT, OTHER_ENVIRONMENT

from tandem.declarations.network_settings import ExistingNetwork, NewNetwork


def build_existing(**changes):
    """The complete file's existing network, whose first zone has two subnets of three zones."""
    zones = ["use2-az3", "use2-az3", "use2-az1", "use2-az2"]
    subnets = [{"id": f"subnet-0000000{at}", "zone": zone} for at, zone in enumerate(zones)]
    fields = OTHER_ENVIRONMENT["network"] | {"subnets": subnets} | changes
    return ExistingNetwork.model_validate(fields, strict=False)


def test_base_zones_are_the_first_two_in_the_subnets_order():
    assert build_existing().base_zones == ("use2-az3", "use2-az1")


def test_control_plane_takes_each_base_zones_first_subnet():
    default_subnets = build_existing(control_plane_subnets=None).cluster_subnets

    assert [subnet.id for subnet in default_subnets] == ["subnet-00000000", "subnet-00000002"]


@pytest.mark.parametrize(("nat", "has_endpoints"), [("none", True), ("single", False)])
def test_undeclared_endpoints_are_for_a_network_without_nat(nat, has_endpoints):
    fields = ENVIRONMENT["network"] | {"nat": nat, "interface_endpoints": None}
    network = NewNetwork.model_validate(fields, strict=False)

    assert network.has_interface_endpoints is has_endpoints


def test_a_single_gateway_stands_in_the_zone_that_is_named():
    fields = ENVIRONMENT["network"] | {"nat": "single", "nat_zone": "use2-az3"}

    assert NewNetwork.model_validate(fields, strict=False).nat_zones == ("use2-az3",)
