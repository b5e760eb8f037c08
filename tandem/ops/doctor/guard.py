"""Group guard: whether what ends a fleet knows what it ends, and whether a start will find it ready.

The guard is deployed in stacks of its own, so Fleet may be deployed with what Guard does not know, and by anybody.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tandem.guard.scaling import LAUNCH, ScalingGroup, read_scaling_groups
from tandem.guard.schedules import ForeignSchedule, list_foreign_schedules
from tandem.ops.doctor.account import Account
from tandem.ops.doctor.calls import PROOF
from tandem.ops.doctor.line import WORLD, Finding, fail, ok, unknown, warn
from tandem.ops.doctor.subject import Subject
from tandem.ops.fault import code_of
from tandem.ops.guarded import guarded
from tandem.shell_command import build_cdk_command, quote_command
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.stop import CAPACITY_KIND_TAG, RAISED, Clients, Lease, read_fence, read_lease, read_pointer

# as EKS calls each kind; a reservation is on-demand capacity that somebody holds
EKS_KINDS = {
    "capacity-block": "CAPACITY_BLOCK", "reservation": "ON_DEMAND", "on-demand": "ON_DEMAND", "spot": "SPOT",
}  # fmt: skip
KIND_VARIABLE = "TANDEM_CAPACITY_KIND"  # of the guard's functions
ABSENT = {"ResourceNotFoundException"}
SIZING = ":eks:updateNodegroupConfig"  # how the target of a schedule that sizes a node group ends


def compare_kinds(subject: Subject, account: Account) -> Iterator[Finding]:
    """Compare how the nodes are bought as declared, as Fleet is deployed and as Guard knows it."""
    environment = subject.environment
    declared, group = environment.capacity.kind, _read_node_group(account)
    name = names.guard_function(environment, "stop")
    function = account.ask("lambda", "GetFunctionConfiguration", f"function {name}", absent=ABSENT, FunctionName=name)
    if group and group.get("tags", {}).get(names.OWNER_TAG) != environment.name:
        yield unknown(f"{names.node_group(environment)} is another's, so nothing is compared", "see fleet")
        return
    findings = [*_compare_fleet(environment, group), *_compare_guard(environment, group, function)]
    yield from findings
    if not findings:
        effect = _tell_effect(declared)
        yield ok(f"{declared}, as far as Fleet and Guard are deployed: at its limit the budget {effect}")


def _compare_fleet(environment: Environment, group: Mapping[str, Any] | None) -> Iterator[Finding]:
    if not group:
        return
    declared, tag = environment.capacity.kind, group.get("tags", {}).get(CAPACITY_KIND_TAG)
    bought = group.get("capacityType", EKS_KINDS[declared])
    deploy = build_cdk_command("deploy", environment.name, "Fleet")
    if bought != EKS_KINDS[declared]:
        yield fail(f"the file says {declared}, and EKS buys {bought} for {names.node_group(environment)}",
                   "deploy Fleet, or correct capacity.kind", deploy, code=WORLD)  # fmt: skip
    if tag is None:
        yield warn(f"{names.node_group(environment)} has no tag {CAPACITY_KIND_TAG}: an earlier release deployed it, "
                   "and a stop takes its kind from Guard", "deploy Fleet", deploy)  # fmt: skip
    elif tag != declared:
        effect = _tell_effect(tag)
        yield fail(f"the file says {declared}, and Fleet is deployed as {tag}: at its limit the budget {effect}",
                   "deploy Fleet, or correct capacity.kind", deploy, code=WORLD)  # fmt: skip


def _compare_guard(
    environment: Environment, group: Mapping[str, Any] | None, function: Mapping[str, Any] | None
) -> Iterator[Finding]:
    """Say what the stop function believes; the node group's tag comes before what its variable says."""
    if function is None:
        return
    declared = environment.capacity.kind
    known = str(function.get("Environment", {}).get("Variables", {}).get(KIND_VARIABLE, "nothing"))
    if known == declared:
        return
    tag = (group or {}).get("tags", {}).get(CAPACITY_KIND_TAG)
    effect = f"while Fleet has no tag {CAPACITY_KIND_TAG}, at its limit the budget {_tell_effect(known)}"
    if tag is not None:
        effect = "Fleet's tag comes before it, so only a deploy of Guard is missing"
    yield fail(f"the file says {declared}, and Guard is deployed with {known}: {effect}",
               "deploy Guard, or correct capacity.kind", build_cdk_command("deploy", environment.name, "Guard"),
               code=WORLD)  # fmt: skip


def _tell_effect(kind: str) -> str:
    return "only tells people, because a Capacity Block is prepaid" if kind == "capacity-block" else "stops the fleet"


def check_scaling_groups(subject: Subject, account: Account) -> Iterator[Finding]:
    """Name what is suspended in the node group's Auto Scaling group: a start needs its launches, a stop its ends."""
    limits, group = guarded(subject.environment), _read_node_group(account)
    rows = ((group or {}).get("resources") or {}).get("autoScalingGroups", [])
    if not rows:
        yield ok("the node group has no Auto Scaling group yet")
        return
    clients = _make_clients(account)
    try:
        groups = read_scaling_groups(clients, [str(row["name"]) for row in rows])
    except RAISED as error:
        raise account.explain(error, "autoscaling", "DescribeAutoScalingGroups", limits.group) from error
    ours: tuple[str, ...] = ()
    if any(LAUNCH in row.suspended for row in groups):
        try:
            fence = read_fence(clients, limits)
        except RAISED as error:
            raise account.explain(error, "s3", "GetObject", f"s3://{limits.bucket}") from error
        ours = fence.suspended if fence else ()
    findings = [finding for row in groups for finding in _judge_processes(subject.environment, row, ours)]
    yield from findings
    if not findings:
        yield ok(f"no process of {', '.join(row.name for row in groups) or 'its Auto Scaling group'} is suspended")


def _judge_processes(environment: Environment, group: ScalingGroup, ours: tuple[str, ...]) -> Iterator[Finding]:
    def resume(*processes: str) -> str:
        return quote_command(
            "aws", "autoscaling", "resume-processes", "--region", environment.region,
            "--auto-scaling-group-name", group.name, "--scaling-processes", *processes,
        )  # fmt: skip

    others = [process for process in group.suspended if process != LAUNCH]
    if LAUNCH in group.suspended and group.name in ours:
        yield ok(f"a stop suspended {LAUNCH} of {group.name}; the next start resumes it")
    elif LAUNCH in group.suspended:
        yield fail(f"somebody suspended {LAUNCH} of {group.name}, and no stop of Tandem did: every start refuses",
                   "find out who and why, then resume it", resume(LAUNCH), code=WORLD)  # fmt: skip
    if others:
        yield warn(f"suspended in {group.name}: {', '.join(others)}; EKS may not end nodes as it is told",
                   "find out who and why, then resume them", resume(*others))  # fmt: skip


def check_schedules(subject: Subject, account: Account) -> Iterator[Finding]:
    """Name the schedules of the guard's group that no lease owns: one may raise the fleet behind every fence."""
    limits = guarded(subject.environment)
    where = f"schedule group {limits.schedule_group}"
    clients = _make_clients(account)
    lease = _read_present_lease(account, clients)
    try:
        strangers = list_foreign_schedules(clients, limits, lease)
    except RAISED as error:
        fault = account.explain(error, "scheduler", "ListSchedules", where)
        if code_of(error) not in ABSENT:
            raise fault from error
        yield ok(f"{where} is not there yet")
        return
    for stranger in strangers:
        yield _judge_schedule(account, stranger)
    if not strangers:
        yield ok(f"{where} has no schedule but the lease's own" if lease else f"{where} has no schedule")


def _judge_schedule(account: Account, stranger: ForeignSchedule) -> Finding:
    limits = guarded(account.environment)
    delete = quote_command(
        "aws", "scheduler", "delete-schedule", "--region", limits.region, "--group-name", limits.schedule_group,
        "--name", stranger.name,
    )  # fmt: skip
    where = f"schedule {limits.schedule_group}/{stranger.name}"
    described = account.ask(
        "scheduler", "GetSchedule", where, absent=ABSENT, GroupName=limits.schedule_group, Name=stranger.name
    )
    if described is None:
        return ok(f"{where} is gone since it was listed")
    expression = str(described.get("ScheduleExpression", "?"))
    when = f"{stranger.state}, {expression}"
    recurring = not expression.startswith("at(")
    if stranger.name.startswith(PROOF) and not recurring:
        return warn(f"{where} ({when}) is of a proof of the one-shot stop", "wait two minutes: it deletes itself",
                    delete)  # fmt: skip
    size = _read_size(described.get("Target") or {})
    effect = f"calls {stranger.target_arn}" if size is None else f"sets the fleet to {size} nodes"
    if size and recurring:
        effect = f"raises the fleet to {size} nodes again and again, behind every fence"
    return fail(f"{where} ({when}) belongs to no lease and {effect}; every start refuses beside it",
                "see who made it; if no start is under way, delete it", delete, code=WORLD)  # fmt: skip


def _read_size(target: Mapping[str, Any]) -> int | None:
    """Return the size that a schedule asks EKS for; None where it asks for none, or its input is not understood."""
    if not str(target.get("Arn", "")).endswith(SIZING):
        return None
    try:
        said = json.loads(target.get("Input", ""))
        config = {key.casefold(): value for key, value in said.items()}["scalingconfig"]
        sizes = {key.casefold(): int(value) for key, value in config.items()}
    except (ValueError, TypeError, AttributeError, KeyError):
        return None
    return max(sizes.get("desiredsize", 0), sizes.get("minsize", 0))


def _read_node_group(account: Account) -> Mapping[str, Any] | None:
    limits = guarded(account.environment)
    answer = account.ask(
        "eks", "DescribeNodegroup", limits.group, absent=ABSENT,
        clusterName=limits.cluster, nodegroupName=limits.node_group,
    )  # fmt: skip
    return None if answer is None else answer["nodegroup"]


def _read_present_lease(account: Account, clients: Clients) -> Lease | None:
    limits = guarded(account.environment)
    try:
        return read_lease(clients, limits, read_pointer(clients, limits))[0]
    except RAISED as error:
        if code_of(error) == "NoSuchBucket":
            return None
        raise account.explain(error, "s3", "GetObject", f"s3://{limits.bucket}") from error


def _make_clients(account: Account) -> Clients:
    made = {service: account.client(service) for service in ("s3", "eks", "ec2", "scheduler", "autoscaling")}
    return Clients(**made, sns=None, cloudwatch=None)
