"""VPC endpoints: how private nodes reach AWS without the internet.

Invariant: the endpoints' security group admits HTTPS from the VPC's own range and nothing else; through the S3 endpoint
nothing is written but into this environment's bucket.
"""

from __future__ import annotations

from typing import Any

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.aws_location import locate_environment
from stacks.policy import allow, policy_document
from stacks.tags import name_tags
from stacks.vpc import EnvironmentVpc
from tandem.spec import names
from tandem.spec.environment import Environment, NewNetwork
from tandem.spec.interface_endpoints import list_endpoint_services

# What pods and people inside the VPC do with this environment's bucket.
_BUCKET_ACTIONS = ("s3:ListBucket", "s3:ListBucketMultipartUploads", "s3:ListBucketVersions", "s3:GetBucketVersioning")
_OBJECT_ACTIONS = ("s3:GetObject", "s3:GetObjectVersion", "s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject")


class VpcEndpoints(Construct):
    """A free S3 gateway endpoint, and the interface endpoints that the environment has."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        vpc: EnvironmentVpc,
        network: NewNetwork,
        environment: Environment,
        name: str,
    ) -> None:
        super().__init__(scope, id_)
        prefix, services = f"com.amazonaws.{environment.region}", list_endpoint_services(environment)
        ec2.CfnVPCEndpoint(
            self, "S3", vpc_id=vpc.vpc_id, service_name=f"{prefix}.s3", vpc_endpoint_type="Gateway",
            route_table_ids=vpc.route_table_ids, policy_document=_s3_policy(environment), tags=name_tags(f"{name}-s3"),
        )  # fmt: skip
        if not services:
            return
        group_id = ec2.CfnSecurityGroup(
            self,
            "SecurityGroup",
            vpc_id=vpc.vpc_id,
            group_description="HTTPS from the VPC to AWS services",
            security_group_ingress=[_https_ingress_rule(cidr=network.cidr)],
            security_group_egress=[loopback_egress_rule()],
            tags=name_tags(f"{name}-endpoints"),
        ).attr_group_id
        for service in services:
            ec2.CfnVPCEndpoint(
                self,
                service.replace(".", "-"),
                vpc_id=vpc.vpc_id,
                service_name=f"{prefix}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=list(vpc.subnet_ids.values()),
                security_group_ids=[group_id],
                tags=name_tags(f"{name}-{service}"),
            )


def _s3_policy(environment: Environment) -> dict[str, Any]:
    """Return what the S3 endpoint lets through: reads of any bucket, writes to this environment's alone.

    Reads stay open, because images' layers, packages of the nodes' system and charts lie in buckets of others (ECR user
    guide, VPC endpoints: prod-REGION-starport-layer-bucket). With delivery cdk the kubectl function answers
    CloudFormation through a bucket of AWS's own (CloudFormation user guide, VPC endpoints).
    """
    location = locate_environment(environment)
    bucket = location.bucket_arn(names.bucket_name(environment))
    response_objects = location.bucket_arn(
        f"cloudformation-custom-resource-response-{environment.region.replace('-', '')}/*"
    )
    statements = [
        allow(["s3:GetObject"], ["*"]),
        allow(_BUCKET_ACTIONS, [bucket]),
        allow(_OBJECT_ACTIONS, [f"{bucket}/*"]),
        *([allow(["s3:PutObject"], [response_objects])] if environment.delivery.kind == "cdk" else []),
    ]
    return policy_document(*(statement | {"Principal": "*"} for statement in statements))


def loopback_egress_rule() -> ec2.CfnSecurityGroup.EgressProperty:
    """Return an egress rule that reaches nothing; without any rule EC2 adds one that reaches everything."""
    return ec2.CfnSecurityGroup.EgressProperty(ip_protocol="-1", cidr_ip="127.0.0.1/32", description="nowhere")


def _https_ingress_rule(*, cidr: str) -> ec2.CfnSecurityGroup.IngressProperty:
    return ec2.CfnSecurityGroup.IngressProperty(
        ip_protocol="tcp", from_port=443, to_port=443, cidr_ip=cidr, description="HTTPS from the VPC"
    )
