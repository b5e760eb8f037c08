"""What the guard of a fleet keeps in the bucket: the fence, the lease, the pointer to it; and whom it guards, and how.

Invariant: standard library and boto3 only, because a Lambda packs this file; an object is written whole and only over
what was read, and one that cannot be understood stands for the safe side: a fence is closed, a lease is none.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal, Self

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tandem import aws_fault

FENCE_KEY = "stop.json"
POINTER_KEY = "lease.json"  # names the run that holds the only live lease
SCHEMA = 1
LEASE_SCHEMA = 2  # since it says for how many nodes it is
VARIABLES = "TANDEM_"  # a Lambda's variable is this and the field's name in capitals
TRIES = 4  # of a conditional write that somebody else came before
# At most 3 x (2 + 8) s and 3 s of waiting a call; stacks/guard_functions.py gives a pass its time by these.
CALLS = Config(connect_timeout=2, read_timeout=8, retries={"total_max_attempts": 3, "mode": "standard"})
LARGEST = 1 << 20  # bytes; what is longer is none of ours
LONGEST_WORDS = 300
LONGEST_WHY = 1000  # characters; SNS takes no message above 256 KiB, and a stop must be told
YEARS = range(2000, 3000)
RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,58}")  # `stop-` and it are a schedule's name, of at most 64
# what reading a spoilt object raises, and reading an answer that is none of the service's, as of a proxy in between
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
RAISED = (*aws_fault.RAISED, OSError, *UNREADABLE)  # all that a call raises for the world
FENCE_FIELDS = (
    "state", "who", "why", "run", "at", "passes", "last_look", "instances", "terminated", "told", "told_at",
    "suspended",
)  # fmt: skip
LEASE_FIELDS = (
    "run", "who", "experiment", "nodes", "node_label", "former_label", "created", "deadline", "beats", "schedule",
    "unarmed", "ending",
)  # fmt: skip
MOST_PASSES = 10_000_000  # of the reaper on one fence; a larger number is no number of ours
MOST_NODES = 10_000
_ABSENT = {"NoSuchKey", "404"}
_CAME_FIRST = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}
_NUMBERS = {"max_hours", "idle_minutes", "grace_minutes", "usd_per_hour"}
_COUNTS = {"nodes"}

State = Literal["stopping", "terminating", "stopped", "lifted"]


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
        prefix: before the keys of these, where several environments may have one bucket; empty, or with its slash.
        former_prefix: where releases before this one kept them; a stop obeys and ends what still lies there. Empty
            where the prefix never changed.
        topic_arn: where people are told; None tells nobody. Never the topic that starts the stop function.
        namespace: of the guard's own metrics in CloudWatch; nobody but the guard may publish there.
        nodes: capacity.nodes; a lease that names no number of nodes is for so many.
        max_hours: most hours that an instance may live and a lease may last.
        idle_minutes: minutes without a heartbeat before a stop.
        grace_minutes: minutes that EKS has to end an instance before it is terminated by id.
        usd_per_hour: of one instance.
        capacity_kind: capacity-block, reservation, spot or on-demand, as declared; the node group's tag goes first.
        block_starts, block_ends: of the Capacity Block as declared; None: not said, or another kind. What the node
            group's tags say comes before it.
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
    nodes: int
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
    prefix: str = ""
    former_prefix: str = ""

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> Self:
        """Read a Lambda's environment: TANDEM_CLUSTER and so on; an empty one counts as absent.

        Raises:
            RefusedError: one is missing or cannot be read, and which.
        """
        said: dict[str, Any] = {}
        for one in fields(cls):
            text = variables.get(VARIABLES + one.name.upper(), "")
            if text:
                said[one.name] = _variable(one.name, text)
            elif one.default is MISSING:
                raise RefusedError("the variable is not set", where=VARIABLES + one.name.upper(),
                                   change="deploy the Guard stack again")  # fmt: skip
        return cls(**said)

    def variables(self) -> dict[str, str]:
        """Return what `from_variables` reads."""
        said = {one.name: getattr(self, one.name) for one in fields(self)}
        return {VARIABLES + name.upper(): plain(value) for name, value in said.items() if value not in {None, ""}}

    @property
    def group(self) -> str:
        """The node group, as a message names it."""
        return f"node group {self.node_group} of cluster {self.cluster}"

    @property
    def grace(self) -> timedelta:
        """How long EKS has to end an instance before it is terminated by id."""
        return timedelta(minutes=self.grace_minutes)

    @property
    def idle(self) -> timedelta:
        """How long a fleet may live without a heartbeat."""
        return timedelta(minutes=self.idle_minutes)

    def at_prefix(self, prefix: str) -> Self:
        """Return the same fleet with its objects below another prefix."""
        return self if prefix == self.prefix else replace(self, prefix=prefix)

    def url(self, key: str) -> str:
        """Return the `s3://` address of an object."""
        return f"s3://{self.bucket}/{self.prefix}{key}"


@dataclass(frozen=True, kw_only=True)
class Clients:
    """boto3's clients of one account and region, and this machine's clock.

    Args:
        wall_s: seconds since the epoch. No monotonic clock: that one stands still while a machine sleeps.
    """

    s3: Any
    eks: Any
    ec2: Any
    sns: Any
    cloudwatch: Any
    scheduler: Any
    autoscaling: Any
    wall_s: Callable[[], float] = time.time

    @classmethod
    def of(cls, region: str, session: Any = None) -> Self:
        """Return clients that give up in time, and take no answer of anything but AWS.

        Args:
            region: of the environment.
            session: a boto3 session; None takes the surrounding credentials.
        """
        make = (session or boto3.session.Session()).client
        services = [each.name for each in fields(cls) if each.default is MISSING]
        clients = {service: make(service, region_name=region, config=CALLS) for service in services}
        for client in clients.values():
            aws_fault.watch_answers(client)
        return cls(**clients)


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
        suspended: Auto Scaling groups in which this stop suspended the launch of instances; a start resumes them.
        prefix: of the object's key; another than the environment's own where an older release wrote it.
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
    suspended: tuple[str, ...] = ()
    prefix: str = ""
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
        nodes: at most so many; an older release wrote none, then capacity.nodes.
        node_label: labels that its nodes carry.
        former_label: labels that its nodes carried before the latest relabel.
        deadline: the one-shot stop fires then.
        beats: whether its run writes heartbeats; by hand nothing does, and the deadline alone ends it.
        schedule: name of the one-shot stop.
        unarmed: paths that were not armed when it was raised, and that its operator accepted.
        ending: since when its normal end is under way; None: it is not.
        prefix: of the object's key; another than the environment's own where an older release wrote it.
        etag: of the lease's own object; empty for one that was not read.
    """

    run: str
    who: str
    experiment: str | None
    node_label: Mapping[str, str]
    created: datetime
    deadline: datetime
    beats: bool
    schedule: str
    nodes: int
    former_label: Mapping[str, str] = field(default_factory=dict)
    unarmed: tuple[str, ...] = ()
    ending: datetime | None = None
    prefix: str = ""
    etag: str = ""


@dataclass(frozen=True, kw_only=True)
class Pointer:
    """`lease.json` at the root: the run whose lease is the only one, or none.

    Args:
        prefix: of the object's key; another than the environment's own where an older release wrote it.
        etag: empty where there is no object yet.
        fault: why it could not be understood; it names no run then.
    """

    run: str | None = None
    prefix: str = ""
    etag: str = ""
    fault: str = ""


@dataclass(frozen=True, kw_only=True)
class Object:
    """A small object of the bucket, as it was read."""

    body: bytes
    etag: str
    modified: datetime


def lease_key(run: str) -> str:
    """Return the key of a run's lease, behind the environment's prefix as every key here."""
    return f"runs/{run}/lease.json"


def heartbeat_key(run: str) -> str:
    """Return the key of a run's heartbeat."""
    return f"runs/{run}/heartbeat.json"


def read(clients: Clients, guarded: Guarded, key: str) -> Object | None:
    """Return a small object, None where there is none.

    Raises:
        RAISED: S3 does not answer, or denies it.
    """
    try:
        answer = clients.s3.get_object(Bucket=guarded.bucket, Key=guarded.prefix + key)
        return Object(body=answer["Body"].read(LARGEST), etag=answer["ETag"], modified=answer["LastModified"])
    except ClientError as error:
        if code_of(error) in _ABSENT:
            return None
        raise


def write(clients: Clients, guarded: Guarded, key: str, said: Mapping[str, Any], *, etag: str) -> str | None:
    """Write an object whole if it is still as it was read; return its new ETag, None if somebody else came first.

    Args:
        etag: of what was read; empty: there was none.

    Raises:
        RAISED: S3 does not answer, or denies it. It may have been written.
    """
    condition = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}
    body = json.dumps({"schema": SCHEMA, **said}, indent=1).encode()
    try:
        answer = clients.s3.put_object(
            Bucket=guarded.bucket, Key=guarded.prefix + key, Body=body, ContentType="application/json", **condition
        )
    except ClientError as error:
        if code_of(error) in _CAME_FIRST or (etag and code_of(error) in _ABSENT):
            return None
        raise
    return str(answer["ETag"])


def write_lease(clients: Clients, guarded: Guarded, lease: Lease) -> Lease | None:
    """Write a lease if its object is still as it was read; return it with its new ETag, None if others came first.

    Args:
        lease: with the prefix and the ETag that it was read with; a new one has no ETag.

    Raises:
        RAISED: S3 does not answer, or denies it. It may have been written.
    """
    said = {"schema": LEASE_SCHEMA, **said_of(lease, *LEASE_FIELDS)}
    etag = write(clients, guarded.at_prefix(lease.prefix), lease_key(lease.run), said, etag=lease.etag)
    return None if etag is None else replace(lease, etag=etag)


def read_fence(clients: Clients, guarded: Guarded) -> Fence | None:
    """Return the fence; one that cannot be understood is closed, and one that an older release closed holds.

    Raises:
        RAISED: S3 does not answer, or denies it.
    """
    fence = _read_fence_below(clients, guarded)
    if not guarded.former_prefix or (fence is not None and fence.closed):
        return fence
    former = _read_fence_below(clients, guarded.at_prefix(guarded.former_prefix))
    return former if former is not None and former.closed else fence


def _read_fence_below(clients: Clients, guarded: Guarded) -> Fence | None:
    stored = read(clients, guarded, FENCE_KEY)
    if stored is None:
        return None
    try:
        said = json.loads(stored.body)
        return Fence(
            state=_state(said["state"]), who=sentence(said["who"]), why=sentence(said["why"]),
            run=_text_or_none(said["run"]),
            at=moment(said["at"]), passes=_count(said.get("passes", 0), MOST_PASSES),
            last_look=moment(said["last_look"]) if said.get("last_look") else None,
            instances=_texts(said.get("instances", [])), terminated=_texts(said.get("terminated", [])),
            told=short(said.get("told", "")), told_at=moment(said["told_at"]) if said.get("told_at") else None,
            suspended=_texts(said.get("suspended", [])), prefix=guarded.prefix, etag=stored.etag,
        )  # fmt: skip
    except UNREADABLE as error:
        fault = f"{guarded.url(FENCE_KEY)}: not understood ({short(error)}), so it counts as a fence"
        return Fence(state="stopping", who="unknown", why="stop.json could not be understood", run=None,
                     at=stored.modified, prefix=guarded.prefix, etag=stored.etag, fault=fault)  # fmt: skip


def read_pointer(clients: Clients, guarded: Guarded) -> Pointer:
    """Return whose lease it is; where nobody has one, who has one that an older release wrote.

    Raises:
        RAISED: S3 does not answer, or denies it.
    """
    pointer = read_pointer_below(clients, guarded, guarded.prefix)
    if not guarded.former_prefix or pointer.run is not None:
        return pointer
    former = read_pointer_below(clients, guarded, guarded.former_prefix)
    return former if former.run is not None else pointer


def read_pointer_below(clients: Clients, guarded: Guarded, prefix: str) -> Pointer:
    """Return the pointer below one prefix.

    Raises:
        RAISED: S3 does not answer, or denies it.
    """
    place = guarded.at_prefix(prefix)
    stored = read(clients, place, POINTER_KEY)
    if stored is None:
        return Pointer(prefix=prefix)
    try:
        run = _text_or_none(json.loads(stored.body)["run"])
        if run is not None and not RUN.fullmatch(run):
            raise ValueError(f"names no run: {run!r}")
        return Pointer(run=run, prefix=prefix, etag=stored.etag)
    except UNREADABLE as error:
        fault = f"{place.url(POINTER_KEY)}: not understood ({short(error)}), so it counts as no lease"
        return Pointer(prefix=prefix, etag=stored.etag, fault=fault)


def read_lease(clients: Clients, guarded: Guarded, pointer: Pointer) -> tuple[Lease | None, str]:
    """Return the lease to which a pointer leads, or None and why there is none.

    Raises:
        RAISED: S3 does not answer, or denies it.
    """
    if pointer.run is None:
        return None, pointer.fault
    guarded, key = guarded.at_prefix(pointer.prefix), lease_key(pointer.run)
    found = read(clients, guarded, key)
    if found is None:
        return None, f"{guarded.url(key)}: not there, though {POINTER_KEY} leads to it, so there is no lease"
    try:
        said = json.loads(found.body)
        if said["run"] != pointer.run or not isinstance(said["beats"], bool):
            raise ValueError("another run's" if said["run"] != pointer.run else "beats")
        labels = _label(said["node_label"])
        return Lease(
            run=pointer.run, who=sentence(said["who"]), experiment=_text_or_none(said["experiment"]), node_label=labels,
            created=moment(said["created"]), deadline=moment(said["deadline"]), beats=said["beats"],
            schedule=str(said["schedule"]), nodes=_count(said.get("nodes", guarded.nodes), MOST_NODES),
            former_label=_label(said.get("former_label", {})), unarmed=_texts(said.get("unarmed", [])),
            ending=moment(said["ending"]) if said.get("ending") else None, prefix=pointer.prefix, etag=found.etag,
        ), ""  # fmt: skip
    except UNREADABLE as error:
        return None, f"{guarded.url(key)}: not understood ({short(error)}), so it counts as no lease"


def moment(text: Any) -> datetime:
    """Read a moment in ISO 8601 with its zone, in a year that leaves room to reckon.

    Raises:
        ValueError, TypeError: it is none.
    """
    found = datetime.fromisoformat(text)
    if found.tzinfo is None or found.year not in YEARS:
        raise ValueError(f"{text} has no time zone, or no year of ours")
    return found.astimezone(UTC)


def said_of(record: Any, *names: str) -> dict[str, Any]:
    """Return fields of a record as an object has them."""
    return {name: _json(getattr(record, name)) for name in names}


def code_of(error: ClientError) -> str:
    """Return AWS's code of a refusal."""
    return str(error.response.get("Error", {}).get("Code", ""))


def words(error: BaseException) -> str:
    """Return an error of boto3 in one line."""
    if isinstance(error, ClientError):
        return short(f"{code_of(error)}: {error.response['Error'].get('Message', '')}")
    strange = isinstance(error, UNREADABLE) and not isinstance(error, BotoCoreError)
    return f"an answer that is none of the service's: {short(error)}" if strange else short(error)


def short(error: object, longest: int = LONGEST_WORDS) -> str:
    """Return an error or a text in one line that is not too long, of characters that can be sent and shown."""
    text = " ".join(f"{type(error).__name__}: {error}".split() if isinstance(error, BaseException)
                    else str(error).split())  # fmt: skip
    kept = text if len(text) <= longest else f"{text[:longest]}..."
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in kept)


def sentence(said: object) -> str:
    """Return what somebody said of himself or his reasons as one that every channel takes."""
    return short(said, LONGEST_WHY)


def _state(said: Any) -> State:
    known: tuple[State, ...] = ("stopping", "terminating", "stopped", "lifted")
    return known[known.index(said)]


def _text_or_none(said: Any) -> str | None:
    if said is not None and not isinstance(said, str):
        raise TypeError(f"{said!r} is no text")
    return sentence(said) if said else None


def _texts(said: Any) -> tuple[str, ...]:
    if not isinstance(said, list):
        raise TypeError(f"{said!r} is no list")
    return tuple(short(text) for text in said)


def _label(said: Any) -> dict[str, str]:
    return {sentence(name): sentence(value) for name, value in said.items()}


def _count(said: Any, most: int) -> int:
    if isinstance(said, bool) or not isinstance(said, int) or not 0 <= said <= most:
        raise ValueError(f"no whole number from 0 to {most}")
    return said


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return plain(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def plain(value: Any) -> str:
    """Return a value as a text; a moment in ISO 8601, UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value)


def _variable(name: str, text: str) -> Any:
    try:
        if name.startswith("block_"):
            return moment(text)
        return int(text) if name in _COUNTS else float(text) if name in _NUMBERS else text
    except ValueError:
        raise RefusedError(f"{text!r} cannot be read", where=VARIABLES + name.upper(),
                           change="deploy the Guard stack again") from None  # fmt: skip


def change_fence(
    clients: Clients, guarded: Guarded, known: Fence | None, change: Callable[[Fence | None], Fence | None]
) -> Fence | None:
    """Write what `change` makes of the fence; return the fence that then stands, None if others always came first.

    A fence that an older release wrote is changed where it stands.

    Args:
        known: the fence as it was read last.
        change: None keeps what is there.

    Raises:
        RAISED: S3 does not answer, or denies it.
    """
    for _ in range(TRIES):
        wanted = change(known)
        if wanted is None:
            return known
        place = guarded.at_prefix(known.prefix if known else guarded.prefix)
        said = said_of(wanted, *FENCE_FIELDS)
        etag = write(clients, place, FENCE_KEY, said, etag=known.etag if known else "")
        if etag is not None:
            return replace(wanted, prefix=place.prefix, etag=etag)
        known = read_fence(clients, guarded)
    return None


def end_pointer(clients: Clients, guarded: Guarded, pointer: Pointer) -> bool:
    """Let the pointer name no run, if it is still as it was read; whether it was.

    A start that read before is refused then. A lease that an older release wrote ends where it stands, and here too.

    Raises:
        RAISED: S3 does not answer, or denies it.
    """
    place = guarded.at_prefix(pointer.prefix)
    if write(clients, place, POINTER_KEY, {"run": None}, etag=pointer.etag) is None:
        # its own write, of which the answer was lost and the repetition refused, is no stranger's
        return pointer.run is not None and read_pointer_below(clients, guarded, pointer.prefix).run is None
    if place.prefix == guarded.prefix:
        return True
    own = read_pointer_below(clients, guarded, guarded.prefix)
    return own.run is None and write(clients, guarded, POINTER_KEY, {"run": None}, etag=own.etag) is not None
