"""Builds: which images an environment has built, from which files, and where."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml
from assemblies import (
    environment,
    hosted,
    one,
    places,
    resources,
)

from lambdas.build_image.handler import MARGIN_S, MAX_WAIT_S, WAIT_S
from stacks.image import QUEUE_MINUTES, RESOURCE_TYPE, SERVICE_TIMEOUT_S, render_build_spec
from stacks.policy import PrivateRepository
from tandem.declarations.names import image_stack_kind
from tandem.declarations.project_image import (
    BUILD_MINUTES,
    LLMPERF,
    LM_EVAL,
    PROJECT_IMAGES,
    RUN,
    TOOLS,
    ProjectImage,
    has_llmperf,
)

pytestmark = pytest.mark.cdk
# hosts a pair under llmperf, and a quality comparison: it builds all images
HOME = "post-us-east-2"


def kind(image: ProjectImage) -> str:
    return image_stack_kind(image.name)


@pytest.fixture(scope="session", params=PROJECT_IMAGES, ids=lambda image: image.name)
def image(request):
    return request.param


@pytest.fixture(scope="session")
def template(stacks, image):
    return stacks[f"{HOME}-{kind(image)}"]


@pytest.fixture(scope="session")
def registry(stacks):
    return stacks[f"{HOME}-Registry"]


@pytest.mark.parametrize("place", places(), ids=lambda place: place.name)
def test_every_environment_builds_what_its_experiments_run(stacks, place):
    experiments = hosted(place)
    needed_values = {TOOLS, RUN}
    needed_values |= (
        {LLMPERF} if any(has_llmperf(experiment) for experiment in experiments) else set()
    )
    needed_values |= {LM_EVAL} if any(experiment.quality for experiment in experiments) else set()

    assert {
        image for image in PROJECT_IMAGES if f"{place.name}-{kind(image)}" in stacks
    } == needed_values


def test_an_image_is_built_under_the_name_that_pods_pull(registry, template, image):
    build = one(template, RESOURCE_TYPE)
    repositories = [
        repository["RepositoryName"] for repository in resources(registry, "AWS::ECR::Repository")
    ]
    assert build["Repository"] in repositories
    assert image.reference(environment(HOME)).endswith(f"/{build['Repository']}:{build['Tag']}")


def test_the_source_is_what_the_tag_is_a_digest_of(assembly, template, image):
    project = one(template, "AWS::CodeBuild::Project")
    folder = assembly / f"asset.{Path(project['Source']['Location']).stem}"
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert sorted(map(str, paths)) == list(image.source_files())


def test_build_in_the_vpc_admits_nobody(stacks):
    group = one(stacks["efa-nat-per-zone-ImageTools"], "AWS::EC2::SecurityGroup")
    assert group.get("SecurityGroupIngress", []) == []


def test_build_in_the_vpc_may_attach_to_its_subnets_alone(stacks):
    template = stacks["efa-nat-per-zone-ImageTools"]
    subnets = one(template, "AWS::CodeBuild::Project")["VpcConfig"]["Subnets"]
    (policy,) = one(template, "AWS::IAM::Role")["Policies"]
    (statement,) = [
        statement
        for statement in policy["PolicyDocument"]["Statement"]
        if "ec2:CreateNetworkInterfacePermission" in statement["Action"]
    ]
    assert len(statement["Condition"]["StringEquals"]["ec2:Subnet"]) == len(subnets)


def test_build_logs_in_to_a_mirror_of_another_account_and_region():
    host = "444455556666.dkr.ecr.eu-west-1.amazonaws.com"
    mirror = PrivateRepository.parse_reference(f"{host}/cache/library/python:3.13")
    text = render_build_spec(TOOLS, environment(HOME), "base", mirror)
    login, *_ = [
        shlex.split(command)
        for command in yaml.safe_load(text)["phases"]["pre_build"]["commands"]
        if command.endswith(host)
    ]
    assert login[:5] == ["aws", "ecr", "get-login-password", "--region", "eu-west-1"]


def test_each_wait_for_a_build_is_longer_than_the_one_within():
    """The build ends before the function stops to wait, and the function before CloudFormation."""
    assert 60 * (BUILD_MINUTES + QUEUE_MINUTES) < WAIT_S
    assert WAIT_S + MAX_WAIT_S + MARGIN_S < SERVICE_TIMEOUT_S
