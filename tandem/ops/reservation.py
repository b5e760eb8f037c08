"""The Capacity Block or reservation that an environment's nodes come from, as EC2 knows it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tandem.ops.fault import OpsError, ask, code_of
from tandem.spec.environment import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
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

    def active(self, now: datetime) -> bool:
        """Whether its instances can be had, and are paid for, at this moment."""
        begun = self.starts is None or self.starts <= now
        return self.state == "active" and begun and not (self.ends is not None and self.ends <= now)


def reservation(ec2: Any, environment: Environment) -> Reservation | None:
    """Return it; None where none is declared, or EC2 knows none of this id in this account and region.

    Raises:
        OpsError: EC2 could not be asked.
    """
    capacity = environment.capacity
    if not capacity.needs_reservation or capacity.awaits_reservation:
        return None
    where = f"capacity.reservation_id {capacity.reservation_id}"
    try:
        said = ask(ec2, "DescribeCapacityReservations", where, CapacityReservationIds=[capacity.reservation_id])
    except OpsError as fault:
        if code_of(fault.__cause__).startswith("InvalidCapacityReservationId"):
            return None
        raise
    found = said.get("CapacityReservations", [])
    return _reservation(found[0]) if found else None


def _reservation(said: dict[str, Any]) -> Reservation:
    return Reservation(
        id=said["CapacityReservationId"], state=said.get("State", "?"), starts=said.get("StartDate"),
        ends=said.get("EndDate"), total=said.get("TotalInstanceCount", 0),
        available=said.get("AvailableInstanceCount", 0),
    )  # fmt: skip
