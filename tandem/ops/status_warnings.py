"""Warnings about a fleet's status, each with what to do.

Invariant: pure; the same status gives the same warnings, the most expensive first.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tandem.declarations.budgets import needs_manual_budget
from tandem.declarations.environment import Environment
from tandem.guard.capacity_block import NO_WINDOW
from tandem.guard.config import GuardConfig
from tandem.guard.plan import count_excess_nodes, plan_stop
from tandem.guard.schedules import ForeignSchedule
from tandem.ops.account import build_aws_command
from tandem.ops.reservation import RENEWAL_PAGE, list_plan_differences
from tandem.ops.status import StatusReport
from tandem.ops.stop_paths import SPENT_NOTE, StopPath, fleet_capacity_kind

RUNBOOK = "docs/runbook.md"
STUCK_PAGE = f"{RUNBOOK}#fleet-will-not-go-to-zero"
_DEPLOY_ADVICE = "deploy the stack Guard (npx cdk deploy {name}/Guard -c env={name})"
_PATH_ADVICE = {
    "schedule": (
        "the reaper still ends the lease; stop and start again to arm it: tandem stop --env {name}"
    ),
    "reaper": f"{_DEPLOY_ADVICE}, then look at its log",
    "budget": _DEPLOY_ADVICE,
}


@dataclass(frozen=True)
class StatusWarning:
    """One problem.

    Args:
        problem: in one sentence without its full stop.
        change: what to do about the problem, likewise.
        is_command: whether the change is one command and nothing else, to be printed on one line.
    """

    problem: str
    change: str
    is_command: bool = False


def list_warnings(status: StatusReport) -> tuple[StatusWarning, ...]:
    """Return the problems that a person must see to; empty if no known part has one."""
    if status.deployment == "nothing" and not status.fleet.instances:
        return ()
    return (
        *_list_fleet_warnings(status),
        *_list_stop_warnings(status),
        *_list_resource_warnings(status),
    )


def _list_fleet_warnings(status: StatusReport) -> Iterator[StatusWarning]:
    fleet = status.fleet
    unknown = set(status.unknown)
    stop_command = f"tandem stop --env {shlex.quote(status.environment.name)}"
    for sentence in fleet.faults:  # unreadable objects, and resources of another tool
        yield StatusWarning(sentence, f"{RUNBOOK}#break-glass")
    instance_ids = [instance.id for instance in fleet.own_instances]
    wants_nodes = fleet.desired_size and fleet.has_owner_tag
    if instance_ids and fleet.is_fenced:
        problem = f"a stop is under way and {len(instance_ids)} of its instances are alive"
        yield StatusWarning(problem, f"{stop_command} --wait follows; {STUCK_PAGE}")
    elif instance_ids and fleet.live_lease is None and not {"lease", "fence"} & unknown:
        problem = f"{', '.join(instance_ids)}: alive without a live lease"
        yield StatusWarning(problem, f"if nobody needs them: {stop_command}")
    elif (
        not instance_ids and wants_nodes and fleet.live_lease is None and "instances" not in unknown
    ):
        yield StatusWarning(
            f"the node group wants {fleet.desired_size} without a live lease", stop_command
        )


def _list_stop_warnings(status: StatusReport) -> Iterator[StatusWarning]:
    fleet = status.fleet
    config = status.guard_config
    environment = status.environment
    plan = plan_stop(fleet, config)
    for sentence in plan.failures:
        yield StatusWarning(f"the stop is failing: {sentence}", STUCK_PAGE)
    is_raised = count_excess_nodes(fleet, config) or fleet.live_lease or fleet.own_instances
    if is_raised and not fleet.is_fenced:
        command = f"tandem stop --env {shlex.quote(environment.name)}"
        for why in plan.reasons:
            change = f"the reaper's next pass does it; now: {command}"
            yield StatusWarning(f"a stop is due: {why}", change)
    for path in status.paths:
        if path.state == "unarmed":
            yield StatusWarning(
                f"{path.name} stops nothing: {path.sentence}", describe_path_fix(path, environment)
            )
    deployed_kind = fleet_capacity_kind(fleet, config)
    declared_kind = config.capacity_kind
    if deployed_kind != declared_kind:  # the guard follows the deployed Fleet stack
        effect = "only tells people" if deployed_kind == "capacity-block" else "stops the fleet"
        problem = (
            f"the node group is of {deployed_kind}, the file declares {declared_kind}: the budget"
            f" {effect}"
        )
        yield StatusWarning(problem, _DEPLOY_ADVICE.format(name=shlex.quote(environment.name)))
    for schedule in status.schedules:
        yield build_schedule_warning(config, schedule)


def build_schedule_warning(config: GuardConfig, schedule: ForeignSchedule) -> StatusWarning:
    """Return the warning about a guard schedule without a lease: it may raise a fenced fleet."""
    place = f"schedule {schedule.name} of {config.schedule_group}"
    problem = (
        f"{place} belongs to no lease and is {schedule.state.lower()}: it calls"
        f" {schedule.target_arn}"
    )
    return StatusWarning(
        problem,
        build_aws_command(
            "scheduler delete-schedule",
            region=config.region,
            group_name=config.schedule_group,
            name=schedule.name,
        ),
        is_command=True,
    )


def describe_path_fix(path: StopPath, environment: Environment) -> str:
    """Return the command or change that arms an unarmed path."""
    name = shlex.quote(environment.name)
    if path.name == "budget" and path.sentence.endswith(SPENT_NOTE):
        deploy = _DEPLOY_ADVICE.format(name=name)
        return (
            "the other paths stop; it comes back next month, or: raise guard.budget_usd and"
            f" {deploy}"
        )
    if path.name == "budget" and needs_manual_budget(environment):
        return f"create it by hand: {RUNBOOK}#when-the-fleet-must-stop"
    return _PATH_ADVICE[path.name].format(name=name)


def _list_resource_warnings(status: StatusReport) -> Iterator[StatusWarning]:
    name = shlex.quote(status.environment.name)
    capacity = status.environment.capacity
    for issue in (status.node_group or {}).get("health", {}).get("issues", []):
        yield StatusWarning(
            f"node group: {issue.get('code', '')}: {issue.get('message', '')}", STUCK_PAGE
        )
    if status.is_block_idle:
        use = f"use it: tandem start --env {name} --hours H --experiment NAME"
        problem = f"{status.reservation_id} is paid for and nothing runs on it with a live lease"
        yield StatusWarning(
            problem, f"{use}; a Capacity Block is prepaid: stopping early refunds nothing"
        )
    if status.reservation_id and status.reservation is None and "reservation" not in status.unknown:
        problem = f"EC2 knows no {status.reservation_id} in this account and region"
        yield StatusWarning(problem, f"write the id of your {capacity.kind}: {RENEWAL_PAGE}")
    yield from _list_plan_warnings(status)
    for alarm in status.alarms:
        yield StatusWarning(
            f"{alarm} is in ALARM", f"its description links to its section of {RUNBOOK}"
        )


def _list_plan_warnings(status: StatusReport) -> Iterator[StatusWarning]:
    """Yield where the deployed tags or the file differ from EC2's word."""
    fleet = status.fleet
    differences = list_plan_differences(
        status.environment.capacity,
        deployed_id=fleet.reservation_id,
        planned=fleet.planned_window,
        actual=fleet.reservation.window if fleet.reservation else NO_WINDOW,
    )
    for difference in differences:
        change = difference.change
        if difference.lines:
            change = f"{change} ({difference.lines})"
        yield StatusWarning(difference.problem, change)
