"""The Network stack: this environment's VPC, endpoints and flow logs; an existing VPC needs none.

Invariant: zones are named by id (`use2-az1`), which is the same place in every account. Zone names
(`us-east-2a`) are not, and reservations are bought by place. The number in a zone id picks its slot
of addresses, so adding, removing or reordering zones moves the addresses of no other subnet. The
control plane has subnets of its own, because EKS never lets it move to other zones. A new zone at
the end of the list adds to this template and touches neither cluster nor system nodes. The S3
endpoint allows writes only to this environment's bucket, and with delivery cdk to the bucket by
which functions answer CloudFormation.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Literal

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.policy import Statement, account_condition, allow, policy_document
from stacks.role import add_log_group, add_role, import_log_key
from stacks.stack import EnvironmentStack, export_value
from tandem.declarations import names
from tandem.declarations.arns import build_bucket_arn
from tandem.declarations.environment import Environment
from tandem.declarations.interface_endpoints import list_endpoint_services
from tandem.declarations.network_settings import ExistingNetwork, NewNetwork

ANYWHERE = "0.0.0.0/0"
_SLOT_BITS = 4  # 16 slots; zone ids end in one digit
# No zone id ends in these numbers. The public subnets share the first slot, the subnets of the
# control plane share the second.
_PUBLIC_SLOT = 15
_CONTROL_PLANE_SLOT = 14
# Actions of pods and people inside the VPC on this environment's bucket.
_BUCKET_ACTIONS = (
    "s3:ListBucket",
    "s3:ListBucketMultipartUploads",
    "s3:ListBucketVersions",
    "s3:GetBucketVersioning",
)
_OBJECT_ACTIONS = (
    "s3:GetObject",
    "s3:GetObjectVersion",
    "s3:PutObject",
    "s3:AbortMultipartUpload",
    "s3:DeleteObject",
)


@dataclass(frozen=True, kw_only=True)
class NetworkIds:
    """Ids of a network for the other stacks.

    Args:
        vpc_id: literal, or an import.
        subnet_ids: zone id to its private subnets.
        base_zones: ids of the two zones of all that is no accelerator.
        control_plane_subnet_ids: of the control plane, in two zones.
    """

    vpc_id: str
    subnet_ids: dict[str, list[str]]
    base_zones: tuple[str, ...]
    control_plane_subnet_ids: list[str]

    def base_subnet_ids(self) -> list[str]:
        """Return the private subnets of system nodes, functions and builds.

        A new zone for accelerators adds none to them.
        """
        subnet_ids = []
        for zone in sorted(self.base_zones):
            subnet_ids += self.subnet_ids[zone]
        return subnet_ids


def import_network(network: ExistingNetwork) -> NetworkIds:
    """Return the ids of an existing VPC; its owner has its routes, flow logs and endpoints."""
    subnet_ids: dict[str, list[str]] = {}
    for subnet in network.subnets:
        subnet_ids.setdefault(subnet.zone, []).append(subnet.id)
    return NetworkIds(
        vpc_id=network.vpc_id,
        subnet_ids=subnet_ids,
        base_zones=network.base_zones,
        control_plane_subnet_ids=[subnet.id for subnet in network.cluster_subnets],
    )


class NetworkStack(EnvironmentStack):
    """VPC, private subnets by zone id, NAT, endpoints, flow logs.

    Attributes:
        network: the network as other stacks import it.
    """

    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, network: NewNetwork
    ) -> None:
        super().__init__(
            scope,
            id_,
            environment=environment,
            description="Tandem: VPC, private subnets, endpoints, flow logs",
        )
        vpc = RoutedVpc(self, "Vpc", environment=environment, network=network)

        _add_endpoints(Construct(self, "Endpoints"), environment, network, vpc)
        _add_flow_logs(Construct(self, "FlowLogs"), vpc.id, environment)

        self.network = NetworkIds(
            vpc_id=export_value(self, "VpcId", vpc.id),
            subnet_ids={
                zone: [export_value(self, f"Subnet-{zone}", subnet.id)]
                for zone, subnet in vpc.subnets.items()
            },
            base_zones=network.base_zones,
            control_plane_subnet_ids=[
                export_value(self, f"ControlPlaneSubnet-{zone}", subnet_id)
                for zone, subnet_id in vpc.control_plane_subnet_ids.items()
            ],
        )


SubnetUse = Literal["private", "public", "control-plane"]


def compute_subnet_range(cidr: str, zone: str, use: SubnetUse = "private") -> str:
    """Return the range of a zone's subnet.

    A private one is a sixteenth of the VPC, 4091 usable addresses of a /16. The others are a
    sixteenth of that. A public one holds only a NAT gateway. For a control plane EKS wants 6
    addresses or more (EKS user guide, "Networking requirements for VPC and subnets"); a /28, that
    of the smallest VPC, has 11.
    """
    slots = list(IPv4Network(cidr).subnets(prefixlen_diff=_SLOT_BITS))
    if use != "private":
        slot = _PUBLIC_SLOT if use == "public" else _CONTROL_PLANE_SLOT
        slots = list(slots[slot].subnets(prefixlen_diff=_SLOT_BITS))
    return slots[int(zone.rpartition("-az")[2])].with_prefixlen


class RoutedVpc(Construct):
    """A VPC: a private subnet per zone, two for the control plane, public ones for NAT alone.

    `ec2.Vpc` picks zones by name, so it cannot say which place a subnet is in.

    Attributes:
        id: of the VPC, an expression.
        subnets: zone id to private subnet.
        control_plane_subnet_ids: zone id to the control plane's subnet.
    """

    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, network: NewNetwork
    ) -> None:
        super().__init__(scope, id_)
        name = names.cluster_name(environment)
        zones = sorted(network.zones)
        vpc = ec2.CfnVPC(
            self,
            "Resource",
            cidr_block=network.cidr,
            enable_dns_hostnames=True,  # interface endpoints need both for private DNS
            enable_dns_support=True,
            tags=[name_tag(name)],
        )
        self.id = vpc.ref
        self.subnets = {
            zone: RoutedSubnet(
                self,
                f"Private-{zone}",
                vpc_id=self.id,
                zone=zone,
                cidr=compute_subnet_range(network.cidr, zone),
                name=f"{name}-private-{zone}",
            )
            for zone in zones
        }

        self.control_plane_subnet_ids = {
            zone: self._add_control_plane_subnet(
                zone, compute_subnet_range(network.cidr, zone, "control-plane"), name
            )
            for zone in sorted(network.base_zones)
        }

        nat_zones = sorted(network.nat_zones)
        if nat_zones:
            egress_scope = Construct(self, "Egress")
            gateway_ids = _add_egress(egress_scope, self.id, nat_zones, network.cidr, name)
            for zone, subnet in self.subnets.items():
                gateway_id = gateway_ids.get(zone, gateway_ids[nat_zones[0]])
                subnet.add_default_route("ToNat", nat_gateway_id=gateway_id)

    def _add_control_plane_subnet(self, zone: str, cidr: str, name: str) -> str:
        """Add the control plane's subnet of a zone, and return its id.

        It has the route table of the zone's private subnet. So the routes back from there also
        answer people who reach the Kubernetes API through a peering or a VPN.
        """
        scope = Construct(self, f"ControlPlane-{zone}")
        subnet = _add_subnet(
            scope, vpc_id=self.id, zone=zone, cidr=cidr, name=f"{name}-control-plane-{zone}"
        )
        table_id = self.subnets[zone].table_id
        ec2.CfnSubnetRouteTableAssociation(
            scope, "Association", subnet_id=subnet.ref, route_table_id=table_id
        )
        return subnet.ref


class RoutedSubnet(Construct):
    """One subnet with its own route table.

    Args:
        name: of the subnet and of its route table, in the console.

    Attributes:
        id, table_id: expressions.
    """

    def __init__(
        self, scope: Construct, id_: str, *, vpc_id: str, zone: str, cidr: str, name: str
    ) -> None:
        super().__init__(scope, id_)
        subnet = _add_subnet(self, vpc_id=vpc_id, zone=zone, cidr=cidr, name=name)
        table = ec2.CfnRouteTable(self, "RouteTable", vpc_id=vpc_id, tags=[name_tag(name)])
        self.id = subnet.ref
        self.table_id = table.ref
        ec2.CfnSubnetRouteTableAssociation(
            self, "Association", subnet_id=self.id, route_table_id=self.table_id
        )

    def add_default_route(
        self, id_: str, *, gateway_id: str | None = None, nat_gateway_id: str | None = None
    ) -> ec2.CfnRoute:
        """Add the default route, to the internet gateway or to the NAT gateway."""
        return ec2.CfnRoute(
            self,
            id_,
            route_table_id=self.table_id,
            destination_cidr_block=ANYWHERE,
            gateway_id=gateway_id,
            nat_gateway_id=nat_gateway_id,
        )


def _add_subnet(scope: Construct, *, vpc_id: str, zone: str, cidr: str, name: str) -> ec2.CfnSubnet:
    """Add the subnet of `scope`; `name` is for the console."""
    return ec2.CfnSubnet(
        scope,
        "Subnet",
        vpc_id=vpc_id,
        availability_zone_id=zone,
        cidr_block=cidr,
        map_public_ip_on_launch=False,
        tags=[name_tag(name)],
    )


def _add_egress(
    scope: Construct, vpc_id: str, zones: list[str], cidr: str, name: str
) -> dict[str, str]:
    """Add an internet gateway and a NAT gateway per zone; return zone id to NAT gateway."""
    internet_gateway = ec2.CfnInternetGateway(scope, "InternetGateway", tags=[name_tag(name)])
    gateway_id = internet_gateway.ref
    attachment = ec2.CfnVPCGatewayAttachment(
        scope, "Attachment", vpc_id=vpc_id, internet_gateway_id=gateway_id
    )

    nat_gateway_ids = {}
    for zone in zones:
        subnet = RoutedSubnet(
            scope,
            f"Public-{zone}",
            vpc_id=vpc_id,
            zone=zone,
            cidr=compute_subnet_range(cidr, zone, "public"),
            name=f"{name}-public-{zone}",
        )
        route = subnet.add_default_route("ToInternet", gateway_id=gateway_id)
        route.add_resource_dependency(attachment)

        tags = [name_tag(f"{name}-{zone}")]
        address = ec2.CfnEIP(subnet, "Address", domain="vpc", tags=tags)
        address.add_resource_dependency(attachment)
        nat_gateway = ec2.CfnNatGateway(
            subnet, "Nat", subnet_id=subnet.id, allocation_id=address.attr_allocation_id, tags=tags
        )
        # also at deletion: the gateway needs its route until it is gone
        nat_gateway.add_resource_dependency(route)
        nat_gateway_ids[zone] = nat_gateway.ref
    return nat_gateway_ids


def _add_endpoints(
    scope: Construct, environment: Environment, network: NewNetwork, vpc: RoutedVpc
) -> None:
    """Add S3's gateway endpoint, which is free, and the interface endpoints, if there are any."""
    name = names.cluster_name(environment)
    service_prefix = f"com.amazonaws.{environment.region}"
    ec2.CfnVPCEndpoint(
        scope,
        "S3",
        vpc_id=vpc.id,
        service_name=f"{service_prefix}.s3",
        vpc_endpoint_type="Gateway",
        route_table_ids=[subnet.table_id for subnet in vpc.subnets.values()],
        policy_document=policy_document(*_list_s3_statements(environment)),
        tags=[name_tag(f"{name}-s3")],
    )

    services = list_endpoint_services(environment)
    if not services:
        return
    security_group = _add_endpoint_group(scope, vpc.id, network.cidr, f"{name}-endpoints")
    group_id = security_group.attr_group_id
    for service in services:
        ec2.CfnVPCEndpoint(
            scope,
            service.replace(".", "-"),
            vpc_id=vpc.id,
            service_name=f"{service_prefix}.{service}",
            vpc_endpoint_type="Interface",
            private_dns_enabled=True,
            subnet_ids=[subnet.id for subnet in vpc.subnets.values()],
            security_group_ids=[group_id],
            tags=[name_tag(f"{name}-{service}")],
        )


def _add_endpoint_group(
    scope: Construct, vpc_id: str, cidr: str, name: str
) -> ec2.CfnSecurityGroup:
    """Add the security group of the interface endpoints: HTTPS from the VPC, nothing out."""
    https = ec2.CfnSecurityGroup.IngressProperty(
        ip_protocol="tcp",
        from_port=443,
        to_port=443,
        cidr_ip=cidr,
        description="HTTPS from the VPC",
    )
    # it allows nothing; without any rule EC2 adds one that allows everything
    nowhere = ec2.CfnSecurityGroup.EgressProperty(
        ip_protocol="-1", cidr_ip="127.0.0.1/32", description="nowhere"
    )
    return ec2.CfnSecurityGroup(
        scope,
        "SecurityGroup",
        vpc_id=vpc_id,
        group_description="HTTPS from the VPC to AWS services",
        security_group_ingress=[https],
        security_group_egress=[nowhere],
        tags=[name_tag(name)],
    )


def _list_s3_statements(environment: Environment) -> list[Statement]:
    """Return the S3 endpoint's statements: reads of any bucket, writes to the fewest.

    Reads stay open, because images' layers, packages of the nodes' system and charts are in buckets
    of others (ECR user guide, VPC endpoints: prod-REGION-starport-layer-bucket). Writes go to this
    environment's bucket. With delivery cdk the kubectl function also answers CloudFormation through
    a bucket of AWS (CloudFormation user guide, VPC endpoints).
    """
    statements = [
        allow(["s3:GetObject"], ["*"]),
        allow(_BUCKET_ACTIONS, [build_bucket_arn(environment)]),
        allow(_OBJECT_ACTIONS, [build_bucket_arn(environment, "/*")]),
    ]
    if environment.delivery.kind == "cdk":
        response_bucket = (
            f"cloudformation-custom-resource-response-{environment.region.replace('-', '')}"
        )
        statements.append(
            allow(["s3:PutObject"], [build_bucket_arn(environment, "/*", response_bucket)])
        )
    return [statement | {"Principal": "*"} for statement in statements]


def _add_flow_logs(scope: Construct, vpc_id: str, environment: Environment) -> None:
    """Log the VPC's connections to a log group with the declared retention."""
    key = import_log_key(scope, environment)
    group = add_log_group(scope, "LogGroup", environment.log_retention_days, key=key)
    writes = allow(
        ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
        [group.log_group_arn],
    )
    role = add_role(
        scope,
        "vpc-flow-logs.amazonaws.com",
        policy_name="write",
        statements=[writes],
        conditions=account_condition(environment),
    )
    ec2.CfnFlowLog(
        scope,
        "FlowLog",
        resource_id=vpc_id,
        resource_type="VPC",
        traffic_type="ALL",
        log_destination_type="cloud-watch-logs",
        log_group_name=group.log_group_name,
        deliver_logs_permission_arn=role.attr_arn,
    )


def name_tag(name: str) -> cdk.CfnTag:
    """Return a resource's console name tag; an aspect would walk the whole tree for it."""
    return cdk.CfnTag(key="Name", value=name)
