"""How long what only a pod's disk holds is tried to be stored while S3 fails."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

from tandem.artifacts.driver.log import log_event
from tandem.errors import ExternalError

Result = TypeVar("Result")

RETRY_PAUSE_S = 30.0  # between two tries of what S3 did not do


def add_retry_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument(
        "--patience-s", type=float, default=0.0, help="seconds to go on trying while S3 fails; the disk is kept so long"
    )


def retry_upload(attempt: Callable[[], Result], retry_s: float) -> Result:
    """Try again while S3 fails: a container that ends badly some times takes its pod, the only copy, with it.

    Args:
        attempt: may be called again after a failure.
        retry_s: seconds from now in which a further try may begin.

    Raises:
        ExternalError: as the last try raised it, when the patience is over.
    """
    deadline_s = time.monotonic() + retry_s
    while True:
        try:
            return attempt()
        except ExternalError as error:
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0:
                raise
            log_event(
                "trying again", level="warning", reason=error.problem, where=error.where, left_s=round(remaining_s)
            )
            time.sleep(min(RETRY_PAUSE_S, remaining_s))
