"""The Image stack: our images, each built in the account from a source whose digest is its tag.

Invariant: a deploy ends when each image is in its repository, or fails with the failed phase and the place of the
build's log; the log outlives the rollback. The template has the commands of a project one by one, and its role has the
rights that these commands need.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

import aws_cdk as cdk
import yaml
from aws_cdk import RemovalPolicy
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from stacks.finding import accept_finding
from stacks.network import ANYWHERE, NetworkIds
from stacks.policy import PULL_ACTIONS, PrivateRepository, Statement, account_condition, allow, allow_login
from stacks.role import LAMBDA, add_log_group, add_python_function, add_role
from stacks.stack import ROOT, EnvironmentStack, copy_files
from tandem.ops.guard_config import build_arn, build_bucket_arn
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.images import pull_name
from tandem.spec.project_image import PROJECT_IMAGES, TOOLS, ProjectImage, registry_host

RESOURCE_TYPE = "Custom::TandemToolsImage"
MAX_IMAGES = 20  # each is of another source; older ones can be rebuilt from their commit
TIMEOUT_S = 900  # a function's maximum; the limits of a build end before it
BUILD_MINUTES, QUEUE_MINUTES = 8, 5  # together less than the time of the waiting function
# AWS's own image with Docker, in the smallest machine (CodeBuild user guide, "Docker images provided by CodeBuild")
BUILD_IMAGE = "aws/codebuild/amazonlinux-x86_64-standard:6.0"
COMPUTE_TYPE = "BUILD_GENERAL1_SMALL"
_LOG_ACTIONS = ("logs:CreateLogStream", "logs:PutLogEvents")
_PUSH_ACTIONS = (
    "ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:CompleteLayerUpload", "ecr:InitiateLayerUpload",
    "ecr:PutImage", "ecr:UploadLayerPart",
)  # fmt: skip
# rights of CodeBuild in a VPC (CodeBuild user guide, "Allow CodeBuild access to AWS services required to create a VPC
# network interface")
_INTERFACE_ACTIONS = (
    "ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface", "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces", "ec2:DescribeSecurityGroups", "ec2:DescribeSubnets", "ec2:DescribeVpcs",
)  # fmt: skip
_BUILD_REASONS = {
    "[*]": "a login to private registries, and the interfaces of a build in a VPC, take no narrower resource",
    "arn:*:network-interface/[*]": "interfaces of a build are not known beforehand; the condition on their subnets "
    "binds them",
}


class ImageStack(EnvironmentStack):
    """For each image its repository, the project that fills it, and the custom resource that waits for it.

    The images are built one after another, because a new account may run only one build at once.
    """

    def __init__(self, scope: Construct, id_: str, *, environment: Environment, network: NetworkIds) -> None:
        description = "Tandem: repositories and builds of the images of ours"
        super().__init__(scope, id_, environment=environment, description=description)
        # of the builds and of the function; a deploy that was rolled back must leave the log of the reason
        days = environment.log_retention_days
        group = add_log_group(self, "Logs", days, removal_policy=RemovalPolicy.RETAIN)
        # the tools image's resources keep their names from when it was the only image
        scopes = [
            self if image is TOOLS else Construct(self, image.name.title().replace("-", "")) for image in PROJECT_IMAGES
        ]
        vpc_config = _add_vpc_config(self, network) if environment.builds_in_vpc else None
        builds = [
            ImageBuild(image_scope, image, environment, group, vpc_config)
            for image_scope, image in zip(scopes, PROJECT_IMAGES, strict=True)
        ]
        function_arn = _add_build_function(Construct(self, "Provider"), environment, builds, group)
        previous_image: Construct | None = None
        for image_scope, build in zip(scopes, builds, strict=True):
            image_resource = cdk.CustomResource(
                image_scope, "Image", resource_type=RESOURCE_TYPE, service_token=function_arn,
                # limits the wait for a function that died without an answer
                service_timeout=cdk.Duration.seconds(TIMEOUT_S),
                properties={"Project": build.project, "Repository": build.repository, "Tag": build.image.tag()},
            )  # fmt: skip
            if previous_image is not None:
                image_resource.node.add_dependency(previous_image)
            previous_image = image_resource


def _add_vpc_config(scope: Construct, network: NetworkIds) -> codebuild.CfnProject.VpcConfigProperty:
    """Return the VPC of builds that may reach only the VPC and its exits, with a security group that admits nobody."""
    egress = ec2.CfnSecurityGroup.EgressProperty(
        ip_protocol="tcp", from_port=443, to_port=443, cidr_ip=ANYWHERE, description="registries, indexes, AWS"
    )
    group = ec2.CfnSecurityGroup(
        scope, "BuildGroup", vpc_id=network.vpc_id, group_description="builds of images: HTTPS out, nothing in",
        security_group_egress=[egress],
    )  # fmt: skip
    return codebuild.CfnProject.VpcConfigProperty(
        vpc_id=network.vpc_id, subnets=network.all_subnet_ids(), security_group_ids=[group.attr_group_id]
    )


def _list_vpc_statements(environment: Environment, subnet_ids: Sequence[str]) -> list[Statement]:
    """Return the rights of a build in the private subnets."""
    subnets = [cdk.Fn.join("", [build_arn(environment, "ec2", "subnet/"), subnet_id]) for subnet_id in subnet_ids]
    conditions = {"StringEquals": {"ec2:AuthorizedService": "codebuild.amazonaws.com", "ec2:Subnet": subnets}}
    interfaces = [build_arn(environment, "ec2", "network-interface/*")]
    return [
        allow(_INTERFACE_ACTIONS, ["*"]),
        allow(["ec2:CreateNetworkInterfacePermission"], interfaces, conditions=conditions),
    ]


class ImageBuild:
    """One image's repository, and in `scope` the source, the project and the role of its build.

    Args:
        vpc_config: of the build; None: CodeBuild's own network.

    Attributes:
        image: the image to build.
        repository, project: names, as expressions that make their user wait for the resource.
        repository_arn: an expression.
        project_arn: literal.
    """

    def __init__(
        self, scope: Construct, image: ProjectImage, environment: Environment, log_group: logs.ILogGroup,
        vpc_config: codebuild.CfnProject.VpcConfigProperty | None,
    ) -> None:  # fmt: skip
        name = names.repository_name(environment, image.name)
        self.image = image
        repository = _add_repository(Construct(scope, "Repository"), name)
        self.repository, self.repository_arn = repository.ref, repository.attr_arn
        self.project_arn = build_arn(environment, "codebuild", f"project/{name}")
        build_scope = Construct(scope, "Build")
        # only the files of the allow list, under the image's own tag
        source = assets.Asset(
            build_scope, "Source", path=copy_files(*((str(file), str(file)) for file in image.source_files())).name,
            asset_hash_type=cdk.AssetHashType.CUSTOM, asset_hash=image.tag(),
        )  # fmt: skip
        bucket_name, source_key = source.s3_bucket_name, source.s3_object_key
        base = image.base()
        base_name = pull_name(base.reference, base.digest, environment.registry_mirrors)
        mirror = PrivateRepository.parse_reference(base_name)
        bucket = build_bucket_arn(environment, bucket=bucket_name)
        statements = [
            allow(_LOG_ACTIONS, [log_group.log_group_arn]),
            allow(["s3:GetObject", "s3:GetObjectVersion"], [f"{bucket}/{source_key}"]),
            allow(["s3:GetBucketAcl", "s3:GetBucketLocation"], [bucket]),
            allow_login(),
            allow(_PUSH_ACTIONS, [self.repository_arn]),
            *([allow(PULL_ACTIONS, [mirror.arn()])] if mirror else []),
            *(_list_vpc_statements(environment, vpc_config.subnets or ()) if vpc_config else []),
        ]
        role = add_role(
            build_scope, "codebuild.amazonaws.com", policy_name="build", statements=statements,
            conditions={"StringEquals": {"aws:SourceAccount": environment.account, "aws:SourceArn": self.project_arn}},
            reasons=_BUILD_REASONS,
        )  # fmt: skip
        project = codebuild.CfnProject
        resource = codebuild.CfnProject(
            build_scope,
            "Project",
            name=name,
            description=f"builds {image.reference(environment)}",
            service_role=role.attr_arn,
            artifacts=project.ArtifactsProperty(type="NO_ARTIFACTS"),
            source=project.SourceProperty(
                type="S3",
                location=f"{bucket_name}/{source_key}",
                build_spec=render_build_spec(image, environment, base_name, mirror),
            ),
            environment=project.EnvironmentProperty(  # privileged: Docker runs inside
                type="LINUX_CONTAINER", image=BUILD_IMAGE, compute_type=COMPUTE_TYPE, privileged_mode=True
            ),
            logs_config=project.LogsConfigProperty(
                cloud_watch_logs=project.CloudWatchLogsConfigProperty(
                    status="ENABLED", group_name=log_group.log_group_name, stream_name="build"
                )
            ),
            timeout_in_minutes=BUILD_MINUTES,
            queued_timeout_in_minutes=QUEUE_MINUTES,
            vpc_config=vpc_config,
        )
        accept_finding(resource, "CB4", "a key would encrypt the artifacts of a build, and there are none")
        self.project = resource.ref


def _add_repository(scope: Construct, name: str) -> ecr.CfnRepository:
    """Add a repository whose tags are immutable, which scans pushed images, and which is deleted with its stack."""
    rule = {
        "rulePriority": 1, "description": f"keep the newest {MAX_IMAGES}", "action": {"type": "expire"},
        "selection": {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": MAX_IMAGES},
    }  # fmt: skip
    repository = ecr.CfnRepository(
        scope, "Repository", repository_name=name, image_tag_mutability="IMMUTABLE",
        image_scanning_configuration=ecr.CfnRepository.ImageScanningConfigurationProperty(scan_on_push=True),
        encryption_configuration=ecr.CfnRepository.EncryptionConfigurationProperty(encryption_type="AES256"),
        lifecycle_policy=ecr.CfnRepository.LifecyclePolicyProperty(
            lifecycle_policy_text=json.dumps({"rules": [rule]})
        ),
        empty_on_delete=True,  # the images can be rebuilt from their sources
    )  # fmt: skip
    repository.apply_removal_policy(RemovalPolicy.DESTROY)
    return repository


def render_build_spec(
    image: ProjectImage, environment: Environment, base_reference: str, mirror: PrivateRepository | None
) -> str:
    """Return the commands of a build, as the console shows them.

    Args:
        image: the image to build.
        base_reference: the base image as this environment pulls it.
        mirror: the private repository of the base image, or None if that is public.
    """
    reference, index = image.reference(environment), environment.package_index
    build = ["docker", "build", "--file", image.dockerfile, "--tag", reference]
    for argument in (f"BASE_IMAGE={base_reference}", *([f"PIP_INDEX_URL={index}"] if index else [])):
        build += ["--build-arg", argument]
    hosts = {registry_host(environment): environment.region} | ({mirror.host: mirror.region} if mirror else {})
    logins = [
        f"aws ecr get-login-password --region {region} | docker login --username AWS --password-stdin {host}"
        for host, region in hosts.items()
    ]
    spec = {
        "version": 0.2,
        # a plain manifest, because ECR's scan on push reads only that
        "env": {"variables": {"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}},
        "phases": {
            "pre_build": {"commands": logins},
            # the push belongs to the build: a post_build phase runs after a failed build too
            "build": {"commands": [shlex.join([*build, "."]), shlex.join(["docker", "push", reference])]},
        },
    }
    return yaml.safe_dump(spec, sort_keys=False, width=10_000)


def _add_build_function(
    scope: Construct, environment: Environment, builds: Sequence[ImageBuild], log_group: logs.ILogGroup
) -> str:
    """Add the one function that looks for a tag, builds missing images, and answers CloudFormation."""
    statements = [
        allow(["ecr:DescribeImages"], [build.repository_arn for build in builds]),
        allow(["codebuild:StartBuild", "codebuild:BatchGetBuilds"], [build.project_arn for build in builds]),
        allow(_LOG_ACTIONS, [log_group.log_group_arn]),
    ]
    conditions = account_condition(environment)
    role = add_role(scope, LAMBDA, conditions=conditions, policy_name="build", statements=statements)
    code = lambda_.Code.from_asset(str(ROOT / "lambdas" / "tools_image"), exclude=["*", "!*.py"])
    return add_python_function(scope, role, code, log_group, timeout_s=TIMEOUT_S).function_arn
