"""Ownership of the fleet, read just before each call that raises, sizes or relabels the fleet.

EKS has no conditional write. So a lease's owner reads pointer, lease and fence, acts at once, and
reads again if the clock moved in between, e.g. because the machine slept. The reaper ends any fleet
that still slips through that gap. Invariant: standard library and boto3 only.
"""

from __future__ import annotations

from collections.abc import Callable

from botocore.exceptions import ClientError

from tandem.aws.faults import error_code
from tandem.errors import ExternalError
from tandem.guard.bucket import MAX_ATTEMPTS
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fence import read_fence
from tandem.guard.lease import Lease, LeasePointer, read_lease, read_pointer
from tandem.guard.values import CALL_ERRORS, PARSE_ERRORS

MAX_READING_AGE_S = 30.0  # a reading that is older by the wall clock is repeated
RETRY_PAUSE_S = 1.0  # before a call is made again
# errors for which botocore itself would repeat a call (botocore.retries.standard, of botocore 1.43)
RETRYABLE_CODES = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "ServerException",
        "ServiceUnavailableException",
        "500",
        "502",
        "503",
        "504",
    }
)
SLOW_READING = (
    f"to read whose fleet it is took more than {MAX_READING_AGE_S:.0f} s, {MAX_ATTEMPTS} times"
)


class LeaseOwner:
    """Owner of a lease, at work under it.

    Args:
        pointer: as this owner wrote or read it; another ETag means that somebody else wrote.
        lease: likewise.
    """

    def __init__(
        self, clients: AwsClients, config: GuardConfig, pointer: LeasePointer, lease: Lease
    ) -> None:
        self.clients = clients
        self.config = config
        self.pointer = pointer
        self.lease = lease
        # beginning of the last reading in which this owner had the fleet
        self.read_at_s: float | None = None

    def find_loss(self) -> str:
        """Return in a sentence why this owner has lost the fleet; empty while it has the fleet.

        Raises:
            CALL_ERRORS: S3 does not answer, or denies the call.
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

    def call_as_owner(
        self, call: Callable[[], object], build_error: Callable[[str], Exception]
    ) -> None:
        """Check that the fleet is still this owner's, and act at once.

        Args:
            call: the call.
            build_error: makes an error of the sentence that says why the owner lost the fleet.

        Raises:
            CALL_ERRORS: S3 does not answer, or `call` raises it.
            ExternalError: each reading takes too long.
            Exception: from `build_error`.
        """
        loss = call_if_allowed(self.clients, self.find_loss, call)
        if loss == SLOW_READING:
            raise ExternalError(
                loss,
                where=self.config.environment,
                change="S3 is slow, or this machine sleeps: try again",
            )
        if loss:
            raise build_error(loss)

    def find_other_owner(self) -> str:
        """Return in a sentence which other run has the fleet; empty if this owner or nobody has it.

        If S3 does not answer, a fresh reading of this owner decides.
        """
        try:
            fence = read_fence(self.clients, self.config)
            pointer = read_pointer(self.clients, self.config)
        except CALL_ERRORS:
            has_reading = self.read_at_s is not None and is_fresh(self.clients, self.read_at_s)
            return "" if has_reading else "whose fleet it is cannot be read"
        if (
            (fence is not None and fence.is_closed)
            or pointer.run is None
            or pointer == self.pointer
        ):
            return ""
        return f"run {pointer.run} has the fleet now"


def call_if_allowed(
    clients: AwsClients,
    find_loss: Callable[[], str],
    call: Callable[[], object],
    *,
    needs_fresh_reading: bool = True,
) -> str:
    """Check that a call is allowed and make it at once; repeat if AWS was busy.

    Args:
        find_loss: reads, and returns in a sentence why the call is not allowed; empty if allowed.
        call: the call.
        needs_fresh_reading: whether a reading that took too long forbids the call.

    Returns:
        Why nothing was called; empty if the call was made.

    Raises:
        CALL_ERRORS: from `find_loss`, or from the last try of `call`.
    """
    for attempt in range(MAX_ATTEMPTS):
        start_s = clients.wall_s()
        loss = find_loss()
        if loss:
            return loss
        if needs_fresh_reading and not is_fresh(clients, start_s):
            continue
        try:
            call()
        except CALL_ERRORS as error:
            if attempt == MAX_ATTEMPTS - 1 or not is_transient(error):
                raise
            clients.pause(RETRY_PAUSE_S)
        else:
            return ""
    return SLOW_READING


def is_transient(error: BaseException) -> bool:
    """Whether a call with this error may succeed a moment later."""
    if isinstance(error, ClientError):
        return error_code(error) in RETRYABLE_CODES
    return not isinstance(error, PARSE_ERRORS)


def is_fresh(clients: AwsClients, start_s: float) -> bool:
    """Whether a reading that began at this wall-clock time is young enough; clocks may go back."""
    return abs(clients.wall_s() - start_s) <= MAX_READING_AGE_S
