"""Whose fleet it is, read directly before each call that raises, sizes or relabels it.

EKS has no conditional write. So whoever works under a lease reads pointer, lease and fence, acts at once, and reads
again if the clock moved in between, as where the machine slept. What still slips through that gap the reaper ends.
Invariant: standard library and boto3 only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tandem.fence import (
    RAISED,
    TRIES,
    Clients,
    Guarded,
    Lease,
    Pointer,
    WorldError,
    read_fence,
    read_lease,
    read_pointer,
)

FRESH_S = 30.0  # a reading that is older by the wall clock is read again
Answer = TypeVar("Answer")


class LeaseOwner:
    """Somebody who works under a lease.

    Args:
        pointer: as this owner wrote or read it; another ETag means that somebody else came.
        lease: likewise.
    """

    def __init__(self, clients: Clients, guarded: Guarded, pointer: Pointer, lease: Lease) -> None:
        self.clients, self.guarded, self.pointer, self.lease = clients, guarded, pointer, lease
        self.read_at_s: float | None = None  # when the last reading began that showed the fleet as this owner's

    def find_loss(self) -> str:
        """Return in a sentence why the fleet is not this owner's any more; empty while it is.

        Raises:
            RAISED: S3 does not answer, or denies it.
        """
        began_s = self.clients.wall_s()
        fence = read_fence(self.clients, self.guarded)
        if fence is not None and fence.closed:
            return f"{fence.who} fenced it: {fence.why}"
        pointer = read_pointer(self.clients, self.guarded)
        if pointer.run is None:
            return f"the lease of run {self.lease.run} was ended"
        if pointer.run != self.lease.run:
            return f"run {pointer.run} has the fleet now"
        if pointer != self.pointer:
            return f"another start of run {self.lease.run} took over"
        lease, fault = read_lease(self.clients, self.guarded, pointer)
        if lease is None or lease.etag != self.lease.etag:
            return fault or f"somebody ends or changes the lease of run {self.lease.run}"
        self.read_at_s = began_s
        return ""

    def call_if_own(self, act: Callable[[], Answer], refuse: Callable[[str], Exception]) -> Answer:
        """Read that the fleet is still this owner's, and act at once.

        Args:
            act: the call.
            refuse: makes the error of the sentence that says why the fleet is not this owner's.

        Raises:
            RAISED: S3 does not answer, or `act` raises it.
            WorldError: each reading takes too long.
            Exception: as `refuse` makes it.
        """
        for _ in range(TRIES):
            began_s = self.clients.wall_s()
            loss = self.find_loss()
            if loss:
                raise refuse(loss)
            if is_fresh(self.clients, began_s):
                return act()
        raise WorldError(f"to read whose fleet it is took more than {FRESH_S:.0f} s, {TRIES} times",
                         where=self.guarded.environment,
                         change="S3 is slow, or this machine sleeps: try again")  # fmt: skip

    def may_take_back(self) -> bool:
        """Whether the fleet may be set to 0: it is this owner's, or nobody's. Another run's is left alone.

        Where S3 does not answer, a reading of this owner's that is still fresh decides.
        """
        for _ in range(TRIES):
            began_s = self.clients.wall_s()
            try:
                fence, pointer = read_fence(self.clients, self.guarded), read_pointer(self.clients, self.guarded)
            except RAISED:
                return self.read_at_s is not None and is_fresh(self.clients, self.read_at_s)
            closed = fence is not None and fence.closed
            if not closed and pointer.run is not None and pointer != self.pointer:
                return False
            if is_fresh(self.clients, began_s):
                return True
        return False


def is_fresh(clients: Clients, began_s: float) -> bool:
    """Whether a reading that began at this moment of the wall clock is no older than FRESH_S; clocks may go back."""
    return abs(clients.wall_s() - began_s) <= FRESH_S
