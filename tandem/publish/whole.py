"""All of a run, in order: every round, what is in doubt, the other files, the manifest last.

Invariant: what CloudWatch refuses keeps nothing out of S3; the first fault is the one that is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tandem.publish.fault import PublishError
from tandem.publish.publisher import Publisher
from tandem.publish.run import Report
from tandem.publish.settle import Rounds


class _First:
    """Goes on after a fault, and remembers the first."""

    def __init__(self) -> None:
        self.fault: PublishError | None = None

    def tried(self, act: Callable[[], None]) -> None:
        """Do something, whatever failed before it."""
        try:
            act()
        except PublishError as fault:
            self.fault = self.fault or fault


def publish(publisher: Publisher, rounds: Rounds, files: Sequence[Path]) -> Report:
    """Publish what of a run is not published yet.

    Args:
        publisher: entered.
        rounds: gives the rounds of the run; those that are done are not asked for.
        files: its other files, the last one last.

    Raises:
        PublishError: AWS refused, or is out of reach; all that could be stored is.
    """
    first, complete = _First(), list[int]()
    for one in rounds(publisher.done()):
        if publisher.over():
            publisher.report.left.append(f"rounds from {one.number} on were not sent in the time that there was")
            break
        first.tried(partial(publisher.publish if first.fault is None else publisher.keep_records, one))
        complete += [one.number] * one.complete
    if first.fault is None:
        first.tried(partial(publisher.settle, rounds))
    if first.fault is None and publisher.report.sent:
        publisher.gauge(complete[:-1])
    first.tried(partial(publisher.keep_files, files))
    if first.fault is not None:
        raise first.fault
    return publisher.report
