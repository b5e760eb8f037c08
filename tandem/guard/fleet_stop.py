"""The stop: a fence in the bucket, a node group at 0, and passes that look until EC2 lists no instance.

A pass looks, does what is due and returns; all that it keeps is `stop.json` (tandem/guard/fence.py), so it may die
anywhere
and the next one goes on. It reads AWS only, never Kubernetes.
Invariant: standard library and boto3 only, because a Lambda packs this file; what could not be read is unknown, and
unknown is never taken for gone, for allowed or for alive; nothing without the environment's own tag is touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from tandem.guard.fence import (
    CALL_ERRORS,
    FENCE_FIELDS,
    FENCE_KEY,
    LEASE_FIELDS,
    MAX_ATTEMPTS,
    MAX_PASSES,
    PARSE_ERRORS,
    POINTER_KEY,
    RUN_NAME_PATTERN,
    STOP_PREFIX,
    AwsClients,
    Fence,
    FenceState,
    GuardConfig,
    GuardError,
    GuardExternalError,
    GuardRefusedError,
    Lease,
    LeasePointer,
    change_fence,
    clear_pointer,
    describe_error,
    error_code,
    format_value,
    heartbeat_key,
    lease_key,
    parse_timestamp,
    read_fence,
    read_lease,
    read_object,
    read_pointer,
    read_pointer_at_prefix,
    select_json_fields,
    shorten_sentence,
    shorten_text,
    write_lease,
    write_object,
)  # fmt: skip
from tandem.guard.ownership import is_fresh, retry_call
from tandem.guard.pager import iterate_pages
from tandem.guard.scaling_groups import (
    LAUNCH_PROCESS,
    SCALING_GROUP_TAG,
    ScalingGroup,
    read_scaling_groups,
    set_group_to_zero,
    suspend_launch,
)
from tandem.guard.schedules import delete_unreferenced_schedule, list_foreign_schedules

__all__ = [
    "BLOCK_ENDS_TAG",
    "BLOCK_MARGIN",
    "BLOCK_STARTS_TAG",
    "CALL_ERRORS",
    "CAPACITY_KIND_TAG",
    "CLOCK_TOLERANCE",
    "CLUSTER_TAG",
    "EXCESS_NODES",
    "FENCE_KEY",
    "FLEET_USD",
    "IDLE_BLOCK_MINUTES",
    "INSTANCES_ALIVE",
    "LABEL_PREFIXES",
    "LEASE_FIELDS",
    "METRIC_UNITS",
    "NODE_GROUP_TAG",
    "NORMAL_END_LIMIT",
    "OLDEST_INSTANCE_HOURS",
    "OWNER_TAG",
    "PASS_MINUTES",
    "POINTER_KEY",
    "REAPER",
    "RUN_NAME_PATTERN",
    "STOP_FAILURES",
    "STOP_PREFIX",
    "AwsClients",
    "Fence",
    "FenceState",
    "FleetInstance",
    "FleetState",
    "GuardConfig",
    "GuardError",
    "GuardExternalError",
    "GuardRefusedError",
    "Lease",
    "LeasePointer",
    "PassReport",
    "StateSource",
    "StopPlan",
    "apply_stop_plan",
    "can_scale",
    "change_fence",
    "clear_pointer",
    "count_excess_nodes",
    "describe_error",
    "error_code",
    "heartbeat_key",
    "lease_key",
    "notify_subscribers",
    "observe_fleet",
    "parse_timestamp",
    "plan_stop",
    "read_capacity_kind",
    "read_fence",
    "read_lease",
    "read_object",
    "read_own_labels",
    "read_pointer",
    "release_fence",
    "run_reaper_pass",
    "scale_to_zero",
    "select_json_fields",
    "write_lease",
    "write_object",
]

OWNER_TAG = "tandem:environment"  # its value is the environment's name; tandem.spec.names has the same
# on the node group: a renewed block is a deploy of the Fleet stack alone, and the guard hears of it all the same
BLOCK_STARTS_TAG, BLOCK_ENDS_TAG = "tandem:block-starts", "tandem:block-ends"
CAPACITY_KIND_TAG = "tandem:capacity-kind"  # likewise: Fleet may be deployed with another kind than Guard knows
CLUSTER_TAG, NODE_GROUP_TAG = "eks:cluster-name", "eks:nodegroup-name"  # EKS puts them on every instance of a group

LABEL_PREFIXES = ("raise.tandem/", "compile.tandem/")  # of ours, that a new raise takes off; as in tandem.spec.names
PASS_MINUTES = 5  # between two passes of the reaper
MAX_OBSERVATIONS = 3  # of a pass, where the lease changes while it looks
NORMAL_END_LIMIT = timedelta(minutes=30)  # so long the reaper leaves a lease alone that says that it ends
REPLACEMENT_GRACES = 2  # a spot node's replacement and the node itself live side by side for a while
BLOCK_MARGIN = timedelta(minutes=45)  # EKS scales down 40 minutes before a block's end, EC2 terminates at 30
CLOCK_TOLERANCE = timedelta(minutes=5)  # clocks differ; a beat further ahead is no beat
OVERDUE_GRACES = 3  # a stop that EC2 has not done after so many graces is a failed one
REMINDER_INTERVAL = timedelta(hours=1)
REAPER = "reap"
STABLE_STATUSES = frozenset({"ACTIVE", "DEGRADED"})  # of a node group's states: no update is under way
ARN_COLONS = 5  # arn:partition:service:region:account:resource
MAX_STATISTICS_POINTS = 1440  # that CloudWatch's GetMetricStatistics returns at once (API reference)
MAX_SUBJECT_CHARACTERS = 99  # SNS takes fewer than 100
_CHANGE_TEXTS = {
    "stopping": "being stopped",
    "terminating": "terminated by id",
    "stopped": "gone",
    "failed": "NOT stopped",
    "blind": "not seen whole: part of AWS does not answer the guard",
}

INSTANCES_ALIVE = "instances_alive"
OLDEST_INSTANCE_HOURS = "oldest_instance_hours"
IDLE_BLOCK_MINUTES = "idle_block_minutes"
STOP_FAILURES = "stop_failures"
FLEET_USD = "fleet_usd"
EXCESS_NODES = "excess_nodes"
METRIC_UNITS = {
    INSTANCES_ALIVE: "Count",
    OLDEST_INSTANCE_HOURS: "None",
    IDLE_BLOCK_MINUTES: "None",
    STOP_FAILURES: "Count",
    FLEET_USD: "None",
    EXCESS_NODES: "Count",
}
"""What a pass publishes, without dimensions, in CloudWatch's words for its unit."""

StateSource = Literal["fence", "lease", "heartbeat", "node group", "instances"]


class BucketUnavailableError(BotoCoreError):  # type: ignore[misc]  # botocore is untyped
    """The bucket did not answer a moment ago, so it is not asked again in this pass."""

    fmt = "not asked, because the bucket did not answer: {why}"


@dataclass(frozen=True, kw_only=True)
class FleetInstance:
    """One accelerator node as EC2 lists it; terminated ones are none.

    Args:
        state: pending, running, shutting-down, stopping or stopped.
        is_ours: whether it may be touched: it carries the environment's own tag, or its node group does.
        scaling_group: the Auto Scaling group that its tag names; empty where none does.
    """

    id: str
    launched_at: datetime
    state: str
    is_ours: bool
    scaling_group: str = ""

    @property
    def is_up(self) -> bool:
        """Whether it is there to stay: pending or running."""
        return self.state in {"pending", "running"}


@dataclass(frozen=True, kw_only=True)
class FleetState:
    """What one look found.

    Args:
        read_start_s: when this look began, by the wall clock.
        desired_size, min_size: sizes of the node group; None: unknown, or there is none.
        has_node_group: whether there is a node group; None: unknown.
        has_owner_tag: whether it carries the environment's own tag; None: unknown, or there is none.
        is_stable: whether no update of the node group is under way; None: unknown, or there is none.
        labels: of the node group's nodes, those that are ours.
        capacity_kind: that the node group is deployed with; where its tags do not say, as declared.
        scaling_groups: names of its Auto Scaling groups, as EKS names them or, where EKS is silent, the instances.
        instances: every one of the node group that EC2 lists and that is not terminated.
        alive_since: since when the guard's own figures count instances without a break; asked for only where the lease
            is unknown, when the age of the present instances alone would not tell of those that they replaced.
        pointer: to the only lease; None: unknown.
        lease: that the pointer leads to, also after its deadline and behind a fence: see `live_lease`.
        heartbeat: of the lease's run.
        block_starts, block_ends: of the Capacity Block that the node group is deployed with.
        unknown: what could not be read, and why.
        faults: objects that were read and not understood, each in a sentence.
    """

    now: datetime
    read_start_s: float = 0
    desired_size: int | None = None
    min_size: int | None = None
    has_node_group: bool | None = None
    has_owner_tag: bool | None = None
    is_stable: bool | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity_kind: str = ""
    scaling_groups: tuple[str, ...] = ()
    instances: tuple[FleetInstance, ...] = ()
    alive_since: datetime | None = None
    fence: Fence | None = None
    pointer: LeasePointer | None = None
    lease: Lease | None = None
    heartbeat: datetime | None = None
    block_starts: datetime | None = None
    block_ends: datetime | None = None
    unknown: Mapping[StateSource, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    @property
    def is_fenced(self) -> bool:
        """Whether a fence is known to be there."""
        return self.fence is not None and self.fence.is_closed

    @property
    def live_lease(self) -> Lease | None:
        """The lease, where it is live: before its deadline and without a fence."""
        return self.lease if self.lease and self.now < self.lease.deadline and not self.is_fenced else None

    @property
    def is_ending(self) -> bool:
        """Whether the lease says that its normal end is under way, and not for too long."""
        end_start = self.lease.ending if self.lease else None
        return end_start is not None and end_start - CLOCK_TOLERANCE <= self.now < end_start + NORMAL_END_LIMIT


@dataclass(frozen=True, kw_only=True)
class StopPlan:
    """What a look demands.

    Args:
        reasons: the reasons for a stop, each a sentence; empty: none is due.
        scale_down: whether EKS must be asked for 0.
        hold_scaling_groups: whether the Auto Scaling groups must be held at 0: EKS had its grace.
        terminate_ids: ids that EC2 must terminate.
        fence_state: of the fence after this pass, as far as was seen; None: there is none to write.
        failures: what this look shows of an earlier pass's failure, each a sentence.
        metrics: to publish; STOP_FAILURES is the pass's own to add.
    """

    reasons: tuple[str, ...] = ()
    scale_down: bool = False
    hold_scaling_groups: bool = False
    terminate_ids: tuple[str, ...] = ()
    fence_state: FenceState | None = None
    failures: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PassReport:
    """What a pass saw and did.

    Args:
        actions: each a sentence.
        failures: what was due and could not be done or could not be seen; the next pass tries again.
        messages: what was sent to the topic.
    """

    fleet: FleetState
    plan: StopPlan
    actions: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it as a log line or `--json` has it: times in ISO 8601, UTC."""
        fence = self.fleet.fence
        return {
            "at": format_value(self.fleet.now),
            "why": list(self.plan.reasons),
            "fence": fence.state if fence else None,
            "desired": self.fleet.desired_size,
            "instances": {instance.id: instance.state for instance in self.fleet.instances},
            "done": list(self.actions),
            "failed": list(self.failures),
            "told": list(self.messages),
            "unknown": dict(self.fleet.unknown),
            "faults": list(self.fleet.faults),
            "metrics": dict(self.metrics),
        }


# look


def observe_fleet(clients: AwsClients, config: GuardConfig, now: datetime) -> FleetState:
    """Read fence, lease, heartbeat, node group and instances. Never raises for AWS: what fails is in `unknown`."""
    read_start_s = clients.wall_s()
    unknown: dict[StateSource, str] = {}
    faults: list[str] = []
    fence, pointer, lease, heartbeat = None, None, None, None
    with _record_read_failure(unknown, "fence"):
        fence = read_fence(clients, config)
        faults.extend([fence.fault] if fence and fence.fault else [])
    with _record_read_failure(unknown, "lease"):
        _require_bucket_answer(unknown)  # a bucket that does not answer is not waited for four times
        pointer = read_pointer(clients, config)
        lease, fault = read_lease(clients, config, pointer)
        if lease and lease.created > now + CLOCK_TOLERANCE:
            fault = f"{config.url(lease_key(lease.run))}: written in the future, so it counts as no lease"
            lease = None
        faults.extend([fault] if fault else [])
    faults.extend(_describe_former_objects(config, fence, pointer))
    if lease and lease.beats:
        with _record_read_failure(unknown, "heartbeat"):
            heartbeat, fault = _read_heartbeat(clients, config.replace_prefix(lease.prefix), lease.run, now)
            faults.extend([fault] if fault else [])
    group: Mapping[str, Any] = {}
    with _record_read_failure(unknown, "node group"):
        group = _describe_node_group(clients, config)
    has_owner_tag = group.get("tags", {}).get(OWNER_TAG) == config.environment if group else None
    instances: tuple[FleetInstance, ...] = ()
    with _record_read_failure(unknown, "instances"):
        instances = tuple(_list_instances(clients, config, has_owner_tag=has_owner_tag is True))
    if has_owner_tag is False or any(not instance.is_ours for instance in instances):
        faults.append(_describe_missing_tag(config, instances))
    scaling = group.get("scalingConfig", {})
    is_lease_of_stop = fence is not None and fence.is_closed and lease is not None and fence.run == lease.run
    if lease and not _is_own_lease(
        config, lease, is_in_use=is_lease_of_stop or bool(scaling.get("desiredSize") or instances)
    ):
        pointer, lease, heartbeat = LeasePointer(prefix=config.prefix), None, None
        with _record_read_failure(unknown, "lease"):
            pointer = read_pointer_at_prefix(clients, config, config.prefix)
    capacity_kind = str(group.get("tags", {}).get(CAPACITY_KIND_TAG, config.capacity_kind))
    (starts, ends), fault = _read_block_window(group, config, capacity_kind)
    faults.extend([fault] if fault else [])
    fleet = FleetState(
        now=now,
        read_start_s=read_start_s,
        desired_size=scaling.get("desiredSize"),
        min_size=scaling.get("minSize"),
        has_node_group=None if "node group" in unknown else bool(group),
        has_owner_tag=has_owner_tag,
        is_stable=group.get("status") in STABLE_STATUSES if group else None,
        labels=_select_own_labels(group.get("labels", {})),
        capacity_kind=capacity_kind,
        scaling_groups=_list_scaling_groups(group, instances),
        instances=instances,
        fence=fence,
        pointer=pointer,
        lease=lease,
        heartbeat=heartbeat,
        block_starts=starts,
        block_ends=ends,
        unknown=unknown,
        faults=tuple(faults),
    )
    if "lease" not in unknown or not _list_own_instances(fleet):
        return fleet
    return replace(fleet, alive_since=_read_alive_since(clients, config, now))


def _describe_former_objects(config: GuardConfig, fence: Fence | None, pointer: LeasePointer | None) -> Iterator[str]:
    """Say where an object of an older release still rules; nobody but it may be waited for."""
    if fence and fence.prefix != config.prefix:
        url = config.replace_prefix(fence.prefix).url(FENCE_KEY)
        yield f"{url}: an older release of Tandem wrote this fence; it holds until it is released"
    if pointer and pointer.run and pointer.prefix != config.prefix:
        url = config.replace_prefix(pointer.prefix).url(lease_key(pointer.run))
        yield f"{url}: an older release of Tandem wrote this lease; it counts until it ends"


def _is_own_lease(config: GuardConfig, lease: Lease, *, is_in_use: bool) -> bool:
    """Whether a lease is this fleet's: below the former prefix an environment of the same name elsewhere has its own.

    Its operator's ARN names the account. Of two regions, a fleet at 0 that nobody stopped has no use for it.
    """
    if lease.prefix == config.prefix:
        return True
    account = lease.who.split(":")[4] if lease.who.startswith("arn:") and lease.who.count(":") >= ARN_COLONS else ""
    return is_in_use and account in {"", config.account}


def _describe_missing_tag(config: GuardConfig, instances: tuple[FleetInstance, ...]) -> str:
    problem = f"{config.node_group_description}: without the tag {OWNER_TAG}={config.environment}"
    if any(instance.is_ours for instance in instances):
        return f"{problem}, though its instances carry it: it counts as ours; deploy the Fleet stack"
    return f"{problem}, so it is another's and is left alone; give one of the two another name"


def _list_scaling_groups(group: Mapping[str, Any], instances: tuple[FleetInstance, ...]) -> tuple[str, ...]:
    names = [resource["name"] for resource in (group.get("resources") or {}).get("autoScalingGroups", [])]
    return tuple(
        names
        or dict.fromkeys(
            resource.scaling_group for resource in instances if resource.is_ours and resource.scaling_group
        )
    )


def _read_alive_since(clients: AwsClients, config: GuardConfig, now: datetime) -> datetime | None:
    """Return since when every figure of the reaper's passes counts an instance; None: unknown, or there is none."""
    window_start = now - timedelta(hours=config.max_hours) - BLOCK_MARGIN
    try:
        answer = clients.cloudwatch.get_metric_statistics(
            Namespace=config.namespace, MetricName=INSTANCES_ALIVE, StartTime=window_start, EndTime=now,
            Period=_statistics_period_s(now - window_start), Statistics=["Minimum"],
        )  # fmt: skip
        points = sorted((point["Timestamp"], point["Minimum"]) for point in answer.get("Datapoints", []))
    except CALL_ERRORS:
        return None
    last_empty_at = max((at for at, count in points if not count), default=window_start)
    return min((at for at, count in points if count and at > last_empty_at), default=None)


def _statistics_period_s(window: timedelta) -> int:
    """Return the shortest period, of whole passes, in which GetMetricStatistics gives a window at once."""
    passes = -(-window // (MAX_STATISTICS_POINTS * timedelta(minutes=PASS_MINUTES)))
    return passes * PASS_MINUTES * 60


@contextmanager
def _record_read_failure(unknown: dict[StateSource, str], source: StateSource) -> Iterator[None]:
    try:
        yield
    except CALL_ERRORS as error:
        unknown[source] = describe_error(error)


def _require_bucket_answer(unknown: Mapping[StateSource, str]) -> None:
    if "fence" in unknown:
        raise BucketUnavailableError(why=unknown["fence"])


def _read_heartbeat(clients: AwsClients, config: GuardConfig, run: str, now: datetime) -> tuple[datetime | None, str]:
    bucket_object = read_object(clients, config, heartbeat_key(run))
    if bucket_object is None:
        return None, ""
    url = config.url(heartbeat_key(run))
    try:
        beat = parse_timestamp(json.loads(bucket_object.body)["at"])
    except PARSE_ERRORS as error:
        return None, f"{url}: not understood ({shorten_text(error)}), so it counts as no beat"
    if beat > now + CLOCK_TOLERANCE:
        return None, f"{url}: its beat {format_value(beat)} lies in the future, so it counts as none"
    return beat, ""


def _describe_node_group(clients: AwsClients, config: GuardConfig) -> Mapping[str, Any]:
    """Return the node group as EKS describes it, empty where there is none."""
    try:
        answer = clients.eks.describe_nodegroup(clusterName=config.cluster, nodegroupName=config.node_group)
    except ClientError as error:
        if error_code(error) == "ResourceNotFoundException":
            return {}
        raise
    node_group: Mapping[str, Any] = answer["nodegroup"]
    return node_group


def _read_block_window(
    group: Mapping[str, Any], config: GuardConfig, kind: str
) -> tuple[tuple[datetime | None, datetime | None], str]:
    """Return the window of the block that the node group is deployed with, and what is wrong with its tags."""
    declared_window, tags = (config.block_starts, config.block_ends), group.get("tags", {})
    if kind != "capacity-block":
        return (None, None), ""
    if not {BLOCK_STARTS_TAG, BLOCK_ENDS_TAG} <= tags.keys():
        return declared_window, ""
    try:
        return (parse_timestamp(tags[BLOCK_STARTS_TAG]), parse_timestamp(tags[BLOCK_ENDS_TAG])), ""
    except PARSE_ERRORS as error:
        return (
            declared_window,
            f"{config.node_group_description}: unreadable tags of its Capacity Block ({shorten_text(error)})",
        )


def _list_instances(clients: AwsClients, config: GuardConfig, *, has_owner_tag: bool) -> Iterator[FleetInstance]:
    filters = [
        {"Name": f"tag:{CLUSTER_TAG}", "Values": [config.cluster]},
        {"Name": f"tag:{NODE_GROUP_TAG}", "Values": [config.node_group]},
    ]
    for page in iterate_pages(clients.ec2.describe_instances, Filters=filters):
        for instance in (row for reservation in page["Reservations"] for row in reservation["Instances"]):
            if instance["State"]["Name"] != "terminated":
                tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
                is_own = has_owner_tag or tags.get(OWNER_TAG) == config.environment
                yield FleetInstance(
                    id=instance["InstanceId"],
                    launched_at=instance["LaunchTime"].astimezone(UTC),
                    state=instance["State"]["Name"],
                    is_ours=is_own,
                    scaling_group=tags.get(SCALING_GROUP_TAG, ""),
                )


# what is due


def plan_stop(fleet: FleetState, config: GuardConfig) -> StopPlan:
    """Return what a look demands; pure."""
    reasons = sorted(_list_stop_reasons(fleet, config), key=lambda reason: reason[0])
    metrics = dict(_compute_metrics(fleet, config))
    if not reasons:
        return StopPlan(metrics=metrics)
    own_instances, stop_start = _list_own_instances(fleet), _estimate_stop_start(fleet, config, reasons[0][0])
    terminate = tuple(
        instance.id
        for instance in own_instances
        if instance.state != "shutting-down"
        and max(stop_start, instance.launched_at) + config.grace_period <= fleet.now
    )
    fence_state = _next_fence_state(fleet, own_instances, terminate)
    has_size = (fleet.desired_size, fleet.min_size) != (0, 0) and fleet.has_node_group is not False
    return StopPlan(
        reasons=tuple(sentence for _, sentence in reasons),
        fence_state=fence_state,
        terminate_ids=terminate,
        metrics=metrics,
        scale_down=can_scale(fleet) and (has_size or bool(terminate)),
        hold_scaling_groups=_has_overdue_capacity(fleet, config, stop_start, has_size=has_size),
        failures=tuple(_describe_stop_failures(fleet, config, stop_start, has_size=has_size)),
    )


def _estimate_stop_start(fleet: FleetState, config: GuardConfig, earliest: datetime) -> datetime:
    """Return since when EKS has been asked, as far as anybody can tell."""
    if fleet.fence is None or not fleet.fence.is_closed:
        return earliest + config.grace_period  # nobody wrote down when it was first tried: EKS gets twice as long
    return (
        fleet.fence.at if fleet.fence.at <= fleet.now + CLOCK_TOLERANCE else fleet.now - config.grace_period
    )  # a moment that is none


def _list_own_instances(fleet: FleetState) -> tuple[FleetInstance, ...]:
    return tuple(instance for instance in fleet.instances if instance.is_ours)


def can_scale(fleet: FleetState) -> bool:
    """Whether the node group is known to be ours: by its own tag, or by an instance of it that carries ours."""
    return bool(fleet.has_owner_tag or (fleet.has_node_group is not False and _list_own_instances(fleet)))


def _has_overdue_capacity(fleet: FleetState, config: GuardConfig, stop_start: datetime, *, has_size: bool) -> bool:
    """Whether EKS had its grace and still wants nodes, or keeps some."""
    overdue_instances = [
        instance
        for instance in _list_own_instances(fleet)
        if instance.is_up and max(stop_start, instance.launched_at) + config.grace_period <= fleet.now
    ]
    # a fence whose fleet was gone once: whoever raises behind it now was not yet told 0
    was_told_zero = fleet.fence is None or fleet.fence.state != "stopped"
    return can_scale(fleet) and (
        bool(overdue_instances) or (was_told_zero and has_size and stop_start + config.grace_period <= fleet.now)
    )


def _next_fence_state(
    fleet: FleetState, own_instances: tuple[FleetInstance, ...], terminate_ids: tuple[str, ...]
) -> FenceState:
    is_empty = "instances" not in fleet.unknown and not own_instances
    if is_empty and (
        fleet.has_node_group is False or fleet.has_owner_tag is False or (fleet.desired_size, fleet.min_size) == (0, 0)
    ):
        return "stopped"
    is_terminating = fleet.fence is not None and fleet.fence.state == "terminating" and bool(own_instances)
    return "terminating" if terminate_ids or is_terminating else "stopping"


def _describe_stop_failures(
    fleet: FleetState, config: GuardConfig, stop_start: datetime, *, has_size: bool
) -> Iterator[str]:
    """Say what of a stop did not come about, or cannot be seen to have."""
    overdue_time = OVERDUE_GRACES * config.grace_period
    late_ids = [
        instance.id
        for instance in _list_own_instances(fleet)
        if max(stop_start, instance.launched_at) + overdue_time <= fleet.now
    ]
    if late_ids:
        yield (
            f"{', '.join(late_ids)}: alive {OVERDUE_GRACES * config.grace_minutes:g} minutes after the stop; terminate "
            "by hand in the EC2 console, and look at the node group's health in EKS"
        )
    new_ids = [
        instance.id for instance in _list_own_instances(fleet) if stop_start + overdue_time <= instance.launched_at
    ]
    if new_ids or (has_size and fleet.desired_size and stop_start + overdue_time <= fleet.now):
        yield (
            f"raised again behind the stop of {format_value(stop_start)}, or EKS does not take 0: desired "
            f"{fleet.desired_size}, "
            f"launched since: {', '.join(new_ids) or 'none'}; find out who raises: CloudTrail, "
            "UpdateNodegroupConfig"
        )
    for source in ("instances", "node group"):
        if source in fleet.unknown:
            yield f"{source} unknown while a stop is due: {fleet.unknown[source]}"
    if fleet.has_owner_tag is False and has_size and not can_scale(fleet):
        yield (
            f"{config.node_group_description} is not set to 0: it is another's, without the tag "
            f"{OWNER_TAG}={config.environment}"
        )


def _list_stop_reasons(fleet: FleetState, config: GuardConfig) -> Iterator[tuple[datetime, str]]:
    """Yield each reason for a stop, with the moment since which it holds."""
    if fleet.fence and fleet.fence.is_closed:
        yield fleet.fence.at, f"fenced by {fleet.fence.who}: {fleet.fence.why}"
    elif "lease" not in fleet.unknown:
        yield from (
            _list_missing_lease_reasons(fleet)
            if fleet.lease is None
            else _list_misuse_reasons(fleet, config, fleet.lease)
        )
        if fleet.lease and not fleet.is_ending:
            yield from _list_lease_end_reasons(fleet, config, fleet.lease)
    if not fleet.is_ending:
        yield from _list_time_limit_reasons(fleet, config)


def _list_time_limit_reasons(fleet: FleetState, config: GuardConfig) -> Iterator[tuple[datetime, str]]:
    """Yield the reasons that no lease can take away: an age, and a block's end."""
    own_instances, max_age = _list_own_instances(fleet), timedelta(hours=config.max_hours)
    first_launch = min((instance.launched_at for instance in own_instances), default=None)
    if first_launch and first_launch + max_age <= fleet.now:
        yield first_launch + max_age, f"an instance is older than {config.max_hours:g} hours"
    elif fleet.alive_since and fleet.alive_since + max_age <= fleet.now:
        yield (
            fleet.alive_since + max_age,
            f"instances have lived for {config.max_hours:g} hours, one after another, and the lease cannot be read",
        )
    block_end = fleet.block_ends
    is_in_use = bool(own_instances or fleet.desired_size or fleet.live_lease)
    if block_end and is_in_use and block_end - BLOCK_MARGIN <= fleet.now:
        yield block_end - BLOCK_MARGIN, f"the Capacity Block ends at {format_value(block_end)}"


def _list_missing_lease_reasons(fleet: FleetState) -> Iterator[tuple[datetime, str]]:
    """Yield why a fleet without a lease must stop: nobody answers for it. A start writes its lease before it raises."""
    first_launch = min((instance.launched_at for instance in _list_own_instances(fleet)), default=None)
    if first_launch:
        yield first_launch, "instances live without a lease"
    elif can_scale(fleet) and (fleet.desired_size or fleet.min_size):
        yield fleet.now, f"the node group wants {fleet.desired_size} nodes without a lease"


def count_excess_nodes(fleet: FleetState, config: GuardConfig) -> int:
    """Return how many nodes are wanted, or stay, beyond those of the lease; 0 without a lease."""
    if fleet.lease is None:
        return 0
    replacement_time = REPLACEMENT_GRACES * config.grace_period
    staying_count = sum(
        instance.is_up and instance.launched_at + replacement_time <= fleet.now
        for instance in _list_own_instances(fleet)
    )
    return max(0, staying_count - fleet.lease.nodes, (fleet.desired_size or 0) - fleet.lease.nodes)


def _select_own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name.startswith(LABEL_PREFIXES)}


def _list_misuse_reasons(fleet: FleetState, config: GuardConfig, lease: Lease) -> Iterator[tuple[datetime, str]]:
    """Yield what of the fleet goes beyond its lease: more nodes, or nodes for somebody else."""
    own_instances = _list_own_instances(fleet)
    last_launch = max((instance.launched_at for instance in own_instances), default=fleet.now)
    if count_excess_nodes(fleet, config) and can_scale(fleet):
        yield (
            last_launch,
            (
                f"the node group wants {fleet.desired_size} nodes and has "
                f"{sum(instance.is_up for instance in own_instances)}, and the lease of "
                f"run {lease.run} is for {lease.nodes}"
            ),
        )
    # while EKS is at work, its description may show the new size and the old labels
    lease_labels = (_select_own_labels(lease.node_label), _select_own_labels(lease.former_label))
    if fleet.is_stable and fleet.desired_size and fleet.labels not in lease_labels:
        label_text = ", ".join(sorted(fleet.labels)) or "no label"
        yield last_launch, f"the nodes carry {label_text}, which is not what the lease of run {lease.run} says"


def _list_lease_end_reasons(fleet: FleetState, config: GuardConfig, lease: Lease) -> Iterator[tuple[datetime, str]]:
    """Yield the reasons that the lease itself gives."""
    now = fleet.now
    if lease.ending and lease.ending + NORMAL_END_LIMIT <= now:
        yield (
            lease.ending + NORMAL_END_LIMIT,
            f"run {lease.run} ends since {format_value(lease.ending)} and is not gone",
        )
    if lease.deadline <= now:
        yield lease.deadline, f"the lease of run {lease.run} ended at {format_value(lease.deadline)}"
    latest_end = lease.created + timedelta(
        hours=config.max_hours
    )  # no start writes a longer one; nodes may be replaced
    if latest_end < lease.deadline and latest_end <= now:
        yield latest_end, f"the lease of run {lease.run} is older than {config.max_hours:g} hours"
    if lease.beats and "heartbeat" not in fleet.unknown:
        last_beat = max(fleet.heartbeat or lease.created, lease.created)
        if last_beat + config.idle_limit <= now:
            yield last_beat + config.idle_limit, f"run {lease.run} has not beaten since {format_value(last_beat)}"
    is_empty = "instances" not in fleet.unknown and not _list_own_instances(fleet)
    if (
        is_empty
        and (fleet.desired_size == 0 or fleet.has_node_group is False)
        and lease.created + config.grace_period <= now
    ):
        # a stop that could not write the fence, a Fleet update, or a start that died before its raise
        yield lease.created + config.grace_period, f"run {lease.run} has a lease and its fleet is at 0"


def _compute_metrics(fleet: FleetState, config: GuardConfig) -> Iterator[tuple[str, float]]:
    """Yield what is known; a figure that is not is left out, and an alarm takes its absence as it is told to."""
    is_block_paid = fleet.block_starts and fleet.block_ends and fleet.block_starts <= fleet.now < fleet.block_ends
    if "instances" in fleet.unknown:
        return
    own_instances = _list_own_instances(fleet)
    running_instances = [instance for instance in own_instances if instance.is_up]
    ages_hours = [(fleet.now - instance.launched_at) / timedelta(hours=1) for instance in own_instances]
    yield INSTANCES_ALIVE, float(len(own_instances))
    yield OLDEST_INSTANCE_HOURS, max([0.0, *ages_hours])
    yield FLEET_USD, len(running_instances) * config.usd_per_hour * PASS_MINUTES / 60
    if "lease" not in fleet.unknown:
        yield EXCESS_NODES, float(count_excess_nodes(fleet, config))
    if not {"lease", "fence"} & fleet.unknown.keys():
        yield (
            IDLE_BLOCK_MINUTES,
            float(PASS_MINUTES if is_block_paid and not (running_instances and fleet.live_lease) else 0),
        )


# doing it


def apply_stop_plan(  # noqa: PLR0913 - what was seen, what it demands, and in whose name
    clients: AwsClients, config: GuardConfig, fleet: FleetState, plan: StopPlan, *, who: str, run: str | None = None,
    publishes_metrics: bool = True,
) -> PassReport:  # fmt: skip
    """Do what is due: fence, scale down, terminate, publish, tell. Never raises for AWS: see `Report.failed`.

    Args:
        who: stops, where there is no fence yet.
        run: that is stopped; None takes the lease's.
        publishes_metrics: whether the pass is counted in CloudWatch; the guard's functions alone may publish there.
    """
    stop_pass = _StopPass(clients, config, fleet, plan, who=who, run=run or (fleet.lease.run if fleet.lease else None))
    stop_pass.publishes_metrics = publishes_metrics
    if plan.reasons:
        stop_pass.stop()
    return stop_pass.finish()


class _StopPass:
    """One pass at work: what it did, what failed, and the fence as it knows it."""

    def __init__(  # noqa: PLR0913 - as of act
        self, clients: AwsClients, config: GuardConfig, fleet: FleetState, plan: StopPlan, *, who: str, run: str | None
    ) -> None:  # fmt: skip
        self.clients, self.config, self.fleet, self.plan = clients, config, fleet, plan
        self.who, self.run = who, run
        self.actions: list[str] = []
        self.failures: list[str] = []
        self.messages: list[str] = []
        self.terminated_ids: tuple[str, ...] = ()
        self.suspended_groups: tuple[str, ...] = ()
        self.publishes_metrics = True
        self.read_at_s = fleet.read_start_s  # when a reading or writing of the fence began that shows it as it is known

    def stop(self) -> None:
        """Fence, then 0, then by id; a bucket that is out of reach comes last, so that it holds nothing up."""
        is_fence_unknown, was_closed_before = "fence" in self.fleet.unknown, self.fleet.is_fenced
        planned_scale_down = self.plan.scale_down
        if not is_fence_unknown:
            self._write_fence()
        self.failures.extend(self.plan.failures)
        # a new fence: whoever raised between the look and the fence was allowed to, and reads it only afterwards
        if self.plan.scale_down or ((planned_scale_down or not was_closed_before) and can_scale(self.fleet)):
            self._scale_down()
        if self.plan.hold_scaling_groups and self._is_still_due(force_read=True):
            self._hold_scaling_groups()
        if self.plan.terminate_ids:  # by id, so it can end no other run's
            self._terminate_instances()
        if is_fence_unknown:
            self._write_fence()
        if was_closed_before and self.fleet.desired_size and "lease" not in self.fleet.unknown:
            self._report_foreign_schedules()

    def _is_still_due(self, *, force_read: bool = False) -> bool:
        """Whether the fence still stands: the machine may have slept until it was released and another run started.

        Args:
            force_read: whether the fence is read in any case, not only where the clock moved since.
        """
        if not force_read and is_fresh(self.clients, self.read_at_s):
            return True
        start_s = self.clients.wall_s()
        try:
            fence = read_fence(self.clients, self.config)
        except CALL_ERRORS:
            return True  # a stop does not wait for S3
        self.read_at_s = start_s
        if (fence is not None and fence.is_closed) or not self.fleet.is_fenced:
            return True
        self.actions.append("the fence was released meanwhile, so nothing more is stopped")
        return False

    def finish(self) -> PassReport:
        """Publish, tell and write down what this pass did."""
        # the rest is the reaper's alone: its silence is told by their absence, and money and idle minutes are summed
        reaper_metrics = self.plan.metrics if self.who == REAPER else {}
        metrics = {**reaper_metrics, STOP_FAILURES: float(bool(self.failures))}
        if not self.plan.reasons:
            self.failures += [f"{source} unknown: {outcome}" for source, outcome in self.fleet.unknown.items()]
        is_blind = (
            not self.plan.reasons
            and bool(self.fleet.unknown)
            and self.who == REAPER
            and bool(_list_own_instances(self.fleet))
        )
        change = "blind" if is_blind else "failed" if metrics[STOP_FAILURES] else self.plan.fence_state or ""
        outcome = self._notify(change) if self.plan.reasons or is_blind else False
        if self.publishes_metrics:
            self._publish(metrics)
        if self.plan.reasons:
            self._update_fence(change, notification_ok=outcome)
        return PassReport(fleet=self.fleet, plan=self.plan, actions=tuple(self.actions), failures=tuple(self.failures),
                      messages=tuple(self.messages), metrics=metrics)  # fmt: skip

    @contextmanager
    def _record_failure(self, step: str) -> Iterator[None]:
        try:
            yield
        except CALL_ERRORS as error:
            self.failures.append(f"{step} failed: {describe_error(error)}")

    def _write_fence(self) -> None:
        """Write the fence, or keep the one that is there: two stops agree on the first."""
        why = shorten_sentence("; ".join(self.plan.reasons))
        new_fence = Fence(state="stopping", who=self.who, why=why, run=self.run, at=self.fleet.now)

        def close_fence(fence: Fence | None) -> Fence | None:
            if fence and fence.is_closed and not fence.fault:
                return None
            suspended_groups = fence.suspended if fence else ()  # until a start has resumed them
            return replace(new_fence, suspended=tuple(dict.fromkeys((*suspended_groups, *self.suspended_groups))))

        was_closed_before, start_s = self.fleet.is_fenced, self.clients.wall_s()
        known_etag = self.fleet.fence.etag if self.fleet.fence else ""
        with self._record_failure(f"writing {self.config.url(FENCE_KEY)}"):
            fence = change_fence(self.clients, self.config, self.fleet.fence, close_fence)
            if fence is None:
                self.failures.append(f"{self.config.url(FENCE_KEY)}: others wrote it {MAX_ATTEMPTS} times in between")
                return
            self.fleet = replace(self.fleet, fence=fence)
            self.plan = plan_stop(self.fleet, self.config)
            if fence.etag != known_etag:
                self.read_at_s = start_s
            if not was_closed_before:
                self.actions.append(f"fenced: {fence.why}")

    def _scale_down(self) -> None:
        config = self.config
        with self._record_failure(f"setting {config.node_group_description} to 0"):
            if retry_call(self.clients, lambda: scale_to_zero(self.clients, config), self._is_still_due):
                self.actions.append(f"{config.node_group_description} set to 0")

    def _hold_scaling_groups(self) -> None:
        """Pull the third lever: EKS refuses 0, or does not do it."""
        with self._record_failure(f"reading the Auto Scaling groups of {self.config.node_group_description}"):
            for group in read_scaling_groups(self.clients, self.fleet.scaling_groups):
                with self._record_failure(f"holding Auto Scaling group {group.name} at 0"):
                    self._hold_scaling_group(group)

    def _hold_scaling_group(self, group: ScalingGroup) -> None:
        if LAUNCH_PROCESS not in group.suspended_processes:
            self.suspended_groups = (*self.suspended_groups, group.name)
            self._record_suspended_groups()
            suspend_launch(self.clients, group.name)
            self.actions.append(f"Auto Scaling group {group.name}: launches suspended (unproven on a real account)")
        if (group.desired_size, group.min_size) != (0, 0):
            set_group_to_zero(self.clients, group.name)
            self.actions.append(f"Auto Scaling group {group.name} set to 0 (unproven on a real account)")

    def _record_suspended_groups(self) -> None:
        """Write into the fence which launches it suspends, before it does, so that a start may resume them."""

        def add_suspended_groups(fence: Fence | None) -> Fence | None:
            if fence is None or not fence.is_closed or set(self.suspended_groups) <= set(fence.suspended):
                return None
            return replace(fence, suspended=tuple(dict.fromkeys((*fence.suspended, *self.suspended_groups))))

        with self._record_failure(f"writing {self.config.url(FENCE_KEY)}"):
            fence = change_fence(self.clients, self.config, self.fleet.fence, add_suspended_groups)
            self.fleet = replace(self.fleet, fence=fence or self.fleet.fence)

    def _report_foreign_schedules(self) -> None:
        """Name the schedules that no lease owns: one of them may be what raises behind the fence."""
        with self._record_failure(f"listing the schedules of {self.config.schedule_group}"):
            for schedule in list_foreign_schedules(self.clients, self.config, self.fleet.lease):
                self.failures.append(
                    f"schedule {schedule.name} of group {self.config.schedule_group} is no lease's and "
                    f"calls {schedule.target_arn}; delete it if nobody knows it"
                )

    def _terminate_instances(self) -> None:
        """End them in one call; where EC2 refuses one of several, it ends none (API reference), so then one by one."""
        instance_ids = self.plan.terminate_ids
        with self._record_failure(f"terminating {', '.join(instance_ids)}"):
            try:
                self._call_terminate(instance_ids)
            except ClientError:
                if len(instance_ids) == 1:
                    raise
                for instance_id in instance_ids:
                    with self._record_failure(f"terminating {instance_id}"):
                        self._call_terminate((instance_id,))
        if self.terminated_ids:
            self.actions.append(f"terminated by id: {', '.join(self.terminated_ids)}")

    def _call_terminate(self, instance_ids: tuple[str, ...]) -> None:
        self.clients.ec2.terminate_instances(InstanceIds=list(instance_ids))
        self.terminated_ids = (*self.terminated_ids, *instance_ids)

    def _publish(self, metrics: Mapping[str, float]) -> None:
        data = [{"MetricName": name, "Value": value, "Unit": METRIC_UNITS[name], "Timestamp": self.fleet.now}
                for name, value in metrics.items()]  # fmt: skip
        with self._record_failure(f"publishing to {self.config.namespace}"):
            self.clients.cloudwatch.put_metric_data(Namespace=self.config.namespace, MetricData=data)

    def _notify(self, change: str) -> bool:
        """Tell people of a change, and of a failure every hour again; whether they now know."""
        fence, now = self.fleet.fence, self.fleet.now
        if fence is None or not fence.is_closed:  # nothing remembers what they were told: the first pass of each hour
            is_new = now.minute < PASS_MINUTES or self.who != REAPER
        else:
            is_recent = (
                fence.told_at is None or fence.told_at - CLOCK_TOLERANCE <= now < fence.told_at + REMINDER_INTERVAL
            )
            is_reminder = change == "failed" and not is_recent
            is_new = change != fence.told or is_reminder
        if not is_new:
            return False
        instance_ids = [sentence.id for sentence in self.fleet.instances]
        instance_text = "unknown" if "instances" in self.fleet.unknown else ", ".join(instance_ids) or "none"
        message = "\n".join(
            [
                f"{self.config.environment}: the fleet is {_CHANGE_TEXTS[change]}.",
                *(f"Why: {why}" for why in self.plan.reasons),
                f"Instances that EC2 lists: {instance_text}",
                *(f"Done: {sentence}" for sentence in self.actions),
                *(f"Failed: {sentence}" for sentence in self.failures),
                f"Look: tandem status --env {self.config.environment}; docs/runbook.md",
            ]
        )
        failure_count = len(self.failures)
        with self._record_failure(f"telling {self.config.topic_arn}"):
            notify_subscribers(self.clients, self.config, f"fleet {_CHANGE_TEXTS[change]}", message)
            self.messages.append(message)
        return len(self.failures) == failure_count

    def _update_fence(self, change: str, *, notification_ok: bool) -> None:
        """Write into the fence what this pass found and did; nothing where nothing is new any more."""

        def add_pass(current_fence: Fence | None) -> Fence | None:
            if current_fence is None or not current_fence.is_closed:
                return None  # lifted meanwhile, or it could never be written
            has_instance_list = "instances" not in self.fleet.unknown
            new_fence = replace(
                current_fence,
                state=self._choose_fence_state(),
                etag="",
                instances=tuple(instance.id for instance in self.fleet.instances)
                if has_instance_list
                else current_fence.instances,
                terminated=tuple(dict.fromkeys((*current_fence.terminated, *self.terminated_ids))),
                suspended=tuple(dict.fromkeys((*current_fence.suspended, *self.suspended_groups))),
                told=change if notification_ok else current_fence.told,
                told_at=self.fleet.now if notification_ok else current_fence.told_at,
            )
            if new_fence.state == "stopped" and new_fence == replace(current_fence, etag=""):
                return None
            return replace(new_fence, passes=min(current_fence.passes + 1, MAX_PASSES), last_look=self.fleet.now)

        fence = self.fleet.fence
        if fence is None or not fence.is_closed:
            return
        with self._record_failure(f"writing {self.config.url(FENCE_KEY)}"):
            stored_fence = change_fence(self.clients, self.config, fence, add_pass)
            self.fleet = replace(self.fleet, fence=stored_fence or fence)

    def _choose_fence_state(self) -> FenceState:
        """Return the state to write: what was ordered by id is terminating, if the order was taken."""
        state = self.plan.fence_state or "stopping"
        previous_state = self.fleet.fence.state if self.fleet.fence else "stopping"
        return (
            "stopping"
            if state == "terminating" and not self.terminated_ids and previous_state != "terminating"
            else state
        )


def scale_to_zero(clients: AwsClients, config: GuardConfig) -> None:
    """Ask EKS for no node at all.

    Raises:
        RAISED: EKS does not answer, or refuses.
    """
    clients.eks_once.update_nodegroup_config(
        clusterName=config.cluster, nodegroupName=config.node_group, scalingConfig={"minSize": 0, "desiredSize": 0}
    )


def notify_subscribers(clients: AwsClients, config: GuardConfig, context: str, message: str) -> None:
    """Send a message to the people of the environment, where there is a topic.

    Raises:
        RAISED: SNS does not answer, or refuses.
    """
    if config.topic_arn:
        title = f"Tandem {config.environment}: {context}"[:MAX_SUBJECT_CHARACTERS]
        clients.sns.publish(TopicArn=config.topic_arn, Subject=title, Message=message)


def run_reaper_pass(clients: AwsClients, config: GuardConfig, now: datetime) -> PassReport:
    """Make one pass of the reaper.

    The lease is read again before it acts: a start or an end may have come while it looked.
    """
    for _ in range(MAX_OBSERVATIONS):
        fleet = observe_fleet(clients, config, now)
        plan = plan_stop(fleet, config)
        if not plan.reasons or fleet.is_fenced or _is_lease_unchanged(clients, config, fleet):
            break
    return apply_stop_plan(clients, config, fleet, plan, who=REAPER)


def _is_lease_unchanged(clients: AwsClients, config: GuardConfig, fleet: FleetState) -> bool:
    """Whether the lease is as it was seen; what cannot be read again stands."""
    if "lease" in fleet.unknown:
        return True
    try:
        pointer = read_pointer(clients, config)
        lease, _ = read_lease(clients, config, pointer)
    except CALL_ERRORS:
        return True
    return pointer == fleet.pointer and (lease.etag if lease else "") == (fleet.lease.etag if fleet.lease else "")


def stop_fleet(  # noqa: PLR0913 - each is a field of the fence
    clients: AwsClients,
    config: GuardConfig,
    *,
    who: str,
    why: str,
    run: str | None,
    now: datetime,
    publishes_metrics: bool = False,
) -> PassReport:
    """Stop the fleet: fence it, set the node group to 0. The reaper's passes see to the rest.

    Args:
        who: as of Fence.
        why: in a sentence; a fence that is there already keeps its own.
        run: that is stopped; None takes the lease's, where there is one.
        publishes_metrics: as of act; a person sees by the report what failed.

    Raises nothing for AWS: what could not be done is in the report's `failed`.
    """
    fleet = observe_fleet(clients, config, now)
    plan = replace(plan_stop(fleet, config), reasons=(shorten_sentence(why),), scale_down=can_scale(fleet))
    return apply_stop_plan(
        clients,
        config,
        fleet,
        plan,
        who=shorten_sentence(who),
        run=shorten_sentence(run) if run else None,
        publishes_metrics=publishes_metrics,
    )


def release_fence(clients: AwsClients, config: GuardConfig, *, who: str, now: datetime) -> Fence:
    """Lift the fence; the lease that it ended stays ended, and its one-shot stop goes with it.

    Raises:
        RefusedError: there is none, or the fleet is not known to be at 0 without any instance.
        WorldError: AWS could not be asked, or somebody stops at this moment.
    """
    fleet = observe_fleet(clients, config, now)
    release_command = f"tandem stop --clear --env {config.environment}"
    sources: tuple[StateSource, ...] = ("fence", "lease", "node group", "instances")
    for source in sources:
        if source in fleet.unknown:
            raise GuardExternalError(f"{source} unknown ({fleet.unknown[source]})", where=config.environment,
                             change=f"the fence stays; {release_command} once AWS answers")  # fmt: skip
    if fleet.fence is None or not fleet.fence.is_closed:
        raise GuardRefusedError("there is no fence", where=config.url(FENCE_KEY), change="nothing needs to be lifted")
    instance_ids = ", ".join(instance.id for instance in _list_own_instances(fleet))
    if instance_ids or (fleet.has_owner_tag and (fleet.desired_size, fleet.min_size) != (0, 0)):
        raise GuardRefusedError(
            f"the fleet is not gone: desired {fleet.desired_size}, instances {instance_ids or 'none'}",
            where=config.node_group_description,
            change=f"tandem stop --env {config.environment} and wait until tandem status lists none, then "
            f"{release_command}",
        )
    fence, fence_config = fleet.fence, config.replace_prefix(fleet.fence.prefix)
    new_fence = replace(fence, state="lifted", who=who, why=shorten_sentence(f"lifted; was: {fence.why}"), at=now)
    try:
        # first: a lease that outlived its fence would be live again. Only over the pointer that was seen: whoever
        # slept here may find another run's
        etag = None
        if clear_pointer(clients, config, fleet.pointer or LeasePointer(prefix=config.prefix)):
            _end_lease_of_fence(clients, config, fleet)
            etag = write_object(
                clients, fence_config, FENCE_KEY, select_json_fields(new_fence, *FENCE_FIELDS), etag=fence.etag
            )
    except CALL_ERRORS as error:
        raise GuardExternalError(
            f"the fence is not lifted ({describe_error(error)})",
            where=fence_config.url(FENCE_KEY),
            change=release_command,
        ) from error
    if not etag:
        raise GuardExternalError("somebody wrote it or the lease at this moment, so it is not lifted",
                         where=fence_config.url(FENCE_KEY),
                         change=f"tandem status --env {config.environment}, then {release_command}")  # fmt: skip
    return replace(new_fence, etag=etag)


def _end_lease_of_fence(clients: AwsClients, config: GuardConfig, fleet: FleetState) -> None:
    """Mark the lease that the fence ended, so that nobody takes it up again, and delete its one-shot stop."""
    pointer_run = fleet.pointer.run if fleet.pointer else None
    lease_run = pointer_run or (
        fleet.fence.run if fleet.fence else None
    )  # as where a release died behind its first write
    if lease_run is None or not RUN_NAME_PATTERN.fullmatch(lease_run):
        return
    prefix = fleet.pointer.prefix if fleet.pointer else config.prefix
    lease = fleet.lease or read_lease(clients, config, LeasePointer(run=lease_run, prefix=prefix))[0]
    if lease and lease.ending is None:
        write_lease(clients, config, replace(lease, ending=fleet.now))
    if config.schedule_group:
        delete_unreferenced_schedule(clients, config, lease_run)  # it would end the next run


def read_own_labels(clients: AwsClients, config: GuardConfig) -> dict[str, str]:
    """Return the labels of the node group that are ours.

    Raises:
        RAISED: EKS does not answer, or refuses.
    """
    return _select_own_labels(_describe_node_group(clients, config).get("labels", {}))


def read_capacity_kind(clients: AwsClients, config: GuardConfig) -> str:
    """Return the kind that the node group is deployed with; as declared where EKS does not say."""
    try:
        node_group = _describe_node_group(clients, config)
    except CALL_ERRORS:
        return config.capacity_kind
    return str(node_group.get("tags", {}).get(CAPACITY_KIND_TAG, config.capacity_kind))
