"""What the stop function answers, and what its caller makes of it."""

from __future__ import annotations

import io

import pytest
from botocore.exceptions import ClientError
from shipped import load_shipped

from tandem.errors import ExternalError
from tandem.ops.stop_function import invoke_stop_function

CALL = "tandem.ops.stop_function.call_operation"


def invoke() -> tuple[str, ...]:
    """Invoke the stop function of a shipped environment."""
    environment = load_shipped().environments["post-us-east-2"].record
    return invoke_stop_function(environment, who="anna", why="enough")


def test_what_the_function_did_is_returned(monkeypatch):
    answer = {"Payload": io.BytesIO(b'{"done": ["2 instances ended"]}')}
    monkeypatch.setattr(CALL, lambda *_, **__: answer)

    assert invoke() == ("2 instances ended",)


@pytest.mark.parametrize(
    ("body", "reason"), [(b'{"errorMessage": "denied"}', "denied"), (b"{}", "Unhandled")]
)
def test_a_function_that_failed_is_told_with_its_reason(body, reason, monkeypatch):
    answer = {"FunctionError": "Unhandled", "Payload": io.BytesIO(body)}
    monkeypatch.setattr(CALL, lambda *_, **__: answer)

    with pytest.raises(ExternalError, match=rf"it could not do all \({reason}\)"):
        invoke()


@pytest.mark.parametrize(
    ("code", "problem"),
    [("AccessDeniedException", "denied"), ("ResourceNotFoundException", "it is not there")],
)
def test_only_a_function_that_is_missing_is_told_as_missing(code, problem, monkeypatch):
    def fail_call(*_, **__):
        cause = ClientError({"Error": {"Code": code}}, "Invoke")
        raise ExternalError("denied", where="function", change="ask for it") from cause

    monkeypatch.setattr(CALL, fail_call)

    with pytest.raises(ExternalError, match=problem):
        invoke()
