"""The Network stack: a VPC of this environment's own, its endpoints and flow logs. An existing one needs no stack.

Invariant: zones are named by id (`use2-az1`), which is the same place in every account; zone names (`us-east-2a`) are
not, and reservations are bought by place. The number in a zone id picks its slot of addresses, so adding, removing or
reordering zones moves the addresses of no other subnet. Through the S3 endpoint nothing is written but into this
environment's bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network

from aws_cdk import CfnTag
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.policy import Statement, account_condition, allow, policy_document
from stacks.role import add_log_group, add_role
from stacks.stack import EnvironmentStack, export_value
from tandem.ops.guard_config import build_bucket_arn
from tandem.spec import names
from tandem.spec.environment import Environment, ExistingNetwork, NewNetwork
from tandem.spec.interface_endpoints import list_endpoint_services

ANYWHERE = "0.0.0.0/0"
_SLOT_BITS = 4  # 16 slots; zone ids end in one digit
_PUBLIC_SLOT = 15  # no zone id has this number: all public subnets share this slot
# What pods and people inside the VPC do with this environment's bucket.
_BUCKET_ACTIONS = ("s3:ListBucket", "s3:ListBucketMultipartUploads", "s3:ListBucketVersions", "s3:GetBucketVersioning")
_OBJECT_ACTIONS = ("s3:GetObject", "s3:GetObjectVersion", "s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkIds:
    """What the other stacks need to know of a network.

    Args:
        vpc_id: literal, or an import.
        subnet_ids: zone id to its private subnets.
    """

    vpc_id: str
    subnet_ids: dict[str, list[str]]

    def all_subnet_ids(self) -> list[str]:
        """Return the private subnets of all zones."""
        return [subnet_id for zone in self.subnet_ids.values() for subnet_id in zone]


def import_network(network: ExistingNetwork) -> NetworkIds:
    """Take a VPC by the ids its owner gave; routes, flow logs and endpoints, S3's too, stay the owner's."""
    zones = sorted({subnet.zone for subnet in network.subnets})
    by_zone = {zone: [subnet.id for subnet in network.subnets if subnet.zone == zone] for zone in zones}
    return NetworkIds(vpc_id=network.vpc_id, subnet_ids=by_zone)


class NetworkStack(EnvironmentStack):
    """VPC, private subnets by zone id, NAT, endpoints, flow logs.

    Attributes:
        network: the network as other stacks import it.
    """

    def __init__(self, scope: Construct, id_: str, *, environment: Environment, network: NewNetwork) -> None:
        description = "Tandem: VPC, private subnets, endpoints, flow logs"
        super().__init__(scope, id_, environment=environment, description=description)
        # beside the accelerators: another zone's outage cannot cut them off, and their bytes cross no zone
        nat_zone = environment.capacity.zone
        vpc = EnvironmentVpc(self, "Vpc", network=network, nat_zone=nat_zone, name=names.cluster_name(environment))
        _add_endpoints(Construct(self, "Endpoints"), vpc, network, environment)
        _add_flow_logs(Construct(self, "FlowLogs"), vpc.vpc_id, environment)
        self.network = NetworkIds(
            vpc_id=export_value(self, "VpcId", vpc.vpc_id),
            subnet_ids={
                zone: [export_value(self, f"Subnet-{zone}", subnet.id)] for zone, subnet in vpc.private_subnets.items()
            },
        )


def subnet_range(cidr: str, zone: str, *, public: bool = False) -> str:
    """Return the range of a zone's private subnet: a sixteenth of the VPC, 4091 usable addresses of a /16.

    Args:
        public: of the public subnet instead, which holds a NAT gateway and nothing else.
    """
    slots = list(IPv4Network(cidr).subnets(prefixlen_diff=_SLOT_BITS))
    if public:
        slots = list(slots[_PUBLIC_SLOT].subnets(prefixlen_diff=_SLOT_BITS))
    return slots[int(zone.rpartition("-az")[2])].with_prefixlen


class EnvironmentVpc(Construct):
    """A VPC with one private subnet per zone, and public ones only where a NAT gateway stands.

    Args:
        nat_zone: where a single NAT gateway stands.

    Attributes:
        vpc_id: the VPC.
        private_subnets: zone id to private subnet.
    """

    def __init__(self, scope: Construct, id_: str, *, network: NewNetwork, nat_zone: str, name: str) -> None:
        super().__init__(scope, id_)
        self.vpc_id = ec2.CfnVPC(
            self, "Resource", cidr_block=network.cidr, tags=name_tags(name),
            enable_dns_hostnames=True, enable_dns_support=True,  # interface endpoints need both for private DNS
        ).ref  # fmt: skip
        zones = sorted(network.zones)
        self.private_subnets = {
            zone: VpcSubnet(
                self, f"Private-{zone}", vpc_id=self.vpc_id, zone=zone, cidr=subnet_range(network.cidr, zone), name=name
            )
            for zone in zones
        }
        nat_zones = {"none": [], "single": [nat_zone], "per-zone": zones}[network.nat]
        if not nat_zones:
            return
        gateway_ids = _add_egress(Construct(self, "Egress"), self.vpc_id, nat_zones, network.cidr, name)
        for zone, subnet in self.private_subnets.items():
            gateway_id = gateway_ids.get(zone, gateway_ids[nat_zones[0]])
            subnet.add_default_route("ToNat", nat_gateway_id=gateway_id)


class VpcSubnet(Construct):
    """One subnet with a route table of its own.

    Attributes:
        id, route_table_id: the resources.
    """

    def __init__(self, scope: Construct, id_: str, *, vpc_id: str, zone: str, cidr: str, name: str) -> None:
        super().__init__(scope, id_)
        tags = name_tags(f"{name}-{id_.lower()}")
        self.id = ec2.CfnSubnet(
            self, "Subnet", vpc_id=vpc_id, availability_zone_id=zone, cidr_block=cidr,
            map_public_ip_on_launch=False, tags=tags,
        ).ref  # fmt: skip
        self.route_table_id = ec2.CfnRouteTable(self, "RouteTable", vpc_id=vpc_id, tags=tags).ref
        ec2.CfnSubnetRouteTableAssociation(self, "Association", subnet_id=self.id, route_table_id=self.route_table_id)

    def add_default_route(self, id_: str, **target: str) -> ec2.CfnRoute:
        """Add the route to everywhere that no other route leads to, by `gateway_id` or `nat_gateway_id`."""
        return ec2.CfnRoute(self, id_, route_table_id=self.route_table_id, destination_cidr_block=ANYWHERE, **target)


def _add_egress(scope: Construct, vpc_id: str, zones: list[str], cidr: str, name: str) -> dict[str, str]:
    """Add an internet gateway and a NAT gateway in each of `zones`; return zone id to NAT gateway."""
    gateway_id = ec2.CfnInternetGateway(scope, "InternetGateway", tags=name_tags(name)).ref
    attachment = ec2.CfnVPCGatewayAttachment(scope, "Attachment", vpc_id=vpc_id, internet_gateway_id=gateway_id)
    nat_gateway_ids: dict[str, str] = {}
    for zone in zones:
        public_cidr = subnet_range(cidr, zone, public=True)
        subnet = VpcSubnet(scope, f"Public-{zone}", vpc_id=vpc_id, zone=zone, cidr=public_cidr, name=name)
        route = subnet.add_default_route("ToInternet", gateway_id=gateway_id)
        route.add_resource_dependency(attachment)
        tags = name_tags(f"{name}-{zone}")
        address = ec2.CfnEIP(subnet, "Address", domain="vpc", tags=tags)
        address.add_resource_dependency(attachment)
        nat = ec2.CfnNatGateway(subnet, "Nat", subnet_id=subnet.id, allocation_id=address.attr_allocation_id, tags=tags)
        nat.add_resource_dependency(route)  # also at deletion: the gateway needs its way out until it is gone
        nat_gateway_ids[zone] = nat.ref
    return nat_gateway_ids


def _add_endpoints(scope: Construct, vpc: EnvironmentVpc, network: NewNetwork, environment: Environment) -> None:
    """Add a free S3 gateway endpoint, and the interface endpoints that the environment has."""
    name, prefix = names.cluster_name(environment), f"com.amazonaws.{environment.region}"
    subnets, services = vpc.private_subnets.values(), list_endpoint_services(environment)
    ec2.CfnVPCEndpoint(
        scope, "S3", vpc_id=vpc.vpc_id, service_name=f"{prefix}.s3", vpc_endpoint_type="Gateway",
        route_table_ids=[subnet.route_table_id for subnet in subnets],
        policy_document=policy_document(*_list_s3_statements(environment)), tags=name_tags(f"{name}-s3"),
    )  # fmt: skip
    if not services:
        return
    https_rule = ec2.CfnSecurityGroup.IngressProperty(
        ip_protocol="tcp", from_port=443, to_port=443, cidr_ip=network.cidr, description="HTTPS from the VPC"
    )
    group = ec2.CfnSecurityGroup(
        scope, "SecurityGroup", vpc_id=vpc.vpc_id, group_description="HTTPS from the VPC to AWS services",
        security_group_ingress=[https_rule], security_group_egress=[loopback_egress_rule()],
        tags=name_tags(f"{name}-endpoints"),
    )  # fmt: skip
    for service in services:
        ec2.CfnVPCEndpoint(
            scope, service.replace(".", "-"), vpc_id=vpc.vpc_id, service_name=f"{prefix}.{service}",
            vpc_endpoint_type="Interface", private_dns_enabled=True, subnet_ids=[subnet.id for subnet in subnets],
            security_group_ids=[group.attr_group_id], tags=name_tags(f"{name}-{service}"),
        )  # fmt: skip


def _list_s3_statements(environment: Environment) -> list[Statement]:
    """Return what the S3 endpoint lets through: reads of any bucket, writes to this environment's alone.

    Reads stay open, because images' layers, packages of the nodes' system and charts lie in buckets of others (ECR user
    guide, VPC endpoints: prod-REGION-starport-layer-bucket). With delivery cdk the kubectl function answers
    CloudFormation through a bucket of AWS's own (CloudFormation user guide, VPC endpoints).
    """
    statements = [
        allow(["s3:GetObject"], ["*"]),
        allow(_BUCKET_ACTIONS, [build_bucket_arn(environment)]),
        allow(_OBJECT_ACTIONS, [build_bucket_arn(environment, "/*")]),
    ]
    if environment.delivery.kind == "cdk":
        response_bucket = f"cloudformation-custom-resource-response-{environment.region.replace('-', '')}"
        statements.append(allow(["s3:PutObject"], [build_bucket_arn(environment, "/*", response_bucket)]))
    return [statement | {"Principal": "*"} for statement in statements]


def _add_flow_logs(scope: Construct, vpc_id: str, environment: Environment) -> None:
    """Write who talked to whom in the VPC into a log group that forgets after the declared days."""
    group = add_log_group(scope, "LogGroup", environment.log_retention_days)
    writes = allow(["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"], [group.attr_arn])
    role = add_role(
        scope, "vpc-flow-logs.amazonaws.com", policy_name="write", statements=[writes],
        conditions=account_condition(environment),
    )  # fmt: skip
    ec2.CfnFlowLog(
        scope, "FlowLog", resource_id=vpc_id, resource_type="VPC", traffic_type="ALL",
        log_destination_type="cloud-watch-logs", log_group_name=group.ref, deliver_logs_permission_arn=role.attr_arn,
    )  # fmt: skip


def loopback_egress_rule() -> ec2.CfnSecurityGroup.EgressProperty:
    """Return an egress rule that reaches nothing; without any rule EC2 adds one that reaches everything."""
    return ec2.CfnSecurityGroup.EgressProperty(ip_protocol="-1", cidr_ip="127.0.0.1/32", description="nowhere")


def name_tags(name: str) -> list[CfnTag]:
    """Return the tag that the console shows as a resource's name; an aspect for it would walk the tree for one word."""
    return [CfnTag(key="Name", value=name)]
