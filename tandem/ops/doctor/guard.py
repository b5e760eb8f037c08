"""Group guard: whether the guard knows the fleet that it must end, and is ready for a start.

The guard has its own stacks, so anybody may deploy Fleet with settings that Guard does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tandem.aws.faults import error_code
from tandem.declarations import names
from tandem.guard.fence import read_fence
from tandem.guard.lease import read_lease, read_pointer
from tandem.guard.observe import CAPACITY_KIND_TAG
from tandem.guard.scaling_groups import LAUNCH_PROCESS, read_scaling_groups
from tandem.guard.schedules import list_foreign_schedules
from tandem.guard.values import CALL_ERRORS
from tandem.ops.account import AccountClients, build_aws_command
from tandem.ops.doctor.context import EXIT_EXTERNAL, DoctorContext, Finding
from tandem.ops.faults import ABSENT_CODES, convert_error
from tandem.ops.guard_config import build_guard_config
from tandem.ops.status_warnings import build_schedule_warning
from tandem.shell_command import build_cdk_command

CAPACITY_KIND_VARIABLE = "TANDEM_CAPACITY_KIND"  # of the guard's functions


def check_capacity_kind(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Compare the purchase of the nodes in the file, in the deployed Fleet and in Guard."""
    environment = context.environment
    node_group = read_node_group(account)
    name = environment.name
    kind = environment.capacity.kind
    tags = node_group.get("tags", {})
    group_name = names.node_group_name(environment)
    function_name = names.guard_function_name(environment, "stop")
    if node_group and tags.get(names.OWNER_TAG) != name:
        yield Finding("unknown", f"{group_name} is another's, so nothing is compared", "see fleet")
        return
    where = f"function {function_name}"
    function = (
        account.find("lambda", "GetFunctionConfiguration", where, FunctionName=function_name) or {}
    )
    guard_kind = function.get("Environment", {}).get("Variables", {}).get(CAPACITY_KIND_VARIABLE)
    tag = tags.get(CAPACITY_KIND_TAG)
    # the node group's tag comes before the stop function's variable
    is_block = (tag or guard_kind or kind) == "capacity-block"
    effect = (
        "only tells people, because a Capacity Block is prepaid" if is_block else "stops the fleet"
    )
    comparisons = (
        ("Fleet", "Fleet is deployed as", tag, kind),
        ("Fleet", "EKS buys", node_group.get("capacityType"), environment.capacity.eks_type),
        ("Guard", "Guard is deployed with", guard_kind, kind),
    )
    findings = [
        Finding(
            "fail",
            f"the file says {kind}, and {words} {actual}: at its limit the budget {effect}",
            f"deploy {stack}, or correct capacity.kind",
            build_cdk_command("deploy", name, stack),
            code=EXIT_EXTERNAL,
        )
        for stack, words, actual, expected in comparisons
        if actual not in {None, expected}
    ]
    if node_group and tag is None:
        message = (
            f"{group_name} has no tag {CAPACITY_KIND_TAG}: Guard alone says whether the budget"
            " stops it"
        )
        findings.append(
            Finding("warn", message, "deploy Fleet", build_cdk_command("deploy", name, "Fleet"))
        )
    if not findings:
        yield Finding(
            "ok",
            f"{kind}, as far as Fleet and Guard are deployed: at its limit the budget {effect}",
        )
    yield from findings


def check_scaling_groups(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Name suspended processes of the Auto Scaling group: starts and stops need them."""
    config = build_guard_config(context.environment)
    rows = (read_node_group(account).get("resources") or {}).get("autoScalingGroups", [])
    clients = account.guard_clients("s3", "autoscaling")
    service = "s3"
    call = "GetObject"
    where = config.bucket
    try:
        fence = read_fence(clients, config) if rows else None
        service = "autoscaling"
        call = "DescribeAutoScalingGroups"
        where = config.node_group_description
        groups = read_scaling_groups(clients, [str(row["name"]) for row in rows])
    except CALL_ERRORS as error:
        raise convert_error(error, service=service, operation=call, where=where) from error
    suspended_groups = [group for group in groups if group.suspended_processes]
    for group in suspended_groups:
        if LAUNCH_PROCESS in group.suspended_processes and fence and group.name in fence.suspended:
            yield Finding(
                "ok",
                f"a stop suspended {LAUNCH_PROCESS} of {group.name}; the next start resumes it",
            )
            continue
        processes = group.suspended_processes
        words = f"autoscaling resume-processes --region {config.region}"
        command = build_aws_command(
            words, auto_scaling_group_name=group.name, scaling_processes=processes
        )
        message = f"suspended in {group.name}: {', '.join(processes)}"
        action = "find out who and why, then resume them"
        if LAUNCH_PROCESS in processes:
            message = f"{message}, and no stop of Tandem did: every start refuses"
            yield Finding("fail", message, action, command, code=EXIT_EXTERNAL)
        else:
            yield Finding(
                "warn", f"{message}; EKS may not end nodes as it is told", action, command
            )
    if not suspended_groups:
        yield Finding("ok", "no process of an Auto Scaling group is suspended")


def check_schedules(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Name the guard's schedules that no lease owns: one may raise a fenced fleet."""
    config = build_guard_config(context.environment)
    where = f"schedule group {config.schedule_group}"
    lease = None
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
            raise convert_error(
                error, service="scheduler", operation="ListSchedules", where=where
            ) from error
        yield Finding("ok", f"{where} is not there yet")
        return
    for schedule in foreign_schedules:
        warning = build_schedule_warning(config, schedule)
        action = (
            "see who made it (a proof's deletes itself in minutes); if no start is under way,"
            " delete it"
        )
        message = f"{warning.problem}; every start refuses beside it"
        yield Finding("fail", message, action, warning.change, code=EXIT_EXTERNAL)
    if not foreign_schedules:
        yield Finding(
            "ok",
            f"{where} has no schedule but the lease's own" if lease else f"{where} has no schedule",
        )


def read_node_group(account: AccountClients) -> Mapping[str, Any]:
    """Return the node group as EKS describes it; empty if there is none."""
    config = build_guard_config(account.environment)
    parameters = {"clusterName": config.cluster, "nodegroupName": config.node_group}
    answer = account.find("eks", "DescribeNodegroup", config.node_group_description, **parameters)
    return answer["nodegroup"] if answer else {}
