"""What operators are told when AWS refuses, fails or is out of reach: what, where, what to do, and
the code."""

from __future__ import annotations

import pytest
from botocore import exceptions as boto
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from fleet_seen import SPOT

from tandem.errors import InputError, TandemError
from tandem.ops.account import create_client
from tandem.ops.faults import call_operation, convert_error


def answered(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {
            "Error": {"Code": code, "Message": "as told"},
            "ResponseMetadata": {"HTTPStatusCode": status},
        },
        "GetObject",
    )


@pytest.mark.parametrize(
    ("error", "says", "change", "code"),
    [
        (
            answered("AccessDenied", 403),
            "GetObject is denied",
            "allow s3:GetObject to this identity",
            3,
        ),
        (answered("ExpiredToken"), "the credentials have expired", "log in again", 3),
        (
            answered("RequestTimeTooSkewed", 403),
            "this machine's clock differs too much from AWS's",
            "set the clock",
            3,
        ),
        (answered("ThrottlingException"), "failed at every try", "wait a minute", 3),
        (answered("Whatever", 503), "failed at every try", "wait a minute", 3),
        (answered("ValidationException"), "was refused", "API reference", 3),
        (boto.NoCredentialsError(), "there are no AWS credentials", "log in", 3),
        (boto.ProfileNotFound(profile="x"), "the AWS settings cannot be used", "AWS_PROFILE", 2),
        (boto.EndpointConnectionError(endpoint_url="https://x"), "got no answer", "DNS", 3),
    ],
)
def test_a_fault_says_what_where_and_what_to_do(error, says, change, code):
    fault = convert_error(error, service="s3", operation="GetObject", where="s3://bucket/key")
    assert says in fault.problem
    assert fault.where == "s3://bucket/key"
    assert change in fault.change
    assert fault.exit_code == code


def test_answer_of_another_service_is_a_fault():
    with Stubber(create_client(SPOT, "sts")) as stub:
        stub.add_response("get_caller_identity", {})
        answer = call_operation(stub.client, "GetCallerIdentity", "home")

    with pytest.raises(
        TandemError, match="home: GetCallerIdentity was answered without Account; try again"
    ):
        answer["Account"]


def test_the_right_of_a_budget_is_not_its_operations_name():
    fault = convert_error(
        answered("AccessDeniedException"), service="budgets", operation="DescribeBudget", where="x"
    )
    assert "allow budgets:ViewBudget" in fault.change


def test_an_endpoint_that_is_no_url_is_bad_input(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nonsense")
    with pytest.raises(InputError, match="AWS_ENDPOINT_URL"):
        create_client(SPOT, "sts")
