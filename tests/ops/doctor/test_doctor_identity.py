"""Who asks, and whether the account is ready."""

from __future__ import annotations

import json
import time
import uuid

import pytest
from doctor_world import ACCOUNT, World
from doubles.fault_proxy.rules import THROTTLING_FAULT, DelayFault, DropFault, FaultRule, StatusFault

from tandem.ops.doctor import exit_code
from tandem.spec.environment import CdkBootstrap, GitopsDelivery


def test_credentials_of_the_environments_account_are_ok(world: World) -> None:
    line = world.only("credentials")

    assert (line.level, line.code) == ("ok", 0)
    assert ACCOUNT in line.said


def test_credentials_of_another_account_are_bad_input(world: World) -> None:
    world.change(account="999999999999")

    line = world.only("credentials")

    assert (line.level, line.code) == ("fail", 2)
    assert f"account {ACCOUNT}" in line.said


def test_with_another_accounts_credentials_nothing_else_is_asked(world: World) -> None:
    world.change(account="999999999999")

    lines = world.lines()

    assert {one.operation for one in world.proxy.log} == {"GetCallerIdentity"}
    assert {line.check for line in lines if line.level == "ok"} == {"placeholders"}


def test_without_credentials_the_world_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.session = None
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)

    lines = world.lines()

    assert exit_code(lines, strict=False) == 3
    assert "no AWS credentials" in next(line.said for line in lines if line.check == "credentials")


def test_a_profile_that_does_not_exist_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.session = None
    monkeypatch.setenv("AWS_PROFILE", "nobody")

    line = world.only("credentials")

    assert (line.level, line.code) == ("fail", 2)
    assert "nobody" in line.said


def test_an_expired_token_asks_for_a_new_login(world: World) -> None:
    world.proxy.use(FaultRule(operation="GetCallerIdentity", fault=StatusFault(status=403, code="ExpiredToken")))

    line = world.only("credentials")

    assert (line.level, line.code, line.do) == ("fail", 3, "log in again")


@pytest.mark.parametrize(
    ("code", "do"), [("AccessDenied", "allow sts:GetCallerIdentity"), ("RequestTimeTooSkewed", "set the clock")]
)
def test_credentials_that_may_not_say_whose_they_are_are_told_what_to_do(world: World, code: str, do: str) -> None:
    world.proxy.use(FaultRule(operation="GetCallerIdentity", fault=StatusFault(status=403, code=code)))

    line = world.only("credentials")

    assert (line.level, line.code, do in line.do) == ("fail", 3, True)


def test_credentials_that_only_this_region_refuses_say_that_it_is_not_enabled(world: World) -> None:
    world.proxy.use(
        FaultRule(operation="GetCallerIdentity", fault=StatusFault(status=403, code="InvalidClientTokenId"), times=1)
    )

    line = world.only("credentials")

    assert (line.level, line.code) == ("fail", 2)
    assert line.command == "aws account enable-region --region-name us-east-2"


def test_credentials_that_no_region_accepts_are_told_apart_from_that(world: World) -> None:
    world.proxy.use(
        FaultRule(operation="GetCallerIdentity", fault=StatusFault(status=403, code="InvalidClientTokenId"))
    )

    line = world.only("credentials")

    assert line.code == 3
    assert "does not accept" in line.said


def test_an_endpoint_that_is_down_is_unknown_and_no_traceback(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.session = None
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")

    lines = world.lines()

    assert exit_code(lines, strict=False) == 3
    assert {line.level for line in lines if line.check not in {"placeholders", "credentials"}} == {"unknown"}


def test_a_throttled_call_is_asked_again(world: World) -> None:
    world.proxy.use(FaultRule(operation="GetParameter", fault=THROTTLING_FAULT, times=2))

    assert world.only("bootstrap").level == "ok"


def test_a_call_that_stays_throttled_is_unknown(world: World) -> None:
    world.proxy.use(FaultRule(operation="GetParameter", fault=THROTTLING_FAULT))

    line = world.only("bootstrap")

    assert (line.level, line.code) == ("unknown", 3)


def test_a_connection_that_breaks_is_unknown(world: World) -> None:
    world.proxy.use(FaultRule(operation="DescribeRegions", fault=DropFault()))

    line = world.only("region")

    assert (line.level, line.code) == ("unknown", 0)


def test_a_slow_answer_is_waited_for(world: World) -> None:
    world.proxy.use(FaultRule(operation="DescribeRegions", fault=DelayFault(delay_s=0.2)))

    assert world.only("region").level == "ok"


def test_placeholders_are_bad_input_each(world: World) -> None:
    world.change(
        account="111122223333",
        capacity={"reservation_id": "cr-00000000000000000"},
        delivery=GitopsDelivery(
            kind="gitops",
            repo_url="https://git.example.com/a.git",
            revision="main",
            path="a",
            tool="flux",
            namespace="f",
        ),
    )

    lines = world.lines("placeholders")

    assert [(line.level, line.code) for line in lines] == [("fail", 2)] * 3
    assert [line.command.split()[-1] for line in lines] == [
        "account", "capacity.reservation_id", "delivery.repo_url",
    ]  # fmt: skip


def test_a_bootstrap_that_is_missing_names_the_command(world: World) -> None:
    world.change(bootstrap=CdkBootstrap(qualifier="acme", permissions_boundary="TeamBoundary"))

    line = world.only("bootstrap")

    assert (line.level, line.code) == ("fail", 2)
    assert line.command == (
        f"npx cdk bootstrap aws://{ACCOUNT}/us-east-2 --qualifier acme --toolkit-stack-name CDKToolkit-acme "
        "--custom-permissions-boundary TeamBoundary"
    )


@pytest.mark.parametrize(("version", "level"), [("5", "fail"), ("6", "warn"), ("7", "warn"), ("8", "ok")])
def test_the_version_of_a_bootstrap_decides(world: World, version: str, level: str) -> None:
    qualifier = uuid.uuid4().hex[:8]
    world.endpoint.client("ssm").put_parameter(Name=f"/cdk-bootstrap/{qualifier}/version", Value=version, Type="String")
    world.change(bootstrap=CdkBootstrap(qualifier=qualifier))

    assert world.levels("bootstrap") == [level]


def test_a_boundary_that_exists_is_ok(world: World) -> None:
    name = f"Boundary{uuid.uuid4().hex[:6]}"
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    world.endpoint.client("iam").create_policy(PolicyName=name, PolicyDocument=json.dumps(document))
    world.change(bootstrap=CdkBootstrap(permissions_boundary=name))

    assert world.only("boundary").level == "ok"


def test_a_boundary_that_does_not_exist_fails(world: World) -> None:
    world.change(bootstrap=CdkBootstrap(permissions_boundary="Nothing"))

    assert (world.only("boundary").level, world.only("boundary").code) == ("fail", 2)


def test_a_region_that_is_not_known_fails(world: World) -> None:
    world.proxy.use(FaultRule(operation="DescribeRegions", fault=StatusFault(status=400, code="InvalidParameterValue")))

    assert world.only("region").level == "fail"


def _stack(world: World, kind: str, template: str) -> None:
    cloudformation, name = world.endpoint.client("cloudformation"), f"{world.environment.name}-{kind}"
    cloudformation.create_stack(StackName=name, TemplateBody=template)
    for _ in range(200):
        if not cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"].endswith("PROGRESS"):
            return
        time.sleep(0.02)
    raise TimeoutError(name)


GOOD = json.dumps({"Resources": {"P": {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": "v"}}}})
BAD = json.dumps(
    {"Resources": {"A": {"Type": "AWS::EKS::Addon", "Properties": {"AddonName": "vpc-cni", "ClusterName": "none"}}}}
)


def test_half_a_deployment_is_warned_of(world: World) -> None:
    _stack(world, "Network", GOOD)

    line = world.only("stacks")

    assert line.level == "warn"
    assert line.said.startswith("half is there: Network;")


def test_a_stack_that_takes_no_update_is_the_worlds_failure(world: World) -> None:
    name = f"{world.environment.name}-Cluster"
    _stack(world, "Cluster", BAD)

    line = world.only("stacks")

    assert (line.level, line.code) == ("fail", 3)
    assert line.command.startswith(f"aws cloudformation delete-stack --stack-name {name}")
