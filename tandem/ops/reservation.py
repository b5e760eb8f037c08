"""An environment's Capacity Block or reservation: as EC2 knows it, as deployed, as declared.

EC2's word goes first. The node group's tags and `capacity.block` are plans, and a difference is
told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tandem.declarations.environment import CapacitySettings, Environment
from tandem.guard.capacity_block import RESERVATION_TAG, BlockWindow
from tandem.guard.observe import BLOCK_MARGIN
from tandem.ops.faults import call_if_present

MOMENT_FORMAT = "%Y-%m-%dT%H:%M:%SZ"  # as capacity.block has it
RENEWAL_PAGE = "docs/runbook-guard.md#block-renewal"
EXTENSION_PAGE = "docs/runbook-guard.md#a-blocks-end-moves"


@dataclass(frozen=True)
class PlanDifference:
    """One difference between EC2's word, the deployed tags and the declared file.

    Args:
        problem: in one sentence without its full stop.
        change: what to do about it, likewise.
        lines: to write into the file; empty for none.
    """

    problem: str
    change: str
    lines: str = ""


def find_reservation_id(environment: Environment, node_group: Mapping[str, Any] | None) -> str:
    """Return the id that Fleet deployed; before that the declared one; empty if there is none."""
    capacity = environment.capacity
    if not capacity.needs_reservation:
        return ""
    deployed_id = (node_group or {}).get("tags", {}).get(RESERVATION_TAG, "")
    return str(deployed_id or ("" if capacity.awaits_reservation else capacity.reservation_id))


def read_reservation(ec2: Any, reservation_id: str) -> dict[str, Any] | None:
    """Return a reservation as EC2 describes it; None without an id, or if EC2 knows none here.

    Raises:
        ExternalError: EC2 did not answer.
    """
    if not reservation_id:
        return None
    where = f"reservation {reservation_id}"
    answer = call_if_present(
        ec2, "DescribeCapacityReservations", where, CapacityReservationIds=[reservation_id]
    )
    if not answer:
        return None
    return next(iter(answer["CapacityReservations"]), None)


def list_plan_differences(
    capacity: CapacitySettings, *, deployed_id: str, planned: BlockWindow, actual: BlockWindow
) -> Iterator[PlanDifference]:
    """Yield where the plans differ from each other, or from EC2's word.

    Args:
        capacity: as declared.
        deployed_id: of the node group's tag; empty if it has none.
        planned: the hours in the node group's tags.
        actual: the hours by EC2, of the deployed reservation.
    """
    declared_id = "" if capacity.awaits_reservation else capacity.reservation_id
    if deployed_id and deployed_id != declared_id:
        declared_text = f"the file names {declared_id or 'none'}"
        problem = (
            f"Fleet is deployed for {deployed_id}, and {declared_text}: start and reaper follow"
            " what is deployed"
        )
        yield PlanDifference(problem, f"deploy Fleet when the new one begins: {RENEWAL_PAGE}")
        return
    if capacity.kind != "capacity-block" or actual.starts is None or actual.ends is None:
        return
    actual_text = _format_window(actual.starts, actual.ends)
    lines = (
        f"capacity.block: {{starts: {_format_moment(actual.starts)}, ends:"
        f" {_format_moment(actual.ends)}}}"
    )
    block = capacity.block
    if block is None:
        problem = "capacity.block is null: check and the budget do not know when the block ends"
        yield PlanDifference(problem, "write what EC2 says", lines)
    elif (block.starts, block.ends) != (actual.starts, actual.ends):
        problem = (
            f"capacity.block says {_format_window(block.starts, block.ends)}, EC2 {actual_text}"
        )
        yield PlanDifference(
            problem, "write what EC2 says: check and the budget plan with the file", lines
        )
    if deployed_id and planned != actual and planned.ends is not None:
        stop_at = _format_moment(planned.ends - BLOCK_MARGIN)
        problem = (
            f"the node group's tags end the block at {_format_moment(planned.ends)}, EC2 at"
            f" {_format_moment(actual.ends)}: where EC2 does not answer, the reaper stops the fleet"
            f" at {stop_at}"
        )
        yield PlanDifference(problem, f"deploy Fleet once nothing runs: {EXTENSION_PAGE}")


def _format_window(starts: datetime, ends: datetime) -> str:
    return f"{_format_moment(starts)} to {_format_moment(ends)}"


def _format_moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):{MOMENT_FORMAT}}"
