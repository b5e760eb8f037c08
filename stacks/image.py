"""The stacks of our images: each has one image built, from a source whose digest is its tag.

Invariant: a deploy ends when the image is in its repository, or fails with the failed phase and the
place of the build's log. Repository and log are the Registry stack's, and outlive the rollback. The
template has the commands of a project one by one, and its role has the rights that these commands
need.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import aws_cdk as cdk
import yaml
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from stacks.finding import accept_finding
from stacks.network import ANYWHERE, NetworkIds
from stacks.policy import PULL_ACTIONS, PrivateRepository, Statement, allow, allow_login
from stacks.registry import (
    LOG_ACTIONS,
    RegistryStack,
    build_function_arn,
    build_project_arn,
    build_repository_arn,
)
from stacks.role import add_role
from stacks.stack import EnvironmentStack, copy_files
from tandem.declarations import names
from tandem.declarations.arns import build_arn, build_bucket_arn
from tandem.declarations.environment import Environment
from tandem.declarations.images import pull_name
from tandem.declarations.project_image import BUILD_MINUTES, ProjectImage, registry_host

RESOURCE_TYPE = "Custom::TandemImage"
# CloudFormation's own maximum for a custom resource. The function of lambdas/build_image answers
# before it is over.
SERVICE_TIMEOUT_S = 3600
QUEUE_MINUTES = 10
# AWS's own image with Docker, in the smallest machine (CodeBuild user guide, "Docker images
# provided by CodeBuild")
BUILD_IMAGE = "aws/codebuild/amazonlinux-x86_64-standard:6.0"
COMPUTE_TYPE = "BUILD_GENERAL1_SMALL"
_PUSH_ACTIONS = (
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:CompleteLayerUpload",
    "ecr:InitiateLayerUpload",
    "ecr:PutImage",
    "ecr:UploadLayerPart",
)
# rights of CodeBuild in a VPC (CodeBuild user guide, "Allow CodeBuild access to AWS services
# required to create a VPC network interface")
_INTERFACE_ACTIONS = (
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
)
_Project = codebuild.CfnProject
_BUILD_REASONS = {
    "[*]": (
        "a login to private registries, and the interfaces of a build in a VPC,"
        " take no narrower resource"
    ),
    "arn:*:network-interface/[*]": (
        "interfaces of a build are not known beforehand; the condition on their subnets binds them"
    ),
}


class ImageStack(EnvironmentStack):
    """The project that builds one image, and the custom resource that waits for it.

    It has no termination protection: a stack whose creation failed has nothing to lose. Under
    protection the CDK could not delete it to create it anew. The next deploy then looks for the
    image again, and builds it if it is missing.

    Args:
        image: to build.
        network: for a build in the VPC.
        registry: with the log of the builds.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        image: ProjectImage,
        network: NetworkIds,
        registry: RegistryStack,
    ) -> None:
        super().__init__(
            scope,
            id_,
            environment=environment,
            description=f"Tandem: build of the image {image.name}",
            has_termination_protection=False,
        )
        vpc_config = _add_vpc_config(self, network) if environment.builds_in_vpc else None
        project = _add_project(Construct(self, "Build"), image, environment, registry, vpc_config)
        cdk.CustomResource(
            self,
            "Image",
            resource_type=RESOURCE_TYPE,
            service_token=build_function_arn(environment),
            # limits the wait for a function that died without an answer
            service_timeout=cdk.Duration.seconds(SERVICE_TIMEOUT_S),
            properties={
                "Project": project.ref,  # an expression, so that it waits for the project
                "Repository": names.repository_name(environment, image.name),
                "Tag": image.tag(),
            },
        )


def _add_vpc_config(
    scope: Construct, network: NetworkIds
) -> codebuild.CfnProject.VpcConfigProperty:
    """Add a security group that admits nobody, and return the VPC settings of builds with it."""
    egress = ec2.CfnSecurityGroup.EgressProperty(
        ip_protocol="tcp",
        from_port=443,
        to_port=443,
        cidr_ip=ANYWHERE,
        description="registries, indexes, AWS",
    )
    group = ec2.CfnSecurityGroup(
        scope,
        "BuildGroup",
        vpc_id=network.vpc_id,
        group_description="builds of images: HTTPS out, nothing in",
        security_group_egress=[egress],
    )
    return codebuild.CfnProject.VpcConfigProperty(
        vpc_id=network.vpc_id,
        subnets=network.base_subnet_ids(),
        security_group_ids=[group.attr_group_id],
    )


def _list_vpc_statements(environment: Environment, subnet_ids: Sequence[str]) -> list[Statement]:
    """Return the rights of a build in the private subnets."""
    subnets = [
        cdk.Fn.join("", [build_arn(environment, "ec2", "subnet/"), subnet_id])
        for subnet_id in subnet_ids
    ]
    conditions = {
        "StringEquals": {"ec2:AuthorizedService": "codebuild.amazonaws.com", "ec2:Subnet": subnets}
    }
    interfaces = [build_arn(environment, "ec2", "network-interface/*")]
    return [
        allow(_INTERFACE_ACTIONS, ["*"]),
        allow(["ec2:CreateNetworkInterfacePermission"], interfaces, conditions=conditions),
    ]


def _add_project(
    scope: Construct,
    image: ProjectImage,
    environment: Environment,
    registry: RegistryStack,
    vpc_config: codebuild.CfnProject.VpcConfigProperty | None,
) -> codebuild.CfnProject:
    """Add source, role and project of a build.

    Args:
        vpc_config: of the build; None: CodeBuild's own network.
    """
    # only the files of the allow list, under the image's own tag
    source = assets.Asset(
        scope,
        "Source",
        path=copy_files(*((str(file), str(file)) for file in image.source_files())).name,
        asset_hash_type=cdk.AssetHashType.CUSTOM,
        asset_hash=image.tag(),
    )
    base = image.base()
    base_name = pull_name(base.reference, base.digest, environment.registry_mirrors)
    mirror = PrivateRepository.parse_reference(base_name)
    statements = _list_build_statements(image, environment, registry, source, mirror)
    if vpc_config is not None:
        statements += _list_vpc_statements(environment, vpc_config.subnets or ())
    arn = build_project_arn(environment, image.name)
    role = add_role(
        scope,
        "codebuild.amazonaws.com",
        policy_name="build",
        statements=statements,
        conditions={
            "StringEquals": {"aws:SourceAccount": environment.account, "aws:SourceArn": arn}
        },
        reasons=_BUILD_REASONS,
    )

    project = _Project(
        scope,
        "Project",
        name=names.repository_name(environment, image.name),
        description=f"builds {image.reference(environment)}",
        service_role=role.attr_arn,
        artifacts=_Project.ArtifactsProperty(type="NO_ARTIFACTS"),
        source=_Project.SourceProperty(
            type="S3",
            location=f"{source.s3_bucket_name}/{source.s3_object_key}",
            build_spec=render_build_spec(image, environment, base_name, mirror),
        ),
        environment=_Project.EnvironmentProperty(
            type="LINUX_CONTAINER",
            image=BUILD_IMAGE,
            compute_type=COMPUTE_TYPE,
            privileged_mode=True,  # Docker runs inside
        ),
        logs_config=_Project.LogsConfigProperty(
            cloud_watch_logs=_Project.CloudWatchLogsConfigProperty(
                status="ENABLED", group_name=registry.log_group_name, stream_name="build"
            )
        ),
        timeout_in_minutes=BUILD_MINUTES,
        queued_timeout_in_minutes=QUEUE_MINUTES,
        vpc_config=vpc_config,
    )
    accept_finding(
        project, "CB4", "a key would encrypt the artifacts of a build, and there are none"
    )
    return project


def _list_build_statements(
    image: ProjectImage,
    environment: Environment,
    registry: RegistryStack,
    source: assets.Asset,
    mirror: PrivateRepository | None,
) -> list[Statement]:
    """Return a build's rights: log, source, own repository, base behind a private mirror."""
    bucket = build_bucket_arn(environment, bucket=source.s3_bucket_name)
    statements = [
        allow(LOG_ACTIONS, [registry.log_group_arn]),
        allow(["s3:GetObject", "s3:GetObjectVersion"], [f"{bucket}/{source.s3_object_key}"]),
        allow(["s3:GetBucketAcl", "s3:GetBucketLocation"], [bucket]),
        allow_login(),
        allow(_PUSH_ACTIONS, [build_repository_arn(environment, image.name)]),
    ]
    if mirror is not None:
        statements.append(allow(PULL_ACTIONS, [mirror.arn()]))
    return statements


def render_build_spec(
    image: ProjectImage,
    environment: Environment,
    base_reference: str,
    mirror: PrivateRepository | None,
) -> str:
    """Return the commands of a build, as the console shows them.

    Args:
        image: the image to build.
        base_reference: the base image as this environment pulls it.
        mirror: the private repository of the base image, or None if that is public.
    """
    reference = image.reference(environment)
    index = environment.package_index
    build = ["docker", "build", "--file", image.dockerfile, "--tag", reference]
    build += ["--build-arg", f"BASE_IMAGE={base_reference}"]
    if index:
        build += ["--build-arg", f"PIP_INDEX_URL={index}"]

    hosts = {registry_host(environment): environment.region}
    if mirror:
        hosts[mirror.host] = mirror.region
    logins = [
        f"aws ecr get-login-password --region {region}"
        f" | docker login --username AWS --password-stdin {host}"
        for host, region in hosts.items()
    ]
    spec = {
        "version": 0.2,
        # a plain manifest, because ECR's scan on push reads only that
        "env": {"variables": {"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}},
        "phases": {
            "pre_build": {"commands": logins},
            # the push belongs to the build: a post_build phase runs after a failed build too
            "build": {
                "commands": [shlex.join([*build, "."]), shlex.join(["docker", "push", reference])]
            },
        },
    }
    return yaml.safe_dump(spec, sort_keys=False, width=10_000)
