"""Stops the fleet when a budget says so, or whoever invokes it: the function behind the budget's topic.

Invariant: whatever it is sent stops the fleet, and no message is too odd for that; only a budget's notification of a
Capacity Block does not, because that money was spent when the block was bought: people are told, and the run goes on.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import Any

from tandem.guard.fleet_stop import (
    CALL_ERRORS,
    AwsClients,
    GuardConfig,
    describe_error,
    notify_subscribers,
    read_capacity_kind,
    stop_fleet,
)

INVOCATION_REASON = "the stop function was invoked"
MAX_NOTICE_CHARACTERS = 300


class IncompleteStopError(RuntimeError):
    """Something is left to do; Lambda counts an error and, for a notification, calls again."""


def handler(event: Any, _context: Any) -> dict[str, Any]:
    """Stop the fleet, and return the pass's report.

    Args:
        event: SNS's envelope around a budget's notification; or an object with `who`, `why` and `run`, all optional.

    Raises:
        IncompleteStopError: what is left to do. Doing it again is safe.
    """
    config = GuardConfig.from_variables(os.environ)
    clients = AwsClients.create(config.region)
    notice = read_notification(event)
    if notice is not None and read_capacity_kind(clients, config) == "capacity-block":
        return notify_only(clients, config, notice)
    request = {} if notice is not None or not isinstance(event, dict) else event
    report = stop_fleet(
        clients, config, who="budget" if notice is not None else str(request.get("who") or "lambda"),
        why=f"budget notification: {notice}" if notice is not None else str(request.get("why") or INVOCATION_REASON),
        run=str(request["run"]) if request.get("run") else None, now=datetime.now(UTC), publishes_metrics=True,
    )  # fmt: skip
    document = report.as_json()
    print(json.dumps(document))
    if report.failures:
        raise IncompleteStopError("; ".join(report.failures))
    return document


def read_notification(event: Any) -> str | None:
    """Return the first words of what SNS brought, None where it was not SNS."""
    if not isinstance(event, dict) or "Records" not in event:
        return None
    try:
        sns_message = event["Records"][0]["Sns"]
        return " ".join(str(sns_message.get("Subject") or sns_message["Message"]).split())[:MAX_NOTICE_CHARACTERS]
    except (LookupError, TypeError, AttributeError):
        return "one that could not be read"


def notify_only(clients: AwsClients, config: GuardConfig, notice: str) -> dict[str, Any]:
    """Tell people of a budget that a Capacity Block has used up; what runs goes on.

    Raises:
        IncompleteStopError: nobody could be told.
    """
    message = (
        f"{config.environment}: a budget notified: {notice}\n"
        "Nothing is stopped: the Capacity Block was paid for when it was bought, and a stop saves nothing of it.\n"
        f"To stop all the same: tandem stop --env {config.environment}"
    )
    try:
        notify_subscribers(clients, config, "budget notified, nothing is stopped", message)
    except CALL_ERRORS as error:
        raise IncompleteStopError(f"telling {config.topic_arn} failed: {describe_error(error)}") from error
    print(json.dumps({"told": message}))
    return {"told": [message]}
