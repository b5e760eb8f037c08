"""Each way in which the world outside fails: a sentence, the records kept, and a later publish that completes."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest
from botocore import exceptions as boto
from doubles.fault_proxy.rules import INTERNAL_ERROR_FAULT, DropFault, FaultRule, StatusFault
from publishing import minute_now, services

from rehearsal.loopback import find_free_port
from tandem.publish import Limits, PublishError, RefusedError, connect
from tandem.publish.fault import Asked, fault_of, outcome

pytestmark = pytest.mark.endpoint
DAY_S = 86400


def refuse(operation, status, code, **when):
    return FaultRule(fault=StatusFault(status=status, code=code), operation=operation, **when)


def completes(published, proxy):
    """Whether a publish without faults completes with exact counts, and the records are untouched."""
    proxy.use()
    assert (published.folder / "records.jsonl").read_bytes() == b'{"round":0}\n{"round":1}\n'
    assert published.publish().whole
    assert published.counts() == published.expected()
    return True


@pytest.mark.parametrize(
    ("operation", "status", "code", "said"),
    [
        ("GetCallerIdentity", 403, "ExpiredToken", "the credentials have expired"),
        ("PutMetricData", 403, "ExpiredToken", "the credentials have expired"),
        ("PutMetricData", 400, "ExpiredTokenException", "the credentials have expired"),
        ("PutObject", 400, "ExpiredToken", "the credentials have expired"),
        ("PutMetricData", 403, "AccessDenied", "cloudwatch:PutMetricData with the condition cloudwatch:namespace"),
        ("PutObject", 403, "AccessDenied", "s3:PutObject is missing"),
        ("ListObjectsV2", 403, "AccessDenied", "s3:ListBucket is missing"),
        ("GetCallerIdentity", 403, "SignatureDoesNotMatch", "does not accept these credentials"),
        ("GetCallerIdentity", 403, "InvalidClientTokenId", "does not accept these credentials"),
        ("PutMetricData", 403, "RequestTimeTooSkewed", "clock differs too much"),
        ("PutObject", 403, "RequestTimeTooSkewed", "clock differs too much"),
        ("PutMetricData", 403, "RequestExpired", "clock differs too much"),
        ("PutObject", 404, "NoSuchBucket", "deploy the environment's Artifacts stack"),
        ("PutObject", 400, "AuthorizationHeaderMalformed", "the bucket is in another region"),
        ("PutObject", 503, "SlowDown", "wait a few minutes"),
    ],
)
def test_what_aws_refuses_is_said_with_what_to_do_and_a_later_publish_completes(
    published, proxy, operation, status, code, said
):
    proxy.use(refuse(operation, status, code))

    with pytest.raises(PublishError, match=said) as fault:
        published.publish()

    assert code in str(fault.value)
    assert completes(published, proxy)


def test_a_denied_read_leaves_the_batch_in_doubt_until_it_is_allowed(published, proxy):
    proxy.use(FaultRule(fault=INTERNAL_ERROR_FAULT, operation="PutMetricData", times=1),
              refuse("GetMetricData", 403, "AccessDenied"))  # fmt: skip

    with pytest.raises(PublishError, match=r"cloudwatch:GetMetricData on \*"):
        published.publish()

    assert completes(published, proxy)


def test_records_are_in_s3_although_cloudwatch_refuses_all(published, proxy):
    proxy.use(refuse("PutMetricData", 403, "AccessDenied"))

    with pytest.raises(PublishError):
        published.publish()

    assert {"records/round-00000.jsonl", "records/round-00001.jsonl", "manifest.json"} <= set(published.objects())


def test_a_signature_that_expired_is_the_clocks_fault():
    message = "Signature expired: 20261121T080000Z is now earlier than 20261121T112500Z"
    error = boto.ClientError(
        {"Error": {"Code": "SignatureDoesNotMatch", "Message": message}, "ResponseMetadata": {"HTTPStatusCode": 403}},
        "GetCallerIdentity",
    )

    assert "set the clock" in str(fault_of(error, Asked(operation="GetCallerIdentity", where="e")))


def test_no_credentials_are_said_so(published, proxy, monkeypatch):
    given = services(proxy.url, published.endpoint.region)
    monkeypatch.setattr(given.sts, "get_caller_identity", lambda: (_ for _ in ()).throw(boto.NoCredentialsError()))
    with pytest.raises(PublishError, match="there are no AWS credentials"):
        published.publish()
    monkeypatch.undo()

    assert completes(published, proxy)


def test_an_endpoint_that_is_down_is_said_so_and_a_later_publish_completes(published, proxy):
    down, published.url = f"http://127.0.0.1:{find_free_port()}", proxy.url
    with pytest.raises(PublishError, match="GetCallerIdentity reached nobody"):
        published.publish(services=services(down, published.endpoint.region))

    assert completes(published, proxy)


def test_a_name_that_resolves_to_nothing_leaves_no_batch_in_doubt(published):
    good = published.services()
    nowhere = services("http://monitoring.nowhere.invalid", published.endpoint.region)
    with pytest.raises(PublishError, match="PutMetricData reached nobody"):
        published.publish(services=dataclasses.replace(good, cloudwatch=nowhere.cloudwatch))

    states = [json.loads(line)["state"] for line in (published.folder / "published.jsonl").read_text().splitlines()]
    assert states == ["stored", "intent", "unsent", "stored"]


def test_a_connection_that_ends_while_reading_the_account_is_said_so(published, proxy):
    proxy.use(FaultRule(fault=DropFault(), operation="GetCallerIdentity"))

    with pytest.raises(PublishError, match="check the region's name, DNS"):
        published.publish()


def test_credentials_of_another_account_are_refused_before_anything_is_sent(published, proxy):
    with pytest.raises(RefusedError, match="these credentials are of account 999988887777"):
        published.publish(services=services(proxy.url, published.endpoint.region, "999988887777"))

    assert {request.operation for request in proxy.log} == {"GetCallerIdentity"}


def test_rounds_older_than_two_weeks_are_named_once_and_stored(published):
    published.made(number=2, first_s=minute_now(14 * DAY_S + 90), step_s=3600)

    first, second = published.publish(), published.publish()

    assert ["round 0" in said and "older than two weeks" in said for said in first.lost] == [True]
    assert (first.sent, second.whole, "records/round-00000.jsonl" in published.objects()) == (3, True, True)


def test_times_far_ahead_wait_until_cloudwatch_takes_them(published):
    published.made(number=1, first_s=minute_now(-3 * 3600))

    report = published.publish()
    later = published.publish(now=lambda: time.time() + 2 * 3600)

    assert "too far ahead of this machine's clock" in report.left[0]
    assert (report.sent, later.whole, published.counts()) == (0, True, published.expected())


def test_a_class_that_cloudwatch_refuses_is_named_once_and_all_others_are_there(published):
    published.made(number=1, classes=("chat", "größe"))

    first, second = published.publish(), published.publish()

    assert [said.startswith("class 'größe' of round 0") for said in first.lost] == [True]
    assert second.whole
    there = {key[1][2][1] for key, count in published.counts().items() if count}
    assert there == {"chat"}


def test_a_batch_that_cloudwatch_finds_wrong_is_named_once_and_all_others_are_there(published, proxy):
    published.made(number=1)
    proxy.use(refuse("PutMetricData", 400, "InvalidParameterValue", times=1))

    first, second = published.publish(), published.publish()

    assert ["class 'chat' of round 0" in said and "InvalidParameterValue" in said for said in first.lost] == [True]
    assert (first.sent, second.whole) == (2, True)


def test_a_journal_that_cannot_be_written_sends_nothing(published, proxy):
    (published.folder / "published.jsonl").mkdir()

    with pytest.raises(PublishError, match="the journal cannot be written: Is a directory"):
        published.publish()

    assert proxy.log == ()


def test_the_client_of_cloudwatch_sends_a_failed_request_once_whatever_the_variables_say(
    published, proxy, aws, monkeypatch
):  # fmt: skip
    for name, value in {**aws, "AWS_ENDPOINT_URL": proxy.url, "AWS_MAX_ATTEMPTS": "5"}.items():
        monkeypatch.setenv(name, value)
    proxy.use(FaultRule(fault=INTERNAL_ERROR_FAULT, operation="PutMetricData"))
    client = connect(published.endpoint.region, Limits()).cloudwatch

    with pytest.raises(client.exceptions.ClientError):
        client.put_metric_data(Namespace="N", MetricData=[{"MetricName": "m", "Value": 1.0}])

    assert len(proxy.requests("PutMetricData")) == 1


def test_a_large_request_is_packed(published, proxy):
    published.made(number=1, gaps=2000)

    published.publish()

    packed = [request.headers.get("content-encoding") for request in proxy.requests("PutMetricData")]
    assert packed[:3] == ["gzip"] * 3


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (boto.EndpointConnectionError(endpoint_url="u"), "not done"),
        (boto.ConnectTimeoutError(endpoint_url="u"), "not done"),
        (boto.ReadTimeoutError(endpoint_url="u"), "unknown"),
        (boto.ConnectionClosedError(endpoint_url="u"), "unknown"),
        (boto.SSLError(endpoint_url="u", error="e"), "unknown"),
        (boto.NoCredentialsError(), "stop"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_only_a_request_that_was_never_sent_is_known_not_to_be_done(error, found):
    assert outcome(error) == found


@pytest.mark.parametrize(
    ("status", "code", "found"),
    [
        (400, "ThrottlingException", "not done"), (429, "TooManyRequestsException", "not done"),
        (503, "Throttling", "unknown"), (500, "InternalServiceFault", "unknown"), (408, "RequestTimeout", "unknown"),
        (200, "", "unknown"), (400, "InvalidParameterValue", "invalid"), (403, "AccessDenied", "stop"),
    ],
)  # fmt: skip
def test_an_answer_of_the_servers_own_failure_says_nothing_of_what_was_done(status, code, found):
    answer = {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": {"HTTPStatusCode": status}}

    assert outcome(boto.ClientError(answer, "PutMetricData")) == found
