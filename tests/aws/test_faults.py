"""Why nobody answered: every exception of botocore is of the kind that somebody can look after."""

from __future__ import annotations

import pytest
from botocore import exceptions as boto
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from tandem.artifacts import store_fault
from tandem.aws.faults import FaultKind, classify_fault, explain_fault
from tandem.ops import faults as ops_fault
from tandem.publish import clients as publish_clients

CASES: list[tuple[Exception, FaultKind]] = [
    (boto.NoCredentialsError(), "no credentials"),
    (boto.RefreshWithMFAUnsupportedError(), "no credentials"),
    (boto.ProfileNotFound(profile="x"), "misconfigured"),
    (boto.InvalidProxiesConfigError(), "misconfigured"),
    (boto.EndpointConnectionError(endpoint_url="https://x"), "unreachable"),
    (boto.ReadTimeoutError(endpoint_url="https://x"), "unreachable"),
    (ResponseParserError("no XML"), "unreachable"),
]


@pytest.mark.parametrize(("error", "kind"), CASES)
def test_an_exception_is_of_one_kind_and_in_its_sentence(error, kind):
    fault = classify_fault(error, "GetObject")
    assert fault is not None
    assert fault.kind == kind
    assert " ".join(str(error).split()) in fault.problem


@pytest.mark.parametrize(
    "error", [ClientError({"Error": {"Code": "500"}}, "GetObject"), ValueError("no")]
)
def test_an_answer_is_none_of_them(error):
    assert classify_fault(error, "GetObject") is None


@pytest.mark.parametrize(("error", "kind"), CASES)
def test_everybody_tells_a_fault_with_one_code(error, kind):
    faults = (
        ops_fault.convert_error(error, service="s3", operation="GetObject", where="s3://b/k"),
        store_fault.convert_error(error, "GetObject", "b", "k"),
    )

    published = publish_clients.convert_error(error, "GetObject", "s3://b/k")
    codes = {getattr(fault, "exit_code", None) or fault.code for fault in faults}
    assert codes | {published.exit_code} == {2 if kind == "misconfigured" else 3}
    assert [
        fault for fault in (*faults, published) if not fault.change or fault.change == "try again"
    ] == []


@pytest.mark.parametrize(
    ("status", "code", "message", "kind"),
    [
        (400, "ThrottlingException", "", "busy"),
        (503, "AccessDenied", "", "busy"),
        (403, "403", "", "denied"),
        (403, "SignatureDoesNotMatch", "", "foreign"),
        (403, "SignatureDoesNotMatch", "Signature expired: x", "clock"),
        (403, "RequestExpired", "", "clock"),
        (400, "ExpiredTokenException", "", "expired"),
        (400, "InvalidParameterValue", "", "invalid"),
        (404, "NoSuchBucket", "", "no bucket"),
        (301, "PermanentRedirect", "", "other region"),
        (400, "Unheard", "", "refused"),
    ],
)
def test_an_answer_is_of_one_kind(status, code, message, kind):
    answer = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    assert explain_fault(ClientError(answer, "GetObject"), "PutObject").kind == kind
