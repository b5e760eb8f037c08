"""The start: the only thing that raises a fleet, and only behind a lease and an armed stop.

Invariant: standard library and boto3 only. Whatever stops it at any step, no instance is left that no stop will end:
the lease and the one-shot stop are there before the raise, and a stop that came meanwhile has the last word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tandem.stop import Clients, Guarded, Lease

LEAST_HOURS = 0.25  # a shorter lease could end before its nodes run


@dataclass(frozen=True, kw_only=True)
class Raised:
    """A fleet that may run until its lease's deadline.

    Args:
        nodes: the desired size that EKS took.
        present: whether it had been raised before, by the same run.
        schedule_arn: of the one-shot stop, as Scheduler reads it back.
    """

    lease: Lease
    nodes: int
    present: bool
    schedule_arn: str


def raise_fleet(
    clients: Clients, guarded: Guarded, *, run: str, hours: float, experiment: str | None, nodes: int,
    label: Mapping[str, str], who: str, beats: bool, now: datetime,
) -> Raised:  # fmt: skip
    """Raise the fleet for a run; the same run may ask again and gets what it has, with its first deadline.

    Args:
        run: its name, unique in the bucket; letters, digits, `-`, `_`, `.`, at most 59.
        hours: from `now` to the deadline.
        nodes: at most the node group's own limit.
        label: node labels, as names.raise_label and names.compile_label give them; those of another run go.
        who: a person's ARN, or the runner.
        beats: whether the run will write `runs/<run>/heartbeat.json`.

    Raises:
        RefusedError: a fence, another lease, a window or the node group forbids it; nothing was raised.
        WorldError: AWS failed; a raise that may have been taken was taken back, or its stop is armed.
    """
    raise NotImplementedError
