"""The Network stack: this environment's own VPC, its endpoints and flow logs. An existing VPC needs no stack.

Invariant: zones are named by id (`use2-az1`), which is the same place in every account. Zone names (`us-east-2a`) are
not, and reservations are bought by place. The number in a zone id picks its slot of addresses, so adding, removing or
reordering zones moves the addresses of no other subnet. The S3 endpoint allows writes only to this environment's
bucket.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.fragment import Fragment, Properties
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
# Actions of pods and people inside the VPC on this environment's bucket.
_BUCKET_ACTIONS = ("s3:ListBucket", "s3:ListBucketMultipartUploads", "s3:ListBucketVersions", "s3:GetBucketVersioning")
_OBJECT_ACTIONS = ("s3:GetObject", "s3:GetObjectVersion", "s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkIds:
    """Ids of a network for the other stacks.

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
    """Return a VPC by its owner's ids; routes, flow logs and endpoints, S3's too, stay the owner's."""
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
        fragment = Fragment()
        vpc_id, subnets = add_vpc(fragment, environment, network)
        _add_endpoints(fragment, environment, network, vpc_id, subnets.values())
        fragment.include(self, "Resources")
        vpc_token = cdk.Fn.ref(vpc_id)
        _add_flow_logs(Construct(self, "FlowLogs"), vpc_token, environment)
        self.network = NetworkIds(
            vpc_id=export_value(self, "VpcId", vpc_token),
            subnet_ids={
                zone: [export_value(self, f"Subnet-{zone}", cdk.Fn.ref(subnet.id))] for zone, subnet in subnets.items()
            },
        )


def subnet_range(cidr: str, zone: str, *, public: bool = False) -> str:
    """Return the range of a zone's private subnet: a sixteenth of the VPC, 4091 usable addresses of a /16.

    Args:
        public: for the public subnet instead, which holds only a NAT gateway.
    """
    slots = list(IPv4Network(cidr).subnets(prefixlen_diff=_SLOT_BITS))
    if public:
        slots = list(slots[_PUBLIC_SLOT].subnets(prefixlen_diff=_SLOT_BITS))
    return slots[int(zone.rpartition("-az")[2])].with_prefixlen


def add_vpc(fragment: Fragment, environment: Environment, network: NewNetwork) -> tuple[str, dict[str, RoutedSubnet]]:
    """Add a VPC with one private subnet per zone, and public ones only for NAT gateways.

    Returns:
        The logical id of the VPC, and zone id to private subnet.
    """
    name, zones = names.cluster_name(environment), sorted(network.zones)
    vpc_id = fragment.add_resource(
        ("Vpc", "Resource"), "AWS::EC2::VPC",
        {
            "CidrBlock": network.cidr, "Tags": [name_tag(name)],
            "EnableDnsHostnames": True, "EnableDnsSupport": True,  # interface endpoints need both for private DNS
        },
    )  # fmt: skip
    subnets = {
        zone: RoutedSubnet(
            fragment, ("Vpc", f"Private-{zone}"), vpc_id=vpc_id, zone=zone, cidr=subnet_range(network.cidr, zone),
            name=name,
        )
        for zone in zones
    }  # fmt: skip
    # in the accelerators' zone: another zone's outage cannot cut them off, and their bytes cross no zone
    nat_zones = {"none": [], "single": [environment.capacity.zone], "per-zone": zones}[network.nat]
    if nat_zones:
        gateway_ids = _add_egress(fragment, vpc_id, nat_zones, network.cidr, name)
        for zone, subnet in subnets.items():
            gateway_id = gateway_ids.get(zone, gateway_ids[nat_zones[0]])
            subnet.add_default_route("ToNat", {"NatGatewayId": {"Ref": gateway_id}})
    return vpc_id, subnets


class RoutedSubnet:
    """One subnet with its own route table.

    Args:
        path: ids of its scopes; the last is its own, and the end of its name.

    Attributes:
        id, table_id: logical ids.
    """

    def __init__(
        self, fragment: Fragment, path: tuple[str, ...], *, vpc_id: str, zone: str, cidr: str, name: str
    ) -> None:
        self.fragment, self.path = fragment, path
        vpc, tags = {"VpcId": {"Ref": vpc_id}}, {"Tags": [name_tag(f"{name}-{path[-1].lower()}")]}
        placement = {"AvailabilityZoneId": zone, "CidrBlock": cidr, "MapPublicIpOnLaunch": False}
        self.id = fragment.add_resource((*path, "Subnet"), "AWS::EC2::Subnet", placement | tags, references=vpc)
        self.table_id = fragment.add_resource((*path, "RouteTable"), "AWS::EC2::RouteTable", tags, references=vpc)
        ends = {"SubnetId": {"Ref": self.id}, "RouteTableId": {"Ref": self.table_id}}
        fragment.add_resource((*path, "Association"), "AWS::EC2::SubnetRouteTableAssociation", {}, references=ends)

    def add_default_route(self, id_: str, target: Properties, waits_for: Sequence[str] = ()) -> str:
        """Add the default route, and return its logical id."""
        return self.fragment.add_resource(
            (*self.path, id_), "AWS::EC2::Route", {"DestinationCidrBlock": ANYWHERE},
            references={"RouteTableId": {"Ref": self.table_id}, **target}, waits_for=waits_for,
        )  # fmt: skip


def _add_egress(fragment: Fragment, vpc_id: str, zones: list[str], cidr: str, name: str) -> dict[str, str]:
    """Add an internet gateway and a NAT gateway in each of `zones`; return zone id to NAT gateway."""
    scope = ("Vpc", "Egress")
    gateway = {"Tags": [name_tag(name)]}
    gateway_id = fragment.add_resource((*scope, "InternetGateway"), "AWS::EC2::InternetGateway", gateway)
    ends = {"VpcId": {"Ref": vpc_id}, "InternetGatewayId": {"Ref": gateway_id}}
    attachment_id = fragment.add_resource((*scope, "Attachment"), "AWS::EC2::VPCGatewayAttachment", {}, references=ends)
    nat_gateway_ids: dict[str, str] = {}
    for zone in zones:
        path = (*scope, f"Public-{zone}")
        public_cidr = subnet_range(cidr, zone, public=True)
        subnet = RoutedSubnet(fragment, path, vpc_id=vpc_id, zone=zone, cidr=public_cidr, name=name)
        route_id = subnet.add_default_route("ToInternet", {"GatewayId": {"Ref": gateway_id}}, [attachment_id])
        tags = {"Tags": [name_tag(f"{name}-{zone}")]}
        address_id = fragment.add_resource(
            (*path, "Address"), "AWS::EC2::EIP", {"Domain": "vpc", **tags}, waits_for=[attachment_id]
        )
        nat_gateway_ids[zone] = fragment.add_resource(
            (*path, "Nat"), "AWS::EC2::NatGateway", tags,
            references={"SubnetId": {"Ref": subnet.id}, "AllocationId": {"Fn::GetAtt": [address_id, "AllocationId"]}},
            waits_for=[route_id],  # also at deletion: the gateway needs its route until it is gone
        )  # fmt: skip
    return nat_gateway_ids


def _add_endpoints(
    fragment: Fragment, environment: Environment, network: NewNetwork, vpc_id: str, subnets: Collection[RoutedSubnet]
) -> None:
    """Add a free S3 gateway endpoint, and the interface endpoints that the environment declares."""
    name, vpc = names.cluster_name(environment), {"VpcId": {"Ref": vpc_id}}

    def add_endpoint(id_: str, service: str, kind: str, properties: Properties, references: Properties) -> None:
        common = {
            "ServiceName": f"com.amazonaws.{environment.region}.{service}", "VpcEndpointType": kind,
            "Tags": [name_tag(f"{name}-{service}")],
        }  # fmt: skip
        fragment.add_resource(
            ("Endpoints", id_), "AWS::EC2::VPCEndpoint", {**common, **properties}, references=vpc | references
        )

    tables = {"RouteTableIds": [{"Ref": subnet.table_id} for subnet in subnets]}
    document = policy_document(*_list_s3_statements(environment))
    add_endpoint("S3", "s3", "Gateway", {"PolicyDocument": document}, tables)
    services = list_endpoint_services(environment)
    if not services:
        return
    https = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443}
    group_id = fragment.add_resource(
        ("Endpoints", "SecurityGroup"), "AWS::EC2::SecurityGroup",
        {
            "GroupDescription": "HTTPS from the VPC to AWS services", "Tags": [name_tag(f"{name}-endpoints")],
            "SecurityGroupIngress": [{**https, "CidrIp": network.cidr, "Description": "HTTPS from the VPC"}],
            # it allows nothing; without any rule EC2 adds one that allows everything
            "SecurityGroupEgress": [{"IpProtocol": "-1", "CidrIp": "127.0.0.1/32", "Description": "nowhere"}],
        },
        references=vpc,
    )  # fmt: skip
    interfaces = {
        "SubnetIds": [{"Ref": subnet.id} for subnet in subnets],
        "SecurityGroupIds": [{"Fn::GetAtt": [group_id, "GroupId"]}],
    }
    for service in services:
        add_endpoint(service.replace(".", "-"), service, "Interface", {"PrivateDnsEnabled": True}, interfaces)


def _list_s3_statements(environment: Environment) -> list[Statement]:
    """Return the statements of the S3 endpoint: reads of any bucket, writes only to this environment's.

    Reads stay open, because images' layers, packages of the nodes' system and charts are in buckets of others (ECR user
    guide, VPC endpoints: prod-REGION-starport-layer-bucket). With delivery cdk the kubectl function answers
    CloudFormation through a bucket of AWS (CloudFormation user guide, VPC endpoints).
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
    """Log the VPC's connections to a log group with the declared retention in days."""
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


def name_tag(name: str) -> dict[str, str]:
    """Return the tag for a resource's name in the console; an aspect would walk the whole tree for it."""
    return {"Key": "Name", "Value": name}
