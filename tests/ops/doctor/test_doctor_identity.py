"""Who asks, and what AWS may do instead of answering."""

from __future__ import annotations

import pytest
from doctor_world import ACCOUNT
from doubles.fault_proxy.rules import (
    ACCESS_DENIED_FAULT,
    THROTTLING_FAULT,
    DelayFault,
    DropFault,
    FaultRule,
    StatusFault,
)

from tandem.declarations import names
from tandem.ops.doctor.context import RegistryError
from tandem.ops.doctor.runner import exit_code


def refuse(code: str, operation: str = "GetCallerIdentity", **options: int) -> FaultRule:
    return FaultRule(operation=operation, fault=StatusFault(status=403, code=code), **options)


def test_with_another_accounts_credentials_nothing_else_is_asked(world):
    world.change(account="999999999999")

    lines = world.lines()

    assert [
        (line.code, f"account {ACCOUNT}" in line.message)
        for line in lines
        if line.check == "credentials"
    ] == [(2, True)]
    assert {request.operation for request in world.proxy.log} == {"GetCallerIdentity"}
    assert {line.check for line in lines if line.level == "ok"} == {"placeholders"}


@pytest.mark.parametrize(
    ("rule", "code", "words"),
    [
        (refuse("AccessDenied"), 3, "allow sts:GetCallerIdentity"),
        (refuse("InvalidClientTokenId"), 3, "does not accept"),
        (
            refuse("InvalidClientTokenId", times=1),
            2,
            "aws account enable-region --region-name us-east-2",
        ),
    ],
)
def test_credentials_that_are_refused_say_what_to_do(world, rule, code, words):
    world.proxy.use(rule)
    line = world.only("credentials")
    assert (line.level, line.code) == ("fail", code)
    assert words in f"{line.message} {line.action} {line.command}"


def test_an_endpoint_that_is_down_is_unknown_and_no_traceback(world, monkeypatch):
    world.session = None
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")

    lines = world.lines()

    assert exit_code(lines, strict=False) == 3
    assert {line.check for line in lines} == {"placeholders", "credentials"}


@pytest.mark.parametrize(
    ("check", "rule", "lines"),
    [
        (
            "bootstrap",
            FaultRule(operation="GetParameter", fault=THROTTLING_FAULT, times=2),
            ["ok0"],
        ),
        ("bootstrap", FaultRule(operation="GetParameter", fault=THROTTLING_FAULT), ["unknown3"]),
        ("region", FaultRule(operation="DescribeRegions", fault=DropFault()), ["unknown0"]),
        ("region", FaultRule(operation="DescribeRegions", fault=DelayFault(delay_s=0.2)), ["ok0"]),
        ("region", refuse("InvalidParameterValue", "DescribeRegions"), ["fail2"]),
        (
            "cost-tag",
            FaultRule(operation="ListCostAllocationTags", fault=ACCESS_DENIED_FAULT),
            ["unknown0"],
        ),
        (
            "bucket",
            FaultRule(operation="HeadBucket", fault=ACCESS_DENIED_FAULT),
            ["unknown3", "fail2"],
        ),
    ],
)
def test_a_call_that_fails_is_asked_again_or_unknown(world, check, rule, lines):
    if check == "bucket":  # one that is ours and may not be seen, and one that nobody has
        world.endpoint.client("s3").create_bucket(
            Bucket=names.bucket_name(world.environment),
            CreateBucketConfiguration={"LocationConstraint": world.environment.region},
        )
    world.proxy.use(rule)

    assert [f"{line.level}{line.code}" for line in world.lines(check)] == lines


def test_silent_registry_is_asked_once(world):
    hosts: list[str] = []

    def silent(reference: str) -> str:
        hosts.append(reference.partition("/")[0])
        raise RegistryError(f"{reference}: no route")

    world.digest_of = silent

    levels = world.levels("images")

    assert (len(hosts), levels.count("unknown")) == (len(set(hosts)), 1)
