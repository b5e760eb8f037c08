"""The network of an environment: a new VPC, or one that somebody else owns."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tandem.declarations.field_type import Cidr, SubnetId, VpcId, ZoneId
from tandem.declarations.record import SpecRecord

BASE_ZONES = 2  # EKS wants two zones, and never lets a cluster move to other ones


class NewNetwork(SpecRecord):
    """A VPC made for this environment, with private subnets in the named zones."""

    kind: Literal["new"] = Field(description="`new`: Tandem makes the VPC")
    cidr: Cidr = Field(description="address range of the VPC")
    zones: tuple[ZoneId, ...] = Field(
        min_length=2,
        max_length=4,
        description=(
            "zone ids of the subnets, one of them capacity.zone; the control plane and all that is"
            " no accelerator stay in the first two"
        ),
    )
    nat: Literal["none", "single", "per-zone"] = Field(
        "single", description="NAT gateways; none closes the cluster"
    )
    nat_zone: ZoneId | None = Field(
        None, description="zone id of the one gateway of nat single; null: the first of zones"
    )
    interface_endpoints: bool | None = Field(
        None,
        description=(
            "interface endpoints for the AWS services that private nodes call, paid by the hour and"
            " zone; null: only with nat none, elsewhere these calls go through the NAT gateway"
        ),
    )

    @property
    def base_zones(self) -> tuple[str, ...]:
        """The zones of the control plane and of all that is no accelerator."""
        return self.zones[:BASE_ZONES]

    @property
    def nat_zones(self) -> tuple[str, ...]:
        """The zones that have a NAT gateway."""
        return {"none": (), "single": (self.nat_zone or self.zones[0],), "per-zone": self.zones}[
            self.nat
        ]

    @property
    def has_interface_endpoints(self) -> bool:
        """Whether the VPC gets interface endpoints: as declared, else if it has no NAT gateway."""
        if self.interface_endpoints is None:
            return self.nat == "none"
        return self.interface_endpoints


class ExistingSubnet(SpecRecord):
    """One existing private subnet."""

    id: SubnetId = Field(description="the subnet")
    zone: ZoneId = Field(description="the zone id it lies in")


class ExistingNetwork(SpecRecord):
    """A VPC that somebody else owns, named by ids; nothing is looked up."""

    kind: Literal["existing"] = Field(
        description="`existing`: the VPC is named by ids and left as it is"
    )
    vpc_id: VpcId = Field(description="the VPC")
    cidr: Cidr = Field(description="its address range")
    secondary_cidrs: tuple[Cidr, ...] = Field(
        (), max_length=16, description="further ranges, or of its endpoints"
    )
    subnets: tuple[ExistingSubnet, ...] = Field(
        min_length=2,
        description=(
            "private subnets, in at least two zones;"
            " all that is no accelerator stays in the first two zones"
        ),
    )
    control_plane_subnets: tuple[ExistingSubnet, ...] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description=(
            "the control plane's two subnets, in two zones; null: the first subnet of each of the"
            " first two zones of subnets"
        ),
    )

    @property
    def base_zones(self) -> tuple[str, ...]:
        """The zones of all that is no accelerator."""
        return tuple(dict.fromkeys(subnet.zone for subnet in self.subnets))[:BASE_ZONES]

    @property
    def cluster_subnets(self) -> tuple[ExistingSubnet, ...]:
        """The subnets of the control plane, as declared or by default."""
        if self.control_plane_subnets is not None:
            return self.control_plane_subnets
        first_subnets: dict[str, ExistingSubnet] = {}
        for subnet in self.subnets:
            first_subnets.setdefault(subnet.zone, subnet)
        return tuple(first_subnets[zone] for zone in self.base_zones)

    @property
    def cidrs(self) -> tuple[str, ...]:
        """Every range of the VPC, the first one first."""
        return (self.cidr, *self.secondary_cidrs)
