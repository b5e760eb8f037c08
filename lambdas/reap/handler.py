"""One pass of the reaper, every five minutes: looks at AWS, does what tandem/guard/plan.py finds due, says what it did.

Invariant: a pass that could not see or could not do all ends as an error, so the alarm on this function's errors
covers what no metric of its own can say.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import Any

from tandem.guard.apply import run_reaper_pass
from tandem.guard.config import AwsClients, GuardConfig


class IncompletePassError(RuntimeError):
    """Something could not be seen or done; the next pass tries again."""


def handler(_event: Any, _context: Any) -> dict[str, Any]:
    """Make one pass, and return its report.

    Raises:
        IncompletePassError: what could not be seen or done.
    """
    config = GuardConfig.from_variables(os.environ)
    report = run_reaper_pass(AwsClients.create(config.region), config, datetime.now(UTC))
    document = report.as_json()
    print(json.dumps(document))
    if report.failures:
        raise IncompletePassError("; ".join(report.failures))
    return document
