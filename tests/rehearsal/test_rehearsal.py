"""The steps of a rehearsal with the real CDK CLI: on a small app; `make proof` has the real app and
a whole life."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

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
SMALL = shlex.join([sys.executable, str(Path(__file__).parent / "small_app.py")])


@pytest.fixture(scope="module")
def play(endpoint, tmp_path_factory):
    """The steps of a small environment of its own name, on the running endpoint."""

    def act(name: str, faults: str = "") -> RehearsalSteps:
        work = tmp_path_factory.mktemp(name)
        files = work / "declared"
        files.mkdir()
        shutil.copy(ROOT / "environments" / "post-us-east-2.yaml", files / f"{name}.yaml")
        sandbox = create_sandbox(name, files, ROOT / "experiments", work)
        # another module's tests have the bucket of the default one
        sandbox.edit(lambda document: document.update(bootstrap={"qualifier": "small"}))
        cdk = CdkCli(
            endpoint=endpoint, sandbox=sandbox, work_folder=work, app_command=f"{SMALL} {faults}"
        )
        result = RehearsalResult(environment=name, account=FICTITIOUS_ACCOUNT, region="us-east-2")
        return RehearsalSteps(endpoint=endpoint, sandbox=sandbox, cdk=cdk, result=result)

    return act


@pytest.fixture(scope="module")
def deployment(play):
    """The steps of an environment that is deployed as its templates say, and its stacks."""
    steps = play("changed")
    steps.bootstrap()
    steps.deploy()
    steps.check_resources()
    return steps, list_kinds(steps.result)


@pytest.fixture(scope="module")
def drifted_steps(deployment):
    """The same steps, after a person changed the bucket; no test repairs it."""
    steps, _ = deployment
    steps.endpoint.client("s3").put_bucket_versioning(
        Bucket=f"tandem-changed-{FICTITIOUS_ACCOUNT}",
        VersioningConfiguration={"Status": "Suspended"},
    )
    return steps


def rehearse() -> RehearsalResult:
    request = RehearsalRequest(
        name="post-us-east-2",
        environments=ROOT / "environments",
        experiments=ROOT / "experiments",
        is_quick=True,
    )
    result = run_rehearsal(request, [].append)
    assert (result.is_success, [step.outcome for step in result.steps if step.is_failure]) == (
        True,
        [],
    )
    return result


def list_kinds(result: RehearsalResult) -> set[str]:
    return {item.stack.rpartition("-")[2] for item in result.resources}


@pytest.mark.endpoint
@pytest.mark.xdist_group("endpoint")
def test_an_app_is_bootstrapped_deployed_and_held(deployment):
    """The short form: what it deploys is small; templates of the real app are in tests/stacks."""
    _, kinds = deployment
    assert kinds == {"Network", "Artifacts", "Cluster", "Fleet"}


@pytest.mark.proof
@pytest.mark.cdk
@pytest.mark.endpoint
@pytest.mark.xdist_group("endpoint")
def test_the_real_app_is_bootstrapped_deployed_and_held():
    kinds = list_kinds(rehearse())
    assert {"Network", "ImageLmEval", "Cluster", "Guard", "Fleet", "Workloads"} <= kinds


@pytest.mark.proof
@pytest.mark.endpoint
@pytest.mark.xdist_group("endpoint")
@pytest.mark.parametrize(
    ("name", "fault", "step", "words"),
    [
        ("leaky", "leaky", "renew", r"must change leaky-Fleet alone, it changed \['leaky-Network'"),
        (
            "open",
            "unprotected",
            "refuse_destroy",
            r"not complete: \{'open-Cluster': 'DELETE_FAILED'\}",
        ),
    ],
)
def test_a_renewal_of_another_stack_and_stacks_that_anybody_may_destroy_fail(
    play, name, fault, step, words
):
    steps = play(name, fault)
    steps.deploy()
    with pytest.raises(MissingEffectError, match=words):
        getattr(steps, step)()


@pytest.mark.endpoint
@pytest.mark.xdist_group("endpoint")
def test_a_resource_that_differs_fails_its_step_by_name(drifted_steps):
    with pytest.raises(
        MissingEffectError, match=r"changed-Artifacts Bucket \(AWS::S3::Bucket\): VersioningConf"
    ):
        drifted_steps.check_resources()


@pytest.mark.endpoint
@pytest.mark.xdist_group("endpoint")
def test_a_change_of_the_app_is_a_difference(drifted_steps):
    drifted_steps.sandbox.renew_reservation()
    with pytest.raises(CdkError, match=r"(?s)cdk diff ended with code 1.*CapacityReservationId"):
        drifted_steps.diff()


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
    request = RehearsalRequest(
        name="post-us-east-2",
        environments=ROOT / "environments",
        experiments=ROOT / "experiments",
        is_quick=True,
    )

    result = run_rehearsal(request, lambda _: None)

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
