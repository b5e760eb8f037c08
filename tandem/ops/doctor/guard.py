"""Group guard: whether the guard knows the fleet that it must end, and is ready for a start.

The guard has its own stacks, so anybody may deploy Fleet with settings that Guard does not know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from tandem.aws.faults import error_code
from tandem.declarations import names
from tandem.errors import TandemError
from tandem.guard.fence import read_fence
from tandem.guard.lease import read_lease, read_pointer
from tandem.guard.observe import CAPACITY_KIND_TAG
from tandem.guard.scaling_groups import LAUNCH_PROCESS, ScalingGroup, read_scaling_groups
from tandem.guard.schedules import list_foreign_schedules
from tandem.ops.account import AccountClients, build_aws_command, read_node_group
from tandem.ops.doctor.context import EXIT_EXTERNAL, DoctorContext, Finding
from tandem.ops.faults import ABSENT_CODES, convert_errors
from tandem.ops.guard_config import build_guard_config
from tandem.ops.status_warnings import build_schedule_warning
from tandem.shell_command import build_cdk_command

CAPACITY_KIND_VARIABLE = "TANDEM_CAPACITY_KIND"  # of the guard's functions


def check_capacity_kind(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Compare the purchase of the nodes in the file, in the deployed Fleet and in Guard."""
    environment = context.environment
    node_group = read_node_group(account.client("eks"), environment) or {}
    tags = node_group.get("tags", {})
    group_name = names.node_group_name(environment)
    if node_group and tags.get(names.OWNER_TAG) != environment.name:
        yield Finding("unknown", f"{group_name} is another's, so nothing is compared", "see fleet")
        return
    kind = environment.capacity.kind
    tag = tags.get(CAPACITY_KIND_TAG)
    guard_kind = _read_guard_kind(context, account)
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
    findings = []
    for stack, words, actual, expected in comparisons:
        if actual not in {None, expected}:
            message = (
                f"the file says {kind}, and {words} {actual}: at its limit the budget {effect}"
            )
            action = f"deploy {stack}, or correct capacity.kind"
            command = build_cdk_command("deploy", environment.name, stack)
            findings.append(Finding("fail", message, action, command, EXIT_EXTERNAL))
    if node_group and tag is None:
        message = (
            f"{group_name} has no tag {CAPACITY_KIND_TAG}: Guard alone says whether the budget"
            " stops it"
        )
        command = build_cdk_command("deploy", environment.name, "Fleet")
        findings.append(Finding("warn", message, "deploy Fleet", command))
    message = f"{kind}, as far as Fleet and Guard are deployed: at its limit the budget {effect}"
    yield from findings or [Finding("ok", message)]


def _read_guard_kind(context: DoctorContext, account: AccountClients) -> str | None:
    """Return the kind of capacity that the stop function knows; None if it is not deployed."""
    name = names.guard_function_name(context.environment, "stop")
    where = f"function {name}"
    answer = account.find("lambda", "GetFunctionConfiguration", where, FunctionName=name) or {}
    kind: str | None = (
        answer.get("Environment", {}).get("Variables", {}).get(CAPACITY_KIND_VARIABLE)
    )
    return kind


def check_scaling_groups(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Name suspended processes of the Auto Scaling group: starts and stops need them."""
    config = build_guard_config(context.environment)
    node_group = read_node_group(account.client("eks"), context.environment) or {}
    rows = (node_group.get("resources") or {}).get("autoScalingGroups", [])
    clients = account.guard_clients("s3", "autoscaling")
    with convert_errors("s3", "GetObject", config.bucket):
        fence = read_fence(clients, config) if rows else None
    where = config.node_group_description
    with convert_errors("autoscaling", "DescribeAutoScalingGroups", where):
        groups = read_scaling_groups(clients, [row["name"] for row in rows])
    suspended_groups = [group for group in groups if group.suspended_processes]
    for group in suspended_groups:
        if LAUNCH_PROCESS in group.suspended_processes and fence and group.name in fence.suspended:
            message = (
                f"a stop suspended {LAUNCH_PROCESS} of {group.name}; the next start resumes it"
            )
            yield Finding("ok", message)
        else:
            yield _judge_suspension(group, config.region)
    if not suspended_groups:
        yield Finding("ok", "no process of an Auto Scaling group is suspended")


def _judge_suspension(group: ScalingGroup, region: str) -> Finding:
    """Report processes that no stop of Tandem suspended."""
    processes = group.suspended_processes
    command = build_aws_command(
        f"autoscaling resume-processes --region {region}",
        auto_scaling_group_name=group.name,
        scaling_processes=processes,
    )
    message = f"suspended in {group.name}: {', '.join(processes)}"
    action = "find out who suspended them and why, then resume them"
    if LAUNCH_PROCESS in processes:
        message = f"{message}, and no stop of Tandem did: every start refuses"
        return Finding("fail", message, action, command, EXIT_EXTERNAL)
    return Finding("warn", f"{message}; EKS may not end nodes as it is told", action, command)


@contextmanager
def _allow_absence(codes: Collection[str]) -> Iterator[None]:
    """Go on if a call failed because there is no such thing, by its code."""
    try:
        yield
    except TandemError as error:
        if error_code(error.__cause__) not in codes:
            raise


def check_schedules(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Name the guard's schedules that no lease owns: one may raise a fenced fleet."""
    config = build_guard_config(context.environment)
    where = f"schedule group {config.schedule_group}"
    clients = account.guard_clients("s3", "scheduler")
    lease = None
    with (
        _allow_absence({"NoSuchBucket"}),
        convert_errors("s3", "GetObject", f"s3://{config.bucket}"),
    ):
        lease = read_lease(clients, config, read_pointer(clients, config))[0]
    foreign_schedules = None
    with _allow_absence(ABSENT_CODES), convert_errors("scheduler", "ListSchedules", where):
        foreign_schedules = list_foreign_schedules(clients, config, lease)
    if foreign_schedules is None:
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
        message = f"{where} has no schedule"
        if lease:
            message += " but the lease's own"
        yield Finding("ok", message)
