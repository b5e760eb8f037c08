"""The function that has images built: every event is answered, and a failure says where its log
is."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aws_json import Answer, serving

NOW = 1_800_000_000.0
RATE_LIMIT: Answer = (
    400,
    {
        "__type": "AccountLimitExceededException",
        "message": "Cannot have more than 1 builds in queue for the account",
    },
)
NO_BUILDS: Answer = (
    400,
    {
        "__type": "AccountLimitExceededException",
        "message": "Cannot have more than 0 builds in queue for the account",
    },
)
FILE = Path(__file__).parents[2] / "lambdas" / "build_image" / "handler.py"
PROPERTIES = {"Project": "p", "Repository": "tools", "Tag": "0123456789abcdef"}
PRESENT: Answer = (200, {"imageDetails": [{"imageTags": ["0123456789abcdef"]}]})
ABSENT: Answer = (400, {"__type": "ImageNotFoundException", "message": "no such image"})
DENIAL: Answer = (
    400,
    {"__type": "AccessDeniedException", "message": "not authorized to perform: ecr:DescribeImages"},
)
LOGS = {
    "groupName": "prod-Registry-Logs-1",
    "streamName": "build/7",
    "deepLink": "https://console.example.com/log",
}


def build(status: str, phase: str, **more: Any) -> dict[str, Any]:
    return {"id": "p:7", "buildStatus": status, "currentPhase": phase, "logs": LOGS, **more}


def started(status: str) -> Answer:
    return 200, {"build": build(status, "SUBMITTED")}


def found(status: str, phase: str = "COMPLETED", **more: Any) -> Answer:
    return 200, {"builds": [build(status, phase, **more)]}


FAILED = found(
    "FAILED",
    phases=[
        {"phaseType": "PRE_BUILD", "phaseStatus": "SUCCEEDED"},
        {
            "phaseType": "BUILD",
            "phaseStatus": "FAILED",
            "contexts": [
                {
                    "statusCode": "COMMAND_EXECUTION_ERROR",
                    "message": "Error while executing command: docker build",
                }
            ],
        },
    ],
)


@pytest.fixture
def aws(monkeypatch):
    """AWS that has the image already, unless a test says other."""
    with serving() as running:
        running.answers = {"DescribeImages": [PRESENT]}
        variables = {
            "AWS_ENDPOINT_URL": running.url,
            "AWS_ACCESS_KEY_ID": "1",
            "AWS_SECRET_ACCESS_KEY": "1",
            "AWS_DEFAULT_REGION": "us-east-2",
            "NO_PROXY": "127.0.0.1",
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def module(monkeypatch):
    """The handler, whose waiting takes no time."""
    spec = importlib.util.spec_from_file_location("build_image_handler", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda _: None, time=lambda: NOW))
    return module


@pytest.fixture
def act(aws, module):
    """Handle one event."""

    def handle(request: str = "Create", left_ms: Iterator[int] | None = None, **more: Any) -> None:
        context = SimpleNamespace(
            get_remaining_time_in_millis=lambda: next(left_ms) if left_ms else 900_000,
            log_group_name="group",
            log_stream_name="stream",
            invoked_function_arn="arn:aws:lambda:us-east-2:111122223333:function:build",
        )
        event = {
            "RequestType": request,
            "RequestId": "r-1",
            "StackId": "s",
            "LogicalResourceId": "Image",
            "ResponseURL": f"{aws.url}/answer",
            "ResourceProperties": PROPERTIES,
            **more,
        }
        module.handler(event, context)

    return handle


@pytest.fixture
def handle(aws, act):
    """Handle one event; what CloudFormation was told."""

    def answer(*words: Any, **more: Any) -> dict[str, Any]:
        act(*words, **more)
        (answer,) = aws.responses
        return answer

    return answer


def test_a_tag_that_is_there_is_done_without_a_build(aws, handle):
    assert handle()["Status"] == "SUCCESS"
    assert "StartBuild" not in aws.asked


@pytest.mark.parametrize("request_", ["Create", "Update"])
def test_a_missing_tag_is_built_and_waited_for(aws, handle, request_):
    aws.answers = {
        "DescribeImages": [ABSENT, PRESENT],
        "StartBuild": [started("IN_PROGRESS")],
        "BatchGetBuilds": [
            found("IN_PROGRESS", "BUILD"),
            found("IN_PROGRESS", "BUILD"),
            found("SUCCEEDED"),
        ],
    }

    assert handle(request_)["Status"] == "SUCCESS"
    assert len(aws.asked["BatchGetBuilds"]) == 3


def test_one_event_delivered_twice_starts_one_build(aws, handle):
    aws.answers = {"DescribeImages": [ABSENT, PRESENT], "StartBuild": [started("SUCCEEDED")]}
    handle()
    assert aws.asked["StartBuild"] == [{"projectName": "p", "idempotencyToken": "r-1"}]


@pytest.mark.parametrize(
    "words",
    [
        "tools:0123456789abcdef is not in the repository",
        "phase BUILD of the build ended FAILED",
        "Error while executing command: docker build",
        "Build p:7",
        "log group prod-Registry-Logs-1",
        "stream build/7",
        "https://console.example.com/log",
    ],
)
def test_a_failed_build_is_told_with_its_phase_and_its_log(aws, handle, words):
    aws.answers = {
        "DescribeImages": [ABSENT],
        "StartBuild": [started("IN_PROGRESS")],
        "BatchGetBuilds": [FAILED],
    }
    answer = handle()

    assert answer["Status"] == "FAILED"
    assert words in answer["Reason"]


def test_a_failed_build_is_no_failure_where_another_pushed_the_tag(aws, handle):
    aws.answers = {
        "DescribeImages": [ABSENT, PRESENT],
        "StartBuild": [started("IN_PROGRESS")],
        "BatchGetBuilds": [FAILED],
    }
    assert handle()["Status"] == "SUCCESS"


def test_a_build_that_pushed_nothing_is_a_failure(aws, handle):
    aws.answers = {"DescribeImages": [ABSENT], "StartBuild": [started("SUCCEEDED")]}
    assert "ended SUCCEEDED and pushed nothing" in handle()["Reason"]


BUILDING = {
    "DescribeImages": [ABSENT],
    "StartBuild": [started("IN_PROGRESS")],
    "BatchGetBuilds": [found("IN_PROGRESS", "BUILD")],
    "Invoke": [(202, {})],
}


def test_a_build_that_outlasts_one_call_goes_on_in_another(aws, act):
    aws.answers = BUILDING

    act(left_ms=iter([300_000, 200_000, 121_000]))

    (next_event,) = aws.asked["Invoke"]
    assert (next_event["Build"], next_event["Until"], next_event["RequestId"]) == (
        "p:7",
        NOW + 3300,
        "r-1",
    )
    assert aws.responses == []


def test_another_call_waits_for_the_build_and_starts_none(aws, handle):
    aws.answers = {"DescribeImages": [ABSENT, PRESENT], "BatchGetBuilds": [found("SUCCEEDED")]}
    assert handle(Build="p:7", Until=NOW + 60)["Status"] == "SUCCESS"
    assert aws.asked["BatchGetBuilds"] == [{"ids": ["p:7"]}]


def test_it_answers_before_cloudformation_waits_no_more(aws, handle):
    aws.answers = BUILDING
    answer = handle(Build="p:7", Until=NOW + 1)
    assert answer["Status"] == "FAILED"
    assert "still in phase BUILD" in answer["Reason"]


def test_a_build_waits_where_the_account_may_run_no_more(aws, handle):
    aws.answers = {
        "DescribeImages": [ABSENT, PRESENT],
        "StartBuild": [RATE_LIMIT, NO_BUILDS, RATE_LIMIT, started("SUCCEEDED")],
    }

    assert handle()["Status"] == "SUCCESS"
    assert len(aws.asked["StartBuild"]) == 4


def test_the_wait_for_a_turn_goes_on_in_another_call(aws, act):
    aws.answers = {"DescribeImages": [ABSENT], "StartBuild": [RATE_LIMIT], "Invoke": [(202, {})]}
    act(left_ms=iter([121_000]))
    (next_event,) = aws.asked["Invoke"]
    assert "Build" not in next_event


@pytest.mark.parametrize(
    ("limit", "until_s", "left_ms"),
    [(RATE_LIMIT, 1, 900_000), (NO_BUILDS, 3300, 121_000)],
    ids=["all used", "none"],
)
def test_a_turn_that_never_comes_is_told_with_the_quota(aws, handle, limit, until_s, left_ms):
    """An account that may run no build at all gets no turn by waiting longer."""
    aws.answers = {"DescribeImages": [ABSENT], "StartBuild": [limit]}
    answer = handle(left_ms=iter([left_ms]), Until=NOW + until_s)
    assert answer["Status"] == "FAILED"
    assert "Ask AWS for a higher CodeBuild quota" in answer["Reason"]


def test_a_delete_is_answered_and_does_nothing(aws, handle):
    answer = handle("Delete", PhysicalResourceId="before")
    assert (answer["Status"], answer["PhysicalResourceId"]) == ("SUCCESS", "before")
    assert aws.asked == {}


@pytest.mark.parametrize(
    "answers", [{"DescribeImages": [DENIAL]}, {}], ids=["denied", "no answer at all"]
)
def test_an_unforeseen_fault_is_answered_with_the_functions_own_log(aws, handle, answers):
    aws.answers = answers
    answer = handle()
    assert answer["Status"] == "FAILED"
    assert "log: group group, stream stream" in answer["Reason"]


def test_the_resource_keeps_its_identity(handle):
    """Another one would make CloudFormation delete the old resource after an update."""
    assert handle("Update", PhysicalResourceId="first")["PhysicalResourceId"] == "first"


def test_an_answer_names_the_event(handle):
    answer = handle()
    assert (answer["StackId"], answer["RequestId"], answer["LogicalResourceId"]) == (
        "s",
        "r-1",
        "Image",
    )


def test_an_answer_has_no_content_type(aws, handle):
    """The URL of CloudFormation is signed for none."""
    handle()
    assert aws.content_types == [""]


def test_an_answer_that_is_lost_is_sent_again(aws, handle):
    aws.lost = 3
    assert handle()["Status"] == "SUCCESS"


def test_an_answer_fits_into_what_cloudformation_takes(aws, handle):
    long = {
        "phaseType": "BUILD",
        "phaseStatus": "FAILED",
        "contexts": [{"message": "\u00e9\u4e2d" * 5000}],
    }
    aws.answers = {
        "DescribeImages": [ABSENT],
        "StartBuild": [started("IN_PROGRESS")],
        "BatchGetBuilds": [found("FAILED", phases=[long])],
    }

    assert len(json.dumps(handle()).encode()) < 4096


def test_the_margin_covers_three_calls_and_every_try_to_answer(module):
    tries = module.CLIENT_CONFIG.retries["total_max_attempts"]
    backoff_s = 3  # of the standard mode between three tries: up to 1 and 2 seconds
    call_s = (
        tries * (module.CLIENT_CONFIG.connect_timeout + module.CLIENT_CONFIG.read_timeout)
        + backoff_s
    )
    answer_s = module.RESPONSE_ATTEMPTS * module.RESPONSE_TIMEOUT_S + sum(
        2**n for n in range(module.RESPONSE_ATTEMPTS - 1)
    )

    assert 3 * call_s + answer_s <= module.MARGIN_S
