"""The stop: a fence in the bucket, a node group at 0, and passes that look until EC2 lists no instance.

A pass looks, does what is due and returns; all that it keeps is `stop.json`, so it may die anywhere and the next one
goes on. It reads AWS only, never Kubernetes.
Invariant: standard library and boto3 only, because a Lambda packs this file; what could not be read is unknown, and
unknown is never taken for gone, for allowed or for alive; nothing without the environment's own tag is touched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal, Self

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

FENCE_KEY = "stop.json"
POINTER_KEY = "lease.json"  # names the run that holds the only live lease
SCHEMA = 1
OWNER_TAG = "tandem:environment"  # its value is the environment's name; tandem.spec.names has the same
CLUSTER_TAG, NODE_GROUP_TAG = "eks:cluster-name", "eks:nodegroup-name"  # EKS puts them on every instance of a group
VARIABLES = "TANDEM_"  # a Lambda's variable is this and the field's name in capitals

PASS_MINUTES = 5  # between two passes of the reaper
BLOCK_MARGIN = timedelta(minutes=45)  # EKS scales down 40 minutes before a block's end, EC2 terminates at 30
FUTURE = timedelta(minutes=5)  # clocks differ; a beat further ahead is no beat
OVERDUE_GRACES = 3  # a stop that EC2 has not done after so many graces is a failed one
TELL_AGAIN = timedelta(hours=1)
TRIES = 4  # of a conditional write that somebody else came before
# At most 3 x (2 + 8) s and 3 s of waiting a call; `stacks/guard.py` gives a pass its time by these.
CALLS = Config(connect_timeout=2, read_timeout=8, retries={"total_max_attempts": 3, "mode": "standard"})

INSTANCES_ALIVE = "instances_alive"
OLDEST_INSTANCE_HOURS = "oldest_instance_hours"
IDLE_BLOCK_MINUTES = "idle_block_minutes"
STOP_FAILURES = "stop_failures"
FLEET_USD = "fleet_usd"
UNITS = {
    INSTANCES_ALIVE: "Count",
    OLDEST_INSTANCE_HOURS: "None",
    IDLE_BLOCK_MINUTES: "None",
    STOP_FAILURES: "Count",
    FLEET_USD: "None",
}
"""What a pass publishes, without dimensions, in CloudWatch's words for its unit."""

State = Literal["stopping", "terminating", "stopped", "lifted"]
Source = Literal["fence", "lease", "heartbeat", "node group", "instances"]


class StopError(Exception):
    """One fault, in words an operator can act on at night.

    Args:
        what: what happened, in one sentence.
        where: the object's `s3://` address, the node group or the schedule; empty for neither.
        change: what to do about it.
    """

    code: ClassVar[int]

    def __init__(self, what: str, *, where: str = "", change: str) -> None:
        super().__init__(f"{where}: {what}; {change}" if where else f"{what}; {change}")
        self.what, self.where, self.change = what, where, change


class RefusedError(StopError):
    """What was asked for is not allowed now; nothing was changed."""

    code = 2


class WorldError(StopError):
    """AWS failed or could not be read; what was done before stands."""

    code = 3


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """One environment's fleet and its limits.

    Args:
        environment: its name; the value of its resources' OWNER_TAG.
        bucket: of stop.json, leases and heartbeats.
        topic_arn: where people are told; None tells nobody. Never the topic that starts the stop function.
        namespace: of the metrics in CloudWatch.
        max_hours: most hours that an instance may live and a lease may last.
        idle_minutes: minutes without a heartbeat, or without a lease, before a stop.
        grace_minutes: minutes that EKS has to end an instance before it is terminated by id.
        usd_per_hour: of one instance.
        capacity_kind: capacity-block, reservation, spot or on-demand.
        block_starts, block_ends: of the Capacity Block; None: not said, or another kind.
        schedule_group, scheduler_role_arn, dead_letter_arn: of one-shot stops; only a start needs them.
    """

    environment: str
    account: str
    region: str
    cluster: str
    node_group: str
    bucket: str
    topic_arn: str | None = None
    namespace: str
    max_hours: float
    idle_minutes: float
    grace_minutes: float = 10
    usd_per_hour: float
    capacity_kind: str
    reservation_id: str | None = None
    block_starts: datetime | None = None
    block_ends: datetime | None = None
    schedule_group: str = ""
    scheduler_role_arn: str = ""
    dead_letter_arn: str = ""

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> Self:
        """Read a Lambda's environment: TANDEM_CLUSTER and so on; an empty one counts as absent.

        Raises:
            RefusedError: one is missing or cannot be read, and which.
        """
        raise NotImplementedError

    def variables(self) -> dict[str, str]:
        """Return what `from_variables` reads."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Clients:
    """boto3's clients of one account and region."""

    s3: Any
    eks: Any
    ec2: Any
    sns: Any
    cloudwatch: Any
    scheduler: Any

    @classmethod
    def of(cls, region: str, session: Any = None) -> Self:
        """Return clients that give up in time; `session` is a boto3 session, None takes the surrounding credentials."""
        make = (session or boto3.session.Session()).client
        return cls(**{one.name: make(one.name, region_name=region, config=CALLS) for one in fields(cls)})


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One accelerator node as EC2 lists it; terminated ones are none.

    Args:
        state: pending, running, shutting-down, stopping or stopped.
        ours: whether it carries the environment's own tag.
    """

    id: str
    launched: datetime
    state: str
    ours: bool


@dataclass(frozen=True, kw_only=True)
class Fence:
    """`stop.json`: nobody may raise while it is there and not lifted.

    Args:
        who: stopped: a person's ARN, `reap`, `budget`.
        run: whose lease was live, where that was known.
        at: when the stop was asked for; when it was lifted, for one that is.
        passes: how many passes have worked on it.
        last_look: of the latest pass.
        instances: ids that EC2 listed then.
        terminated: ids that were terminated by id.
        told: the change that people were last told of.
        told_at: when.
        etag: of the object that was read; empty for one that was not.
        fault: why the object could not be understood; it is a fence all the same.
    """

    state: State
    who: str
    why: str
    run: str | None
    at: datetime
    passes: int = 0
    last_look: datetime | None = None
    instances: tuple[str, ...] = ()
    terminated: tuple[str, ...] = ()
    told: str = ""
    told_at: datetime | None = None
    etag: str = ""
    fault: str = ""

    @property
    def closed(self) -> bool:
        """Whether it forbids a raise."""
        return self.state != "lifted"


@dataclass(frozen=True, kw_only=True)
class Lease:
    """`runs/<run>/lease.json`, to which the pointer `lease.json` leads: who may have a fleet, and until when.

    Args:
        who: raised it: a person's ARN, or the runner.
        node_label: labels that its nodes carry.
        deadline: the one-shot stop fires then.
        beats: whether its run writes heartbeats; by hand nothing does, and the deadline alone ends it.
        schedule: name of the one-shot stop.
        etag: of the pointer.
    """

    run: str
    who: str
    experiment: str | None
    node_label: Mapping[str, str]
    created: datetime
    deadline: datetime
    beats: bool
    schedule: str
    etag: str = ""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one look found.

    Args:
        desired, minimum: sizes of the node group; None: unknown, or there is none.
        present: whether there is a node group; None: unknown.
        owned: whether it carries the environment's own tag; None: unknown, or there is none.
        instances: every one of the node group that EC2 lists and that is not terminated.
        lease: that the pointer leads to, also after its deadline and behind a fence: see `live`.
        heartbeat: of the lease's run.
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
    lease: Lease | None = None
    heartbeat: datetime | None = None
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
        raise NotImplementedError


def look(clients: Clients, guarded: Guarded, now: datetime) -> Seen:
    """Read fence, lease, heartbeat, node group and instances. Never raises for AWS: what fails is in `unknown`."""
    raise NotImplementedError


def due(seen: Seen, guarded: Guarded) -> Due:
    """Return what a look demands; pure."""
    raise NotImplementedError


def act(clients: Clients, guarded: Guarded, seen: Seen, demanded: Due, *, who: str, run: str | None = None) -> Report:
    """Do what is due: fence, scale down, terminate, publish, tell. Never raises for AWS: see `Report.failed`."""
    raise NotImplementedError


def reap(clients: Clients, guarded: Guarded, now: datetime) -> Report:
    """Make one pass of the reaper."""
    raise NotImplementedError


def stop(clients: Clients, guarded: Guarded, *, who: str, why: str, run: str | None, now: datetime) -> Report:
    """Stop the fleet: fence it, set the node group to 0. The reaper's passes see to the rest.

    Args:
        who: as of Fence.
        why: in a sentence; a fence that is there already keeps its own.
        run: that is stopped; None takes the lease's, where there is one.

    Raises nothing for AWS: what could not be done is in the report's `failed`.
    """
    raise NotImplementedError


def clear(clients: Clients, guarded: Guarded, *, who: str, now: datetime) -> Fence:
    """Lift the fence; the lease that it ended stays ended.

    Raises:
        RefusedError: there is none, or the fleet is not known to be at 0 without any instance.
        WorldError: AWS could not be asked, or somebody stops at this moment.
    """
    raise NotImplementedError
