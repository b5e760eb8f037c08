"""A fleet as it may be seen, for what judges and shows it; nothing is asked of anybody."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from committed import environment

from tandem.declarations.environment import Environment
from tandem.guard.fence import FENCE_FIELDS, FENCE_KEY, Fence
from tandem.guard.fleet_state import FleetInstance, FleetState
from tandem.guard.lease import LEASE_FIELDS, LEASE_SCHEMA, POINTER_KEY, Lease, lease_key
from tandem.guard.values import select_json_fields
from tandem.ops.guard_config import build_guard_config
from tandem.ops.status import StatusReport
from tandem.ops.stop_paths import StopPath

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FOUND = environment("post-us-east-2")
CAPACITY = FOUND.capacity
BLOCK = FOUND.model_copy(
    update={"capacity": CAPACITY.model_copy(update={"reservation_id": "cr-0123456789abcdef0"})}
)
SPOT_CAPACITY = CAPACITY.model_copy(update={"kind": "spot", "reservation_id": None})
SPOT = FOUND.model_copy(update={"capacity": SPOT_CAPACITY})
ARMED = tuple(
    StopPath(name=name, state="armed", sentence="as it should be")
    for name in ("schedule", "reaper")
)
GROUP = {"status": "ACTIVE", "scalingConfig": {"desiredSize": 0, "minSize": 0, "maxSize": 1}}


def instance(
    name: str = "i-1", *, minutes: float = 10, state: str = "running", ours: bool = True
) -> FleetInstance:
    """One that was launched so many minutes ago."""
    return FleetInstance(
        id=name, launched_at=NOW - timedelta(minutes=minutes), state=state, is_ours=ours
    )


def lease(*, minutes: float = 60, beats: bool = False, **changes: Any) -> Lease:
    """One of half an hour ago, whose deadline is so many minutes away."""
    row = Lease(
        run="r1",
        who="ana",
        experiment="post",
        node_label={},
        created=NOW - timedelta(minutes=30),
        deadline=NOW + timedelta(minutes=minutes),
        beats=beats,
        schedule="stop-r1",
        nodes=1,
    )
    return replace(row, **changes)


def fence(*, minutes: float = 2, **changes: Any) -> Fence:
    """One that was written so many minutes ago."""
    row = Fence(
        state="stopping", who="ana", why="enough", run="r1", at=NOW - timedelta(minutes=minutes)
    )
    return replace(row, **changes)


def lease_objects(**changes: Any) -> dict[str, dict[str, Any]]:
    """A lease of an hour from this moment and its pointer, as the bucket has them."""
    now = datetime.now(UTC)
    row = lease(**{"created": now, "deadline": now + timedelta(hours=1), **changes})
    document = {"schema": LEASE_SCHEMA, **select_json_fields(row, *LEASE_FIELDS)}
    return {POINTER_KEY: {"schema": 1, "run": row.run}, lease_key(row.run): document}


def fence_objects(**changes: Any) -> dict[str, dict[str, Any]]:
    """A fence of this moment, as the bucket has it."""
    row = fence(**{"at": datetime.now(UTC), **changes})
    return {FENCE_KEY: {"schema": 1, **select_json_fields(row, *FENCE_FIELDS)}}


def seen(*instances: FleetInstance, **changes: Any) -> FleetState:
    """A look at these instances; else a parked fleet."""
    return FleetState(
        now=NOW,
        has_node_group=True,
        has_owner_tag=True,
        instances=instances,
        desired_size=len(instances),
        min_size=0,
        **changes,
    )


def status(look: FleetState, environment: Environment = SPOT, **changes: Any) -> StatusReport:
    """What `tandem status` makes of a look."""
    fields = {
        "fleet": look,
        "deployment": "fleet",
        "node_group": GROUP,
        "paths": ARMED,
        "reservation": None,
        "alarms": (),
        "guard_config": build_guard_config(environment),
        **changes,
    }
    return StatusReport(environment=environment, now=NOW, **fields)
