"""The Image stack: the images of ours, each built in the account from a source whose digest is its tag.

Invariant: a deploy ends when each image is in its repository, or fails with the phase that failed and where the
build's log is; the log outlives the rollback.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from stacks.aws_location import AwsLocation, locate_environment
from stacks.image_build import BuildNetwork, ImageBuild
from stacks.nag import acknowledge_findings
from stacks.network import NetworkIds
from stacks.policy import allow
from stacks.role import add_role
from stacks.stack import EnvironmentStack
from stacks.vpc import ANYWHERE
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.project_image import PROJECT_IMAGES, TOOLS, ProjectImage

RESOURCE_TYPE = "Custom::TandemToolsImage"
MAX_IMAGES = 20  # each is of another source; older ones come back from their commit
HANDLER_FOLDER = Path(__file__).parent.parent / "lambdas" / "tools_image"
TIMEOUT_S = 900  # the longest a function may run; the limits of a build end before it
MEMORY_MIB = 256
LAMBDA = "lambda.amazonaws.com"


class ImageStack(EnvironmentStack):
    """For each image of ours its repository, the project that fills it, and the custom resource that waits for it.

    They are built one after another, because a new account may build one at once.
    """

    def __init__(self, scope: Construct, id_: str, *, environment: Environment, network: NetworkIds) -> None:
        super().__init__(
            scope, id_, environment=environment, description="Tandem: repositories and builds of the images of ours"
        )
        # of the builds and of the function; a deploy that was rolled back must leave behind what says why
        group = logs.CfnLogGroup(self, "Logs", retention_in_days=environment.log_retention_days)
        group.apply_removal_policy(RemovalPolicy.RETAIN)
        # the tools image's resources keep the names that they had when it was alone
        scopes = {
            image: self if image is TOOLS else Construct(self, image.name.capitalize()) for image in PROJECT_IMAGES
        }
        build_network = _add_build_network(self, network) if environment.builds_in_vpc else None
        builds = {
            image: _add_image_build(scope_, image, environment, group, build_network)
            for image, scope_ in scopes.items()
        }
        provider = BuildProvider(
            self, "Provider", location=locate_environment(environment),
            repository_arns=[repository.arn for repository, _ in builds.values()],
            project_arns=[build.project_arn for _, build in builds.values()], log_group=group,
        )  # fmt: skip
        previous_image: Construct | None = None
        for image, (repository, build) in builds.items():
            image_resource = cdk.CustomResource(
                scopes[image], "Image", resource_type=RESOURCE_TYPE, service_token=provider.arn,
                # nobody waits for a function that died without an answer
                service_timeout=cdk.Duration.seconds(TIMEOUT_S),
                properties={"Project": build.project, "Repository": repository.name, "Tag": image.tag()},
            )  # fmt: skip
            if previous_image is not None:
                image_resource.node.add_dependency(previous_image)
            previous_image = image_resource


def _add_build_network(scope: Construct, network: NetworkIds) -> BuildNetwork:
    """Return where builds run: the private subnets, with a group that nobody enters."""
    group = ec2.CfnSecurityGroup(
        scope, "BuildGroup", vpc_id=network.vpc_id, group_description="builds of images: HTTPS out, nothing in",
        security_group_egress=[ec2.CfnSecurityGroup.EgressProperty(
            ip_protocol="tcp", from_port=443, to_port=443, cidr_ip=ANYWHERE, description="registries, indexes, AWS"
        )],
    )  # fmt: skip
    return BuildNetwork(vpc_id=network.vpc_id, subnet_ids=network.all_subnet_ids(), group_id=group.attr_group_id)


def _add_image_build(
    scope: Construct,
    image: ProjectImage,
    environment: Environment,
    group: logs.CfnLogGroup,
    build_network: BuildNetwork | None,
) -> tuple[ImageRepository, ImageBuild]:
    repository = ImageRepository(scope, "Repository", name=names.repository_name(environment, image.name))
    build = ImageBuild(
        scope, "Build", image=image, environment=environment, location=locate_environment(environment),
        repository_arn=repository.arn, log_group=group, build_network=build_network,
    )  # fmt: skip
    return repository, build


class ImageRepository(Construct):
    """A repository whose tags never move, whose images are scanned when they arrive, and which goes with its stack.

    Attributes:
        arn: the repository.
        name: its name, as an expression that makes its user wait for it.
    """

    def __init__(self, scope: Construct, id_: str, *, name: str) -> None:
        super().__init__(scope, id_)
        rule = {
            "rulePriority": 1, "description": f"keep the newest {MAX_IMAGES}", "action": {"type": "expire"},
            "selection": {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": MAX_IMAGES},
        }  # fmt: skip
        repository = ecr.CfnRepository(
            self, "Repository", repository_name=name, image_tag_mutability="IMMUTABLE",
            image_scanning_configuration=ecr.CfnRepository.ImageScanningConfigurationProperty(scan_on_push=True),
            encryption_configuration=ecr.CfnRepository.EncryptionConfigurationProperty(encryption_type="AES256"),
            lifecycle_policy=ecr.CfnRepository.LifecyclePolicyProperty(
                lifecycle_policy_text=json.dumps({"rules": [rule]})
            ),
            empty_on_delete=True,  # what is in it comes back from its source
        )  # fmt: skip
        repository.apply_removal_policy(RemovalPolicy.DESTROY)
        self.arn, self.name = repository.attr_arn, repository.ref


class BuildProvider(Construct):
    """The one function that asks for a tag, has built what is missing, and answers CloudFormation.

    Attributes:
        arn: the function.
    """

    def __init__(
        self, scope: Construct, id_: str, *, location: AwsLocation, repository_arns: Sequence[str],
        project_arns: Sequence[str], log_group: logs.CfnLogGroup,
    ) -> None:  # fmt: skip
        super().__init__(scope, id_)
        statements = [
            allow(["ecr:DescribeImages"], repository_arns),
            allow(["codebuild:StartBuild", "codebuild:BatchGetBuilds"], project_arns),
            allow(["logs:CreateLogStream", "logs:PutLogEvents"], [log_group.attr_arn]),
        ]
        role = add_role(
            self, LAMBDA, conditions=location.account_condition(), policy_name="build", statements=statements
        )
        code = assets.Asset(self, "Code", path=str(HANDLER_FOLDER), exclude=["*", "!*.py"])
        function = lambda_.CfnFunction(
            self, "Function", runtime="python3.13", handler="handler.handler", role=role.attr_arn,
            code=lambda_.CfnFunction.CodeProperty(s3_bucket=code.s3_bucket_name, s3_key=code.s3_object_key),
            timeout=TIMEOUT_S, memory_size=MEMORY_MIB,
            logging_config=lambda_.CfnFunction.LoggingConfigProperty(log_group=log_group.ref),
        )  # fmt: skip
        acknowledge_findings(
            function, {"AwsSolutions-L1": "the Python of the tools image; another version is a decision of ours"}
        )
        self.arn = function.attr_arn
