"""The steps of a rehearsal, whose deploys are played; `make proof` has the real CDK CLI with the real
app."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rehearsal.aws import __main__ as command
from rehearsal.aws import cdk_cli as cdk_module
from rehearsal.aws.cdk_cli import CdkCli, CdkError
from rehearsal.aws.deploy_cycle import RehearsalRequest, run_rehearsal
from rehearsal.aws.differences import PropertyDifference
from rehearsal.aws.fidelity import FIDELITY
from rehearsal.aws.rehearsal_steps import (
    MissingEffectError,
    RehearsalResult,
    RehearsalSteps,
    StepResult,
)
from rehearsal.aws.sandbox import FICTITIOUS_ACCOUNT, create_sandbox
from rehearsal.aws.template_check import ResourceCheck

ROOT = Path(__file__).parents[2]
QUICK_REQUEST = RehearsalRequest(
    name="post-us-east-2",
    environments=ROOT / "environments",
    experiments=ROOT / "experiments",
    is_quick=True,
)


class PlayedCdk:
    """What the CDK CLI does at an endpoint: each deploy makes or updates these stacks."""

    def __init__(self, deploy: Callable[..., SimpleNamespace], *deploys: dict[str, Any]) -> None:
        self.deploy_stack = deploy
        self.deploys = iter(deploys)
        self.names: set[str] = set()

    def deploy(self) -> None:
        for name, resources in next(self.deploys).items():
            self.deploy_stack(resources, name, update=name in self.names)
            self.names.add(name)


def bucket(**properties: Any) -> dict[str, Any]:
    return {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": properties}}


@pytest.fixture
def play(endpoint, deploy, tmp_path):
    """The steps of an environment of its own name, whose deploys are these."""

    def act(name: str, *deploys: dict[str, Any]) -> RehearsalSteps:
        files = tmp_path / "declared"
        files.mkdir()
        shutil.copy(ROOT / "environments" / "post-us-east-2.yaml", files / f"{name}.yaml")
        sandbox = create_sandbox(name, files, ROOT / "experiments", tmp_path)
        result = RehearsalResult(environment=name, account=FICTITIOUS_ACCOUNT, region="us-east-2")
        cdk = PlayedCdk(deploy, *deploys)
        return RehearsalSteps(endpoint=endpoint, sandbox=sandbox, cdk=cdk, result=result)

    return act


@pytest.mark.proof
@pytest.mark.cdk
@pytest.mark.endpoint
@pytest.mark.xdist_group("endpoint")
def test_the_real_app_is_bootstrapped_deployed_and_held():
    result = run_rehearsal(QUICK_REQUEST, [].append)
    kinds = {item.stack.rpartition("-")[2] for item in result.resources}

    assert [step.outcome for step in result.steps if step.is_failure] == []
    assert result.is_success
    assert {"Network", "ImageLmEval", "Cluster", "Guard", "Fleet", "Workloads"} <= kinds


@pytest.mark.endpoint
@pytest.mark.xdist_group("endpoint")
def test_a_resource_that_differs_fails_its_step_by_name(play):
    steps = play("drifted", {"drifted-Artifacts": bucket(BucketName="drifted-bucket")})
    steps.deploy()
    matching = steps.check_resources()
    steps.endpoint.client("s3").delete_bucket(Bucket="drifted-bucket")

    with pytest.raises(MissingEffectError, match=r"drifted-Artifacts Bucket \(AWS::S3::Bucket\)"):
        steps.check_resources()
    assert matching == "1 resources, 1 properties as the templates say"


@pytest.mark.endpoint
@pytest.mark.xdist_group("endpoint")
def test_a_renewal_that_changes_another_stack_fails(play):
    plain = {f"leaky-{kind}": bucket() for kind in ("Fleet", "Network")}
    tags = [{"Key": "leak", "Value": "cr-1"}]
    steps = play("leaky", plain, dict.fromkeys(plain, bucket(Tags=tags)))
    steps.deploy()

    with pytest.raises(MissingEffectError, match=r"must change leaky-Fleet, .* it changed \["):
        steps.renew()


def test_a_missing_cli_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(cdk_module, "CLI", tmp_path / "cdk")
    with pytest.raises(CdkError, match="make setup"):
        CdkCli(endpoint=None, sandbox=None, work_folder=tmp_path).run("diff")


def test_steps_follow_one_another_until_one_fails(monkeypatch):
    monkeypatch.setattr(
        RehearsalSteps,
        "quick_steps",
        lambda _: iter([("first", lambda: "well"), ("second", fail), ("third", fail)]),
    )
    result = run_rehearsal(QUICK_REQUEST, lambda _: None)

    assert [(step.name, step.outcome, step.is_failure) for step in result.steps] == [
        ("first", "well", False),
        ("second", "no room", True),
    ]


def fail() -> str:
    raise OSError("no room")


def rehearsed(*, differs: bool = False, is_failure: bool = False) -> RehearsalResult:
    difference = PropertyDifference(
        property_path="Colour", template_value="blue", actual_value="red"
    )
    item = ResourceCheck(
        stack="e-Network",
        logical_id="Vpc",
        type="AWS::EC2::VPC",
        physical_id="vpc-1",
        fidelity=FIDELITY["AWS::EC2::VPC"],
        matching_properties=("CidrBlock",),
        differences=(difference,) if differs else (),
        unverifiable_properties={"Odd": "nobody returns it"},
    )
    step = StepResult(name="deploy", seconds=1.25, outcome="one\ntwo", is_failure=is_failure)
    return RehearsalResult(
        environment="e", account=FICTITIOUS_ACCOUNT, region="r", steps=[step], resources=[item]
    )


@pytest.mark.parametrize(
    ("faults", "is_success"),
    [({}, True), ({"differs": True}, False), ({"is_failure": True}, False)],
    ids=str,
)
def test_a_difference_or_a_failed_step_is_no_pass(faults, is_success):
    assert rehearsed(**faults).is_success is is_success


@pytest.mark.parametrize(("faults", "code"), [({}, 0), ({"is_failure": True}, 3)], ids=str)
def test_the_exit_code_says_whether_it_passed(monkeypatch, capsys, faults, code):
    monkeypatch.setattr(command, "run_rehearsal", lambda *_: rehearsed(**faults))
    assert command.main(["rehearse", "--env", "e"]) == code
    assert f"e: {'FAILED' if faults else 'rehearsed'}" in capsys.readouterr().out


def test_rejects_an_unknown_environment_before_anything_starts(capsys):
    assert command.main(["rehearse", "--env", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
