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
    POINTER_KEY,
    RAISED,
    RUN,
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
    heartbeat_key,
    lease_key,
    moment,
    plain,
    read,
    read_fence,
    read_lease,
    read_pointer,
    said_of,
    sentence,
    short,
    words,
    write,
)  # fmt: skip

__all__ = [
    "BLOCK_ENDS_TAG",
    "BLOCK_MARGIN",
    "BLOCK_STARTS_TAG",
    "CAPACITY_KIND_TAG",
    "CLUSTER_TAG",
    "EXCESS_NODES",
    "FENCE_KEY",
    "FLEET_USD",
    "FUTURE",
    "IDLE_BLOCK_MINUTES",
    "INSTANCES_ALIVE",
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
    "clear",
    "code_of",
    "due",
    "heartbeat_key",
    "lease_key",
    "look",
    "moment",
    "read",
    "read_fence",
    "read_lease",
    "read_pointer",
    "reap",
    "said_of",
    "scale_to_zero",
    "stop",
    "tell",
    "words",
    "write",
]

OWNER_TAG = "tandem:environment"  # its value is the environment's name; tandem.spec.names has the same
# on the node group: a renewed block is a deploy of the Fleet stack alone, and the guard hears of it all the same
BLOCK_STARTS_TAG, BLOCK_ENDS_TAG = "tandem:block-starts", "tandem:block-ends"
CAPACITY_KIND_TAG = "tandem:capacity-kind"  # likewise: Fleet may be deployed with another kind than Guard knows
CLUSTER_TAG, NODE_GROUP_TAG = "eks:cluster-name", "eks:nodegroup-name"  # EKS puts them on every instance of a group

PASS_MINUTES = 5  # between two passes of the reaper
BLOCK_MARGIN = timedelta(minutes=45)  # EKS scales down 40 minutes before a block's end, EC2 terminates at 30
FUTURE = timedelta(minutes=5)  # clocks differ; a beat further ahead is no beat
OVERDUE_GRACES = 3  # a stop that EC2 has not done after so many graces is a failed one
TELL_AGAIN = timedelta(hours=1)
REAPER = "reap"
SUBJECT_CHARACTERS = 99  # SNS takes fewer than 100
_CHANGES = {
    "stopping": "being stopped",
    "terminating": "terminated by id",
    "stopped": "gone",
    "failed": "NOT stopped",
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
    """

    id: str
    launched: datetime
    state: str
    ours: bool


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one look found.

    Args:
        desired, minimum: sizes of the node group; None: unknown, or there is none.
        present: whether there is a node group; None: unknown.
        owned: whether it carries the environment's own tag; None: unknown, or there is none.
        instances: every one of the node group that EC2 lists and that is not terminated.
        pointer: to the only lease; None: unknown.
        lease: that the pointer leads to, also after its deadline and behind a fence: see `live`.
        heartbeat: of the lease's run.
        block_starts, block_ends: of the Capacity Block that the node group is deployed with.
        unknown: what could not be read, and why.
        faults: objects that were read and not understood, each in a sentence.
    """

    now: datetime
    desired: int | None = None
    minimum: int | None = None
    present: bool | None = None
    owned: bool | None = None
    instances: tuple[Instance, ...] = ()
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


@dataclass(frozen=True, kw_only=True)
class Due:
    """What a look demands.

    Args:
        why: the reasons for a stop, each a sentence; empty: none is due.
        scale_down: whether EKS must be asked for 0.
        terminate: ids that EC2 must terminate.
        state: of the fence after this pass, as far as was seen; None: there is none to write.
        failed: what this look shows of an earlier pass's failure, each a sentence.
        metrics: to publish; STOP_FAILURES is the pass's own to add.
    """

    why: tuple[str, ...] = ()
    scale_down: bool = False
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
    if lease and lease.beats:
        with _asking(unknown, "heartbeat"):
            heartbeat, fault = _heartbeat(clients, guarded, lease.run, now)
            faults.extend([fault] if fault else [])
    group: Mapping[str, Any] = {}
    with _asking(unknown, "node group"):
        group = _node_group(clients, guarded)
    owned = group.get("tags", {}).get(OWNER_TAG) == guarded.environment if group else None
    instances: tuple[Instance, ...] = ()
    with _asking(unknown, "instances"):
        instances = tuple(_instances(clients, guarded, owned=owned is True))
    if owned is False or any(not one.ours for one in instances):
        faults.append(f"{guarded.group}: without the tag {OWNER_TAG}={guarded.environment}, so it is another's and is "
                      "left alone; give one of the two another name")  # fmt: skip
    scaling = group.get("scalingConfig", {})
    (starts, ends), fault = _block(group, guarded)
    faults.extend([fault] if fault else [])
    return Seen(
        now=now, desired=scaling.get("desiredSize"), minimum=scaling.get("minSize"),
        present=None if "node group" in unknown else bool(group), owned=owned, instances=instances, fence=fence,
        pointer=pointer, lease=lease, heartbeat=heartbeat, block_starts=starts, block_ends=ends,
        unknown=unknown, faults=tuple(faults),
    )  # fmt: skip


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


def _block(group: Mapping[str, Any], guarded: Guarded) -> tuple[tuple[datetime | None, datetime | None], str]:
    """Return the window of the block that the node group is deployed with, and what is wrong with its tags."""
    declared, tags = (guarded.block_starts, guarded.block_ends), group.get("tags", {})
    if guarded.capacity_kind != "capacity-block":
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
    more: dict[str, str] = {}
    while True:
        page = clients.ec2.describe_instances(Filters=filters, **more)
        for one in (each for reservation in page["Reservations"] for each in reservation["Instances"]):
            if one["State"]["Name"] != "terminated":
                tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", [])}
                ours = owned or tags.get(OWNER_TAG) == guarded.environment
                yield Instance(
                    id=one["InstanceId"], launched=one["LaunchTime"].astimezone(UTC), state=one["State"]["Name"],
                    ours=ours,
                )  # fmt: skip
        if not page.get("NextToken"):
            return
        more = {"NextToken": page["NextToken"]}


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
        scale_down=_may_scale(seen) and (sized or bool(terminate)),
        failed=tuple(_undone(seen, guarded, since, needs_size=sized)),
    )  # fmt: skip


def _since(seen: Seen, guarded: Guarded, earliest: datetime) -> datetime:
    """Return since when EKS has been asked, as far as anybody can tell."""
    if seen.fence is None or not seen.fence.closed:
        return earliest + guarded.grace  # nobody wrote down when it was first tried: EKS gets twice as long
    return seen.fence.at if seen.fence.at <= seen.now + FUTURE else seen.now - guarded.grace  # a moment that is none


def _ours(seen: Seen) -> tuple[Instance, ...]:
    return tuple(one for one in seen.instances if one.ours)


def _may_scale(seen: Seen) -> bool:
    """Whether the node group is known to be ours; where EKS does not say, by an instance that carries our tag."""
    return bool(seen.owned or (seen.present is None and _ours(seen)))


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
    if seen.owned is False and needs_size:
        yield f"{guarded.group} is not set to 0: it is another's, without the tag {OWNER_TAG}={guarded.environment}"


def _reasons(seen: Seen, guarded: Guarded) -> Iterator[tuple[datetime, str]]:
    """Yield each reason for a stop, with the moment since which it holds."""
    if seen.fence and seen.fence.closed:
        yield seen.fence.at, f"fenced by {seen.fence.who}: {seen.fence.why}"
    else:
        yield from _ended(seen, guarded)
    ours = _ours(seen)
    launched = min((one.launched for one in ours), default=None)
    oldest = timedelta(hours=guarded.max_hours)
    if launched and launched + oldest <= seen.now:
        yield launched + oldest, f"an instance is older than {guarded.max_hours:g} hours"
    ends = seen.block_ends
    used = bool(ours or seen.desired or seen.live)
    if ends and used and ends - BLOCK_MARGIN <= seen.now:
        yield ends - BLOCK_MARGIN, f"the Capacity Block ends at {plain(ends)}"


def _ended(seen: Seen, guarded: Guarded) -> Iterator[tuple[datetime, str]]:
    """Yield the reasons that the lease gives, or its absence."""
    lease, now = seen.lease, seen.now
    if "lease" in seen.unknown:
        return
    if lease is None:
        launched = min((one.launched for one in _ours(seen)), default=None)
        if launched and launched + guarded.idle <= now:
            yield launched + guarded.idle, f"instances have lived {guarded.idle_minutes:g} minutes without a lease"
        return
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
    running = [one for one in ours if one.state in {"pending", "running"}]
    ages = [(seen.now - one.launched) / timedelta(hours=1) for one in ours]
    yield INSTANCES_ALIVE, float(len(ours))
    yield OLDEST_INSTANCE_HOURS, max([0.0, *ages])
    yield FLEET_USD, len(running) * guarded.usd_per_hour * PASS_MINUTES / 60
    if not {"lease", "fence"} & seen.unknown.keys():
        yield IDLE_BLOCK_MINUTES, float(PASS_MINUTES if paid and not (running and seen.live) else 0)


# doing it


def act(  # noqa: PLR0913 - what was seen, what it demands, and in whose name
    clients: Clients, guarded: Guarded, seen: Seen, demanded: Due, *, who: str, run: str | None = None
) -> Report:  # fmt: skip
    """Do what is due: fence, scale down, terminate, publish, tell. Never raises for AWS: see `Report.failed`.

    Args:
        who: stops, where there is no fence yet.
        run: that is stopped; None takes the lease's.
    """
    work = _Pass(clients, guarded, seen, demanded, who=who, run=run or (seen.lease.run if seen.lease else None))
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

    def stop(self) -> None:
        """Fence, then 0, then by id; a bucket that is out of reach comes last, so that it holds nothing up."""
        lost, before = "fence" in self.seen.unknown, self.seen.fenced
        insists = self.due.scale_down
        if not lost:
            self._fence()
        self.failed.extend(self.due.failed)
        # a new fence: whoever raised between the look and the fence was allowed to, and reads it only afterwards
        if self.due.scale_down or ((insists or not before) and _may_scale(self.seen)):
            self._scale_down()
        if self.due.terminate:
            self._terminate()
        if lost:
            self._fence()

    def end(self) -> Report:
        """Publish, tell and write down what this pass did."""
        # the rest is the reaper's alone: its silence is told by their absence, and money and idle minutes are summed
        counted = self.due.metrics if self.who == REAPER else {}
        metrics = {**counted, STOP_FAILURES: float(bool(self.failed))}
        trouble = list(self.failed)
        if not self.due.why:
            trouble += [f"{source} unknown: {said}" for source, said in self.seen.unknown.items()]
        self.failed = trouble
        change = "failed" if metrics[STOP_FAILURES] else self.due.state or ""
        said = self._tell(change) if self.due.why else False
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

        def closed(found: Fence | None) -> Fence | None:
            return None if found and found.closed and not found.fault else wanted

        before = self.seen.fenced
        with self._trying(f"writing {self.guarded.url(FENCE_KEY)}"):
            fence = change_fence(self.clients, self.guarded, self.seen.fence, closed)
            if fence is None:
                self.failed.append(f"{self.guarded.url(FENCE_KEY)}: others wrote it {TRIES} times in between")
                return
            self.seen = replace(self.seen, fence=fence)
            self.due = due(self.seen, self.guarded)
            if not before:
                self.done.append(f"fenced: {fence.why}")

    def _scale_down(self) -> None:
        guarded = self.guarded
        with self._trying(f"setting {guarded.group} to 0"):
            scale_to_zero(self.clients, guarded)
            self.done.append(f"{guarded.group} set to 0")

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
                told=change if said else found.told, told_at=self.seen.now if said else found.told_at,
            )  # fmt: skip
            if new.state == "stopped" and new == replace(found, etag=""):
                return None
            return replace(new, passes=found.passes + 1, last_look=self.seen.now)

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
    clients.eks.update_nodegroup_config(
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
    """Make one pass of the reaper."""
    seen = look(clients, guarded, now)
    return act(clients, guarded, seen, due(seen, guarded), who=REAPER)


def stop(  # noqa: PLR0913 - each is a field of the fence
    clients: Clients, guarded: Guarded, *, who: str, why: str, run: str | None, now: datetime
) -> Report:  # fmt: skip
    """Stop the fleet: fence it, set the node group to 0. The reaper's passes see to the rest.

    Args:
        who: as of Fence.
        why: in a sentence; a fence that is there already keeps its own.
        run: that is stopped; None takes the lease's, where there is one.

    Raises nothing for AWS: what could not be done is in the report's `failed`.
    """
    seen = look(clients, guarded, now)
    asked = replace(due(seen, guarded), why=(sentence(why),), scale_down=_may_scale(seen))
    return act(clients, guarded, seen, asked, who=sentence(who), run=sentence(run) if run else None)


def clear(clients: Clients, guarded: Guarded, *, who: str, now: datetime) -> Fence:
    """Lift the fence; the lease that it ended stays ended.

    Raises:
        RefusedError: there is none, or the fleet is not known to be at 0 without any instance.
        WorldError: AWS could not be asked, or somebody stops at this moment.
    """
    seen = look(clients, guarded, now)
    again = f"tandem stop --clear --env {guarded.environment}"
    needed: tuple[Source, ...] = ("fence", "node group", "instances")
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
    lifted = replace(seen.fence, state="lifted", who=who, why=sentence(f"lifted; was: {seen.fence.why}"), at=now)
    try:
        # first: a lease that outlived its fence would be live again. Written also where there is none, so that a
        # start which read before is refused
        pointer = read_pointer(clients, guarded)
        ended = write(clients, guarded, POINTER_KEY, {"run": None}, etag=pointer.etag)
        etag = ended and write(clients, guarded, FENCE_KEY, said_of(lifted, *FENCE_FIELDS), etag=seen.fence.etag)
    except RAISED as error:
        raise WorldError(f"the fence is not lifted ({words(error)})", where=guarded.url(FENCE_KEY),
                         change=again) from error  # fmt: skip
    if not etag:
        raise WorldError("somebody wrote it at this moment, so it is not lifted", where=guarded.url(FENCE_KEY),
                         change=f"tandem status --env {guarded.environment}, then {again}")  # fmt: skip
    return replace(lifted, etag=etag)
