"""What of a fleet's status somebody has to look after, and what to do about it.

Invariant: pure; the same status gives the same concerns, the dearest first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tandem import stop
from tandem.ops.paths import Path
from tandem.ops.status import Status
from tandem.spec.budgets import by_hand
from tandem.spec.environment import Environment

RUNBOOK = "docs/runbook.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """One thing that is not as it should be.

    Args:
        problem: what is, in one sentence without its full stop.
        change: what to do about it, likewise.
    """

    problem: str
    change: str


def concerns(status: Status) -> tuple[Concern, ...]:
    """Return what needs somebody's attention; empty where nothing does, as far as was seen."""
    if status.deployed == "nothing" and not status.seen.instances:
        return ()
    return (*_fleet(status), *_stops(status), *_around(status))


def _fleet(status: Status) -> Iterator[Concern]:
    seen, name = status.seen, status.environment.name
    end = f"tandem stop --env {name}"
    for sentence in seen.faults:  # objects that were not understood, and what belongs to another tool
        yield Concern(problem=sentence, change=f"{RUNBOOK}#break-glass")
    ours = [one.id for one in seen.instances if one.ours]
    if ours and seen.fenced:
        yield Concern(problem=f"a stop is under way and {len(ours)} of its instances are alive",
                      change=f"{end} --wait follows; {RUNBOOK}#fleet-will-not-go-to-zero")  # fmt: skip
    elif ours and seen.live is None and "lease" not in status.unknown and "fence" not in status.unknown:
        yield Concern(problem=f"{', '.join(ours)}: alive without a live lease", change=f"if nobody needs them: {end}")
    elif not ours and seen.desired and seen.live is None and seen.owned and "instances" not in status.unknown:
        yield Concern(problem=f"the node group wants {seen.desired} without a live lease", change=end)


def _stops(status: Status) -> Iterator[Concern]:
    seen, name = status.seen, status.environment.name
    demanded = stop.due(seen, status.guarded)
    for sentence in demanded.failed:
        yield Concern(problem=f"the stop is failing: {sentence}", change=f"{RUNBOOK}#fleet-will-not-go-to-zero")
    if not seen.fenced and any(one.ours for one in seen.instances):
        for why in demanded.why:
            yield Concern(problem=f"a stop is due: {why}",
                          change=f"the reaper's next pass does it; now: tandem stop --env {name}")  # fmt: skip
    for path in status.paths:
        if path.armed is False:
            yield Concern(problem=f"{path.name} stops nothing: {path.said}", change=_arm(path, status.environment))


def _arm(path: Path, environment: Environment) -> str:
    if path.name == "budget" and by_hand(environment):
        return f"make it by hand: {RUNBOOK}#when-the-fleet-must-stop"
    return _ARM[path.name].format(name=environment.name)


_DEPLOY = "deploy the stack Guard (npx cdk deploy {name}/Guard -c env={name})"
_ARM = {
    "schedule": "the reaper still ends the lease; stop and start again to arm it: tandem stop --env {name}",
    "reaper": f"{_DEPLOY}, then look at its log",
    "budget": _DEPLOY,
}


def _around(status: Status) -> Iterator[Concern]:
    group, reservation, name = status.group, status.reservation, status.environment.name
    if group is not None:
        for issue in group.issues:
            yield Concern(problem=f"node group: {issue}", change=f"{RUNBOOK}#fleet-will-not-go-to-zero")
    if status.block_idle and reservation is not None:
        yield Concern(
            problem=f"{reservation.id} is paid for and nothing runs on it with a live lease",
            change=f"use it: tandem start --env {name} --hours H --experiment NAME; what is paid comes not back",
        )  # fmt: skip
    capacity = status.environment.capacity
    missing = capacity.needs_reservation and not capacity.awaits_reservation and reservation is None
    if missing and "reservation" not in status.unknown:
        yield Concern(problem=f"EC2 knows no {capacity.reservation_id} in this account and region",
                      change=f"write the id of your {capacity.kind}: {RUNBOOK}#block-renewal")  # fmt: skip
    for alarm in status.alarms:
        yield Concern(problem=f"{alarm} is in ALARM", change=f"its description links to its section of {RUNBOOK}")
