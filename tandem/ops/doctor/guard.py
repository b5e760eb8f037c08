"""Group guard: whether what ends a fleet knows what it ends, and whether a start will find it ready.

The guard is deployed in stacks of its own, so Fleet may be deployed with what Guard does not know, and by anybody.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tandem.aws.faults import error_code
from tandem.guard.fence import read_fence
from tandem.guard.lease import read_lease, read_pointer
from tandem.guard.observe import CAPACITY_KIND_TAG
from tandem.guard.scaling_groups import LAUNCH_PROCESS, read_scaling_groups
from tandem.guard.schedules import ForeignSchedule, list_foreign_schedules
from tandem.guard.values import CALL_ERRORS
from tandem.ops.account import AccountClients, build_aws_command
from tandem.ops.doctor.context import EXIT_EXTERNAL, DoctorContext, Finding
from tandem.ops.faults import ABSENT_CODES, convert_error
from tandem.ops.guard_config import build_guard_config
from tandem.ops.people.policy_targets import PROOF_NAME_PREFIX
from tandem.shell_command import build_cdk_command
from tandem.spec import names

# as EKS calls each kind; a reservation is on-demand capacity that somebody holds
EKS_CAPACITY_TYPES = dict.fromkeys(("reservation", "on-demand"), "ON_DEMAND") | {
    "capacity-block": "CAPACITY_BLOCK",
    "spot": "SPOT",
}
CAPACITY_KIND_VARIABLE = "TANDEM_CAPACITY_KIND"  # of the guard's functions
SIZING_ARN_SUFFIX = ":eks:updateNodegroupConfig"  # how the target of a schedule that sizes a node group ends


def check_capacity_kind(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Compare how the nodes are bought as declared, as Fleet is deployed and as Guard knows it."""
    environment, node_group = context.environment, _read_node_group(account)
    name, declared_kind = environment.name, environment.capacity.kind
    group_name, function_name = names.node_group_name(environment), names.guard_function_name(environment, "stop")
    tags, where = node_group.get("tags", {}), f"function {function_name}"
    function = account.find("lambda", "GetFunctionConfiguration", where, FunctionName=function_name)
    if node_group and tags.get(names.OWNER_TAG) != name:
        yield Finding("unknown", f"{group_name} is another's, so nothing is compared", "see fleet")
        return
    # the node group's tag comes before what the stop function's variable says
    variables = (function or {}).get("Environment", {}).get("Variables", {})
    guard_kind, tag = str(variables.get(CAPACITY_KIND_VARIABLE, "nothing")), tags.get(CAPACITY_KIND_TAG)
    action, command = "deploy Fleet, or correct capacity.kind", build_cdk_command("deploy", name, "Fleet")
    expected_type, findings = EKS_CAPACITY_TYPES[declared_kind], list[Finding]()
    actual_type = node_group.get("capacityType", expected_type)
    if actual_type != expected_type:
        message = f"the file says {declared_kind}, and EKS buys {actual_type} for {group_name}"
        findings.append(Finding("fail", message, action, command, code=EXIT_EXTERNAL))
    if node_group and tag is None:
        message = f"{group_name} has no tag {CAPACITY_KIND_TAG} (an earlier release): a stop takes its kind from Guard"
        findings.append(Finding("warn", message, "deploy Fleet", command))
    elif node_group and tag != declared_kind:
        effect = f"at its limit the budget {_describe_effect(tag)}"
        message = f"the file says {declared_kind}, and Fleet is deployed as {tag}: {effect}"
        findings.append(Finding("fail", message, action, command, code=EXIT_EXTERNAL))
    if function is not None and guard_kind != declared_kind:
        effect = f"while Fleet has no tag {CAPACITY_KIND_TAG}, at its limit the budget {_describe_effect(guard_kind)}"
        if tag is not None:
            effect = "Fleet's tag comes before it, so only a deploy of Guard is missing"
        message = f"the file says {declared_kind}, and Guard is deployed with {guard_kind}: {effect}"
        action, command = "deploy Guard, or correct capacity.kind", build_cdk_command("deploy", name, "Guard")
        findings.append(Finding("fail", message, action, command, code=EXIT_EXTERNAL))
    effect = f"at its limit the budget {_describe_effect(declared_kind)}"
    yield from findings or [Finding("ok", f"{declared_kind}, as far as Fleet and Guard are deployed: {effect}")]


def _describe_effect(kind: str) -> str:
    return "only tells people, because a Capacity Block is prepaid" if kind == "capacity-block" else "stops the fleet"


def check_scaling_groups(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Name what is suspended in the node group's Auto Scaling group: a start needs its launches, a stop its ends."""
    config = build_guard_config(context.environment)
    rows = (_read_node_group(account).get("resources") or {}).get("autoScalingGroups", [])
    if not rows:
        yield Finding("ok", "the node group has no Auto Scaling group yet")
        return
    clients, where = account.guard_clients("s3", "autoscaling"), config.node_group_description
    service, call, fence = "autoscaling", "DescribeAutoScalingGroups", None
    try:
        groups = read_scaling_groups(clients, [str(row["name"]) for row in rows])
        if any(LAUNCH_PROCESS in group.suspended_processes for group in groups):
            service, call, where = "s3", "GetObject", f"s3://{config.bucket}"
            fence = read_fence(clients, config)
    except CALL_ERRORS as error:
        raise convert_error(error, service=service, operation=call, where=where) from error
    words = f"autoscaling resume-processes --region {config.region}"
    for group in groups:
        is_launch_suspended = LAUNCH_PROCESS in group.suspended_processes
        if is_launch_suspended and fence and group.name in fence.suspended:
            yield Finding("ok", f"a stop suspended {LAUNCH_PROCESS} of {group.name}; the next start resumes it")
        elif is_launch_suspended:
            effect = "and no stop of Tandem did: every start refuses"
            message = f"somebody suspended {LAUNCH_PROCESS} of {group.name}, {effect}"
            command = build_aws_command(words, auto_scaling_group_name=group.name, scaling_processes=LAUNCH_PROCESS)
            yield Finding("fail", message, "find out who and why, then resume it", command, code=EXIT_EXTERNAL)
        others = [process for process in group.suspended_processes if process != LAUNCH_PROCESS]
        if others:
            message = f"suspended in {group.name}: {', '.join(others)}; EKS may not end nodes as it is told"
            command = build_aws_command(words, auto_scaling_group_name=group.name, scaling_processes=others)
            yield Finding("warn", message, "find out who and why, then resume them", command)
    if not any(group.suspended_processes for group in groups):
        group_names = ", ".join(group.name for group in groups) or "its Auto Scaling group"
        yield Finding("ok", f"no process of {group_names} is suspended")


def check_schedules(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Name the schedules of the guard's group that no lease owns: one may raise the fleet behind every fence."""
    config = build_guard_config(context.environment)
    where, lease = f"schedule group {config.schedule_group}", None
    clients = account.guard_clients("s3", "scheduler")
    try:
        lease = read_lease(clients, config, read_pointer(clients, config))[0]
    except CALL_ERRORS as error:
        if error_code(error) != "NoSuchBucket":
            where = f"s3://{config.bucket}"
            raise convert_error(error, service="s3", operation="GetObject", where=where) from error
    try:
        foreign_schedules = list_foreign_schedules(clients, config, lease)
    except CALL_ERRORS as error:
        if error_code(error) not in ABSENT_CODES:
            raise convert_error(error, service="scheduler", operation="ListSchedules", where=where) from error
        yield Finding("ok", f"{where} is not there yet")
        return
    yield from (_judge_schedule(account, schedule) for schedule in foreign_schedules)
    if not foreign_schedules:
        yield Finding("ok", f"{where} has no schedule but the lease's own" if lease else f"{where} has no schedule")


def _judge_schedule(account: AccountClients, schedule: ForeignSchedule) -> Finding:
    config = build_guard_config(account.environment)
    group, where = config.schedule_group, f"schedule {config.schedule_group}/{schedule.name}"
    response = account.find("scheduler", "GetSchedule", where, Name=schedule.name, GroupName=group)
    if response is None:
        return Finding("ok", f"{where} is gone since it was listed")
    expression, size = str(response.get("ScheduleExpression", "?")), _read_size(response.get("Target") or {})
    is_recurring = not expression.startswith("at(")
    where = f"{where} ({schedule.state}, {expression})"
    words = f"scheduler delete-schedule --region {config.region}"
    command = build_aws_command(words, group_name=group, name=schedule.name)
    if schedule.name.startswith(PROOF_NAME_PREFIX) and not is_recurring:
        message = f"{where} is of a proof of the one-shot stop"
        return Finding("warn", message, "wait two minutes: it deletes itself", command)
    effect = f"calls {schedule.target_arn}" if size is None else f"sets the fleet to {size} nodes"
    if size and is_recurring:
        effect = f"raises the fleet to {size} nodes again and again, behind every fence"
    message = f"{where} belongs to no lease and {effect}; every start refuses beside it"
    return Finding("fail", message, "see who made it; if no start is under way, delete it", command, code=EXIT_EXTERNAL)


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


def _read_node_group(account: AccountClients) -> Mapping[str, Any]:
    """Return the node group as EKS describes it; empty where there is none."""
    config = build_guard_config(account.environment)
    parameters = {"clusterName": config.cluster, "nodegroupName": config.node_group}
    answer = account.find("eks", "DescribeNodegroup", config.node_group_description, **parameters)
    return answer["nodegroup"] if answer else {}
