"""The Image stack: the tools image, built in the account from a source whose digest is its tag.

Invariant: a deploy ends when the image is in the repository, or fails with the phase that failed and where the
build's log is; the log outlives the rollback.
"""

from __future__ import annotations

import json
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import RemovalPolicy
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from stacks.image_build import ImageBuild
from stacks.nag import acknowledge
from stacks.place import place_of
from stacks.policy import allow, document
from stacks.stack import EnvironmentStack
from tandem.spec import names, tools_image
from tandem.spec.environment import Environment

RESOURCE_TYPE = "Custom::TandemToolsImage"
KEPT_IMAGES = 20  # each is of another source; older ones come back from their commit
HANDLER = Path(__file__).parent.parent / "lambdas" / "tools_image"
LIMIT_S = 900  # the longest a function may run; the limits of a build end before it
MEMORY_MIB = 256
LAMBDA = "lambda.amazonaws.com"


class ImageStack(EnvironmentStack):
    """The repository, the project that fills it, and the custom resource that waits for it."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(
            scope, id_, environment=environment, description="Tandem: repository and build of the tools image"
        )
        place = place_of(environment)
        repository = Repository(self, "Repository", name=names.repository(environment))
        # of the build and of the function; a deploy that was rolled back must leave behind what says why
        group = logs.CfnLogGroup(self, "Logs", retention_in_days=environment.log_retention_days)
        group.apply_removal_policy(RemovalPolicy.RETAIN)
        build = ImageBuild(
            self, "Build", environment=environment, place=place, repository_arn=repository.arn, log_group=group
        )
        provider = Provider(
            self, "Provider", repository_arn=repository.arn, project_arn=build.project_arn, log_group=group
        )
        cdk.CustomResource(
            self, "Image", resource_type=RESOURCE_TYPE, service_token=provider.arn,
            service_timeout=cdk.Duration.seconds(LIMIT_S),  # nobody waits for a function that died without an answer
            properties={"Project": build.project, "Repository": repository.name, "Tag": tools_image.tag()},
        )  # fmt: skip


class Repository(Construct):
    """A repository whose tags never move, whose images are scanned when they arrive, and which goes with its stack.

    Attributes:
        arn: the repository.
        name: its name, as an expression that makes its user wait for it.
    """

    def __init__(self, scope: Construct, id_: str, *, name: str) -> None:
        super().__init__(scope, id_)
        newest = {
            "rulePriority": 1, "description": f"keep the newest {KEPT_IMAGES}", "action": {"type": "expire"},
            "selection": {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": KEPT_IMAGES},
        }  # fmt: skip
        repository = ecr.CfnRepository(
            self, "Repository", repository_name=name, image_tag_mutability="IMMUTABLE",
            image_scanning_configuration=ecr.CfnRepository.ImageScanningConfigurationProperty(scan_on_push=True),
            encryption_configuration=ecr.CfnRepository.EncryptionConfigurationProperty(encryption_type="AES256"),
            lifecycle_policy=ecr.CfnRepository.LifecyclePolicyProperty(
                lifecycle_policy_text=json.dumps({"rules": [newest]})
            ),
            empty_on_delete=True,  # what is in it comes back from its source
        )  # fmt: skip
        repository.apply_removal_policy(RemovalPolicy.DESTROY)
        self.arn, self.name = repository.attr_arn, repository.ref


class Provider(Construct):
    """The function that asks for the tag, has built what is missing, and answers CloudFormation.

    Attributes:
        arn: the function.
    """

    def __init__(
        self, scope: Construct, id_: str, *, repository_arn: str, project_arn: str, log_group: logs.CfnLogGroup
    ) -> None:
        super().__init__(scope, id_)
        statements = [
            allow(["ecr:DescribeImages"], [repository_arn]),
            allow(["codebuild:StartBuild", "codebuild:BatchGetBuilds"], [project_arn]),
            allow(["logs:CreateLogStream", "logs:PutLogEvents"], [log_group.attr_arn]),
        ]
        role = iam.CfnRole(
            self, "Role", assume_role_policy_document=document(allow(["sts:AssumeRole"], service=LAMBDA)),
            policies=[iam.CfnRole.PolicyProperty(policy_name="build", policy_document=document(*statements))],
        )  # fmt: skip
        code = assets.Asset(self, "Code", path=str(HANDLER), exclude=["*", "!*.py"])
        function = lambda_.CfnFunction(
            self, "Function", runtime="python3.13", handler="handler.handler", role=role.attr_arn,
            code=lambda_.CfnFunction.CodeProperty(s3_bucket=code.s3_bucket_name, s3_key=code.s3_object_key),
            timeout=LIMIT_S, memory_size=MEMORY_MIB,
            logging_config=lambda_.CfnFunction.LoggingConfigProperty(log_group=log_group.ref),
        )  # fmt: skip
        acknowledge(
            function, {"AwsSolutions-L1": "the Python of the tools image; another version is a decision of ours"}
        )
        self.arn = function.attr_arn
