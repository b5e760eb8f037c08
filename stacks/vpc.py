"""Subnets and routes of a new VPC.

Invariant: zones are named by id (`use2-az1`), which is the same place in every account; zone names
(`us-east-2a`) are not, and reservations are bought by place.
"""

from __future__ import annotations

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.addresses import private_range, public_range
from stacks.tags import name_tags
from tandem.spec.environment import NewNetwork

ANYWHERE = "0.0.0.0/0"


class EnvironmentVpc(Construct):
    """A VPC with one private subnet per zone, and public ones only where a NAT gateway stands.

    Args:
        nat_zone: where a single NAT gateway stands.

    Attributes:
        vpc_id: the VPC.
        subnet_ids: zone id to private subnet.
        route_table_ids: those of the private subnets.
    """

    def __init__(self, scope: Construct, id_: str, *, network: NewNetwork, nat_zone: str, name: str) -> None:
        super().__init__(scope, id_)
        self.vpc_id = ec2.CfnVPC(
            self, "Resource", cidr_block=network.cidr, tags=name_tags(name),
            enable_dns_hostnames=True, enable_dns_support=True,  # interface endpoints need both for private DNS
        ).ref  # fmt: skip
        zones = sorted(network.zones)
        private_subnets = {
            zone: VpcSubnet(
                self, f"Private-{zone}", vpc_id=self.vpc_id, zone=zone, cidr=private_range(network.cidr, zone),
                name=f"{name}-private-{zone}",
            )
            for zone in zones
        }  # fmt: skip
        self.subnet_ids = {zone: subnet.subnet_id for zone, subnet in private_subnets.items()}
        self.route_table_ids = [subnet.route_table_id for subnet in private_subnets.values()]
        nat_zones = {"none": [], "single": [nat_zone], "per-zone": zones}[network.nat]
        if not nat_zones:
            return
        egress = InternetEgress(self, "Egress", vpc_id=self.vpc_id, zones=nat_zones, cidr=network.cidr, name=name)
        for zone, subnet in private_subnets.items():
            gateway = egress.nat_gateway_ids.get(zone, egress.nat_gateway_ids[nat_zones[0]])
            ec2.CfnRoute(
                subnet, "ToNat", route_table_id=subnet.route_table_id, destination_cidr_block=ANYWHERE,
                nat_gateway_id=gateway,
            )  # fmt: skip


class VpcSubnet(Construct):
    """One subnet with a route table of its own.

    Attributes:
        subnet_id, route_table_id: the resources.
    """

    def __init__(self, scope: Construct, id_: str, *, vpc_id: str, zone: str, cidr: str, name: str) -> None:
        super().__init__(scope, id_)
        subnet = ec2.CfnSubnet(
            self, "Subnet", vpc_id=vpc_id, availability_zone_id=zone, cidr_block=cidr,
            map_public_ip_on_launch=False, tags=name_tags(name),
        )  # fmt: skip
        table = ec2.CfnRouteTable(self, "RouteTable", vpc_id=vpc_id, tags=name_tags(name))
        self.subnet_id, self.route_table_id = subnet.ref, table.ref
        ec2.CfnSubnetRouteTableAssociation(
            self, "Association", subnet_id=self.subnet_id, route_table_id=self.route_table_id
        )


class InternetEgress(Construct):
    """An internet gateway and a NAT gateway in each of `zones`.

    Attributes:
        nat_gateway_ids: zone id to NAT gateway.
    """

    def __init__(self, scope: Construct, id_: str, *, vpc_id: str, zones: list[str], cidr: str, name: str) -> None:
        super().__init__(scope, id_)
        gateway_id = ec2.CfnInternetGateway(self, "InternetGateway", tags=name_tags(name)).ref
        attachment = ec2.CfnVPCGatewayAttachment(self, "Attachment", vpc_id=vpc_id, internet_gateway_id=gateway_id)
        self.nat_gateway_ids: dict[str, str] = {}
        for zone in zones:
            public_subnet = VpcSubnet(
                self, f"Public-{zone}", vpc_id=vpc_id, zone=zone, cidr=public_range(cidr, zone),
                name=f"{name}-public-{zone}",
            )  # fmt: skip
            route = ec2.CfnRoute(
                public_subnet,
                "ToInternet",
                route_table_id=public_subnet.route_table_id,
                destination_cidr_block=ANYWHERE,
                gateway_id=gateway_id,
            )
            route.add_resource_dependency(attachment)
            address = ec2.CfnEIP(public_subnet, "Address", domain="vpc", tags=name_tags(f"{name}-{zone}"))
            address.add_resource_dependency(attachment)
            nat = ec2.CfnNatGateway(
                public_subnet, "Nat", subnet_id=public_subnet.subnet_id, allocation_id=address.attr_allocation_id,
                tags=name_tags(f"{name}-{zone}"),
            )  # fmt: skip
            nat.add_resource_dependency(route)  # also at deletion: the gateway needs its way out until it is gone
            self.nat_gateway_ids[zone] = nat.ref
