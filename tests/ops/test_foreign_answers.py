"""What answers in the place of AWS, as a proxy does, is a sentence with code 3, and never an empty
list."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

import pytest
from doubles.loopback import Question, answer_requests
from fleet_seen import SPOT

from tandem.errors import TandemError
from tandem.ops.account import create_client, iterate_rows, require_account
from tandem.ops.faults import call_operation

PAGES = {  # each of which stumbles another parser of botocore
    "page": (
        b"<!DOCTYPE html><html><head><meta charset=utf-8><title>Sign in</title></head><p>Log"
        b" in<br></html>"
    ),
    "not UTF-8": b"<html>\xff\xfe</html>",
    "JSON list": b"[1]",
}
CALLS = (  # one of each protocol that botocore parses
    ("sts", "GetCallerIdentity", {}),
    ("s3", "ListObjectVersions", {"Bucket": "b-b"}),
    ("ec2", "DescribeInstances", {}),
    ("eks", "DescribeNodegroup", {"clusterName": "c", "nodegroupName": "n"}),
    ("cloudwatch", "DescribeAlarms", {}),
    ("budgets", "DescribeBudgets", {"AccountId": SPOT.account}),
)


@dataclass
class Proxy:
    """A server in the place of AWS.

    Args:
        answer: returns status and body for the form or JSON of a request.
    """

    url: str = ""
    answer: Callable[[dict[str, str]], tuple[int, bytes]] = lambda _: (200, b"")
    requests: list[dict[str, str]] = field(default_factory=list)


@pytest.fixture
def proxy(monkeypatch):
    """A real HTTP server at AWS_ENDPOINT_URL."""
    client = Proxy()

    def answer(question: Question) -> tuple[int, dict[str, str], bytes]:
        body = question.body.decode()
        status = json.loads(body) if body.startswith("{") else dict(parse_qsl(body))
        client.requests.append(status | dict(parse_qsl(question.path.partition("?")[2])))
        status, content = client.answer(client.requests[-1])
        return status, {"Content-Type": "text/html"}, content

    monkeypatch.setattr(
        "botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.001
    )
    with answer_requests(answer) as client.url:
        for name, value in {
            "AWS_ENDPOINT_URL": client.url,
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }.items():
            monkeypatch.setenv(name, value)
        yield client


@pytest.mark.parametrize(
    ("service", "operation", "parameters"), CALLS, ids=[f"{name}-{two}" for name, two, _ in CALLS]
)
def test_foreign_answer_is_an_external_fault(proxy, service, operation, parameters):
    client = create_client(SPOT, service)
    answers = [(name, status) for name in PAGES for status in (200, 403, 502)]
    for name, status in answers:
        proxy.answer = lambda _, status=(status, PAGES[name]): status  # type: ignore[misc]

        with pytest.raises(TandemError) as failure:
            call_operation(client, operation, "home", **parameters)

        assert failure.value.exit_code == 3, (name, status)
        if status == 200 and service != "s3":  # botocore takes a page of S3 for a server's failure
            assert (
                f"{operation} was answered by something that is not AWS" in failure.value.problem
            ), name
        if status == 502:
            assert "failed at every try (502" in failure.value.problem, name


def test_a_server_that_fails_with_a_page_is_asked_again(proxy):
    answers = iter([(503, PAGES["page"]), (200, b'{"Schedules": []}')])
    proxy.answer = lambda _: next(answers)
    assert (
        call_operation(create_client(SPOT, "scheduler"), "ListSchedules", "home")["Schedules"] == []
    )


def test_sign_in_page_says_what_to_do(proxy):
    proxy.answer = lambda _: (200, PAGES["page"])
    with pytest.raises(TandemError, match=r"not AWS.*proxies") as failure:
        require_account(SPOT)
    assert failure.value.exit_code == 3


def schedule(name: str, token: str) -> bytes:
    more = {"NextToken": token} if token else {}
    return json.dumps({"Schedules": [{"Name": name}], **more}).encode()


def test_a_list_whose_token_repeats_ends_with_a_sentence(proxy):
    proxy.answer = lambda _: (200, schedule("s", "token"))

    with pytest.raises(TandemError, match="token was received twice") as failure:
        list(iterate_rows(create_client(SPOT, "scheduler"), "ListSchedules", "Schedules", "home"))

    assert failure.value.exit_code == 3
    assert len(proxy.requests) == 2
