"""The CodeBuild project that builds one image and pushes it.

Invariant: what the project runs is written out in the template, command by command, and what its role may do is
what these commands need.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import yaml
from aws_cdk import AssetHashType
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from stacks.ecr import PULL, PrivateRepository, login
from stacks.nag import acknowledge
from stacks.place import Place
from stacks.policy import allow, document
from tandem.spec import names
from tandem.spec.built_image import ROOT, BuiltImage, registry
from tandem.spec.environment import Environment
from tandem.spec.images import pull_name

# AWS's own image with Docker, in the smallest machine (CodeBuild user guide, "Docker images provided by CodeBuild")
BUILDER = "aws/codebuild/amazonlinux-x86_64-standard:6.0"
MACHINE = "BUILD_GENERAL1_SMALL"
BUILD_MINUTES, QUEUE_MINUTES = 8, 5  # together less than the function that waits has: stacks/image.py
_PUSH = (
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

    def statements(self, place: Place) -> list[dict[str, Any]]:
        """Return what a build in these subnets takes."""
        within = {"StringEquals": {
            "ec2:AuthorizedService": "codebuild.amazonaws.com",
            "ec2:Subnet": [
                cdk.Fn.join("", [place.arn("ec2", "subnet/"), subnet_id]) for subnet_id in self.subnet_ids
            ],
        }}  # fmt: skip
        return [
            allow(_INTERFACE_ACTIONS, ["*"]),
            allow(
                ["ec2:CreateNetworkInterfacePermission"], [place.arn("ec2", "network-interface/*")], conditions=within
            ),
        ]


class ImageBuild(Construct):
    """The source, the project and its role.

    Attributes:
        project: the project's name, as an expression that makes its user wait for it.
        project_arn: literal.
    """

    def __init__(
        self, scope: Construct, id_: str, *, image: BuiltImage, environment: Environment, place: Place,
        repository_arn: str, log_group: logs.CfnLogGroup, inside: BuildNetwork | None,
    ) -> None:  # fmt: skip
        super().__init__(scope, id_)
        name = names.repository(environment, image.name)
        self.project_arn = place.arn("codebuild", f"project/{name}")
        source = _source(self, image)
        base = image.base()
        base_name = pull_name(base.reference, base.digest, environment.registry_mirrors)
        mirror = PrivateRepository.of(base_name)
        role = self._role(
            source, place=place, repository_arn=repository_arn, log_group_arn=log_group.attr_arn, mirror=mirror,
            inside=inside,
        )  # fmt: skip
        project = codebuild.CfnProject(
            self, "Project", name=name, description=f"builds {image.reference(environment)}",
            service_role=role.attr_arn,
            artifacts=codebuild.CfnProject.ArtifactsProperty(type="NO_ARTIFACTS"),
            source=codebuild.CfnProject.SourceProperty(
                type="S3", location=f"{source.s3_bucket_name}/{source.s3_object_key}",
                build_spec=build_spec(image, environment, base_name, mirror),
            ),
            environment=codebuild.CfnProject.EnvironmentProperty(
                type="LINUX_CONTAINER", image=BUILDER, compute_type=MACHINE,
                privileged_mode=True,  # Docker runs inside
            ),
            logs_config=codebuild.CfnProject.LogsConfigProperty(
                cloud_watch_logs=codebuild.CfnProject.CloudWatchLogsConfigProperty(
                    status="ENABLED", group_name=log_group.ref, stream_name="build"
                )
            ),
            timeout_in_minutes=BUILD_MINUTES, queued_timeout_in_minutes=QUEUE_MINUTES,
            vpc_config=codebuild.CfnProject.VpcConfigProperty(
                vpc_id=inside.vpc_id, subnets=list(inside.subnet_ids), security_group_ids=[inside.group_id]
            )
            if inside else None,
        )  # fmt: skip
        acknowledge(
            project,
            {
                "AwsSolutions-CB3": "docker build needs a Docker daemon; the project runs this one source only",
                "AwsSolutions-CB4": "the key would encrypt artifacts and caches, and the project has neither",
            },
        )
        self.project = project.ref

    def _role(
        self, source: assets.Asset, *, place: Place, repository_arn: str, log_group_arn: str,
        mirror: PrivateRepository | None, inside: BuildNetwork | None,
    ) -> iam.CfnRole:  # fmt: skip
        bucket = place.bucket_arn(source.s3_bucket_name)
        statements = [
            allow(["logs:CreateLogStream", "logs:PutLogEvents"], [log_group_arn]),
            allow(["s3:GetObject", "s3:GetObjectVersion"], [f"{bucket}/{source.s3_object_key}"]),
            allow(["s3:GetBucketAcl", "s3:GetBucketLocation"], [bucket]),
            login(),
            allow(_PUSH, [repository_arn]),
            *([allow(PULL, [mirror.arn(place.partition)])] if mirror else []),
            *(inside.statements(place) if inside else []),
        ]
        trust = allow(
            ["sts:AssumeRole"], service="codebuild.amazonaws.com",
            conditions={"StringEquals": {"aws:SourceAccount": place.account, "aws:SourceArn": self.project_arn}},
        )  # fmt: skip
        role = iam.CfnRole(
            self, "Role", assume_role_policy_document=document(trust),
            policies=[iam.CfnRole.PolicyProperty(policy_name="build", policy_document=document(*statements))],
        )  # fmt: skip
        interfaces = f"AwsSolutions-IAM5[Resource::{place.arn('ec2', 'network-interface/*')}]"
        acknowledge(role, {
            "AwsSolutions-IAM5[Resource::*]": "a login to private registries, and the interfaces of a build in a VPC, "
            "take no narrower resource",
            **({interfaces: "ids are not known beforehand; the condition names the subnets"} if inside else {}),
        })  # fmt: skip
        return role


def build_spec(image: BuiltImage, environment: Environment, base: str, mirror: PrivateRepository | None) -> str:
    """Return the commands of a build, as the console shows them.

    Args:
        image: what is built.
        base: the base image as this environment pulls it.
        mirror: the private repository that it comes from, or None where it is public.
    """
    reference, index = image.reference(environment), environment.package_index
    arguments = [f"BASE_IMAGE={base}", *([f"PIP_INDEX_URL={index}"] if index else [])]
    hosts = {registry(environment): environment.region} | ({mirror.host: mirror.region} if mirror else {})
    build = ["docker", "build", "--file", image.dockerfile, "--tag", reference]
    return _yaml({
        "version": 0.2,
        # a plain manifest, which is what ECR's scan on push reads
        "env": {"variables": {"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}},
        "phases": {
            "pre_build": {"commands": [_login(host, region) for host, region in hosts.items()]},
            # the push belongs to the build: a post_build phase runs after a failed build too
            "build": {"commands": [
                shlex.join([*build, *(part for each in arguments for part in ("--build-arg", each)), "."]),
                shlex.join(["docker", "push", reference]),
            ]},
        },
    })  # fmt: skip


def _yaml(document_: dict[str, Any]) -> str:
    return yaml.safe_dump(document_, sort_keys=False, width=10_000)


def _login(host: str, region: str) -> str:
    return f"aws ecr get-login-password --region {region} | docker login --username AWS --password-stdin {host}"


def _source(scope: Construct, image: BuiltImage) -> assets.Asset:
    """Return the build's source as an asset: the files of the allow list and no other, under the image's own tag."""
    tag = image.tag()
    folder = _gathered(image, tag).name
    return assets.Asset(scope, "Source", path=folder, asset_hash_type=AssetHashType.CUSTOM, asset_hash=tag)


@cache
def _gathered(image: BuiltImage, tag: str) -> tempfile.TemporaryDirectory[str]:  # noqa: ARG001  # another, other files
    """Copy an image's source once, for every environment that builds it; the folder goes with the process."""
    folder = tempfile.TemporaryDirectory()
    for file in image.source_files():
        target = Path(folder.name) / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, target)
    return folder
