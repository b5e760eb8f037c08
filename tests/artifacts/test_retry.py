"""The retry loop: what is tried again, for how long, and what ends it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tandem.artifacts import retry
from tandem.artifacts.retry import RETRY_PAUSE_S, retry_call, retry_upload
from tandem.errors import ExternalError


class FailingAction:
    """An action that fails so often, then succeeds."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise ExternalError("busy", where="s3://bucket/key", change="wait")
        return "stored"


@pytest.fixture
def pauses(monkeypatch):
    """Seconds of every pause, which pass at once on a clock of the loop's own."""
    pauses: list[float] = []
    clock = SimpleNamespace(sleep=pauses.append, monotonic=lambda: sum(pauses))
    monkeypatch.setattr(retry, "time", clock)
    return pauses


def test_an_action_is_tried_until_it_succeeds(pauses):
    action = FailingAction(2)

    assert retry_call(action, ExternalError, lambda _, number: float(number)) == "stored"
    assert pauses == [1.0, 2.0]


def test_another_exception_is_raised_at_once(pauses):
    def action() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        retry_call(action, ExternalError, lambda *_: 0.0)
    assert pauses == []


def test_an_upload_waits_no_longer_than_its_patience(pauses):
    with pytest.raises(ExternalError, match="busy"):
        retry_upload(FailingAction(9), retry_s=RETRY_PAUSE_S + 10)

    assert pauses == [RETRY_PAUSE_S, 10.0]


def test_an_upload_without_patience_is_tried_once(pauses):
    action = FailingAction(9)

    with pytest.raises(ExternalError):
        retry_upload(action, retry_s=0)
    assert (action.calls, pauses) == (1, [])
