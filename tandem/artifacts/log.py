"""Log lines that people and machines read: one JSON object a line on standard output.

Invariant: every line has `at` (UTC), `level` and `event`; nothing secret is ever passed to it.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

from tandem.errors import TandemError


def log_event(event: str, *, level: str = "info", **details: Any) -> None:
    """Write one line.

    Args:
        event: what happened, in a few words that never change.
        level: info, warning or error.
        details: plain JSON values; a unit in each name that has one.
    """
    timestamp = datetime.now(tz=UTC).isoformat(timespec="milliseconds")
    line = json.dumps({"at": timestamp, "level": level, "event": event, **details}, ensure_ascii=False, default=str)
    sys.stdout.write(
        line.encode(errors="backslashreplace").decode() + "\n"
    )  # names that are no UTF-8, as JSON has them
    sys.stdout.flush()  # a killed pod must have said what it did


def log_fault(error: TandemError) -> None:
    """Write a fault as the last line of a process."""
    log_event(error.problem, level="error", where=error.where, change=error.change, exit_code=error.exit_code)
