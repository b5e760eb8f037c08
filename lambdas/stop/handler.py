"""Stops the fleet when a budget says so, or whoever invokes it: the function behind the budget's topic.

Invariant: whatever it is sent stops the fleet, and no message is too odd for that; only a budget's notification of a
Capacity Block does not, because that money was spent when the block was bought: people are told, and the run goes on.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import Any

from tandem.stop import RAISED, Clients, Guarded, read_capacity_kind, stop, tell, words

BY_HAND = "the stop function was invoked"
FIRST_CHARACTERS = 300


class NotStoppedError(RuntimeError):
    """Something is left to do; Lambda counts an error and, for a notification, calls again."""


def handler(event: Any, _context: Any) -> dict[str, Any]:
    """Stop the fleet, and return the pass's report.

    Args:
        event: SNS's envelope around a budget's notification; or an object with `who`, `why` and `run`, all optional.

    Raises:
        NotStoppedError: what is left to do. Doing it again is safe.
    """
    guarded = Guarded.from_variables(os.environ)
    clients = Clients.of(guarded.region)
    notified = notification(event)
    if notified is not None and read_capacity_kind(clients, guarded) == "capacity-block":
        return only_told(clients, guarded, notified)
    asked = {} if notified is not None or not isinstance(event, dict) else event
    report = stop(
        clients, guarded, who="budget" if notified is not None else str(asked.get("who") or "lambda"),
        why=f"budget notification: {notified}" if notified is not None else str(asked.get("why") or BY_HAND),
        run=str(asked["run"]) if asked.get("run") else None, now=datetime.now(UTC), publishes=True,
    )  # fmt: skip
    said = report.as_json()
    print(json.dumps(said))
    if report.failed:
        raise NotStoppedError("; ".join(report.failed))
    return said


def notification(event: Any) -> str | None:
    """Return the first words of what SNS brought, None where it was not SNS."""
    if not isinstance(event, dict) or "Records" not in event:
        return None
    try:
        brought = event["Records"][0]["Sns"]
        return " ".join(str(brought.get("Subject") or brought["Message"]).split())[:FIRST_CHARACTERS]
    except (LookupError, TypeError, AttributeError):
        return "one that could not be read"


def only_told(clients: Clients, guarded: Guarded, notified: str) -> dict[str, Any]:
    """Tell people of a budget that a Capacity Block has used up; what runs goes on.

    Raises:
        NotStoppedError: nobody could be told.
    """
    text = (
        f"{guarded.environment}: a budget notified: {notified}\n"
        "Nothing is stopped: the Capacity Block was paid for when it was bought, and a stop saves nothing of it.\n"
        f"To stop all the same: tandem stop --env {guarded.environment}"
    )
    try:
        tell(clients, guarded, "budget notified, nothing is stopped", text)
    except RAISED as error:
        raise NotStoppedError(f"telling {guarded.topic_arn} failed: {words(error)}") from error
    print(json.dumps({"told": text}))
    return {"told": [text]}
