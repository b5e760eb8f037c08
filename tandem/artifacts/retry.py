"""The retry loop: for a busy hub, an upload of the only copy, a write that meets others.

botocore retries each request by itself; a failure of S3 comes here only after the last of these
tries (docs/decisions/0037-one-retry-loop.md).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

from tandem.artifacts.driver.log import log_event
from tandem.errors import ExternalError

Result = TypeVar("Result")
Failure = TypeVar("Failure", bound=Exception)

RETRY_PAUSE_S = 30.0  # between two tries after a failure of S3


def retry_call(
    action: Callable[[], Result],
    failures: type[Failure] | tuple[type[Failure], ...],
    plan: Callable[[Failure, int], float],
) -> Result:
    """Call an action until it succeeds, or until the plan raises.

    Args:
        action: may be called again after a failure.
        failures: exceptions to retry; any other is raised at once.
        plan: returns the seconds to wait for a failure and its number, from 1; raises to end the
            tries.
    """
    number = 0
    while True:
        number += 1
        try:
            return action()
        except failures as error:
            time.sleep(plan(error, number))


def retry_upload(action: Callable[[], Result], retry_s: float) -> Result:
    """Retry an upload while S3 fails: a pod that ends here loses the only copy with its disk.

    Args:
        action: may be called again after a failure.
        retry_s: seconds from now in which a further try may begin.

    Raises:
        ExternalError: from the last try, once the time is over.
    """
    deadline_s = time.monotonic() + retry_s

    def plan_pause(error: ExternalError, _number: int) -> float:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise error
        log_event(
            "trying again",
            level="warning",
            reason=error.problem,
            where=error.where,
            left_s=round(left_s),
        )
        return min(RETRY_PAUSE_S, left_s)

    return retry_call(action, ExternalError, plan_pause)


def add_retry_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --patience-s: `retry_s` of `retry_upload`."""
    retry_help = "seconds to go on trying while S3 fails; the disk is kept so long"
    parser.add_argument("--patience-s", type=float, default=0.0, help=retry_help)
