"""The Capacity Block or reservation that an environment's nodes come from, as EC2 knows it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tandem.ops.faults import call_if_present
from tandem.spec.environment import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityReservation:
    """What was bought, or is held.

    Args:
        state: active, scheduled, payment-pending, expired and so on.
        starts, ends: None where EC2 says none.
        total, available: instances of it, and those that nobody uses.
    """

    id: str
    state: str
    starts: datetime | None
    ends: datetime | None
    total: int
    available: int

    def is_active(self, now: datetime) -> bool:
        """Whether its instances can be had, and are paid for, at this moment."""
        is_past_start = self.starts is None or self.starts <= now
        return self.state == "active" and is_past_start and not (self.ends is not None and self.ends <= now)


def read_reservation(ec2: Any, environment: Environment) -> CapacityReservation | None:
    """Return it; None where none is declared, or EC2 knows none of this id in this account and region.

    Raises:
        ExternalError: EC2 could not be asked.
    """
    capacity = environment.capacity
    if not capacity.needs_reservation or capacity.awaits_reservation:
        return None
    where, ids = f"capacity.reservation_id {capacity.reservation_id}", [capacity.reservation_id]
    answer = call_if_present(ec2, "DescribeCapacityReservations", where, CapacityReservationIds=ids)
    for row in answer["CapacityReservations"] if answer else ():
        return CapacityReservation(
            id=row["CapacityReservationId"],
            state=row.get("State", "?"),
            starts=row.get("StartDate"),
            ends=row.get("EndDate"),
            total=row.get("TotalInstanceCount", 0),
            available=row.get("AvailableInstanceCount", 0),
        )
    return None
