"""Each way in which AWS fails: a sentence, the records kept, and a later publish that completes."""

from __future__ import annotations

import dataclasses
import time
from types import SimpleNamespace

import pytest
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, FaultRule, StatusFault
from published_run import build_clients, minute_now, read_statistic

from tandem.errors import ExternalError, InputError, TandemError
from tandem.ops.people.rights import list_command_calls
from tandem.publish import publisher

pytestmark = pytest.mark.endpoint
DAY_S = 86400


def refuse(operation, status, code, **when):
    return FaultRule(fault=StatusFault(status=status, code=code), operation=operation, **when)


def completes(run, proxy):
    """Whether a publish without faults completes with exact counts."""
    proxy.use()
    return run.publish().is_whole and run.counts() == run.expected()


def clock(monkeypatch, **functions):
    """Give the publisher another clock."""
    monkeypatch.setattr(
        publisher,
        "time",
        SimpleNamespace(**{"time": time.time, "monotonic": time.monotonic} | functions),
    )


@pytest.mark.parametrize(
    ("operation", "status", "code", "sentence"),
    [
        ("GetCallerIdentity", 403, "ExpiredToken", "the credentials have expired"),
        (
            "PutMetricData",
            403,
            "AccessDenied",
            "cloudwatch:PutMetricData with the condition cloudwatch:namespace",
        ),
        ("PutObject", 403, "AccessDenied", "s3:PutObject is missing"),
        ("PutObject", 404, "NoSuchBucket", "deploy the environment's Artifacts stack"),
        ("PutMetricData", 400, "Unheard", "PutMetricData was refused"),
    ],
)
def test_a_publish_completes_what_aws_refused(run, proxy, operation, status, code, sentence):
    proxy.use(refuse(operation, status, code))

    with pytest.raises(TandemError, match=sentence) as fault:
        run.publish()

    assert code in str(fault.value)
    assert completes(run, proxy)


def test_credentials_of_another_account_are_refused_before_anything_is_sent(run, proxy):
    with pytest.raises(InputError, match="these credentials are of account 999988887777"):
        run.publish(clients=build_clients(proxy.url, run.endpoint.region, "999988887777"))
    assert {request.operation for request in proxy.log} == {"GetCallerIdentity"}


def test_rounds_older_than_two_weeks_are_named_once_and_stored(run):
    run.made(first_s=minute_now(14 * DAY_S + 90), step_s=3600)
    first = run.publish()
    second = run.publish()
    assert [
        "round 0" in sentence and "older than two weeks" in sentence for sentence in first.lost
    ] == [True]
    assert first.sent == 3
    assert second.is_whole
    assert "records/round-00000.jsonl" in run.objects()


def test_times_far_ahead_wait_until_cloudwatch_takes_them(run, monkeypatch):
    run.made(count=1, first_s=minute_now(-3 * 3600))

    report = run.publish()
    clock(monkeypatch, time=lambda: time.time() + 2 * 3600)
    later = run.publish()

    assert "too far ahead of this machine's clock" in report.left[0]
    assert report.sent == 0
    assert later.is_whole
    assert run.counts() == run.expected()


def test_a_refused_class_is_named_once(run, proxy):
    run.made(count=1)
    proxy.use(refuse("PutMetricData", 400, "InvalidParameterValue", skip=1, times=1))

    first = run.publish()
    second = run.publish()

    assert [sentence.startswith("class 'code' of round 0") for sentence in first.lost] == [True]
    assert first.sent == 2
    assert second.is_whole
    assert {key[1][2][1] for key, count in run.counts().items() if count} == {"chat", "math"}


def test_a_refused_class_is_named_by_the_publish_that_completes(run, proxy):
    refusal = refuse("PutMetricData", 400, "InvalidParameterValue", times=1)
    proxy.use(refusal, refuse("PutMetricData", 403, "AccessDenied", skip=3))  # of the second round
    with pytest.raises(ExternalError):
        run.publish()
    proxy.use()

    first = run.publish()
    second = run.publish()

    assert [sentence.startswith("class 'chat' of round 0") for sentence in first.lost] == [True]
    assert second.is_whole


def gauge(run, at_s):
    cell = (
        ("Experiment", "post"),
        ("Variant", "baseline"),
        ("PromptClass", "all"),
        ("Concurrency", "all"),
    )
    key = ("unpublished_rounds", cell, at_s)
    return read_statistic(run.endpoint, run.destination.namespace, [key], "Maximum")[key]


def test_the_gauge_counts_earlier_rounds_that_were_not_sent(run, proxy, monkeypatch):
    run.made(count=3)
    clock(monkeypatch, time=lambda: run.first_s + 600.0)
    # the second round's first, at every try
    proxy.use(refuse("PutMetricData", 500, "InternalError", skip=3, times=3))

    with pytest.raises(ExternalError, match="PutMetricData failed at every try"):
        run.publish()

    assert gauge(run, run.first_s + 600) == 1.0


def test_the_calls_are_those_that_are_declared(run, proxy):
    clients = build_clients(proxy.url, run.endpoint.region)
    calls = set()
    for name in ("cloudwatch", "s3", "sts"):
        getattr(clients, name).meta.events.register(
            "before-call",
            lambda model, name=name, **_: calls.add((name, model.name)),
            unique_id=name,
        )
    (run.folder / "records.jsonl").write_bytes(bytes(20 << 20))
    large = dataclasses.replace(next(run.rounds()), ranges=((0, 20 << 20),))
    proxy.use(FaultRule(fault=ACCESS_DENIED_FAULT, operation="UploadPart", times=1))

    with pytest.raises(ExternalError, match="UploadPart is denied"):
        run.publish([large])
    run.publish([large])

    assert calls == list_command_calls("bench publish")
