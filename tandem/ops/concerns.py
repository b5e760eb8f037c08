"""What of a fleet's status somebody has to look after, and what to do about it.

Invariant: pure; the same status gives the same concerns, the dearest first.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tandem import stop
from tandem.guard.schedules import ForeignSchedule
from tandem.ops.paths import SPENT, StopPath, capacity_kind_of
from tandem.ops.status import Status
from tandem.spec.budgets import by_hand
from tandem.spec.environment import Environment
from tandem.stop import Guarded

RUNBOOK = "docs/runbook.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """One thing that is not as it should be.

    Args:
        problem: what is, in one sentence without its full stop.
        change: what to do about it, likewise.
        is_command: whether the change is one command and nothing else, to be printed on one line.
    """

    problem: str
    change: str
    is_command: bool = False


def concerns(status: Status) -> tuple[Concern, ...]:
    """Return what needs somebody's attention; empty where nothing does, as far as was seen."""
    if status.deployed == "nothing" and not status.seen.instances:
        return ()
    return (*_fleet(status), *_stops(status), *_around(status))


def _fleet(status: Status) -> Iterator[Concern]:
    seen, name = status.seen, shlex.quote(status.environment.name)
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
    seen, name = status.seen, shlex.quote(status.environment.name)
    demanded = stop.due(seen, status.guarded)
    for sentence in demanded.failed:
        yield Concern(problem=f"the stop is failing: {sentence}", change=f"{RUNBOOK}#fleet-will-not-go-to-zero")
    excess = stop.count_excess_nodes(seen, status.guarded)
    if not seen.fenced and (excess or seen.live or any(instance.ours for instance in seen.instances)):
        for why in demanded.why:
            yield Concern(problem=f"a stop is due: {why}",
                          change=f"the reaper's next pass does it; now: tandem stop --env {name}")  # fmt: skip
    for path in status.paths:
        if path.state == "unarmed":
            change = mend_path(path, status.environment)
            yield Concern(problem=f"{path.name} stops nothing: {path.sentence}", change=change)
    yield from _kinds(status)
    for schedule in status.schedules:
        yield describe_foreign_schedule(status.guarded, schedule)


def _kinds(status: Status) -> Iterator[Concern]:
    """Yield that Fleet is deployed with another kind of capacity than the file declares; the guard goes by Fleet's."""
    deployed, declared = capacity_kind_of(status.seen, status.guarded), status.guarded.capacity_kind
    if deployed != declared:
        does = "only tells people" if deployed == "capacity-block" else "stops the fleet"
        yield Concern(problem=f"the node group is of {deployed}, the file declares {declared}: the budget {does}",
                      change=_deploy(status.environment))  # fmt: skip


def describe_foreign_schedule(guarded: Guarded, schedule: ForeignSchedule) -> Concern:
    """Return what a schedule of the guard's group is that no lease owns: it may raise the fleet behind a fence."""
    delete = shlex.join([
        "aws", "scheduler", "delete-schedule", "--region", guarded.region, "--group-name", guarded.schedule_group,
        "--name", schedule.name,
    ])  # fmt: skip
    return Concern(
        problem=f"schedule {schedule.name} of {guarded.schedule_group} belongs to no lease and is "
        f"{schedule.state.lower()}: it calls {schedule.target_arn}",
        change=delete, is_command=True,
    )  # fmt: skip


def mend_path(path: StopPath, environment: Environment) -> str:
    """Return what arms a path that is not armed."""
    if path.name == "budget" and path.sentence.endswith(SPENT):
        return f"the other paths stop; it comes back next month, or: raise guard.budget_usd and {_deploy(environment)}"
    if path.name == "budget" and by_hand(environment):
        return f"make it by hand: {RUNBOOK}#when-the-fleet-must-stop"
    return _ARM[path.name].format(name=shlex.quote(environment.name))


def _deploy(environment: Environment) -> str:
    return _DEPLOY.format(name=shlex.quote(environment.name))


_DEPLOY = "deploy the stack Guard (npx cdk deploy {name}/Guard -c env={name})"
_ARM = {
    "schedule": "the reaper still ends the lease; stop and start again to arm it: tandem stop --env {name}",
    "reaper": f"{_DEPLOY}, then look at its log",
    "budget": _DEPLOY,
}


def _around(status: Status) -> Iterator[Concern]:
    group, reservation, name = status.group, status.reservation, shlex.quote(status.environment.name)
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
