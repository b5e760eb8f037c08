"""One loop of tries: of a hub that is busy, of an upload that only this disk holds, of a write that meets others.

botocore repeats each request by itself; what comes here has failed every try of it
(docs/decisions/0037-one-retry-loop.md).
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

RETRY_PAUSE_S = 30.0  # between two tries of what S3 did not do


def retry_call(
    action: Callable[[], Result],
    failures: type[Failure] | tuple[type[Failure], ...],
    plan: Callable[[Failure, int], float],
) -> Result:
    """Call an action until it ends well, or the plan says otherwise.

    Args:
        action: may be called again after a failure.
        failures: what may pass; everything else leaves at once.
        plan: from the failure and its number, the first has 1, to the seconds to wait; raises to end the tries.
    """
    number = 0
    while True:
        number += 1
        try:
            return action()
        except failures as error:
            time.sleep(plan(error, number))


def retry_upload(action: Callable[[], Result], retry_s: float) -> Result:
    """Try again while S3 fails: a container that ends badly some times takes its pod, the only copy, with it.

    Args:
        action: may be called again after a failure.
        retry_s: seconds from now in which a further try may begin.

    Raises:
        ExternalError: as the last try raised it, when the time is over.
    """
    deadline_s = time.monotonic() + retry_s

    def plan_pause(error: ExternalError, _number: int) -> float:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise error
        log_event("trying again", level="warning", reason=error.problem, where=error.where, left_s=round(left_s))
        return min(RETRY_PAUSE_S, left_s)

    return retry_call(action, ExternalError, plan_pause)


def add_retry_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --patience-s, the seconds of `retry_upload`."""
    retry_help = "seconds to go on trying while S3 fails; the disk is kept so long"
    parser.add_argument("--patience-s", type=float, default=0.0, help=retry_help)
