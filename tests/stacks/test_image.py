"""Registry and builds: closed repositories, builds that are written out, and a function that may do
little."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
import yaml
from assemblies import (
    Synth,
    Template,
    Templates,
    changed,
    environment,
    hosted,
    one,
    places,
    resources,
    templates,
    variants,
)
from aws_cdk import aws_s3_assets as assets

from stacks.image import RESOURCE_TYPE
from tandem.declarations.environment import Environment
from tandem.declarations.names import image_stack_kind
from tandem.declarations.project_image import (
    LLMPERF,
    LM_EVAL,
    PROJECT_IMAGES,
    ROOT,
    RUN,
    TOOLS,
    ProjectImage,
    has_llmperf,
)

pytestmark = pytest.mark.cdk

MIRROR = "111122223333.dkr.ecr.us-east-2.amazonaws.com"
# hosts a pair under llmperf, and a quality comparison: it builds all images
HOME = "post-us-east-2"


def kind(image: ProjectImage) -> str:
    return image_stack_kind(image.name)


@pytest.fixture(scope="session", params=PROJECT_IMAGES, ids=lambda image: image.name)
def image(request: pytest.FixtureRequest) -> ProjectImage:
    param: ProjectImage = request.param
    return param


@pytest.fixture(scope="session")
def template(stacks: Templates, image: ProjectImage) -> Template:
    return stacks[f"{HOME}-{kind(image)}"]


@pytest.fixture(scope="session")
def registry(stacks: Templates) -> Template:
    return stacks[f"{HOME}-Registry"]


def statements(template: Template, service: str) -> list[dict[str, Any]]:
    """Return what the role of a service may do."""
    (role,) = [
        each
        for each in resources(template, "AWS::IAM::Role")
        if each["AssumeRolePolicyDocument"]["Statement"][0]["Principal"]
        == {"Service": f"{service}.amazonaws.com"}
    ]
    found: list[dict[str, Any]] = role["Policies"][0]["PolicyDocument"]["Statement"]
    return found


def actions(template: Template, service: str) -> set[str]:
    return {action for statement in statements(template, service) for action in statement["Action"]}


def commands(template: Template) -> list[list[str]]:
    """Return the words of every command of the build."""
    spec = yaml.safe_load(one(template, "AWS::CodeBuild::Project")["Source"]["BuildSpec"])
    return [
        shlex.split(command) for phase in spec["phases"].values() for command in phase["commands"]
    ]


def arguments(template: Template) -> dict[str, str]:
    """Return the build arguments that docker gets."""
    (build,) = [words for words in commands(template) if words[:2] == ["docker", "build"]]
    return dict(word.split("=", 1) for before, word in pairwise(build) if before == "--build-arg")


@pytest.mark.parametrize("place", places(), ids=lambda place: place.name)
def test_every_environment_builds_what_its_experiments_run(
    stacks: Templates, place: Environment
) -> None:
    experiments = hosted(place)
    needed = {TOOLS, RUN}
    needed |= {LLMPERF} if any(has_llmperf(experiment) for experiment in experiments) else set()
    needed |= {LM_EVAL} if any(experiment.quality for experiment in experiments) else set()

    assert {image for image in PROJECT_IMAGES if f"{place.name}-{kind(image)}" in stacks} == needed


def test_an_image_is_built_under_the_name_that_pods_pull(
    registry: Template, template: Template, image: ProjectImage
) -> None:
    built = one(template, RESOURCE_TYPE)
    repositories = [
        repository["RepositoryName"] for repository in resources(registry, "AWS::ECR::Repository")
    ]
    assert built["Repository"] in repositories
    assert image.reference(environment(HOME)).endswith(f"/{built['Repository']}:{built['Tag']}")


def test_a_build_takes_no_repository_and_no_other_image_with_it(template: Template) -> None:
    types = [resource["Type"] for resource in template["Resources"].values()]
    assert types.count("AWS::CodeBuild::Project") == types.count(RESOURCE_TYPE) == 1
    assert "AWS::ECR::Repository" not in types


def test_a_build_leaves_nothing_that_the_next_deploy_cannot_create(template: Template) -> None:
    policies = {
        name: (
            resource.get("DeletionPolicy", "Delete"),
            resource.get("UpdateReplacePolicy", "Delete"),
        )
        for name, resource in template["Resources"].items()
    }
    assert set(policies.values()) == {("Delete", "Delete")}


class TestTheRepository:
    @pytest.fixture(params=range(len(PROJECT_IMAGES)))
    def repository(self, registry: Template, request: pytest.FixtureRequest) -> dict[str, Any]:
        return resources(registry, "AWS::ECR::Repository")[request.param]

    def test_never_moves_a_tag(self, repository: dict[str, Any]) -> None:
        assert repository["ImageTagMutability"] == "IMMUTABLE"

    def test_keeps_the_newest(self, repository: dict[str, Any]) -> None:
        (rule,) = json.loads(repository["LifecyclePolicy"]["LifecyclePolicyText"])["rules"]
        assert rule["selection"] == {
            "tagStatus": "any",
            "countType": "imageCountMoreThan",
            "countNumber": 20,
        }
        assert rule["action"] == {"type": "expire"}

    def test_goes_with_its_stack_full_or_not(self, registry: Template) -> None:
        bodies = [
            body
            for body in registry["Resources"].values()
            if body["Type"] == "AWS::ECR::Repository"
        ]
        assert {body["DeletionPolicy"] for body in bodies} == {"Delete"}
        assert {body["Properties"]["EmptyOnDelete"] for body in bodies} == {True}


class TestTheBuild:
    def test_builds_and_pushes_the_image_that_pods_pull(
        self, template: Template, image: ProjectImage
    ) -> None:
        _, build, push = commands(template)
        reference = image.reference(environment("post-us-east-2"))
        assert build[:6] == ["docker", "build", "--file", image.dockerfile, "--tag", reference]
        assert push == ["docker", "push", reference]

    def test_takes_the_base_from_behind_the_mirror(self, stacks: Templates) -> None:
        base = arguments(stacks["customer-keys-ImageTools"])["BASE_IMAGE"]
        assert base.startswith(f"{MIRROR}/ecr-public/docker/library/python:")
        assert base.endswith(f"@{TOOLS.base().digest}")

    def test_logs_in_to_a_mirror_of_another_account_and_region(self, synth: Synth) -> None:
        host = "444455556666.dkr.ecr.eu-west-1.amazonaws.com"
        place = changed(
            variants()["capacity-block"], registry_mirrors={"public.ecr.aws": f"{host}/cache"}
        )

        words_of_commands = commands(templates(synth(place))["capacity-block-ImageTools"])

        (login,) = [words for words in words_of_commands if words[-1] == host]
        assert login[:5] == ["aws", "ecr", "get-login-password", "--region", "eu-west-1"]

    def test_ends_before_the_function_and_cloudformation_wait_no_more(
        self, template: Template
    ) -> None:
        project = one(template, "AWS::CodeBuild::Project")
        resource = one(template, RESOURCE_TYPE)
        handler_wait_s = 3300  # WAIT_S of lambdas/build_image/handler.py
        call_s = 15  # its longest pause between two looks, and its margin: MAX_WAIT_S and MARGIN_S
        margin_s = 120

        minutes = project["TimeoutInMinutes"] + project["QueuedTimeoutInMinutes"]

        assert 60 * minutes < handler_wait_s
        assert handler_wait_s + call_s + margin_s < int(resource["ServiceTimeout"])


class TestTheLog:
    def test_outlives_a_deploy_that_was_rolled_back(self, registry: Template) -> None:
        (group,) = [
            each for each in registry["Resources"].values() if each["Type"] == "AWS::Logs::LogGroup"
        ]
        assert group["DeletionPolicy"] == "Retain"
        assert "LogGroupName" not in group["Properties"]  # else the next deploy would find it taken

    def test_is_where_the_build_and_the_function_write(
        self, registry: Template, template: Template
    ) -> None:
        build = one(template, "AWS::CodeBuild::Project")["LogsConfig"]["CloudWatchLogs"]
        function = one(registry, "AWS::Lambda::Function")["LoggingConfig"]
        export = registry["Outputs"]["LogGroupName"]
        assert (build["Status"], build["GroupName"]) == (
            "ENABLED",
            {"Fn::ImportValue": export["Export"]["Name"]},
        )
        assert export["Value"] == function["LogGroup"]


class TestRights:
    def test_the_function_looks_for_tags_builds_and_calls_itself(self, registry: Template) -> None:
        (function,) = resources(registry, "AWS::Lambda::Function")
        by_action = {
            action: statement["Resource"]
            for statement in statements(registry, "lambda")
            for action in statement["Action"]
        }

        assert set(by_action) == {
            "ecr:DescribeImages",
            "codebuild:StartBuild",
            "codebuild:BatchGetBuilds",
            "lambda:InvokeFunction",
            "logs:CreateLogStream",
            "logs:PutLogEvents",
        }
        own_arn = f"arn:aws:lambda:us-east-2:111122223333:function:{function['FunctionName']}"
        assert by_action["lambda:InvokeFunction"] == [own_arn]
        assert "*" not in str(by_action)

    def test_the_function_of_the_registry_answers_for_an_image(
        self, registry: Template, template: Template
    ) -> None:
        (function,) = resources(registry, "AWS::Lambda::Function")
        assert one(template, RESOURCE_TYPE)["ServiceToken"].endswith(
            f":function:{function['FunctionName']}"
        )

    def test_only_a_login_has_no_narrower_resource(self, template: Template) -> None:
        wide = [
            statement["Action"]
            for statement in statements(template, "codebuild")
            if "*" in str(statement["Resource"])
        ]
        assert wide == [["ecr:GetAuthorizationToken"]]

    def test_the_build_reads_one_object_and_writes_one_repository(
        self, template: Template, image: ProjectImage
    ) -> None:
        location = one(template, "AWS::CodeBuild::Project")["Source"]["Location"]
        by_action = {
            action: each["Resource"]
            for each in statements(template, "codebuild")
            for action in each["Action"]
        }

        assert by_action["s3:GetObject"] == [f"arn:aws:s3:::{location}"]
        assert by_action["ecr:PutImage"] == [
            f"arn:aws:ecr:us-east-2:111122223333:repository/tandem-post-us-east-2-{image.name}"
        ]

    def test_codebuild_takes_the_role_for_this_project_only(
        self, template: Template, image: ProjectImage
    ) -> None:
        (trust,) = [
            each["AssumeRolePolicyDocument"]["Statement"][0]
            for each in resources(template, "AWS::IAM::Role")
            if "codebuild" in str(each["AssumeRolePolicyDocument"])
        ]

        assert trust["Condition"]["StringEquals"] == {
            "aws:SourceAccount": "111122223333",
            "aws:SourceArn": (
                f"arn:aws:codebuild:us-east-2:111122223333:project/tandem-post-us-east-2-{image.name}"
            ),
        }


class TestTheSource:
    @pytest.fixture
    def staged(self, assembly: Path, image: ProjectImage) -> list[str]:
        """The files of the asset that the build takes."""
        project = one(templates(assembly)[f"{HOME}-{kind(image)}"], "AWS::CodeBuild::Project")
        folder = assembly / f"asset.{Path(project['Source']['Location']).stem}"
        return sorted(
            path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
        )

    def test_is_what_the_tag_is_a_digest_of(self, staged: list[str], image: ProjectImage) -> None:
        assert tuple(staged) == image.source_files()

    def test_is_what_docker_sees(self, tmp_path: Path, image: ProjectImage) -> None:
        """By the CDK's own reading of an ignore file in Docker's way."""
        context = tmp_path / "context"
        strangers = (
            "README.md",
            "tandem/cli/program.py",
            "tandem/declarations/data/x.txt",
            "tandem/ops/destroy/stacks.py",
            "tandem/artifacts/__pycache__/log.pyc",
        )
        for file in (*image.source_files(), *strangers):
            (context / file).parent.mkdir(parents=True, exist_ok=True)
            (context / file).write_text("")
        lines = (ROOT / image.allow_list).read_text().splitlines()
        app = cdk.App(outdir=str(tmp_path / "out"), analytics_reporting=False)

        assets.Asset(
            cdk.Stack(app, "S"),
            "A",
            path=str(context),
            ignore_mode=cdk.IgnoreMode.DOCKER,
            exclude=[line for line in lines if line and not line.startswith("#")],
        )

        (folder,) = (tmp_path / "out").glob("asset.*")
        seen = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert seen == set(image.source_files())


def test_builds_run_in_the_private_subnets_where_that_is_declared(stacks: Templates) -> None:
    inside = stacks["builds-inside-ImageTools"]
    assert len(one(inside, "AWS::CodeBuild::Project")["VpcConfig"]["Subnets"]) == 2
    assert one(inside, "AWS::EC2::SecurityGroup").get("SecurityGroupIngress", []) == []
    assert "VpcConfig" not in one(stacks["customer-keys-ImageTools"], "AWS::CodeBuild::Project")


def test_a_build_in_the_vpc_may_attach_to_its_subnets_alone(stacks: Templates) -> None:
    (granted,) = [
        statement
        for statement in statements(stacks["builds-inside-ImageTools"], "codebuild")
        if "ec2:CreateNetworkInterfacePermission" in statement["Action"]
    ]
    assert len(granted["Condition"]["StringEquals"]["ec2:Subnet"]) == 2
