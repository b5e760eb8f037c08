"""VPC endpoints: how private nodes reach AWS without the internet.

Invariant: the endpoints' security group admits HTTPS from the VPC's own range and nothing else.
"""

from __future__ import annotations

from aws_cdk import Tags
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

# What a cluster without internet calls (EKS user guide, private clusters, 2024-12; facts: eks-auth for Pod
# Identity, eks for node bootstrap, monitoring for metrics). Left out, each with the program that needs it:
# elasticloadbalancing (no load balancer), xray (no traces), autoscaling (no node problem detector),
# secretsmanager and ssm (no secret, no shell).
SERVICES = ("ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "kms", "logs", "monitoring", "sts")
KUBECTL_SERVICES = ("lambda",)  # the provider framework calls its handler by the Lambda API, inside the VPC


class Endpoints(Construct):
    """A free S3 gateway endpoint, and interface endpoints for `services`."""

    def __init__(
        self, scope: Construct, id_: str, *, vpc_id: str, cidr: str, region: str, subnet_ids: list[str],
        route_table_ids: list[str], services: tuple[str, ...], name: str,
    ) -> None:  # fmt: skip
        super().__init__(scope, id_)
        gateway = ec2.CfnVPCEndpoint(
            self, "S3", vpc_id=vpc_id, service_name=f"com.amazonaws.{region}.s3", vpc_endpoint_type="Gateway",
            route_table_ids=route_table_ids,
        )  # fmt: skip
        Tags.of(gateway).add("Name", f"{name}-s3")
        if not services:
            return
        group = ec2.CfnSecurityGroup(
            self, "SecurityGroup", vpc_id=vpc_id, group_description="HTTPS from the VPC to AWS services",
            security_group_ingress=[_https(from_=cidr)],
            security_group_egress=[_nothing()],
        )  # fmt: skip
        Tags.of(group).add("Name", f"{name}-endpoints")
        for service in services:
            endpoint = ec2.CfnVPCEndpoint(
                self, service.replace(".", "-"), vpc_id=vpc_id, service_name=f"com.amazonaws.{region}.{service}",
                vpc_endpoint_type="Interface", private_dns_enabled=True, subnet_ids=subnet_ids,
                security_group_ids=[group.attr_group_id],
            )  # fmt: skip
            Tags.of(endpoint).add("Name", f"{name}-{service}")


def _https(*, from_: str) -> ec2.CfnSecurityGroup.IngressProperty:
    return ec2.CfnSecurityGroup.IngressProperty(
        ip_protocol="tcp", from_port=443, to_port=443, cidr_ip=from_, description="HTTPS from the VPC"
    )


def _nothing() -> ec2.CfnSecurityGroup.EgressProperty:
    # an endpoint only answers; without an entry EC2 would add a rule that allows everything
    return ec2.CfnSecurityGroup.EgressProperty(ip_protocol="-1", cidr_ip="127.0.0.1/32", description="nowhere")
