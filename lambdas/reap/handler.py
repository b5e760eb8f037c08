"""One pass of the reaper, every five minutes: look at AWS, do tandem/guard/plan.py's work, report.

Invariant: a pass that could not see or do everything ends as an error. So the alarm on this
function's errors covers faults that no metric of the function can show.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import Any

from tandem.guard.apply import run_reaper_pass
from tandem.guard.config import AwsClients, GuardConfig


class IncompletePassError(RuntimeError):
    """A source could not be read or an action failed; the next pass tries again."""


def handler(_event: Any, _context: Any) -> dict[str, Any]:
    """Make one pass, and return its report.

    Raises:
        IncompletePassError: names the failures.
    """
    config = GuardConfig.from_variables(os.environ)
    report = run_reaper_pass(AwsClients.create(config.region), config, datetime.now(UTC))
    document = report.as_json()
    print(json.dumps(document))
    if report.failures:
        raise IncompletePassError("; ".join(report.failures))
    return document
