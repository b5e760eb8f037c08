"""The Capacity Block or reservation of an environment's nodes, as EC2 knows it."""

from __future__ import annotations

from typing import Any

from tandem.ops.faults import call_if_present
from tandem.spec.environment import Environment


def read_reservation(ec2: Any, environment: Environment) -> dict[str, Any] | None:
    """Return the reservation as EC2 describes it; None if none is declared, or EC2 knows none of this id here.

    Raises:
        ExternalError: EC2 did not answer.
    """
    capacity = environment.capacity
    if not capacity.needs_reservation or capacity.awaits_reservation:
        return None
    where, ids = f"capacity.reservation_id {capacity.reservation_id}", [capacity.reservation_id]
    answer = call_if_present(ec2, "DescribeCapacityReservations", where, CapacityReservationIds=ids)
    return next(iter(answer["CapacityReservations"]), None) if answer else None
