"""What `tandem start` and `tandem run` look at and show before a fleet is raised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tandem.cli.console import format_count
from tandem.cli.fleet import TextRow, describe_path, format_moment
from tandem.declarations.environment import CapacitySettings, Environment
from tandem.errors import InputError
from tandem.guard.capacity_block import NO_WINDOW
from tandem.guard.config import AwsClients
from tandem.guard.fleet_start import RaiseRequest, check_start
from tandem.guard.fleet_state import FleetState
from tandem.ops.faults import AccessDeniedError
from tandem.ops.guard_config import build_guard_config
from tandem.ops.reservation import list_plan_differences, read_reservation
from tandem.ops.status_warnings import describe_path_fix
from tandem.ops.stop_paths import StopPath, read_stop_paths


@dataclass(frozen=True, kw_only=True)
class RaiseCheck:
    """What would happen to a fleet that is raised now.

    Args:
        paths: what would stop it: reaper and budget, as they stand.
        notes: what is to be known of the reservation.
    """

    paths: Sequence[StopPath] = ()
    notes: Sequence[str] = ()

    @property
    def unarmed_paths(self) -> list[StopPath]:
        """Return the paths that would not stop the fleet."""
        return [path for path in self.paths if path.state == "unarmed"]


def check_raise(
    clients: AwsClients,
    session: Any,
    environment: Environment,
    request: RaiseRequest,
    now: datetime,
) -> RaiseCheck:
    """Look at fence, lease, reservation and stops.

    Raises:
        InputError: nothing may be raised now.
        ExternalError: AWS failed.
    """
    limits = build_guard_config(environment)
    fleet_state = check_start(clients, limits, request, now)
    paths, _ = read_stop_paths(clients, session, environment, limits, fleet_state)
    return RaiseCheck(
        paths=[path for path in paths if path.name != "schedule"],  # which the raise arms
        notes=_list_reservation_notes(clients, environment, fleet_state),
    )


def build_unarmed_error(environment: Environment, paths: Sequence[StopPath]) -> InputError:
    """Return the refusal of a fleet that paths would not stop."""
    reasons = "; ".join(f"{path.name}: {path.sentence}" for path in paths)
    fixes = dict.fromkeys(describe_path_fix(path, environment) for path in paths)
    return InputError(
        f"{format_count(len(paths), 'stop')} of the fleet not armed: {reasons}",
        where=f"environment {environment.name}",
        change=f"fix it: {' and '.join(fixes)}; or pass --accept-unarmed, and the lease says so",
    )


def list_fleet_rows(
    capacity: CapacitySettings, nodes: int, notes: Sequence[str]
) -> Iterator[TextRow]:
    """Yield what is raised, and what is to be known of its reservation."""
    kind = f"({capacity.kind}, {capacity.zone})"
    yield "fleet", f"0 -> {nodes} x {capacity.instance_type} {kind}"
    for note in notes:
        yield "reserved", note


def list_stop_rows(
    deadline: datetime, paths: Sequence[StopPath], now: datetime
) -> Iterator[TextRow]:
    """Yield what ends the fleet."""
    moment = format_moment(deadline, now)
    yield "stops", f"schedule  {moment}: calls EKS itself, once; armed before the raise"
    for path in paths:
        yield "", f"{path.name:<9} {describe_path(path, now)}"


def _list_reservation_notes(
    clients: AwsClients, environment: Environment, fleet_state: FleetState
) -> list[str]:
    """Return what EC2 says of the deployed reservation, and how it differs from plans."""
    capacity = environment.capacity
    block = fleet_state.reservation
    notes = []
    if block is not None:
        moments = filter(None, (block.window.starts, block.window.ends))
        hours = " to ".join(f"{moment:%Y-%m-%d %H:%M}" for moment in moments)
        notes.append(f"{block.id} is {block.state}, by EC2 from {hours} UTC")
    elif capacity.needs_reservation:
        reservation_id = fleet_state.reservation_id or str(capacity.reservation_id)
        notes.append(_describe_reservation(clients, reservation_id))
    differences = list_plan_differences(
        capacity,
        deployed_id=fleet_state.reservation_id,
        planned=fleet_state.planned_window,
        actual=block.window if block else NO_WINDOW,
    )
    return [*notes, *(f"{difference.problem}; {difference.change}" for difference in differences)]


def _describe_reservation(clients: AwsClients, reservation_id: str) -> str:
    try:
        reservation = read_reservation(clients.ec2, reservation_id)
    except AccessDeniedError as fault:
        return f"unknown: {fault.problem}; {fault.change}"
    if reservation is None:
        return f"EC2 knows no {reservation_id} in this account and region: nothing can launch"
    return f"{reservation_id} is {reservation['State']}"
