"""Group guard: whether what ends a fleet knows what it ends, and whether a start will find it ready.

The guard is deployed in stacks of its own, so Fleet may be deployed with what Guard does not know, and by anybody.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tandem.guard.config import AwsClients
from tandem.guard.fence import read_fence
from tandem.guard.lease import Lease, read_lease, read_pointer
from tandem.guard.observe import CAPACITY_KIND_TAG
from tandem.guard.scaling_groups import LAUNCH_PROCESS, ScalingGroup, read_scaling_groups
from tandem.guard.schedules import ForeignSchedule, list_foreign_schedules
from tandem.guard.values import CALL_ERRORS
from tandem.ops.doctor.account import AllowlistedAccount
from tandem.ops.doctor.call_policy import PROOF_NAME_PREFIX
from tandem.ops.doctor.check_result import (
    EXIT_EXTERNAL,
    CheckFinding,
    fail_finding,
    ok_finding,
    unknown_finding,
    warn_finding,
)
from tandem.ops.doctor.context import DoctorContext
from tandem.ops.faults import error_code
from tandem.ops.guard_config import build_guard_config
from tandem.shell_command import build_cdk_command, quote_command
from tandem.spec import names
from tandem.spec.environment import Environment

# as EKS calls each kind; a reservation is on-demand capacity that somebody holds
EKS_CAPACITY_TYPES = {
    "capacity-block": "CAPACITY_BLOCK", "reservation": "ON_DEMAND", "on-demand": "ON_DEMAND", "spot": "SPOT",
}  # fmt: skip
CAPACITY_KIND_VARIABLE = "TANDEM_CAPACITY_KIND"  # of the guard's functions
NOT_FOUND_CODES = {"ResourceNotFoundException"}
SIZING_ARN_SUFFIX = ":eks:updateNodegroupConfig"  # how the target of a schedule that sizes a node group ends


def check_capacity_kind(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """Compare how the nodes are bought as declared, as Fleet is deployed and as Guard knows it."""
    environment = context.environment
    declared_kind, node_group = environment.capacity.kind, _read_node_group(account)
    name = names.guard_function_name(environment, "stop")
    function = account.ask(
        "lambda", "GetFunctionConfiguration", f"function {name}", absent=NOT_FOUND_CODES, FunctionName=name
    )
    if node_group and node_group.get("tags", {}).get(names.OWNER_TAG) != environment.name:
        yield unknown_finding(f"{names.node_group_name(environment)} is another's, so nothing is compared", "see fleet")
        return
    findings = [*_compare_fleet(environment, node_group), *_compare_guard(environment, node_group, function)]
    yield from findings
    if not findings:
        effect = _describe_effect(declared_kind)
        yield ok_finding(f"{declared_kind}, as far as Fleet and Guard are deployed: at its limit the budget {effect}")


def _compare_fleet(environment: Environment, node_group: Mapping[str, Any] | None) -> Iterator[CheckFinding]:
    if not node_group:
        return
    declared_kind, tag = environment.capacity.kind, node_group.get("tags", {}).get(CAPACITY_KIND_TAG)
    eks_capacity_type = node_group.get("capacityType", EKS_CAPACITY_TYPES[declared_kind])
    command = build_cdk_command("deploy", environment.name, "Fleet")
    if eks_capacity_type != EKS_CAPACITY_TYPES[declared_kind]:
        yield fail_finding(
            f"the file says {declared_kind}, and EKS buys {eks_capacity_type} for {names.node_group_name(environment)}",
            "deploy Fleet, or correct capacity.kind",
            command,
            code=EXIT_EXTERNAL,
        )
    if tag is None:
        yield warn_finding(
            f"{names.node_group_name(environment)} has no tag {CAPACITY_KIND_TAG}: an earlier release deployed it, "
            "and a stop takes its kind from Guard",
            "deploy Fleet",
            command,
        )
    elif tag != declared_kind:
        effect = _describe_effect(tag)
        yield fail_finding(
            f"the file says {declared_kind}, and Fleet is deployed as {tag}: at its limit the budget {effect}",
            "deploy Fleet, or correct capacity.kind",
            command,
            code=EXIT_EXTERNAL,
        )


def _compare_guard(
    environment: Environment, node_group: Mapping[str, Any] | None, function: Mapping[str, Any] | None
) -> Iterator[CheckFinding]:
    """Say what the stop function believes; the node group's tag comes before what its variable says."""
    if function is None:
        return
    declared_kind = environment.capacity.kind
    guard_kind = str(function.get("Environment", {}).get("Variables", {}).get(CAPACITY_KIND_VARIABLE, "nothing"))
    if guard_kind == declared_kind:
        return
    tag = (node_group or {}).get("tags", {}).get(CAPACITY_KIND_TAG)
    effect = f"while Fleet has no tag {CAPACITY_KIND_TAG}, at its limit the budget {_describe_effect(guard_kind)}"
    if tag is not None:
        effect = "Fleet's tag comes before it, so only a deploy of Guard is missing"
    yield fail_finding(f"the file says {declared_kind}, and Guard is deployed with {guard_kind}: {effect}",
               "deploy Guard, or correct capacity.kind", build_cdk_command("deploy", environment.name, "Guard"),
               code=EXIT_EXTERNAL)  # fmt: skip


def _describe_effect(kind: str) -> str:
    return "only tells people, because a Capacity Block is prepaid" if kind == "capacity-block" else "stops the fleet"


def check_scaling_groups(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """Name what is suspended in the node group's Auto Scaling group: a start needs its launches, a stop its ends."""
    config, node_group = build_guard_config(context.environment), _read_node_group(account)
    rows = ((node_group or {}).get("resources") or {}).get("autoScalingGroups", [])
    if not rows:
        yield ok_finding("the node group has no Auto Scaling group yet")
        return
    clients = _create_clients(account)
    try:
        groups = read_scaling_groups(clients, [str(row["name"]) for row in rows])
    except CALL_ERRORS as error:
        raise account.convert_error(
            error, "autoscaling", "DescribeAutoScalingGroups", config.node_group_description
        ) from error
    suspended_groups: tuple[str, ...] = ()
    if any(LAUNCH_PROCESS in row.suspended_processes for row in groups):
        try:
            fence = read_fence(clients, config)
        except CALL_ERRORS as error:
            raise account.convert_error(error, "s3", "GetObject", f"s3://{config.bucket}") from error
        suspended_groups = fence.suspended if fence else ()
    findings = [finding for row in groups for finding in _judge_processes(context.environment, row, suspended_groups)]
    yield from findings
    if not findings:
        yield ok_finding(
            f"no process of {', '.join(row.name for row in groups) or 'its Auto Scaling group'} is suspended"
        )


def _judge_processes(
    environment: Environment, group: ScalingGroup, suspended_groups: tuple[str, ...]
) -> Iterator[CheckFinding]:
    def build_resume_command(*processes: str) -> str:
        return quote_command(
            "aws", "autoscaling", "resume-processes", "--region", environment.region,
            "--auto-scaling-group-name", group.name, "--scaling-processes", *processes,
        )  # fmt: skip

    other_processes = [process for process in group.suspended_processes if process != LAUNCH_PROCESS]
    if LAUNCH_PROCESS in group.suspended_processes and group.name in suspended_groups:
        yield ok_finding(f"a stop suspended {LAUNCH_PROCESS} of {group.name}; the next start resumes it")
    elif LAUNCH_PROCESS in group.suspended_processes:
        yield fail_finding(
            f"somebody suspended {LAUNCH_PROCESS} of {group.name}, and no stop of Tandem did: every start refuses",
            "find out who and why, then resume it",
            build_resume_command(LAUNCH_PROCESS),
            code=EXIT_EXTERNAL,
        )
    if other_processes:
        yield warn_finding(
            f"suspended in {group.name}: {', '.join(other_processes)}; EKS may not end nodes as it is told",
            "find out who and why, then resume them",
            build_resume_command(*other_processes),
        )


def check_schedules(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """Name the schedules of the guard's group that no lease owns: one may raise the fleet behind every fence."""
    config = build_guard_config(context.environment)
    where = f"schedule group {config.schedule_group}"
    clients = _create_clients(account)
    lease = _read_current_lease(account, clients)
    try:
        foreign_schedules = list_foreign_schedules(clients, config, lease)
    except CALL_ERRORS as error:
        fault = account.convert_error(error, "scheduler", "ListSchedules", where)
        if error_code(error) not in NOT_FOUND_CODES:
            raise fault from error
        yield ok_finding(f"{where} is not there yet")
        return
    for foreign_schedule in foreign_schedules:
        yield _judge_schedule(account, foreign_schedule)
    if not foreign_schedules:
        yield ok_finding(f"{where} has no schedule but the lease's own" if lease else f"{where} has no schedule")


def _judge_schedule(account: AllowlistedAccount, foreign_schedule: ForeignSchedule) -> CheckFinding:
    config = build_guard_config(account.environment)
    delete_command = quote_command(
        "aws", "scheduler", "delete-schedule", "--region", config.region, "--group-name", config.schedule_group,
        "--name", foreign_schedule.name,
    )  # fmt: skip
    where = f"schedule {config.schedule_group}/{foreign_schedule.name}"
    response = account.ask(
        "scheduler",
        "GetSchedule",
        where,
        absent=NOT_FOUND_CODES,
        GroupName=config.schedule_group,
        Name=foreign_schedule.name,
    )
    if response is None:
        return ok_finding(f"{where} is gone since it was listed")
    expression = str(response.get("ScheduleExpression", "?"))
    when = f"{foreign_schedule.state}, {expression}"
    is_recurring = not expression.startswith("at(")
    if foreign_schedule.name.startswith(PROOF_NAME_PREFIX) and not is_recurring:
        return warn_finding(
            f"{where} ({when}) is of a proof of the one-shot stop",
            "wait two minutes: it deletes itself",
            delete_command,
        )
    size = _read_size(response.get("Target") or {})
    effect = f"calls {foreign_schedule.target_arn}" if size is None else f"sets the fleet to {size} nodes"
    if size and is_recurring:
        effect = f"raises the fleet to {size} nodes again and again, behind every fence"
    return fail_finding(
        f"{where} ({when}) belongs to no lease and {effect}; every start refuses beside it",
        "see who made it; if no start is under way, delete it",
        delete_command,
        code=EXIT_EXTERNAL,
    )


def _read_size(target: Mapping[str, Any]) -> int | None:
    """Return the size that a schedule asks EKS for; None where it asks for none, or its input is not understood."""
    if not str(target.get("Arn", "")).endswith(SIZING_ARN_SUFFIX):
        return None
    try:
        target_input = json.loads(target.get("Input", ""))
        config = {key.casefold(): value for key, value in target_input.items()}["scalingconfig"]
        sizes = {key.casefold(): int(value) for key, value in config.items()}
    except (ValueError, TypeError, AttributeError, KeyError):
        return None
    return max(sizes.get("desiredsize", 0), sizes.get("minsize", 0))


def _read_node_group(account: AllowlistedAccount) -> Mapping[str, Any] | None:
    config = build_guard_config(account.environment)
    answer = account.ask(
        "eks", "DescribeNodegroup", config.node_group_description, absent=NOT_FOUND_CODES,
        clusterName=config.cluster, nodegroupName=config.node_group,
    )  # fmt: skip
    return None if answer is None else answer["nodegroup"]


def _read_current_lease(account: AllowlistedAccount, clients: AwsClients) -> Lease | None:
    config = build_guard_config(account.environment)
    try:
        return read_lease(clients, config, read_pointer(clients, config))[0]
    except CALL_ERRORS as error:
        if error_code(error) == "NoSuchBucket":
            return None
        raise account.convert_error(error, "s3", "GetObject", f"s3://{config.bucket}") from error


def _create_clients(account: AllowlistedAccount) -> AwsClients:
    boto_clients = {service: account.client(service) for service in ("s3", "eks", "ec2", "scheduler", "autoscaling")}
    return AwsClients(**boto_clients, sns=None, cloudwatch=None)
