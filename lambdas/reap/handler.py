"""One pass of the reaper, every five minutes: looks at AWS, does what is due, says what it did.

Invariant: a pass that could not see or could not do all ends as an error, so the alarm on this function's errors
covers what no metric of its own can say.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import Any

from tandem.stop import Clients, Guarded, reap


class NotDoneError(RuntimeError):
    """Something could not be seen or done; the next pass tries again."""


def handler(_event: Any, _context: Any) -> dict[str, Any]:
    """Make one pass, and return its report.

    Raises:
        NotDoneError: what could not be seen or done.
    """
    guarded = Guarded.from_variables(os.environ)
    report = reap(Clients.of(guarded.region), guarded, datetime.now(UTC))
    said = report.as_json()
    print(json.dumps(said))
    if report.failed:
        raise NotDoneError("; ".join(report.failed))
    return said
