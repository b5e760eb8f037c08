"""VPC endpoints: how private nodes reach AWS without the internet.

Invariant: the endpoints' security group admits HTTPS from the VPC's own range and nothing else.
"""

from __future__ import annotations

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.tags import named
from stacks.vpc import Vpc


class Endpoints(Construct):
    """A free S3 gateway endpoint, and interface endpoints for `services`."""

    def __init__(
        self, scope: Construct, id_: str, *, vpc: Vpc, cidr: str, region: str, services: tuple[str, ...], name: str
    ) -> None:
        super().__init__(scope, id_)
        prefix = f"com.amazonaws.{region}"
        ec2.CfnVPCEndpoint(
            self, "S3", vpc_id=vpc.vpc_id, service_name=f"{prefix}.s3", vpc_endpoint_type="Gateway",
            route_table_ids=vpc.route_table_ids, tags=named(f"{name}-s3"),
        )  # fmt: skip
        if not services:
            return
        group_id = ec2.CfnSecurityGroup(
            self, "SecurityGroup", vpc_id=vpc.vpc_id, group_description="HTTPS from the VPC to AWS services",
            security_group_ingress=[_https(from_=cidr)], security_group_egress=[nowhere()],
            tags=named(f"{name}-endpoints"),
        ).attr_group_id  # fmt: skip
        for service in services:
            ec2.CfnVPCEndpoint(
                self, service.replace(".", "-"), vpc_id=vpc.vpc_id, service_name=f"{prefix}.{service}",
                vpc_endpoint_type="Interface", private_dns_enabled=True, subnet_ids=list(vpc.subnet_ids.values()),
                security_group_ids=[group_id], tags=named(f"{name}-{service}"),
            )  # fmt: skip


def nowhere() -> ec2.CfnSecurityGroup.EgressProperty:
    """Return an egress rule that reaches nothing; without any rule EC2 adds one that reaches everything."""
    return ec2.CfnSecurityGroup.EgressProperty(ip_protocol="-1", cidr_ip="127.0.0.1/32", description="nowhere")


def _https(*, from_: str) -> ec2.CfnSecurityGroup.IngressProperty:
    return ec2.CfnSecurityGroup.IngressProperty(
        ip_protocol="tcp", from_port=443, to_port=443, cidr_ip=from_, description="HTTPS from the VPC"
    )
