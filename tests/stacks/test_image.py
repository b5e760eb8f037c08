"""Image: a closed repository, a build that is written out, and a function that may do little."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
import yaml
from assemblies import (
    Template,
    Templates,
    changed,
    environment,
    one,
    places,
    resources,
    synth_alone,
    templates,
    variants,
)
from aws_cdk import aws_s3_assets as assets

from stacks.image import RESOURCE_TYPE, ImageStack
from stacks.network import NetworkIds
from tandem.spec.environment import Environment
from tandem.spec.project_image import LLMPERF, LM_EVAL, PROJECT_IMAGES, ROOT, RUN, TOOLS, ProjectImage

NOWHERE = NetworkIds(vpc_id="vpc-0123456789abcdef0", subnet_ids={})
pytestmark = pytest.mark.cdk

MIRROR = "111122223333.dkr.ecr.us-east-2.amazonaws.com"


def part(template: Template, image: ProjectImage) -> Template:
    """Return the resources of one image and those that all share."""
    theirs = {LLMPERF: "Llmperf", RUN: "Run", LM_EVAL: "LmEval"}
    own, strange = theirs.get(image), tuple(start for other, start in theirs.items() if other != image)
    shared = ("Logs", "Provider")
    return {
        "Resources": {
            name: body
            for name, body in template["Resources"].items()
            if not name.startswith(strange) and (own is None or name.startswith((own, *shared)))
        }
    }


@pytest.fixture(scope="session", params=PROJECT_IMAGES, ids=lambda image: image.name)
def image(request: pytest.FixtureRequest) -> ProjectImage:
    found: ProjectImage = request.param
    return found


@pytest.fixture(scope="session")
def template(stacks: Templates, image: ProjectImage) -> Template:
    return part(stacks["post-us-east-2-Image"], image)


@pytest.fixture
def image_of(tmp_path: Path) -> Callable[[Environment], Template]:
    """Synthesize the Image stack of an environment and nothing else of it; the tools image's part."""

    def act(place: Environment) -> Template:
        made = synth_alone(place, tmp_path / place.name, ImageStack, environment=place, network=NOWHERE)
        return part(made, TOOLS)

    return act


def statements(template: Template, service: str) -> list[dict[str, Any]]:
    """Return what the role of a service may do."""
    (role,) = [
        each
        for each in resources(template, "AWS::IAM::Role")
        if each["AssumeRolePolicyDocument"]["Statement"][0]["Principal"] == {"Service": f"{service}.amazonaws.com"}
    ]
    found: list[dict[str, Any]] = role["Policies"][0]["PolicyDocument"]["Statement"]
    return found


def actions(template: Template, service: str) -> set[str]:
    return {action for statement in statements(template, service) for action in statement["Action"]}


def commands(template: Template) -> list[list[str]]:
    """Return the words of every command of the build."""
    spec = yaml.safe_load(one(template, "AWS::CodeBuild::Project")["Source"]["BuildSpec"])
    return [shlex.split(command) for phase in spec["phases"].values() for command in phase["commands"]]


def arguments(template: Template) -> dict[str, str]:
    """Return the build arguments that docker gets."""
    (build,) = [words for words in commands(template) if words[:2] == ["docker", "build"]]
    return dict(word.split("=", 1) for before, word in pairwise(build) if before == "--build-arg")


@pytest.mark.parametrize("place", places(), ids=lambda place: place.name)
def test_every_environment_has_its_image_under_the_name_that_pods_pull(
    stacks: Templates, place: Environment, image: ProjectImage
) -> None:
    made = part(stacks[f"{place.name}-Image"], image)
    found, repository = one(made, RESOURCE_TYPE), one(made, "AWS::ECR::Repository")["RepositoryName"]
    assert image.reference(place).endswith(f"/{repository}:{found['Tag']}")


def test_images_are_built_one_after_another(stacks: Templates) -> None:
    """A new account's quota may be one build at once."""
    waits = {
        name: body.get("DependsOn")
        for name, body in stacks["post-us-east-2-Image"]["Resources"].items()
        if body["Type"] == RESOURCE_TYPE
    }

    tools, llmperf, lm_eval, run = sorted(waits)  # Image, LlmperfImage..., LmEvalImage..., RunImage...
    assert waits == {tools: None, llmperf: [tools], run: [llmperf], lm_eval: [run]}


class TestTheRepository:
    @pytest.fixture
    def repository(self, template: Template) -> dict[str, Any]:
        return one(template, "AWS::ECR::Repository")

    def test_never_moves_a_tag(self, repository: dict[str, Any]) -> None:
        assert repository["ImageTagMutability"] == "IMMUTABLE"

    def test_keeps_the_newest(self, repository: dict[str, Any]) -> None:
        (rule,) = json.loads(repository["LifecyclePolicy"]["LifecyclePolicyText"])["rules"]
        assert rule["selection"] == {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": 20}
        assert rule["action"] == {"type": "expire"}

    def test_goes_with_its_stack_full_or_not(self, template: Template, repository: dict[str, Any]) -> None:
        (found,) = [each for each in template["Resources"].values() if each["Type"] == "AWS::ECR::Repository"]
        assert (found["DeletionPolicy"], repository["EmptyOnDelete"]) == ("Delete", True)


class TestTheBuild:
    def test_builds_and_pushes_the_image_that_pods_pull(self, template: Template, image: ProjectImage) -> None:
        _, build, push = commands(template)
        reference = image.reference(environment("post-us-east-2"))
        assert build[:6] == ["docker", "build", "--file", image.dockerfile, "--tag", reference]
        assert push == ["docker", "push", reference]

    def test_takes_the_base_from_behind_the_mirror(self, stacks: Templates) -> None:
        base = arguments(part(stacks["customer-keys-Image"], TOOLS))["BASE_IMAGE"]
        assert base.startswith(f"{MIRROR}/ecr-public/docker/library/python:")
        assert base.endswith(f"@{TOOLS.base().digest}")

    def test_logs_in_to_a_mirror_of_another_account_and_region(
        self, image_of: Callable[[Environment], Template]
    ) -> None:
        host = "444455556666.dkr.ecr.eu-west-1.amazonaws.com"
        place = changed(variants()["capacity-block"], registry_mirrors={"public.ecr.aws": f"{host}/cache"})

        found = commands(image_of(place))

        (login,) = [words for words in found if words[-1] == host]
        assert login[:5] == ["aws", "ecr", "get-login-password", "--region", "eu-west-1"]

    def test_ends_before_the_function_that_waits_for_it(self, template: Template) -> None:
        project, function = one(template, "AWS::CodeBuild::Project"), one(template, "AWS::Lambda::Function")
        kept_for_the_answer_s = 90  # MARGIN_S of lambdas/tools_image/handler.py
        minutes = project["TimeoutInMinutes"] + project["QueuedTimeoutInMinutes"]
        assert 60 * minutes < function["Timeout"] - kept_for_the_answer_s


class TestTheLog:
    def test_outlives_a_deploy_that_was_rolled_back(self, template: Template) -> None:
        (group,) = [each for each in template["Resources"].values() if each["Type"] == "AWS::Logs::LogGroup"]
        assert group["DeletionPolicy"] == "Retain"
        assert "LogGroupName" not in group["Properties"]  # else the next deploy would find it taken

    def test_is_where_the_build_and_the_function_write(self, template: Template) -> None:
        build = one(template, "AWS::CodeBuild::Project")["LogsConfig"]["CloudWatchLogs"]
        function = one(template, "AWS::Lambda::Function")["LoggingConfig"]
        assert (build["Status"], build["GroupName"]) == ("ENABLED", function["LogGroup"])
        assert set(build["GroupName"]) == {"Ref"}


class TestRights:
    def test_the_function_asks_for_the_tag_and_builds_nothing_else(self, template: Template) -> None:
        assert actions(template, "lambda") == {
            "ecr:DescribeImages", "codebuild:StartBuild", "codebuild:BatchGetBuilds", "logs:CreateLogStream",
            "logs:PutLogEvents",
        }  # fmt: skip

    def test_only_a_login_has_no_narrower_resource(self, template: Template) -> None:
        wide = [
            statement["Action"]
            for service in ("lambda", "codebuild")
            for statement in statements(template, service)
            if "*" in str(statement["Resource"])
        ]

        assert wide == [["ecr:GetAuthorizationToken"]]

    def test_the_build_reads_one_object_and_writes_one_repository(self, template: Template) -> None:
        location = one(template, "AWS::CodeBuild::Project")["Source"]["Location"]
        by_action = {
            action: each["Resource"] for each in statements(template, "codebuild") for action in each["Action"]
        }

        assert by_action["s3:GetObject"] == [f"arn:aws:s3:::{location}"]
        assert [set(found) for found in by_action["ecr:PutImage"]] == [{"Fn::GetAtt"}]

    def test_codebuild_takes_the_role_for_this_project_only(self, template: Template, image: ProjectImage) -> None:
        (trust,) = [
            each["AssumeRolePolicyDocument"]["Statement"][0]
            for each in resources(template, "AWS::IAM::Role")
            if "codebuild" in str(each["AssumeRolePolicyDocument"])
        ]

        assert trust["Condition"]["StringEquals"] == {
            "aws:SourceAccount": "111122223333",
            "aws:SourceArn": f"arn:aws:codebuild:us-east-2:111122223333:project/tandem-post-us-east-2-{image.name}",
        }


class TestTheSource:
    @pytest.fixture
    def staged(self, assembly: Path, image: ProjectImage) -> list[str]:
        """The files of the asset that the build takes."""
        project = one(part(templates(assembly)["post-us-east-2-Image"], image), "AWS::CodeBuild::Project")
        folder = assembly / f"asset.{Path(project['Source']['Location']).stem}"
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())

    def test_is_what_the_tag_is_a_digest_of(self, staged: list[str], image: ProjectImage) -> None:
        assert tuple(staged) == image.source_files()

    def test_is_what_docker_sees(self, tmp_path: Path, image: ProjectImage) -> None:
        """By the CDK's own reading of an ignore file in Docker's way."""
        context = tmp_path / "context"
        strangers = (
            "README.md",
            "tandem/cli/program.py",
            "tandem/spec/data/x.txt",
            "tandem/ops/destroy/stacks.py",
            "tandem/artifacts/__pycache__/log.pyc",
        )
        for file in (*image.source_files(), *strangers):
            (context / file).parent.mkdir(parents=True, exist_ok=True)
            (context / file).write_text("")
        lines = (ROOT / image.allow_list).read_text().splitlines()
        app = cdk.App(outdir=str(tmp_path / "out"), analytics_reporting=False)

        assets.Asset(
            cdk.Stack(app, "S"), "A", path=str(context), ignore_mode=cdk.IgnoreMode.DOCKER,
            exclude=[line for line in lines if line and not line.startswith("#")],
        )  # fmt: skip

        (folder,) = (tmp_path / "out").glob("asset.*")
        seen = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert seen == set(image.source_files())


def test_builds_run_in_the_private_subnets_where_that_is_declared(stacks: Templates) -> None:
    (inside,) = {
        json.dumps(each["VpcConfig"], sort_keys=True)
        for each in resources(stacks["builds-inside-Image"], "AWS::CodeBuild::Project")
    }

    assert len(json.loads(inside)["Subnets"]) == 3
    assert one(stacks["builds-inside-Image"], "AWS::EC2::SecurityGroup").get("SecurityGroupIngress", []) == []
    assert all("VpcConfig" not in each for each in resources(stacks["customer-keys-Image"], "AWS::CodeBuild::Project"))


def test_a_build_in_the_vpc_may_attach_to_its_subnets_alone(stacks: Templates) -> None:
    granted = [
        statement
        for role in resources(stacks["builds-inside-Image"], "AWS::IAM::Role")
        for policy in role["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
        if "ec2:CreateNetworkInterfacePermission" in statement["Action"]
    ]

    assert len(granted) == len(PROJECT_IMAGES)
    assert all(len(statement["Condition"]["StringEquals"]["ec2:Subnet"]) == 3 for statement in granted)
