"""The deployed node group's Capacity Block: the plan in its tags, and EC2's word, which goes first.

AWS keeps the reservation's id when a block is extended, and moves its end once the extension is
paid. So the guard reads the hours from EC2, and no deploy is needed. Without an answer the tags are
all that is known. Invariant: standard library and boto3 only, because a Lambda packs this file.

Source: Amazon EC2 user guide, "Extend Capacity Blocks"; EC2 API reference, CapacityReservation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from botocore.exceptions import ClientError

from tandem.aws.faults import error_code
from tandem.guard.config import AwsClients
from tandem.guard.values import parse_timestamp

# tags of the node group, which Fleet writes
RESERVATION_TAG = "tandem:reservation"
BLOCK_STARTS_TAG = "tandem:block-starts"
BLOCK_ENDS_TAG = "tandem:block-ends"
# states of a reservation (EC2 API reference, CapacityReservation) from which it never comes back
OVER_STATES = frozenset(
    {"expired", "cancelled", "cancelling", "failed", "payment-failed", "unsupported"}
)
ABSENT_CODE = "InvalidCapacityReservationId.NotFound"


@dataclass(frozen=True, kw_only=True)
class BlockWindow:
    """From when to when a block may be used; None where the source does not say it."""

    starts: datetime | None = None
    ends: datetime | None = None


NO_WINDOW = BlockWindow()


@dataclass(frozen=True, kw_only=True)
class BlockReservation:
    """The block of the deployed node group, as EC2 describes it.

    Args:
        id: of the reservation, from the node group's tag.
        state: EC2's word; empty if EC2 knows no such reservation in this account and region.
        window: from EC2, not from the tags.
    """

    id: str
    state: str = ""
    window: BlockWindow = NO_WINDOW

    @property
    def is_over(self) -> bool:
        """Whether EC2 says that nothing can be launched from it any more."""
        return self.state in OVER_STATES


def parse_planned_window(tags: Mapping[str, str], declared: BlockWindow) -> BlockWindow:
    """Return the block's hours by the node group's tags; without such tags the declared ones.

    Raises:
        PARSE_ERRORS: a tag is no moment.
    """
    if not {BLOCK_STARTS_TAG, BLOCK_ENDS_TAG} <= tags.keys():
        return declared
    return BlockWindow(
        starts=parse_timestamp(tags[BLOCK_STARTS_TAG]), ends=parse_timestamp(tags[BLOCK_ENDS_TAG])
    )


def read_block_reservation(clients: AwsClients, reservation_id: str) -> BlockReservation:
    """Return what EC2 says of a reservation.

    Raises:
        CALL_ERRORS: EC2 does not answer, or denies the call.
    """
    try:
        answer = clients.ec2.describe_capacity_reservations(CapacityReservationIds=[reservation_id])
    except ClientError as error:
        if error_code(error) == ABSENT_CODE:
            return BlockReservation(id=reservation_id)
        raise
    rows = answer["CapacityReservations"]
    if not rows:
        return BlockReservation(id=reservation_id)
    starts = rows[0].get("StartDate")
    ends = rows[0].get("EndDate")
    window = BlockWindow(
        starts=starts and starts.astimezone(UTC), ends=ends and ends.astimezone(UTC)
    )
    return BlockReservation(id=reservation_id, state=rows[0]["State"], window=window)
