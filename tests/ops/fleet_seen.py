"""A fleet as it may be seen, for what judges and shows it; nothing is asked of anybody."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tandem.ops.guarded import guarded
from tandem.ops.paths import StopPath
from tandem.ops.status import Machine, NodeGroup, Status
from tandem.spec.environment import Environment
from tandem.spec.load import load
from tandem.stop import Fence, Instance, Lease, Seen

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FOUND = (
    load(ROOT / "environments", ROOT / "experiments", ("post-us-east-2",)).environments["post-us-east-2"].environment
)
assert FOUND is not None
BLOCK: Environment = FOUND.model_copy(
    update={"capacity": FOUND.capacity.model_copy(update={"reservation_id": "cr-0123456789abcdef0"})}
)
SPOT: Environment = FOUND.model_copy(
    update={"capacity": FOUND.capacity.model_copy(update={"kind": "spot", "reservation_id": None})}
)
ARMED = tuple(StopPath(name=name, state="armed", sentence="as it should be") for name in ("schedule", "reaper"))
GROUP = NodeGroup(status="ACTIVE", desired=0, minimum=0, maximum=1, owned=True, labels={})


def instance(name: str = "i-1", *, minutes: float = 10, state: str = "running", ours: bool = True) -> Instance:
    """One that was launched so many minutes ago."""
    return Instance(id=name, launched=NOW - timedelta(minutes=minutes), state=state, ours=ours)


def lease(*, minutes: float = 60, beats: bool = False, **changes: Any) -> Lease:
    """One of half an hour ago, whose deadline is so many minutes away."""
    made = Lease(
        run="r1", who="ana", experiment="post", node_label={}, created=NOW - timedelta(minutes=30),
        deadline=NOW + timedelta(minutes=minutes), beats=beats, schedule="stop-r1", nodes=1,
    )  # fmt: skip
    return replace(made, **changes)


def fence(*, minutes: float = 2, **changes: Any) -> Fence:
    """One that was written so many minutes ago."""
    made = Fence(state="stopping", who="ana", why="enough", run="r1", at=NOW - timedelta(minutes=minutes))
    return replace(made, **changes)


def seen(*instances: Instance, **changes: Any) -> Seen:
    """A look at these instances; else a parked fleet."""
    return Seen(
        now=NOW, desired=len(instances), minimum=0, present=True, owned=True, instances=instances, **changes,
    )  # fmt: skip


def status(look: Seen, environment: Environment = SPOT, **changes: Any) -> Status:
    """What `tandem status` makes of a look."""
    machines = tuple(
        Machine(id=one.id, type="trn2.48xlarge", zone="use2-az3", state=one.state, launched=one.launched, ours=one.ours)
        for one in look.instances
    )
    made = Status(
        environment=environment, guarded=guarded(environment), now=NOW, seen=look, deployed="fleet", group=GROUP,
        machines=machines, reservation=None, paths=ARMED, alarms=(), unknown={},
    )  # fmt: skip
    return replace(made, **changes)
