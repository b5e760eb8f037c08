"""The Registry stack: the repositories of our images, and the function and the log of their builds.

Invariant: it has a repository for each image, built or not, so that no experiment changes this
template. No build is part of it, so no failed build takes a repository away.
"""

from __future__ import annotations

import json

from aws_cdk import RemovalPolicy
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.policy import account_condition, allow
from stacks.role import LAMBDA, add_log_group, add_python_function, add_role, import_log_key
from stacks.stack import ROOT, EnvironmentStack, export_value
from tandem.declarations import names
from tandem.declarations.arns import build_arn
from tandem.declarations.environment import Environment
from tandem.declarations.project_image import PROJECT_IMAGES

MAX_IMAGES = 20  # in a repository, each of another source; an older one is rebuilt from its commit
TIMEOUT_S = 900  # Lambda's maximum; the function calls itself again while a build lasts
LOG_ACTIONS = ("logs:CreateLogStream", "logs:PutLogEvents")


class RegistryStack(EnvironmentStack):
    """One repository an image, and the function that has missing images built.

    Attributes:
        log_group_name, log_group_arn: of the builds' log, as other stacks import them.
    """

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(
            scope,
            id_,
            environment=environment,
            description="Tandem: repositories of the images of ours, and what has them built",
        )
        for image in PROJECT_IMAGES:
            _add_repository(
                Construct(self, image.name), names.repository_name(environment, image.name)
            )

        # Builds and function write to this group. It stays after a rollback, because it has the
        # reason.
        group = add_log_group(
            self,
            "Logs",
            environment.log_retention_days,
            key=import_log_key(self, environment),
            removal_policy=RemovalPolicy.RETAIN,
        )
        _add_build_function(Construct(self, "Provider"), environment, group)
        self.log_group_name = export_value(self, "LogGroupName", group.log_group_name)
        self.log_group_arn = export_value(self, "LogGroupArn", group.log_group_arn)


def build_function_arn(environment: Environment) -> str:
    """Return the ARN of the function that has images built."""
    return build_arn(environment, "lambda", f"function:{names.build_function_name(environment)}")


def build_repository_arn(environment: Environment, image: str) -> str:
    """Return the ARN of the repository of one of our images, given by its name."""
    return build_arn(environment, "ecr", f"repository/{names.repository_name(environment, image)}")


def build_project_arn(environment: Environment, image: str) -> str:
    """Return the ARN of the CodeBuild project that builds an image, given by its name."""
    return build_arn(
        environment, "codebuild", f"project/{names.repository_name(environment, image)}"
    )


def _add_repository(scope: Construct, name: str) -> None:
    """Add a repository: immutable tags, scans of pushed images, deletion with its stack."""
    rule = {
        "rulePriority": 1,
        "description": f"keep the newest {MAX_IMAGES}",
        "action": {"type": "expire"},
        "selection": {
            "tagStatus": "any",
            "countType": "imageCountMoreThan",
            "countNumber": MAX_IMAGES,
        },
    }
    repository = ecr.CfnRepository(
        scope,
        "Repository",
        repository_name=name,
        image_tag_mutability="IMMUTABLE",
        image_scanning_configuration=ecr.CfnRepository.ImageScanningConfigurationProperty(
            scan_on_push=True
        ),
        encryption_configuration=ecr.CfnRepository.EncryptionConfigurationProperty(
            encryption_type="AES256"
        ),
        lifecycle_policy=ecr.CfnRepository.LifecyclePolicyProperty(
            lifecycle_policy_text=json.dumps({"rules": [rule]})
        ),
        empty_on_delete=True,  # the images can be rebuilt from their sources
    )
    repository.apply_removal_policy(RemovalPolicy.DESTROY)


def _add_build_function(
    scope: Construct, environment: Environment, log_group: logs.ILogGroup
) -> None:
    """Add the one function that finds a tag or has the image built, and answers CloudFormation."""
    images = [image.name for image in PROJECT_IMAGES]
    statements = [
        allow(
            ["ecr:DescribeImages"], [build_repository_arn(environment, image) for image in images]
        ),
        allow(
            ["codebuild:StartBuild", "codebuild:BatchGetBuilds"],
            [build_project_arn(environment, image) for image in images],
        ),
        # a build outlasts one call
        allow(["lambda:InvokeFunction"], [build_function_arn(environment)]),
        allow(LOG_ACTIONS, [log_group.log_group_arn]),
    ]
    conditions = account_condition(environment)
    role = add_role(
        scope, LAMBDA, conditions=conditions, policy_name="build", statements=statements
    )
    code = lambda_.Code.from_asset(str(ROOT / "lambdas" / "build_image"), exclude=["*", "!*.py"])
    add_python_function(
        scope,
        role,
        code,
        log_group,
        timeout_s=TIMEOUT_S,
        function_name=names.build_function_name(environment),
        description="has the images of ours built",
    )
