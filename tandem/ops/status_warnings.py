"""What of a fleet's status somebody has to look after, and what to do about it.

Invariant: pure; the same status gives the same concerns, the dearest first.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tandem.guard.config import GuardConfig
from tandem.guard.plan import count_excess_nodes, plan_stop
from tandem.guard.schedules import ForeignSchedule
from tandem.ops.status import StatusReport
from tandem.ops.stop_paths import SPENT_NOTE, StopPath, fleet_capacity_kind
from tandem.spec.budgets import needs_manual_budget
from tandem.spec.environment import Environment

RUNBOOK = "docs/runbook.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusWarning:
    """One thing that is not as it should be.

    Args:
        problem: what is, in one sentence without its full stop.
        change: what to do about it, likewise.
        is_command: whether the change is one command and nothing else, to be printed on one line.
    """

    problem: str
    change: str
    is_command: bool = False


def list_warnings(status: StatusReport) -> tuple[StatusWarning, ...]:
    """Return what needs somebody's attention; empty where nothing does, as far as was seen."""
    if status.deployment == "nothing" and not status.fleet.instances:
        return ()
    return (*_list_fleet_warnings(status), *_list_stop_warnings(status), *_list_resource_warnings(status))


def _list_fleet_warnings(status: StatusReport) -> Iterator[StatusWarning]:
    fleet, name = status.fleet, shlex.quote(status.environment.name)
    stop_command = f"tandem stop --env {name}"
    for sentence in fleet.faults:  # objects that were not understood, and what belongs to another tool
        yield StatusWarning(problem=sentence, change=f"{RUNBOOK}#break-glass")
    instance_ids = [instance.id for instance in fleet.instances if instance.is_ours]
    if instance_ids and fleet.is_fenced:
        yield StatusWarning(problem=f"a stop is under way and {len(instance_ids)} of its instances are alive",
                      change=f"{stop_command} --wait follows; {RUNBOOK}#fleet-will-not-go-to-zero")  # fmt: skip
    elif instance_ids and fleet.live_lease is None and "lease" not in status.unknown and "fence" not in status.unknown:
        yield StatusWarning(
            problem=f"{', '.join(instance_ids)}: alive without a live lease",
            change=f"if nobody needs them: {stop_command}",
        )
    elif (
        not instance_ids
        and fleet.desired_size
        and fleet.live_lease is None
        and fleet.has_owner_tag
        and "instances" not in status.unknown
    ):
        yield StatusWarning(
            problem=f"the node group wants {fleet.desired_size} without a live lease", change=stop_command
        )


def _list_stop_warnings(status: StatusReport) -> Iterator[StatusWarning]:
    fleet, name = status.fleet, shlex.quote(status.environment.name)
    plan = plan_stop(fleet, status.guard_config)
    for sentence in plan.failures:
        yield StatusWarning(problem=f"the stop is failing: {sentence}", change=f"{RUNBOOK}#fleet-will-not-go-to-zero")
    excess = count_excess_nodes(fleet, status.guard_config)
    if not fleet.is_fenced and (excess or fleet.live_lease or any(instance.is_ours for instance in fleet.instances)):
        for why in plan.reasons:
            yield StatusWarning(problem=f"a stop is due: {why}",
                          change=f"the reaper's next pass does it; now: tandem stop --env {name}")  # fmt: skip
    for path in status.paths:
        if path.state == "unarmed":
            change = describe_path_fix(path, status.environment)
            yield StatusWarning(problem=f"{path.name} stops nothing: {path.sentence}", change=change)
    yield from _list_capacity_kind_warnings(status)
    for schedule in status.schedules:
        yield build_schedule_warning(status.guard_config, schedule)


def _list_capacity_kind_warnings(status: StatusReport) -> Iterator[StatusWarning]:
    """Yield that Fleet is deployed with another kind of capacity than the file declares; the guard goes by Fleet's."""
    deployed_kind, declared_kind = (
        fleet_capacity_kind(status.fleet, status.guard_config),
        status.guard_config.capacity_kind,
    )
    if deployed_kind != declared_kind:
        effect = "only tells people" if deployed_kind == "capacity-block" else "stops the fleet"
        yield StatusWarning(
            problem=f"the node group is of {deployed_kind}, the file declares {declared_kind}: the budget {effect}",
            change=_describe_guard_deploy(status.environment),
        )


def build_schedule_warning(config: GuardConfig, schedule: ForeignSchedule) -> StatusWarning:
    """Return what a schedule of the guard's group is that no lease owns: it may raise the fleet behind a fence."""
    delete_command = shlex.join([
        "aws", "scheduler", "delete-schedule", "--region", config.region, "--group-name", config.schedule_group,
        "--name", schedule.name,
    ])  # fmt: skip
    return StatusWarning(
        problem=f"schedule {schedule.name} of {config.schedule_group} belongs to no lease and is "
        f"{schedule.state.lower()}: it calls {schedule.target_arn}",
        change=delete_command, is_command=True,
    )  # fmt: skip


def describe_path_fix(path: StopPath, environment: Environment) -> str:
    """Return what arms a path that is not armed."""
    if path.name == "budget" and path.sentence.endswith(SPENT_NOTE):
        return (
            "the other paths stop; it comes back next month, or: raise guard.budget_usd and "
            f"{_describe_guard_deploy(environment)}"
        )
    if path.name == "budget" and needs_manual_budget(environment):
        return f"make it by hand: {RUNBOOK}#when-the-fleet-must-stop"
    return _PATH_ADVICE[path.name].format(name=shlex.quote(environment.name))


def _describe_guard_deploy(environment: Environment) -> str:
    return _DEPLOY_ADVICE.format(name=shlex.quote(environment.name))


_DEPLOY_ADVICE = "deploy the stack Guard (npx cdk deploy {name}/Guard -c env={name})"
_PATH_ADVICE = {
    "schedule": "the reaper still ends the lease; stop and start again to arm it: tandem stop --env {name}",
    "reaper": f"{_DEPLOY_ADVICE}, then look at its log",
    "budget": _DEPLOY_ADVICE,
}


def _list_resource_warnings(status: StatusReport) -> Iterator[StatusWarning]:
    node_group, reservation, name = status.node_group, status.reservation, shlex.quote(status.environment.name)
    if node_group is not None:
        for issue in node_group.issues:
            yield StatusWarning(problem=f"node group: {issue}", change=f"{RUNBOOK}#fleet-will-not-go-to-zero")
    if status.is_block_idle and reservation is not None:
        yield StatusWarning(
            problem=f"{reservation.id} is paid for and nothing runs on it with a live lease",
            change=f"use it: tandem start --env {name} --hours H --experiment NAME; what is paid comes not back",
        )  # fmt: skip
    capacity = status.environment.capacity
    is_missing = capacity.needs_reservation and not capacity.awaits_reservation and reservation is None
    if is_missing and "reservation" not in status.unknown:
        yield StatusWarning(problem=f"EC2 knows no {capacity.reservation_id} in this account and region",
                      change=f"write the id of your {capacity.kind}: {RUNBOOK}#block-renewal")  # fmt: skip
    for alarm in status.alarms:
        yield StatusWarning(problem=f"{alarm} is in ALARM", change=f"its description links to its section of {RUNBOOK}")
