"""Log lines of all programs of this package: one JSON object a line."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from typing import Any


def log_event(event: str, *, level: str = "info", **details: Any) -> None:
    """Write one log line to standard output."""
    timestamp = datetime.now(tz=timezone.utc).isoformat(timespec="milliseconds")  # noqa: UP017 - one spelling for all versions
    sys.stdout.write(
        json.dumps({"at": timestamp, "level": level, "event": event, **details}, default=str) + "\n"
    )
    sys.stdout.flush()
