"""Whose fleet it is, read directly before each call that raises, sizes or relabels it.

EKS has no conditional write. So whoever works under a lease reads pointer, lease and fence, acts at once, and reads
again if the clock moved in between, as where the machine slept. What still slips through that gap the reaper ends.
Invariant: standard library and boto3 only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from botocore.exceptions import ClientError

from tandem.guard.bucket import MAX_ATTEMPTS
from tandem.guard.config import AwsClients, GuardConfig, GuardExternalError
from tandem.guard.fence import read_fence
from tandem.guard.lease import Lease, LeasePointer, read_lease, read_pointer
from tandem.guard.values import CALL_ERRORS, PARSE_ERRORS, error_code

MAX_READING_AGE_S = 30.0  # a reading that is older by the wall clock is read again
RETRY_PAUSE_S = 1.0  # before a call is made again
# what botocore itself would repeat a call for (botocore.retries.standard, of botocore 1.43)
RETRYABLE_CODES = frozenset({
    "Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException", "RequestLimitExceeded",
    "RequestThrottled", "ServerException", "ServiceUnavailableException", "500", "502", "503", "504",
})  # fmt: skip
CallResult = TypeVar("CallResult")


class LeaseOwner:
    """Somebody who works under a lease.

    Args:
        pointer: as this owner wrote or read it; another ETag means that somebody else came.
        lease: likewise.
    """

    def __init__(self, clients: AwsClients, config: GuardConfig, pointer: LeasePointer, lease: Lease) -> None:
        self.clients, self.config, self.pointer, self.lease = clients, config, pointer, lease
        self.read_at_s: float | None = None  # when the last reading began that showed the fleet as this owner's

    def find_loss(self) -> str:
        """Return in a sentence why the fleet is not this owner's any more; empty while it is.

        Raises:
            RAISED: S3 does not answer, or denies it.
        """
        start_s = self.clients.wall_s()
        fence = read_fence(self.clients, self.config)
        if fence is not None and fence.is_closed:
            return f"{fence.who} fenced it: {fence.why}"
        pointer = read_pointer(self.clients, self.config)
        if pointer.run is None:
            return f"the lease of run {self.lease.run} was ended"
        if pointer.run != self.lease.run:
            return f"run {pointer.run} has the fleet now"
        if pointer != self.pointer:
            return f"another start of run {self.lease.run} took over"
        lease, fault = read_lease(self.clients, self.config, pointer)
        if lease is None or lease.etag != self.lease.etag:
            return fault or f"somebody ends or changes the lease of run {self.lease.run}"
        self.read_at_s = start_s
        return ""

    def call_as_owner(self, call: Callable[[], CallResult], build_error: Callable[[str], Exception]) -> CallResult:
        """Read that the fleet is still this owner's, and act at once.

        Args:
            call: the call.
            build_error: makes the error of the sentence that says why the fleet is not this owner's.

        Raises:
            RAISED: S3 does not answer, or `call` raises it.
            WorldError: each reading takes too long.
            Exception: as `build_error` makes it.
        """
        for attempt in range(MAX_ATTEMPTS):
            start_s = self.clients.wall_s()
            loss = self.find_loss()
            if loss:
                raise build_error(loss)
            if is_fresh(self.clients, start_s):
                try:
                    return call()
                except CALL_ERRORS as error:
                    if attempt == MAX_ATTEMPTS - 1 or not is_transient(error):
                        raise
                self.clients.pause(RETRY_PAUSE_S)
        raise GuardExternalError(
            f"to read whose fleet it is took more than {MAX_READING_AGE_S:.0f} s, {MAX_ATTEMPTS} times",
            where=self.config.environment,
            change="S3 is slow, or this machine sleeps: try again",
        )

    def can_scale_down(self) -> bool:
        """Whether the fleet may be set to 0: it is this owner's, or nobody's. Another run's is left alone.

        Where S3 does not answer, a reading of this owner's that is still fresh decides.
        """
        for _ in range(MAX_ATTEMPTS):
            start_s = self.clients.wall_s()
            try:
                fence, pointer = read_fence(self.clients, self.config), read_pointer(self.clients, self.config)
            except CALL_ERRORS:
                return self.read_at_s is not None and is_fresh(self.clients, self.read_at_s)
            has_fence = fence is not None and fence.is_closed
            if not has_fence and pointer.run is not None and pointer != self.pointer:
                return False
            if is_fresh(self.clients, start_s):
                return True
        return False


def retry_call(clients: AwsClients, call: Callable[[], object], is_allowed_now: Callable[[], bool]) -> bool:
    """Call, and again where AWS was busy or did not answer, each time only if it still may; whether it was done.

    Raises:
        RAISED: as `call` raises at last.
    """
    for attempt in range(MAX_ATTEMPTS):
        if not is_allowed_now():
            return False
        try:
            call()
        except CALL_ERRORS as error:
            if attempt == MAX_ATTEMPTS - 1 or not is_transient(error):
                raise
            clients.pause(RETRY_PAUSE_S)
        else:
            return True
    return False


def is_transient(error: BaseException) -> bool:
    """Whether a call that failed so may be done, or go through, a moment later."""
    return (
        error_code(error) in RETRYABLE_CODES if isinstance(error, ClientError) else not isinstance(error, PARSE_ERRORS)
    )


def is_fresh(clients: AwsClients, start_s: float) -> bool:
    """Whether a reading that began at this moment of the wall clock is no older than FRESH_S; clocks may go back."""
    return abs(clients.wall_s() - start_s) <= MAX_READING_AGE_S
