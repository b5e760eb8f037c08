"""The CodeBuild project that builds one image and pushes it.

Invariant: what the project runs is written out in the template, command by command, and what its role may do is
what these commands need.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aws_cdk as cdk
import yaml
from aws_cdk import AssetHashType
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from stacks.aws_location import AwsLocation
from stacks.ecr import PULL_ACTIONS, PrivateRepository, allow_login
from stacks.nag import acknowledge_findings
from stacks.policy import allow
from stacks.role import add_role
from stacks.source_folder import copy_files
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.images import pull_name
from tandem.spec.project_image import ProjectImage, registry_host

# AWS's own image with Docker, in the smallest machine (CodeBuild user guide, "Docker images provided by CodeBuild")
BUILD_IMAGE = "aws/codebuild/amazonlinux-x86_64-standard:6.0"
COMPUTE_TYPE = "BUILD_GENERAL1_SMALL"
BUILD_MINUTES, QUEUE_MINUTES = 8, 5  # together less than the function that waits has: stacks/image.py
_PUSH_ACTIONS = (
    "ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:CompleteLayerUpload", "ecr:InitiateLayerUpload",
    "ecr:PutImage", "ecr:UploadLayerPart",
)  # fmt: skip
# what CodeBuild needs to run in a VPC (CodeBuild user guide, "Allow CodeBuild access to AWS services required to create
# a VPC network interface")
_INTERFACE_ACTIONS = (
    "ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface", "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces", "ec2:DescribeSecurityGroups", "ec2:DescribeSubnets", "ec2:DescribeVpcs",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildNetwork:
    """Where a build runs that shall see nothing but the VPC and its ways out."""

    vpc_id: str
    subnet_ids: Sequence[str]
    group_id: str

    def statements(self, location: AwsLocation) -> list[dict[str, Any]]:
        """Return what a build in these subnets takes."""
        conditions = {"StringEquals": {
            "ec2:AuthorizedService": "codebuild.amazonaws.com",
            "ec2:Subnet": [
                cdk.Fn.join("", [location.arn("ec2", "subnet/"), subnet_id]) for subnet_id in self.subnet_ids
            ],
        }}  # fmt: skip
        return [
            allow(_INTERFACE_ACTIONS, ["*"]),
            allow(
                ["ec2:CreateNetworkInterfacePermission"],
                [location.arn("ec2", "network-interface/*")],
                conditions=conditions,
            ),
        ]


class ImageBuild(Construct):
    """The source, the project and its role.

    Attributes:
        project: the project's name, as an expression that makes its user wait for it.
        project_arn: literal.
    """

    def __init__(
        self, scope: Construct, id_: str, *, image: ProjectImage, environment: Environment, location: AwsLocation,
        repository_arn: str, log_group: logs.CfnLogGroup, build_network: BuildNetwork | None,
    ) -> None:  # fmt: skip
        super().__init__(scope, id_)
        name = names.repository_name(environment, image.name)
        self.project_arn = location.arn("codebuild", f"project/{name}")
        source = _add_source_asset(self, image)
        base = image.base()
        base_name = pull_name(base.reference, base.digest, environment.registry_mirrors)
        mirror = PrivateRepository.parse_reference(base_name)
        role = self._add_role(
            source, location=location, repository_arn=repository_arn, log_group_arn=log_group.attr_arn, mirror=mirror,
            build_network=build_network,
        )  # fmt: skip
        project = codebuild.CfnProject(
            self,
            "Project",
            name=name,
            description=f"builds {image.reference(environment)}",
            service_role=role.attr_arn,
            artifacts=codebuild.CfnProject.ArtifactsProperty(type="NO_ARTIFACTS"),
            source=codebuild.CfnProject.SourceProperty(
                type="S3",
                location=f"{source.s3_bucket_name}/{source.s3_object_key}",
                build_spec=render_build_spec(image, environment, base_name, mirror),
            ),
            environment=codebuild.CfnProject.EnvironmentProperty(
                type="LINUX_CONTAINER",
                image=BUILD_IMAGE,
                compute_type=COMPUTE_TYPE,
                privileged_mode=True,  # Docker runs inside
            ),
            logs_config=codebuild.CfnProject.LogsConfigProperty(
                cloud_watch_logs=codebuild.CfnProject.CloudWatchLogsConfigProperty(
                    status="ENABLED", group_name=log_group.ref, stream_name="build"
                )
            ),
            timeout_in_minutes=BUILD_MINUTES,
            queued_timeout_in_minutes=QUEUE_MINUTES,
            vpc_config=codebuild.CfnProject.VpcConfigProperty(
                vpc_id=build_network.vpc_id,
                subnets=list(build_network.subnet_ids),
                security_group_ids=[build_network.group_id],
            )
            if build_network
            else None,
        )
        acknowledge_findings(
            project,
            {
                "AwsSolutions-CB3": "docker build needs a Docker daemon; the project runs this one source only",
                "AwsSolutions-CB4": "the key would encrypt artifacts and caches, and the project has neither",
            },
        )
        self.project = project.ref

    def _add_role(
        self, source: assets.Asset, *, location: AwsLocation, repository_arn: str, log_group_arn: str,
        mirror: PrivateRepository | None, build_network: BuildNetwork | None,
    ) -> iam.CfnRole:  # fmt: skip
        bucket = location.bucket_arn(source.s3_bucket_name)
        statements = [
            allow(["logs:CreateLogStream", "logs:PutLogEvents"], [log_group_arn]),
            allow(["s3:GetObject", "s3:GetObjectVersion"], [f"{bucket}/{source.s3_object_key}"]),
            allow(["s3:GetBucketAcl", "s3:GetBucketLocation"], [bucket]),
            allow_login(),
            allow(_PUSH_ACTIONS, [repository_arn]),
            *([allow(PULL_ACTIONS, [mirror.arn(location.partition)])] if mirror else []),
            *(build_network.statements(location) if build_network else []),
        ]
        login_reason = (
            "a login to private registries, and the interfaces of a build in a VPC, take no narrower resource"
        )
        reasons = {"AwsSolutions-IAM5[Resource::*]": login_reason}
        if build_network:
            interface_finding = f"AwsSolutions-IAM5[Resource::{location.arn('ec2', 'network-interface/*')}]"
            reasons[interface_finding] = "ids are not known beforehand; the condition names the subnets"
        return add_role(
            self, "codebuild.amazonaws.com", policy_name="build", statements=statements, reasons=reasons,
            conditions={"StringEquals": {"aws:SourceAccount": location.account, "aws:SourceArn": self.project_arn}},
        )  # fmt: skip


def render_build_spec(
    image: ProjectImage, environment: Environment, base_reference: str, mirror: PrivateRepository | None
) -> str:
    """Return the commands of a build, as the console shows them.

    Args:
        image: what is built.
        base_reference: the base image as this environment pulls it.
        mirror: the private repository that it comes from, or None where it is public.
    """
    reference, index = image.reference(environment), environment.package_index
    arguments = [f"BASE_IMAGE={base_reference}", *([f"PIP_INDEX_URL={index}"] if index else [])]
    hosts = {registry_host(environment): environment.region} | ({mirror.host: mirror.region} if mirror else {})
    build = ["docker", "build", "--file", image.dockerfile, "--tag", reference]
    return _dump_yaml({
        "version": 0.2,
        # a plain manifest, which is what ECR's scan on push reads
        "env": {"variables": {"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}},
        "phases": {
            "pre_build": {"commands": [_login_command(host, region) for host, region in hosts.items()]},
            # the push belongs to the build: a post_build phase runs after a failed build too
            "build": {"commands": [
                shlex.join([*build, *(part for argument in arguments for part in ("--build-arg", argument)), "."]),
                shlex.join(["docker", "push", reference]),
            ]},
        },
    })  # fmt: skip


def _dump_yaml(document_: dict[str, Any]) -> str:
    return yaml.safe_dump(document_, sort_keys=False, width=10_000)


def _login_command(host: str, region: str) -> str:
    return f"aws ecr get-login-password --region {region} | docker login --username AWS --password-stdin {host}"


def _add_source_asset(scope: Construct, image: ProjectImage) -> assets.Asset:
    """Return the build's source as an asset: the files of the allow list and no other, under the image's own tag."""
    folder = copy_files({str(file): str(file) for file in image.source_files()})
    return assets.Asset(scope, "Source", path=folder, asset_hash_type=AssetHashType.CUSTOM, asset_hash=image.tag())
