"""The stop function behind the budget's topic: it stops the fleet for a budget or for any caller.

Invariant: any message stops the fleet, however odd. The only exception is a budget's notification
for a Capacity Block. That money was spent when the block was bought: people are notified, and the
run goes on.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import Any

from tandem.guard.apply import stop_fleet
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.notify import notify_subscribers
from tandem.guard.observe import read_capacity_kind
from tandem.guard.values import CALL_ERRORS, describe_error

INVOCATION_REASON = "the stop function was invoked"
MAX_NOTICE_CHARACTERS = 300


class IncompleteStopError(RuntimeError):
    """Work is left to do; Lambda counts an error and, for a notification, calls again."""


def handler(event: Any, _context: Any) -> dict[str, Any]:
    """Stop the fleet, and return the pass's report.

    Args:
        event: SNS's envelope around a budget's notification; or an object with `who`, `why` and
            `run`, all optional.

    Raises:
        IncompleteStopError: names the work that is left. A repetition is safe.
    """
    config = GuardConfig.from_variables(os.environ)
    clients = AwsClients.create(config.region)
    notice = read_notification(event)
    if notice is not None and read_capacity_kind(clients, config) == "capacity-block":
        return notify_only(clients, config, notice)
    if notice is None:
        request = event if isinstance(event, dict) else {}
    else:
        request = {"who": "budget", "why": f"budget notification: {notice}"}
    report = stop_fleet(
        clients,
        config,
        who=str(request.get("who") or "lambda"),
        why=str(request.get("why") or INVOCATION_REASON),
        run=str(request["run"]) if request.get("run") else None,
        now=datetime.now(UTC),
        publishes_metrics=True,
    )
    document = report.as_json()
    print(json.dumps(document))
    if report.failures:
        raise IncompleteStopError("; ".join(report.failures))
    return document


def read_notification(event: Any) -> str | None:
    """Return the first words of a message from SNS, None if the event is not from SNS."""
    if not isinstance(event, dict) or "Records" not in event:
        return None
    try:
        sns_message = event["Records"][0]["Sns"]
        return " ".join(str(sns_message.get("Subject") or sns_message["Message"]).split())[
            :MAX_NOTICE_CHARACTERS
        ]
    except (LookupError, TypeError, AttributeError):
        return "one that could not be read"


def notify_only(clients: AwsClients, config: GuardConfig, notice: str) -> dict[str, Any]:
    """Notify people of a budget that a Capacity Block has used up; running work goes on.

    Raises:
        IncompleteStopError: nobody could be notified.
    """
    message = (
        f"{config.environment}: a budget notified: {notice}\nNothing is stopped: the Capacity Block"
        " was paid for when it was bought, and a stop saves nothing of it.\nTo stop all the same:"
        f" tandem stop --env {config.environment}"
    )
    try:
        notify_subscribers(clients, config, "budget notified, nothing is stopped", message)
    except CALL_ERRORS as error:
        raise IncompleteStopError(
            f"telling {config.topic_arn} failed: {describe_error(error)}"
        ) from error
    print(json.dumps({"told": message}))
    return {"told": [message]}
