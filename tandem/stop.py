"""The stop: a fence in the bucket, a node group at 0, and passes that look until EC2 lists no instance.

A pass looks, does what is due and returns; all that it keeps is `stop.json` (tandem/fence.py), so it may die anywhere
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

from tandem.fence import (
    FENCE_FIELDS,
    FENCE_KEY,
    LEASE_FIELDS,
    MOST_PASSES,
    POINTER_KEY,
    RAISED,
    RUN,
    STOP_PREFIX,
    TRIES,
    UNREADABLE,
    Clients,
    Fence,
    Guarded,
    Lease,
    Pointer,
    RefusedError,
    State,
    StopError,
    WorldError,
    change_fence,
    code_of,
    end_pointer,
    heartbeat_key,
    lease_key,
    moment,
    plain,
    read,
    read_fence,
    read_lease,
    read_pointer,
    read_pointer_below,
    said_of,
    sentence,
    short,
    words,
    write,
    write_lease,
)  # fmt: skip
from tandem.guard.ownership import call_again, is_fresh
from tandem.guard.pager import iterate_pages
from tandem.guard.scaling import (
    GROUP_TAG,
    LAUNCH,
    ScalingGroup,
    read_scaling_groups,
    set_group_to_zero,
    suspend_launch,
)
from tandem.guard.schedules import delete_unnamed_schedule, list_foreign_schedules

__all__ = [
    "BLOCK_ENDS_TAG",
    "BLOCK_MARGIN",
    "BLOCK_STARTS_TAG",
    "CAPACITY_KIND_TAG",
    "CLUSTER_TAG",
    "ENDING_LIMIT",
    "EXCESS_NODES",
    "FENCE_KEY",
    "FLEET_USD",
    "FUTURE",
    "IDLE_BLOCK_MINUTES",
    "INSTANCES_ALIVE",
    "LABELS",
    "LEASE_FIELDS",
    "NODE_GROUP_TAG",
    "OLDEST_INSTANCE_HOURS",
    "OWNER_TAG",
    "PASS_MINUTES",
    "POINTER_KEY",
    "RAISED",
    "REAPER",
    "RUN",
    "STOP_FAILURES",
    "STOP_PREFIX",
    "UNITS",
    "Clients",
    "Due",
    "Fence",
    "Guarded",
    "Instance",
    "Lease",
    "Pointer",
    "RefusedError",
    "Report",
    "Seen",
    "Source",
    "State",
    "StopError",
    "WorldError",
    "act",
    "change_fence",
    "code_of",
    "count_excess_nodes",
    "due",
    "end_pointer",
    "heartbeat_key",
    "lease_key",
    "look",
    "may_scale",
    "moment",
    "read",
    "read_capacity_kind",
    "read_fence",
    "read_lease",
    "read_our_labels",
    "read_pointer",
    "reap",
    "release",
    "said_of",
    "scale_to_zero",
    "stop",
    "tell",
    "words",
    "write",
    "write_lease",
]

OWNER_TAG = "tandem:environment"  # its value is the environment's name; tandem.spec.names has the same
# on the node group: a renewed block is a deploy of the Fleet stack alone, and the guard hears of it all the same
BLOCK_STARTS_TAG, BLOCK_ENDS_TAG = "tandem:block-starts", "tandem:block-ends"
CAPACITY_KIND_TAG = "tandem:capacity-kind"  # likewise: Fleet may be deployed with another kind than Guard knows
CLUSTER_TAG, NODE_GROUP_TAG = "eks:cluster-name", "eks:nodegroup-name"  # EKS puts them on every instance of a group

LABELS = ("raise.tandem/", "compile.tandem/")  # of ours, that a new raise takes off; as in tandem.spec.names
PASS_MINUTES = 5  # between two passes of the reaper
LOOKS = 3  # of a pass, where the lease changes while it looks
ENDING_LIMIT = timedelta(minutes=30)  # so long the reaper leaves a lease alone that says that it ends
REPLACED_GRACES = 2  # a spot node's replacement and the node itself live side by side for a while
BLOCK_MARGIN = timedelta(minutes=45)  # EKS scales down 40 minutes before a block's end, EC2 terminates at 30
FUTURE = timedelta(minutes=5)  # clocks differ; a beat further ahead is no beat
OVERDUE_GRACES = 3  # a stop that EC2 has not done after so many graces is a failed one
TELL_AGAIN = timedelta(hours=1)
REAPER = "reap"
SETTLED = frozenset({"ACTIVE", "DEGRADED"})  # of a node group's states: no update is under way
ARN_COLONS = 5  # arn:partition:service:region:account:resource
MOST_POINTS = 1440  # that CloudWatch's GetMetricStatistics returns at once (API reference)
SUBJECT_CHARACTERS = 99  # SNS takes fewer than 100
_CHANGES = {
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
UNITS = {
    INSTANCES_ALIVE: "Count",
    OLDEST_INSTANCE_HOURS: "None",
    IDLE_BLOCK_MINUTES: "None",
    STOP_FAILURES: "Count",
    FLEET_USD: "None",
    EXCESS_NODES: "Count",
}
"""What a pass publishes, without dimensions, in CloudWatch's words for its unit."""

Source = Literal["fence", "lease", "heartbeat", "node group", "instances"]


class BucketLostError(BotoCoreError):  # type: ignore[misc]  # botocore is untyped
    """The bucket did not answer a moment ago, so it is not asked again in this pass."""

    fmt = "not asked, because the bucket did not answer: {why}"


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One accelerator node as EC2 lists it; terminated ones are none.

    Args:
        state: pending, running, shutting-down, stopping or stopped.
        ours: whether it may be touched: it carries the environment's own tag, or its node group does.
        scaling_group: the Auto Scaling group that its tag names; empty where none does.
    """

    id: str
    launched: datetime
    state: str
    ours: bool
    scaling_group: str = ""

    @property
    def up(self) -> bool:
        """Whether it is there to stay: pending or running."""
        return self.state in {"pending", "running"}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one look found.

    Args:
        began_s: when this look began, by the wall clock.
        desired, minimum: sizes of the node group; None: unknown, or there is none.
        present: whether there is a node group; None: unknown.
        owned: whether it carries the environment's own tag; None: unknown, or there is none.
        settled: whether no update of the node group is under way; None: unknown, or there is none.
        labels: of the node group's nodes, those that are ours.
        capacity_kind: that the node group is deployed with; where its tags do not say, as declared.
        scaling_groups: names of its Auto Scaling groups, as EKS names them or, where EKS is silent, the instances.
        instances: every one of the node group that EC2 lists and that is not terminated.
        alive_since: since when the guard's own figures count instances without a break; asked for only where the lease
            is unknown, when the age of the present instances alone would not tell of those that they replaced.
        pointer: to the only lease; None: unknown.
        lease: that the pointer leads to, also after its deadline and behind a fence: see `live`.
        heartbeat: of the lease's run.
        block_starts, block_ends: of the Capacity Block that the node group is deployed with.
        unknown: what could not be read, and why.
        faults: objects that were read and not understood, each in a sentence.
    """

    now: datetime
    began_s: float = 0
    desired: int | None = None
    minimum: int | None = None
    present: bool | None = None
    owned: bool | None = None
    settled: bool | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity_kind: str = ""
    scaling_groups: tuple[str, ...] = ()
    instances: tuple[Instance, ...] = ()
    alive_since: datetime | None = None
    fence: Fence | None = None
    pointer: Pointer | None = None
    lease: Lease | None = None
    heartbeat: datetime | None = None
    block_starts: datetime | None = None
    block_ends: datetime | None = None
    unknown: Mapping[Source, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    @property
    def fenced(self) -> bool:
        """Whether a fence is known to be there."""
        return self.fence is not None and self.fence.closed

    @property
    def live(self) -> Lease | None:
        """The lease, where it is live: before its deadline and without a fence."""
        return self.lease if self.lease and self.now < self.lease.deadline and not self.fenced else None

    @property
    def ending(self) -> bool:
        """Whether the lease says that its normal end is under way, and not for too long."""
        since = self.lease.ending if self.lease else None
        return since is not None and since - FUTURE <= self.now < since + ENDING_LIMIT


@dataclass(frozen=True, kw_only=True)
class Due:
    """What a look demands.

    Args:
        why: the reasons for a stop, each a sentence; empty: none is due.
        scale_down: whether EKS must be asked for 0.
        hold: whether the Auto Scaling groups must be held at 0: EKS had its grace.
        terminate: ids that EC2 must terminate.
        state: of the fence after this pass, as far as was seen; None: there is none to write.
        failed: what this look shows of an earlier pass's failure, each a sentence.
        metrics: to publish; STOP_FAILURES is the pass's own to add.
    """

    why: tuple[str, ...] = ()
    scale_down: bool = False
    hold: bool = False
    terminate: tuple[str, ...] = ()
    state: State | None = None
    failed: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a pass saw and did.

    Args:
        done: each a sentence.
        failed: what was due and could not be done or could not be seen; the next pass tries again.
        told: what was sent to the topic.
    """

    seen: Seen
    due: Due
    done: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it as a log line or `--json` has it: times in ISO 8601, UTC."""
        fence = self.seen.fence
        return {
            "at": plain(self.seen.now), "why": list(self.due.why), "fence": fence.state if fence else None,
            "desired": self.seen.desired, "instances": {one.id: one.state for one in self.seen.instances},
            "done": list(self.done), "failed": list(self.failed), "told": list(self.told),
            "unknown": dict(self.seen.unknown), "faults": list(self.seen.faults), "metrics": dict(self.metrics),
        }  # fmt: skip


# look


def look(clients: Clients, guarded: Guarded, now: datetime) -> Seen:
    """Read fence, lease, heartbeat, node group and instances. Never raises for AWS: what fails is in `unknown`."""
    began_s = clients.wall_s()
    unknown: dict[Source, str] = {}
    faults: list[str] = []
    fence, pointer, lease, heartbeat = None, None, None, None
    with _asking(unknown, "fence"):
        fence = read_fence(clients, guarded)
        faults.extend([fence.fault] if fence and fence.fault else [])
    with _asking(unknown, "lease"):
        _answering(unknown)  # a bucket that does not answer is not waited for four times
        pointer = read_pointer(clients, guarded)
        lease, fault = read_lease(clients, guarded, pointer)
        if lease and lease.created > now + FUTURE:
            fault = f"{guarded.url(lease_key(lease.run))}: written in the future, so it counts as no lease"
            lease = None
        faults.extend([fault] if fault else [])
    faults.extend(_former_places(guarded, fence, pointer))
    if lease and lease.beats:
        with _asking(unknown, "heartbeat"):
            heartbeat, fault = _heartbeat(clients, guarded.at_prefix(lease.prefix), lease.run, now)
            faults.extend([fault] if fault else [])
    group: Mapping[str, Any] = {}
    with _asking(unknown, "node group"):
        group = _node_group(clients, guarded)
    owned = group.get("tags", {}).get(OWNER_TAG) == guarded.environment if group else None
    instances: tuple[Instance, ...] = ()
    with _asking(unknown, "instances"):
        instances = tuple(_instances(clients, guarded, owned=owned is True))
    if owned is False or any(not one.ours for one in instances):
        faults.append(_stranger(guarded, instances))
    scaling = group.get("scalingConfig", {})
    stopped = fence is not None and fence.closed and lease is not None and fence.run == lease.run
    if lease and not _is_ours(guarded, lease, used=stopped or bool(scaling.get("desiredSize") or instances)):
        pointer, lease, heartbeat = Pointer(prefix=guarded.prefix), None, None
        with _asking(unknown, "lease"):
            pointer = read_pointer_below(clients, guarded, guarded.prefix)
    kind = str(group.get("tags", {}).get(CAPACITY_KIND_TAG, guarded.capacity_kind))
    (starts, ends), fault = _block(group, guarded, kind)
    faults.extend([fault] if fault else [])
    seen = Seen(
        now=now, began_s=began_s, desired=scaling.get("desiredSize"), minimum=scaling.get("minSize"),
        present=None if "node group" in unknown else bool(group), owned=owned,
        settled=group.get("status") in SETTLED if group else None,
        labels=_our_labels(group.get("labels", {})),
        capacity_kind=kind, scaling_groups=_scaling_groups(group, instances), instances=instances, fence=fence,
        pointer=pointer, lease=lease, heartbeat=heartbeat, block_starts=starts, block_ends=ends,
        unknown=unknown, faults=tuple(faults),
    )  # fmt: skip
    if "lease" not in unknown or not _ours(seen):
        return seen
    return replace(seen, alive_since=_alive_since(clients, guarded, now))


def _former_places(guarded: Guarded, fence: Fence | None, pointer: Pointer | None) -> Iterator[str]:
    """Say where an object of an older release still rules; nobody but it may be waited for."""
    if fence and fence.prefix != guarded.prefix:
        place = guarded.at_prefix(fence.prefix).url(FENCE_KEY)
        yield f"{place}: an older release of Tandem wrote this fence; it holds until it is released"
    if pointer and pointer.run and pointer.prefix != guarded.prefix:
        place = guarded.at_prefix(pointer.prefix).url(lease_key(pointer.run))
        yield f"{place}: an older release of Tandem wrote this lease; it counts until it ends"


def _is_ours(guarded: Guarded, lease: Lease, *, used: bool) -> bool:
    """Whether a lease is this fleet's: below the former prefix an environment of the same name elsewhere has its own.

    Its operator's ARN names the account. Of two regions, a fleet at 0 that nobody stopped has no use for it.
    """
    if lease.prefix == guarded.prefix:
        return True
    account = lease.who.split(":")[4] if lease.who.startswith("arn:") and lease.who.count(":") >= ARN_COLONS else ""
    return used and account in {"", guarded.account}


def _stranger(guarded: Guarded, instances: tuple[Instance, ...]) -> str:
    missing = f"{guarded.group}: without the tag {OWNER_TAG}={guarded.environment}"
    if any(one.ours for one in instances):
        return f"{missing}, though its instances carry it: it counts as ours; deploy the Fleet stack"
    return f"{missing}, so it is another's and is left alone; give one of the two another name"


def _scaling_groups(group: Mapping[str, Any], instances: tuple[Instance, ...]) -> tuple[str, ...]:
    listed = [one["name"] for one in (group.get("resources") or {}).get("autoScalingGroups", [])]
    return tuple(listed or dict.fromkeys(one.scaling_group for one in instances if one.ours and one.scaling_group))


def _alive_since(clients: Clients, guarded: Guarded, now: datetime) -> datetime | None:
    """Return since when every figure of the reaper's passes counts an instance; None: unknown, or there is none."""
    begin = now - timedelta(hours=guarded.max_hours) - BLOCK_MARGIN
    try:
        answer = clients.cloudwatch.get_metric_statistics(
            Namespace=guarded.namespace, MetricName=INSTANCES_ALIVE, StartTime=begin, EndTime=now,
            Period=_statistics_period_s(now - begin), Statistics=["Minimum"],
        )  # fmt: skip
        points = sorted((point["Timestamp"], point["Minimum"]) for point in answer.get("Datapoints", []))
    except RAISED:
        return None
    empty = max((at for at, alive in points if not alive), default=begin)
    return min((at for at, alive in points if alive and at > empty), default=None)


def _statistics_period_s(window: timedelta) -> int:
    """Return the shortest period, of whole passes, in which GetMetricStatistics gives a window at once."""
    passes = -(-window // (MOST_POINTS * timedelta(minutes=PASS_MINUTES)))
    return passes * PASS_MINUTES * 60


@contextmanager
def _asking(unknown: dict[Source, str], source: Source) -> Iterator[None]:
    try:
        yield
    except RAISED as error:
        unknown[source] = words(error)


def _answering(unknown: Mapping[Source, str]) -> None:
    if "fence" in unknown:
        raise BucketLostError(why=unknown["fence"])


def _heartbeat(clients: Clients, guarded: Guarded, run: str, now: datetime) -> tuple[datetime | None, str]:
    found = read(clients, guarded, heartbeat_key(run))
    if found is None:
        return None, ""
    url = guarded.url(heartbeat_key(run))
    try:
        beat = moment(json.loads(found.body)["at"])
    except UNREADABLE as error:
        return None, f"{url}: not understood ({short(error)}), so it counts as no beat"
    if beat > now + FUTURE:
        return None, f"{url}: its beat {plain(beat)} lies in the future, so it counts as none"
    return beat, ""


def _node_group(clients: Clients, guarded: Guarded) -> Mapping[str, Any]:
    """Return the node group as EKS describes it, empty where there is none."""
    try:
        answer = clients.eks.describe_nodegroup(clusterName=guarded.cluster, nodegroupName=guarded.node_group)
    except ClientError as error:
        if code_of(error) == "ResourceNotFoundException":
            return {}
        raise
    found: Mapping[str, Any] = answer["nodegroup"]
    return found


def _block(
    group: Mapping[str, Any], guarded: Guarded, kind: str
) -> tuple[tuple[datetime | None, datetime | None], str]:
    """Return the window of the block that the node group is deployed with, and what is wrong with its tags."""
    declared, tags = (guarded.block_starts, guarded.block_ends), group.get("tags", {})
    if kind != "capacity-block":
        return (None, None), ""
    if not {BLOCK_STARTS_TAG, BLOCK_ENDS_TAG} <= tags.keys():
        return declared, ""
    try:
        return (moment(tags[BLOCK_STARTS_TAG]), moment(tags[BLOCK_ENDS_TAG])), ""
    except UNREADABLE as error:
        return declared, f"{guarded.group}: the tags of its Capacity Block are not understood ({short(error)})"


def _instances(clients: Clients, guarded: Guarded, *, owned: bool) -> Iterator[Instance]:
    filters = [
        {"Name": f"tag:{CLUSTER_TAG}", "Values": [guarded.cluster]},
        {"Name": f"tag:{NODE_GROUP_TAG}", "Values": [guarded.node_group]},
    ]
    for page in iterate_pages(clients.ec2.describe_instances, Filters=filters):
        for one in (each for reservation in page["Reservations"] for each in reservation["Instances"]):
            if one["State"]["Name"] != "terminated":
                tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", [])}
                ours = owned or tags.get(OWNER_TAG) == guarded.environment
                yield Instance(
                    id=one["InstanceId"], launched=one["LaunchTime"].astimezone(UTC), state=one["State"]["Name"],
                    ours=ours, scaling_group=tags.get(GROUP_TAG, ""),
                )  # fmt: skip


# what is due


def due(seen: Seen, guarded: Guarded) -> Due:
    """Return what a look demands; pure."""
    reasons = sorted(_reasons(seen, guarded), key=lambda reason: reason[0])
    metrics = dict(_metrics(seen, guarded))
    if not reasons:
        return Due(metrics=metrics)
    ours, since = _ours(seen), _since(seen, guarded, reasons[0][0])
    terminate = tuple(
        one.id for one in ours
        if one.state != "shutting-down" and max(since, one.launched) + guarded.grace <= seen.now
    )  # fmt: skip
    state = _next_state(seen, ours, terminate)
    sized = (seen.desired, seen.minimum) != (0, 0) and seen.present is not False
    return Due(
        why=tuple(sentence for _, sentence in reasons), state=state, terminate=terminate, metrics=metrics,
        scale_down=may_scale(seen) and (sized or bool(terminate)), hold=_must_hold(seen, guarded, since, sized=sized),
        failed=tuple(_undone(seen, guarded, since, needs_size=sized)),
    )  # fmt: skip


def _since(seen: Seen, guarded: Guarded, earliest: datetime) -> datetime:
    """Return since when EKS has been asked, as far as anybody can tell."""
    if seen.fence is None or not seen.fence.closed:
        return earliest + guarded.grace  # nobody wrote down when it was first tried: EKS gets twice as long
    return seen.fence.at if seen.fence.at <= seen.now + FUTURE else seen.now - guarded.grace  # a moment that is none


def _ours(seen: Seen) -> tuple[Instance, ...]:
    return tuple(one for one in seen.instances if one.ours)


def may_scale(seen: Seen) -> bool:
    """Whether the node group is known to be ours: by its own tag, or by an instance of it that carries ours."""
    return bool(seen.owned or (seen.present is not False and _ours(seen)))


def _must_hold(seen: Seen, guarded: Guarded, since: datetime, *, sized: bool) -> bool:
    """Whether EKS had its grace and still wants nodes, or keeps some."""
    overdue = [one for one in _ours(seen) if one.up and max(since, one.launched) + guarded.grace <= seen.now]
    # a fence whose fleet was gone once: whoever raises behind it now was not yet told 0
    asked = seen.fence is None or seen.fence.state != "stopped"
    return may_scale(seen) and (bool(overdue) or (asked and sized and since + guarded.grace <= seen.now))


def _next_state(seen: Seen, ours: tuple[Instance, ...], terminate: tuple[str, ...]) -> State:
    empty = "instances" not in seen.unknown and not ours
    if empty and (seen.present is False or seen.owned is False or (seen.desired, seen.minimum) == (0, 0)):
        return "stopped"
    going_on = seen.fence is not None and seen.fence.state == "terminating" and bool(ours)
    return "terminating" if terminate or going_on else "stopping"


def _undone(seen: Seen, guarded: Guarded, since: datetime, *, needs_size: bool) -> Iterator[str]:
    """Say what of a stop did not come about, or cannot be seen to have."""
    overdue = OVERDUE_GRACES * guarded.grace
    late = [one.id for one in _ours(seen) if max(since, one.launched) + overdue <= seen.now]
    if late:
        yield (f"{', '.join(late)}: alive {OVERDUE_GRACES * guarded.grace_minutes:g} minutes after the stop; terminate "
               "by hand in the EC2 console, and look at the node group's health in EKS")  # fmt: skip
    after = [one.id for one in _ours(seen) if since + overdue <= one.launched]
    if after or (needs_size and seen.desired and since + overdue <= seen.now):
        yield (f"raised again behind the stop of {plain(since)}, or EKS does not take 0: desired {seen.desired}, "
               f"launched since: {', '.join(after) or 'none'}; find out who raises: CloudTrail, "
               "UpdateNodegroupConfig")  # fmt: skip
    for source in ("instances", "node group"):
        if source in seen.unknown:
            yield f"{source} unknown while a stop is due: {seen.unknown[source]}"
    if seen.owned is False and needs_size and not may_scale(seen):
        yield f"{guarded.group} is not set to 0: it is another's, without the tag {OWNER_TAG}={guarded.environment}"


def _reasons(seen: Seen, guarded: Guarded) -> Iterator[tuple[datetime, str]]:
    """Yield each reason for a stop, with the moment since which it holds."""
    if seen.fence and seen.fence.closed:
        yield seen.fence.at, f"fenced by {seen.fence.who}: {seen.fence.why}"
    elif "lease" not in seen.unknown:
        yield from _unleased(seen) if seen.lease is None else _misused(seen, guarded, seen.lease)
        if seen.lease and not seen.ending:
            yield from _ended(seen, guarded, seen.lease)
    if not seen.ending:
        yield from _outlived(seen, guarded)


def _outlived(seen: Seen, guarded: Guarded) -> Iterator[tuple[datetime, str]]:
    """Yield the reasons that no lease can take away: an age, and a block's end."""
    ours, oldest = _ours(seen), timedelta(hours=guarded.max_hours)
    launched = min((one.launched for one in ours), default=None)
    if launched and launched + oldest <= seen.now:
        yield launched + oldest, f"an instance is older than {guarded.max_hours:g} hours"
    elif seen.alive_since and seen.alive_since + oldest <= seen.now:
        yield (
            seen.alive_since + oldest,
            f"instances have lived for {guarded.max_hours:g} hours, one after another, and the lease cannot be read",
        )
    ends = seen.block_ends
    used = bool(ours or seen.desired or seen.live)
    if ends and used and ends - BLOCK_MARGIN <= seen.now:
        yield ends - BLOCK_MARGIN, f"the Capacity Block ends at {plain(ends)}"


def _unleased(seen: Seen) -> Iterator[tuple[datetime, str]]:
    """Yield why a fleet without a lease must stop: nobody answers for it. A start writes its lease before it raises."""
    launched = min((one.launched for one in _ours(seen)), default=None)
    if launched:
        yield launched, "instances live without a lease"
    elif may_scale(seen) and (seen.desired or seen.minimum):
        yield seen.now, f"the node group wants {seen.desired} nodes without a lease"


def count_excess_nodes(seen: Seen, guarded: Guarded) -> int:
    """Return how many nodes are wanted, or stay, beyond those of the lease; 0 without a lease."""
    if seen.lease is None:
        return 0
    replaced = REPLACED_GRACES * guarded.grace
    staying = sum(one.up and one.launched + replaced <= seen.now for one in _ours(seen))
    return max(0, staying - seen.lease.nodes, (seen.desired or 0) - seen.lease.nodes)


def _our_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name.startswith(LABELS)}


def _misused(seen: Seen, guarded: Guarded, lease: Lease) -> Iterator[tuple[datetime, str]]:
    """Yield what of the fleet goes beyond its lease: more nodes, or nodes for somebody else."""
    ours = _ours(seen)
    latest = max((one.launched for one in ours), default=seen.now)
    if count_excess_nodes(seen, guarded) and may_scale(seen):
        yield (
            latest,
            (
                f"the node group wants {seen.desired} nodes and has {sum(one.up for one in ours)}, and the lease of "
                f"run {lease.run} is for {lease.nodes}"
            ),
        )
    # while EKS is at work, its description may show the new size and the old labels
    admitted = (_our_labels(lease.node_label), _our_labels(lease.former_label))
    if seen.settled and seen.desired and seen.labels not in admitted:
        labels = ", ".join(sorted(seen.labels)) or "no label"
        yield latest, f"the nodes carry {labels}, which is not what the lease of run {lease.run} says"


def _ended(seen: Seen, guarded: Guarded, lease: Lease) -> Iterator[tuple[datetime, str]]:
    """Yield the reasons that the lease itself gives."""
    now = seen.now
    if lease.ending and lease.ending + ENDING_LIMIT <= now:
        yield lease.ending + ENDING_LIMIT, f"run {lease.run} ends since {plain(lease.ending)} and is not gone"
    if lease.deadline <= now:
        yield lease.deadline, f"the lease of run {lease.run} ended at {plain(lease.deadline)}"
    longest = lease.created + timedelta(hours=guarded.max_hours)  # no start writes a longer one; nodes may be replaced
    if longest < lease.deadline and longest <= now:
        yield longest, f"the lease of run {lease.run} is older than {guarded.max_hours:g} hours"
    if lease.beats and "heartbeat" not in seen.unknown:
        last = max(seen.heartbeat or lease.created, lease.created)
        if last + guarded.idle <= now:
            yield last + guarded.idle, f"run {lease.run} has not beaten since {plain(last)}"
    empty = "instances" not in seen.unknown and not _ours(seen)
    if empty and (seen.desired == 0 or seen.present is False) and lease.created + guarded.grace <= now:
        # a stop that could not write the fence, a Fleet update, or a start that died before its raise
        yield lease.created + guarded.grace, f"run {lease.run} has a lease and its fleet is at 0"


def _metrics(seen: Seen, guarded: Guarded) -> Iterator[tuple[str, float]]:
    """Yield what is known; a figure that is not is left out, and an alarm takes its absence as it is told to."""
    paid = seen.block_starts and seen.block_ends and seen.block_starts <= seen.now < seen.block_ends
    if "instances" in seen.unknown:
        return
    ours = _ours(seen)
    running = [one for one in ours if one.up]
    ages = [(seen.now - one.launched) / timedelta(hours=1) for one in ours]
    yield INSTANCES_ALIVE, float(len(ours))
    yield OLDEST_INSTANCE_HOURS, max([0.0, *ages])
    yield FLEET_USD, len(running) * guarded.usd_per_hour * PASS_MINUTES / 60
    if "lease" not in seen.unknown:
        yield EXCESS_NODES, float(count_excess_nodes(seen, guarded))
    if not {"lease", "fence"} & seen.unknown.keys():
        yield IDLE_BLOCK_MINUTES, float(PASS_MINUTES if paid and not (running and seen.live) else 0)


# doing it


def act(  # noqa: PLR0913 - what was seen, what it demands, and in whose name
    clients: Clients, guarded: Guarded, seen: Seen, demanded: Due, *, who: str, run: str | None = None,
    publishes: bool = True,
) -> Report:  # fmt: skip
    """Do what is due: fence, scale down, terminate, publish, tell. Never raises for AWS: see `Report.failed`.

    Args:
        who: stops, where there is no fence yet.
        run: that is stopped; None takes the lease's.
        publishes: whether the pass is counted in CloudWatch; the guard's functions alone may publish there.
    """
    work = _Pass(clients, guarded, seen, demanded, who=who, run=run or (seen.lease.run if seen.lease else None))
    work.publishes = publishes
    if demanded.why:
        work.stop()
    return work.end()


class _Pass:
    """One pass at work: what it did, what failed, and the fence as it knows it."""

    def __init__(  # noqa: PLR0913 - as of act
        self, clients: Clients, guarded: Guarded, seen: Seen, demanded: Due, *, who: str, run: str | None
    ) -> None:  # fmt: skip
        self.clients, self.guarded, self.seen, self.due = clients, guarded, seen, demanded
        self.who, self.run = who, run
        self.done: list[str] = []
        self.failed: list[str] = []
        self.told: list[str] = []
        self.terminated: tuple[str, ...] = ()
        self.suspended: tuple[str, ...] = ()
        self.publishes = True
        self.read_at_s = seen.began_s  # when a reading or writing of the fence began that shows it as it is known

    def stop(self) -> None:
        """Fence, then 0, then by id; a bucket that is out of reach comes last, so that it holds nothing up."""
        lost, before = "fence" in self.seen.unknown, self.seen.fenced
        insists = self.due.scale_down
        if not lost:
            self._fence()
        self.failed.extend(self.due.failed)
        # a new fence: whoever raised between the look and the fence was allowed to, and reads it only afterwards
        if self.due.scale_down or ((insists or not before) and may_scale(self.seen)):
            self._scale_down()
        if self.due.hold and self._is_still_due(at_once=True):
            self._hold_scaling_groups()
        if self.due.terminate:  # by id, so it can end no other run's
            self._terminate()
        if lost:
            self._fence()
        if before and self.seen.desired and "lease" not in self.seen.unknown:
            self._name_schedules()

    def _is_still_due(self, *, at_once: bool = False) -> bool:
        """Whether the fence still stands: the machine may have slept until it was released and another run started.

        Args:
            at_once: whether the fence is read in any case, not only where the clock moved since.
        """
        if not at_once and is_fresh(self.clients, self.read_at_s):
            return True
        began_s = self.clients.wall_s()
        try:
            fence = read_fence(self.clients, self.guarded)
        except RAISED:
            return True  # a stop does not wait for S3
        self.read_at_s = began_s
        if (fence is not None and fence.closed) or not self.seen.fenced:
            return True
        self.done.append("the fence was released meanwhile, so nothing more is stopped")
        return False

    def end(self) -> Report:
        """Publish, tell and write down what this pass did."""
        # the rest is the reaper's alone: its silence is told by their absence, and money and idle minutes are summed
        counted = self.due.metrics if self.who == REAPER else {}
        metrics = {**counted, STOP_FAILURES: float(bool(self.failed))}
        if not self.due.why:
            self.failed += [f"{source} unknown: {said}" for source, said in self.seen.unknown.items()]
        blind = not self.due.why and bool(self.seen.unknown) and self.who == REAPER and bool(_ours(self.seen))
        change = "blind" if blind else "failed" if metrics[STOP_FAILURES] else self.due.state or ""
        said = self._tell(change) if self.due.why or blind else False
        if self.publishes:
            self._publish(metrics)
        if self.due.why:
            self._record(change, said=said)
        return Report(seen=self.seen, due=self.due, done=tuple(self.done), failed=tuple(self.failed),
                      told=tuple(self.told), metrics=metrics)  # fmt: skip

    @contextmanager
    def _trying(self, what: str) -> Iterator[None]:
        try:
            yield
        except RAISED as error:
            self.failed.append(f"{what} failed: {words(error)}")

    def _fence(self) -> None:
        """Write the fence, or keep the one that is there: two stops agree on the first."""
        why = sentence("; ".join(self.due.why))
        wanted = Fence(state="stopping", who=self.who, why=why, run=self.run, at=self.seen.now)

        def close_fence(fence: Fence | None) -> Fence | None:
            if fence and fence.closed and not fence.fault:
                return None
            known = fence.suspended if fence else ()  # until a start has resumed them
            return replace(wanted, suspended=tuple(dict.fromkeys((*known, *self.suspended))))

        before, began_s = self.seen.fenced, self.clients.wall_s()
        known = self.seen.fence.etag if self.seen.fence else ""
        with self._trying(f"writing {self.guarded.url(FENCE_KEY)}"):
            fence = change_fence(self.clients, self.guarded, self.seen.fence, close_fence)
            if fence is None:
                self.failed.append(f"{self.guarded.url(FENCE_KEY)}: others wrote it {TRIES} times in between")
                return
            self.seen = replace(self.seen, fence=fence)
            self.due = due(self.seen, self.guarded)
            if fence.etag != known:
                self.read_at_s = began_s
            if not before:
                self.done.append(f"fenced: {fence.why}")

    def _scale_down(self) -> None:
        guarded = self.guarded
        with self._trying(f"setting {guarded.group} to 0"):
            if call_again(self.clients, lambda: scale_to_zero(self.clients, guarded), self._is_still_due):
                self.done.append(f"{guarded.group} set to 0")

    def _hold_scaling_groups(self) -> None:
        """Pull the third lever: EKS refuses 0, or does not do it."""
        with self._trying(f"reading the Auto Scaling groups of {self.guarded.group}"):
            for group in read_scaling_groups(self.clients, self.seen.scaling_groups):
                with self._trying(f"holding Auto Scaling group {group.name} at 0"):
                    self._hold_scaling_group(group)

    def _hold_scaling_group(self, group: ScalingGroup) -> None:
        if LAUNCH not in group.suspended:
            self.suspended = (*self.suspended, group.name)
            self._note_suspended()
            suspend_launch(self.clients, group.name)
            self.done.append(f"Auto Scaling group {group.name}: launches suspended (unproven on a real account)")
        if (group.desired, group.minimum) != (0, 0):
            set_group_to_zero(self.clients, group.name)
            self.done.append(f"Auto Scaling group {group.name} set to 0 (unproven on a real account)")

    def _note_suspended(self) -> None:
        """Write into the fence which launches it suspends, before it does, so that a start may resume them."""

        def add_suspended(fence: Fence | None) -> Fence | None:
            if fence is None or not fence.closed or set(self.suspended) <= set(fence.suspended):
                return None
            return replace(fence, suspended=tuple(dict.fromkeys((*fence.suspended, *self.suspended))))

        with self._trying(f"writing {self.guarded.url(FENCE_KEY)}"):
            fence = change_fence(self.clients, self.guarded, self.seen.fence, add_suspended)
            self.seen = replace(self.seen, fence=fence or self.seen.fence)

    def _name_schedules(self) -> None:
        """Name the schedules that no lease owns: one of them may be what raises behind the fence."""
        with self._trying(f"listing the schedules of {self.guarded.schedule_group}"):
            for schedule in list_foreign_schedules(self.clients, self.guarded, self.seen.lease):
                self.failed.append(f"schedule {schedule.name} of group {self.guarded.schedule_group} is no lease's and "
                                   f"calls {schedule.target_arn}; delete it if nobody knows it")  # fmt: skip

    def _terminate(self) -> None:
        """End them in one call; where EC2 refuses one of several, it ends none (API reference), so then one by one."""
        together = self.due.terminate
        with self._trying(f"terminating {', '.join(together)}"):
            try:
                self._end(together)
            except ClientError:
                if len(together) == 1:
                    raise
                for one in together:
                    with self._trying(f"terminating {one}"):
                        self._end((one,))
        if self.terminated:
            self.done.append(f"terminated by id: {', '.join(self.terminated)}")

    def _end(self, ids: tuple[str, ...]) -> None:
        self.clients.ec2.terminate_instances(InstanceIds=list(ids))
        self.terminated = (*self.terminated, *ids)

    def _publish(self, metrics: Mapping[str, float]) -> None:
        data = [{"MetricName": name, "Value": value, "Unit": UNITS[name], "Timestamp": self.seen.now}
                for name, value in metrics.items()]  # fmt: skip
        with self._trying(f"publishing to {self.guarded.namespace}"):
            self.clients.cloudwatch.put_metric_data(Namespace=self.guarded.namespace, MetricData=data)

    def _tell(self, change: str) -> bool:
        """Tell people of a change, and of a failure every hour again; whether they now know."""
        fence, now = self.seen.fence, self.seen.now
        if fence is None or not fence.closed:  # nothing remembers what they were told: the first pass of each hour
            fresh = now.minute < PASS_MINUTES or self.who != REAPER
        else:
            lately = fence.told_at is None or fence.told_at - FUTURE <= now < fence.told_at + TELL_AGAIN
            again = change == "failed" and not lately
            fresh = change != fence.told or again
        if not fresh:
            return False
        known = [one.id for one in self.seen.instances]
        listed = "unknown" if "instances" in self.seen.unknown else ", ".join(known) or "none"
        told = "\n".join([
            f"{self.guarded.environment}: the fleet is {_CHANGES[change]}.", *(f"Why: {why}" for why in self.due.why),
            f"Instances that EC2 lists: {listed}", *(f"Done: {one}" for one in self.done),
            *(f"Failed: {one}" for one in self.failed),
            f"Look: tandem status --env {self.guarded.environment}; docs/runbook.md",
        ])  # fmt: skip
        before = len(self.failed)
        with self._trying(f"telling {self.guarded.topic_arn}"):
            tell(self.clients, self.guarded, f"fleet {_CHANGES[change]}", told)
            self.told.append(told)
        return len(self.failed) == before

    def _record(self, change: str, *, said: bool) -> None:
        """Write into the fence what this pass found and did; nothing where nothing is new any more."""

        def grown(found: Fence | None) -> Fence | None:
            if found is None or not found.closed:
                return None  # lifted meanwhile, or it could never be written
            known = "instances" not in self.seen.unknown
            new = replace(
                found, state=self._reached(), etag="",
                instances=tuple(one.id for one in self.seen.instances) if known else found.instances,
                terminated=tuple(dict.fromkeys((*found.terminated, *self.terminated))),
                suspended=tuple(dict.fromkeys((*found.suspended, *self.suspended))),
                told=change if said else found.told, told_at=self.seen.now if said else found.told_at,
            )  # fmt: skip
            if new.state == "stopped" and new == replace(found, etag=""):
                return None
            return replace(new, passes=min(found.passes + 1, MOST_PASSES), last_look=self.seen.now)

        fence = self.seen.fence
        if fence is None or not fence.closed:
            return
        with self._trying(f"writing {self.guarded.url(FENCE_KEY)}"):
            written = change_fence(self.clients, self.guarded, fence, grown)
            self.seen = replace(self.seen, fence=written or fence)

    def _reached(self) -> State:
        """Return the state to write: what was ordered by id is terminating, if the order was taken."""
        state = self.due.state or "stopping"
        before = self.seen.fence.state if self.seen.fence else "stopping"
        return "stopping" if state == "terminating" and not self.terminated and before != "terminating" else state


def scale_to_zero(clients: Clients, guarded: Guarded) -> None:
    """Ask EKS for no node at all.

    Raises:
        RAISED: EKS does not answer, or refuses.
    """
    clients.eks_once.update_nodegroup_config(
        clusterName=guarded.cluster, nodegroupName=guarded.node_group, scalingConfig={"minSize": 0, "desiredSize": 0}
    )


def tell(clients: Clients, guarded: Guarded, subject: str, text: str) -> None:
    """Send a message to the people of the environment, where there is a topic.

    Raises:
        RAISED: SNS does not answer, or refuses.
    """
    if guarded.topic_arn:
        title = f"Tandem {guarded.environment}: {subject}"[:SUBJECT_CHARACTERS]
        clients.sns.publish(TopicArn=guarded.topic_arn, Subject=title, Message=text)


def reap(clients: Clients, guarded: Guarded, now: datetime) -> Report:
    """Make one pass of the reaper.

    The lease is read again before it acts: a start or an end may have come while it looked.
    """
    for _ in range(LOOKS):
        seen = look(clients, guarded, now)
        demanded = due(seen, guarded)
        if not demanded.why or seen.fenced or _lease_stands(clients, guarded, seen):
            break
    return act(clients, guarded, seen, demanded, who=REAPER)


def _lease_stands(clients: Clients, guarded: Guarded, seen: Seen) -> bool:
    """Whether the lease is as it was seen; what cannot be read again stands."""
    if "lease" in seen.unknown:
        return True
    try:
        pointer = read_pointer(clients, guarded)
        lease, _ = read_lease(clients, guarded, pointer)
    except RAISED:
        return True
    return pointer == seen.pointer and (lease.etag if lease else "") == (seen.lease.etag if seen.lease else "")


def stop(  # noqa: PLR0913 - each is a field of the fence
    clients: Clients, guarded: Guarded, *, who: str, why: str, run: str | None, now: datetime, publishes: bool = False
) -> Report:  # fmt: skip
    """Stop the fleet: fence it, set the node group to 0. The reaper's passes see to the rest.

    Args:
        who: as of Fence.
        why: in a sentence; a fence that is there already keeps its own.
        run: that is stopped; None takes the lease's, where there is one.
        publishes: as of act; a person sees by the report what failed.

    Raises nothing for AWS: what could not be done is in the report's `failed`.
    """
    seen = look(clients, guarded, now)
    asked = replace(due(seen, guarded), why=(sentence(why),), scale_down=may_scale(seen))
    return act(clients, guarded, seen, asked, who=sentence(who), run=sentence(run) if run else None,
               publishes=publishes)  # fmt: skip


def release(clients: Clients, guarded: Guarded, *, who: str, now: datetime) -> Fence:
    """Lift the fence; the lease that it ended stays ended, and its one-shot stop goes with it.

    Raises:
        RefusedError: there is none, or the fleet is not known to be at 0 without any instance.
        WorldError: AWS could not be asked, or somebody stops at this moment.
    """
    seen = look(clients, guarded, now)
    again = f"tandem stop --clear --env {guarded.environment}"
    needed: tuple[Source, ...] = ("fence", "lease", "node group", "instances")
    for source in needed:
        if source in seen.unknown:
            raise WorldError(f"{source} unknown ({seen.unknown[source]})", where=guarded.environment,
                             change=f"the fence stays; {again} once AWS answers")  # fmt: skip
    if seen.fence is None or not seen.fence.closed:
        raise RefusedError("there is no fence", where=guarded.url(FENCE_KEY), change="nothing needs to be lifted")
    ours = ", ".join(one.id for one in _ours(seen))
    if ours or (seen.owned and (seen.desired, seen.minimum) != (0, 0)):
        raise RefusedError(
            f"the fleet is not gone: desired {seen.desired}, instances {ours or 'none'}", where=guarded.group,
            change=f"tandem stop --env {guarded.environment} and wait until tandem status lists none, then {again}",
        )  # fmt: skip
    fence, place = seen.fence, guarded.at_prefix(seen.fence.prefix)
    lifted = replace(fence, state="lifted", who=who, why=sentence(f"lifted; was: {fence.why}"), at=now)
    try:
        # first: a lease that outlived its fence would be live again. Only over the pointer that was seen: whoever
        # slept here may find another run's
        etag = None
        if end_pointer(clients, guarded, seen.pointer or Pointer(prefix=guarded.prefix)):
            _end_lease_for_good(clients, guarded, seen)
            etag = write(clients, place, FENCE_KEY, said_of(lifted, *FENCE_FIELDS), etag=fence.etag)
    except RAISED as error:
        raise WorldError(f"the fence is not lifted ({words(error)})", where=place.url(FENCE_KEY),
                         change=again) from error  # fmt: skip
    if not etag:
        raise WorldError("somebody wrote it or the lease at this moment, so it is not lifted",
                         where=place.url(FENCE_KEY),
                         change=f"tandem status --env {guarded.environment}, then {again}")  # fmt: skip
    return replace(lifted, etag=etag)


def _end_lease_for_good(clients: Clients, guarded: Guarded, seen: Seen) -> None:
    """Mark the lease that the fence ended, so that nobody takes it up again, and delete its one-shot stop."""
    run = seen.pointer.run if seen.pointer else None
    ended = run or (seen.fence.run if seen.fence else None)  # as where a release died behind its first write
    if ended is None or not RUN.fullmatch(ended):
        return
    prefix = seen.pointer.prefix if seen.pointer else guarded.prefix
    lease = seen.lease or read_lease(clients, guarded, Pointer(run=ended, prefix=prefix))[0]
    if lease and lease.ending is None:
        write_lease(clients, guarded, replace(lease, ending=seen.now))
    if guarded.schedule_group:
        delete_unnamed_schedule(clients, guarded, ended)  # it would end the next run


def read_our_labels(clients: Clients, guarded: Guarded) -> dict[str, str]:
    """Return the labels of the node group that are ours.

    Raises:
        RAISED: EKS does not answer, or refuses.
    """
    return _our_labels(_node_group(clients, guarded).get("labels", {}))


def read_capacity_kind(clients: Clients, guarded: Guarded) -> str:
    """Return the kind that the node group is deployed with; as declared where EKS does not say."""
    try:
        group = _node_group(clients, guarded)
    except RAISED:
        return guarded.capacity_kind
    return str(group.get("tags", {}).get(CAPACITY_KIND_TAG, guarded.capacity_kind))
