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

from tandem.aws import faults

FENCE_KEY = "stop.json"
POINTER_KEY = "lease.json"  # names the run that holds the only live lease
SCHEMA = 1
LEASE_SCHEMA = 2  # since it says for how many nodes it is
VARIABLE_PREFIX = "TANDEM_"  # a Lambda's variable is this and the field's name in capitals
MAX_ATTEMPTS = 4  # of a conditional write that somebody else came before
# At most 3 x (2 + 8) s and 3 s of waiting a call; stacks/guard_functions.py gives a pass its time by these.
CLIENT_CONFIG = Config(connect_timeout=2, read_timeout=8, retries={"total_max_attempts": 3, "mode": "standard"})
STOP_PREFIX = "stop-"  # and the run: the name of a lease's one-shot stop
MAX_OBJECT_BYTES = 1 << 20  # bytes; what is longer is none of ours
MAX_TEXT_CHARACTERS = 300
MAX_SENTENCE_CHARACTERS = 1000  # characters; SNS takes no message above 256 KiB, and a stop must be told
VALID_YEARS = range(2000, 3000)
RUN_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,58}")  # `stop-` and it are a schedule's name, of at most 64
# what reading a spoilt object raises, and reading an answer that is none of the service's, as of a proxy in between
PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
CALL_ERRORS = (*faults.BOTO_ERRORS, OSError, *PARSE_ERRORS)  # all that a call raises for the world
FENCE_FIELDS = (
    "state", "who", "why", "run", "at", "passes", "last_look", "instances", "terminated", "told", "told_at",
    "suspended",
)  # fmt: skip
LEASE_FIELDS = (
    "run", "who", "experiment", "nodes", "node_label", "former_label", "created", "deadline", "beats", "schedule",
    "unarmed", "ending",
)  # fmt: skip
MAX_PASSES = 10_000_000  # of the reaper on one fence; a larger number is no number of ours
MAX_NODES = 10_000
_NOT_FOUND_CODES = {"NoSuchKey", "404"}
_CONFLICT_CODES = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}
_FLOAT_FIELDS = {"max_hours", "idle_minutes", "grace_minutes", "usd_per_hour"}
_INTEGER_FIELDS = {"nodes"}

FenceState = Literal["stopping", "terminating", "stopped", "lifted"]


class GuardError(Exception):
    """One fault, in words an operator can act on at night.

    Args:
        problem: what happened, in one sentence.
        where: the object's `s3://` address, the node group or the schedule; empty for neither.
        change: what to do about it.
    """

    code: ClassVar[int]

    def __init__(self, problem: str, *, where: str = "", change: str) -> None:
        super().__init__(f"{where}: {problem}; {change}" if where else f"{problem}; {change}")
        self.problem, self.where, self.change = problem, where, change


class GuardRefusedError(GuardError):
    """What was asked for is not allowed now; nothing was changed."""

    code = 2


class GuardExternalError(GuardError):
    """AWS failed or could not be read; what was done before stands."""

    code = 3


@dataclass(frozen=True, kw_only=True)
class GuardConfig:
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
        values: dict[str, Any] = {}
        for config_field in fields(cls):
            text = variables.get(VARIABLE_PREFIX + config_field.name.upper(), "")
            if text:
                values[config_field.name] = _parse_variable(config_field.name, text)
            elif config_field.default is MISSING:
                raise GuardRefusedError("the variable is not set", where=VARIABLE_PREFIX + config_field.name.upper(),
                                   change="deploy the Guard stack again")  # fmt: skip
        return cls(**values)

    def to_variables(self) -> dict[str, str]:
        """Return what `from_variables` reads."""
        values = {config_field.name: getattr(self, config_field.name) for config_field in fields(self)}
        return {
            VARIABLE_PREFIX + name.upper(): format_value(value)
            for name, value in values.items()
            if value not in {None, ""}
        }

    @property
    def node_group_description(self) -> str:
        """The node group, as a message names it."""
        return f"node group {self.node_group} of cluster {self.cluster}"

    @property
    def grace_period(self) -> timedelta:
        """How long EKS has to end an instance before it is terminated by id."""
        return timedelta(minutes=self.grace_minutes)

    @property
    def idle_limit(self) -> timedelta:
        """How long a fleet may live without a heartbeat."""
        return timedelta(minutes=self.idle_minutes)

    def replace_prefix(self, prefix: str) -> Self:
        """Return the same fleet with its objects below another prefix."""
        return self if prefix == self.prefix else replace(self, prefix=prefix)

    def url(self, key: str) -> str:
        """Return the `s3://` address of an object."""
        return f"s3://{self.bucket}/{self.prefix}{key}"


@dataclass(frozen=True, kw_only=True)
class AwsClients:
    """boto3's clients of one account and region, and this machine's clock.

    Args:
        eks_once: as eks, and never repeats a call by itself: whose fleet it is would not be read again before.
        wall_s: seconds since the epoch. No monotonic clock: that one stands still while a machine sleeps.
        pause: waits for so many seconds.
    """

    s3: Any
    eks: Any
    ec2: Any
    sns: Any
    cloudwatch: Any
    scheduler: Any
    autoscaling: Any
    eks_once: Any = None
    wall_s: Callable[[], float] = time.time
    pause: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        """Take the usual client where nobody gives one that never repeats a call."""
        if self.eks_once is None:
            object.__setattr__(self, "eks_once", self.eks)

    @classmethod
    def create(cls, region: str, session: Any = None) -> Self:
        """Return clients that give up in time, and take no answer of anything but AWS.

        Args:
            region: of the environment.
            session: a boto3 session; None takes the surrounding credentials.
        """
        build_client = (session or boto3.session.Session()).client
        services = [client.name for client in fields(cls) if client.default is MISSING]
        clients = {service: build_client(service, region_name=region, config=CLIENT_CONFIG) for service in services}
        no_retry_config = CLIENT_CONFIG.merge(Config(retries={"total_max_attempts": 1}))
        clients["eks_once"] = build_client("eks", region_name=region, config=no_retry_config)
        for client in clients.values():
            faults.reject_foreign_answers(client)
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

    state: FenceState
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
    def is_closed(self) -> bool:
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
class LeasePointer:
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
class BucketObject:
    """A small object of the bucket, as it was read."""

    body: bytes
    etag: str
    modified_at: datetime


def lease_key(run: str) -> str:
    """Return the key of a run's lease, behind the environment's prefix as every key here."""
    return f"runs/{run}/lease.json"


def heartbeat_key(run: str) -> str:
    """Return the key of a run's heartbeat."""
    return f"runs/{run}/heartbeat.json"


def read_object(clients: AwsClients, config: GuardConfig, key: str) -> BucketObject | None:
    """Return a small object, None where there is none.

    Raises:
        RAISED: S3 does not answer, or denies it.
    """
    try:
        answer = clients.s3.get_object(Bucket=config.bucket, Key=config.prefix + key)
        return BucketObject(
            body=answer["Body"].read(MAX_OBJECT_BYTES), etag=answer["ETag"], modified_at=answer["LastModified"]
        )
    except ClientError as error:
        if error_code(error) in _NOT_FOUND_CODES:
            return None
        raise


def write_object(
    clients: AwsClients, config: GuardConfig, key: str, document: Mapping[str, Any], *, etag: str
) -> str | None:
    """Write an object whole if it is still as it was read; return its new ETag, None if somebody else came first.

    Args:
        etag: of what was read; empty: there was none.

    Raises:
        RAISED: S3 does not answer, or denies it. It may have been written.
    """
    condition = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}
    body = json.dumps({"schema": SCHEMA, **document}, indent=1).encode()
    try:
        answer = clients.s3.put_object(
            Bucket=config.bucket, Key=config.prefix + key, Body=body, ContentType="application/json", **condition
        )
    except ClientError as error:
        if error_code(error) in _CONFLICT_CODES or (etag and error_code(error) in _NOT_FOUND_CODES):
            return None
        raise
    return str(answer["ETag"])


def write_lease(clients: AwsClients, config: GuardConfig, lease: Lease) -> Lease | None:
    """Write a lease if its object is still as it was read; return it with its new ETag, None if others came first.

    Args:
        lease: with the prefix and the ETag that it was read with; a new one has no ETag.

    Raises:
        RAISED: S3 does not answer, or denies it. It may have been written.
    """
    document = {"schema": LEASE_SCHEMA, **select_json_fields(lease, *LEASE_FIELDS)}
    etag = write_object(clients, config.replace_prefix(lease.prefix), lease_key(lease.run), document, etag=lease.etag)
    return None if etag is None else replace(lease, etag=etag)


def read_fence(clients: AwsClients, config: GuardConfig) -> Fence | None:
    """Return the fence; one that cannot be understood is closed, and one that an older release closed holds.

    Raises:
        RAISED: S3 does not answer, or denies it.
    """
    fence = _read_fence_at_prefix(clients, config)
    if not config.former_prefix or (fence is not None and fence.is_closed):
        return fence
    former = _read_fence_at_prefix(clients, config.replace_prefix(config.former_prefix))
    return former if former is not None and former.is_closed else fence


def _read_fence_at_prefix(clients: AwsClients, config: GuardConfig) -> Fence | None:
    bucket_object = read_object(clients, config, FENCE_KEY)
    if bucket_object is None:
        return None
    try:
        document = json.loads(bucket_object.body)
        return Fence(
            state=_parse_fence_state(document["state"]),
            who=shorten_sentence(document["who"]),
            why=shorten_sentence(document["why"]),
            run=_parse_optional_text(document["run"]),
            at=parse_timestamp(document["at"]),
            passes=_parse_count(document.get("passes", 0), MAX_PASSES),
            last_look=parse_timestamp(document["last_look"]) if document.get("last_look") else None,
            instances=_parse_texts(document.get("instances", [])),
            terminated=_parse_texts(document.get("terminated", [])),
            told=shorten_text(document.get("told", "")),
            told_at=parse_timestamp(document["told_at"]) if document.get("told_at") else None,
            suspended=_parse_texts(document.get("suspended", [])),
            prefix=config.prefix,
            etag=bucket_object.etag,
        )
    except PARSE_ERRORS as error:
        fault = f"{config.url(FENCE_KEY)}: not understood ({shorten_text(error)}), so it counts as a fence"
        return Fence(
            state="stopping",
            who="unknown",
            why="stop.json could not be understood",
            run=None,
            at=bucket_object.modified_at,
            prefix=config.prefix,
            etag=bucket_object.etag,
            fault=fault,
        )


def read_pointer(clients: AwsClients, config: GuardConfig) -> LeasePointer:
    """Return whose lease it is; where nobody has one, who has one that an older release wrote.

    Raises:
        RAISED: S3 does not answer, or denies it.
    """
    pointer = read_pointer_at_prefix(clients, config, config.prefix)
    if not config.former_prefix or pointer.run is not None:
        return pointer
    former = read_pointer_at_prefix(clients, config, config.former_prefix)
    return former if former.run is not None else pointer


def read_pointer_at_prefix(clients: AwsClients, config: GuardConfig, prefix: str) -> LeasePointer:
    """Return the pointer below one prefix.

    Raises:
        RAISED: S3 does not answer, or denies it.
    """
    prefix_config = config.replace_prefix(prefix)
    bucket_object = read_object(clients, prefix_config, POINTER_KEY)
    if bucket_object is None:
        return LeasePointer(prefix=prefix)
    try:
        run = _parse_optional_text(json.loads(bucket_object.body)["run"])
        if run is not None and not RUN_NAME_PATTERN.fullmatch(run):
            raise ValueError(f"names no run: {run!r}")
        return LeasePointer(run=run, prefix=prefix, etag=bucket_object.etag)
    except PARSE_ERRORS as error:
        fault = f"{prefix_config.url(POINTER_KEY)}: not understood ({shorten_text(error)}), so it counts as no lease"
        return LeasePointer(prefix=prefix, etag=bucket_object.etag, fault=fault)


def read_lease(clients: AwsClients, config: GuardConfig, pointer: LeasePointer) -> tuple[Lease | None, str]:
    """Return the lease to which a pointer leads, or None and why there is none.

    Raises:
        RAISED: S3 does not answer, or denies it.
    """
    if pointer.run is None:
        return None, pointer.fault
    config, key = config.replace_prefix(pointer.prefix), lease_key(pointer.run)
    bucket_object = read_object(clients, config, key)
    if bucket_object is None:
        return None, f"{config.url(key)}: not there, though {POINTER_KEY} leads to it, so there is no lease"
    try:
        document = json.loads(bucket_object.body)
        if document["run"] != pointer.run or not isinstance(document["beats"], bool):
            raise ValueError("another run's" if document["run"] != pointer.run else "beats")
        if document["schedule"] != f"{STOP_PREFIX}{pointer.run}":
            raise ValueError("names another run's stop")
        labels = _parse_labels(document["node_label"])
        return Lease(
            run=pointer.run,
            who=shorten_sentence(document["who"]),
            experiment=_parse_optional_text(document["experiment"]),
            node_label=labels,
            created=parse_timestamp(document["created"]),
            deadline=parse_timestamp(document["deadline"]),
            beats=document["beats"],
            schedule=str(document["schedule"]),
            nodes=_parse_count(document.get("nodes", config.nodes), MAX_NODES),
            former_label=_parse_labels(document.get("former_label", {})),
            unarmed=_parse_texts(document.get("unarmed", [])),
            ending=parse_timestamp(document["ending"]) if document.get("ending") else None,
            prefix=pointer.prefix,
            etag=bucket_object.etag,
        ), ""
    except PARSE_ERRORS as error:
        return None, f"{config.url(key)}: not understood ({shorten_text(error)}), so it counts as no lease"


def parse_timestamp(text: Any) -> datetime:
    """Read a moment in ISO 8601 with its zone, in a year that leaves room to reckon.

    Raises:
        ValueError, TypeError: it is none.
    """
    timestamp = datetime.fromisoformat(text)
    if timestamp.tzinfo is None or timestamp.year not in VALID_YEARS:
        raise ValueError(f"{text} has no time zone, or no year of ours")
    return timestamp.astimezone(UTC)


def select_json_fields(record: Any, *names: str) -> dict[str, Any]:
    """Return fields of a record as an object has them."""
    return {name: _encode_json_value(getattr(record, name)) for name in names}


def error_code(error: ClientError) -> str:
    """Return AWS's code of a refusal."""
    return str(error.response.get("Error", {}).get("Code", ""))


def describe_error(error: BaseException) -> str:
    """Return an error of boto3 in one line."""
    if isinstance(error, ClientError):
        return shorten_text(f"{error_code(error)}: {error.response['Error'].get('Message', '')}")
    is_parse_error = isinstance(error, PARSE_ERRORS) and not isinstance(error, BotoCoreError)
    return f"an answer that is none of the service's: {shorten_text(error)}" if is_parse_error else shorten_text(error)


def shorten_text(error: object, max_characters: int = MAX_TEXT_CHARACTERS) -> str:
    """Return an error or a text in one line that is not too long, of characters that can be sent and shown."""
    text = " ".join(f"{type(error).__name__}: {error}".split() if isinstance(error, BaseException)
                    else str(error).split())  # fmt: skip
    line = text if len(text) <= max_characters else f"{text[:max_characters]}..."
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line)


def shorten_sentence(text: object) -> str:
    """Return what somebody said of himself or his reasons as one that every channel takes."""
    return shorten_text(text, MAX_SENTENCE_CHARACTERS)


def _parse_fence_state(value: Any) -> FenceState:
    fence_states: tuple[FenceState, ...] = ("stopping", "terminating", "stopped", "lifted")
    return fence_states[fence_states.index(value)]


def _parse_optional_text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return shorten_sentence(value) if value else None


def _parse_texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return tuple(shorten_text(text) for text in value)


def _parse_labels(labels: Any) -> dict[str, str]:
    return {shorten_sentence(name): shorten_sentence(value) for name, value in labels.items()}


def _parse_count(value: Any, maximum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        raise ValueError(f"no whole number from 0 to {maximum}")
    return value


def _encode_json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_value(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def format_value(value: Any) -> str:
    """Return a value as a text; a moment in ISO 8601, UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value)


def _parse_variable(name: str, text: str) -> Any:
    try:
        if name.startswith("block_"):
            return parse_timestamp(text)
        return int(text) if name in _INTEGER_FIELDS else float(text) if name in _FLOAT_FIELDS else text
    except ValueError:
        raise GuardRefusedError(f"{text!r} cannot be read", where=VARIABLE_PREFIX + name.upper(),
                           change="deploy the Guard stack again") from None  # fmt: skip


def change_fence(
    clients: AwsClients, config: GuardConfig, fence: Fence | None, change: Callable[[Fence | None], Fence | None]
) -> Fence | None:
    """Write what `change` makes of the fence; return the fence that then stands, None if others always came first.

    A fence that an older release wrote is changed where it stands.

    Args:
        fence: the fence as it was read last.
        change: None keeps what is there.

    Raises:
        RAISED: S3 does not answer, or denies it.
    """
    for _ in range(MAX_ATTEMPTS):
        new_fence = change(fence)
        if new_fence is None:
            return fence
        fence_config = config.replace_prefix(fence.prefix if fence else config.prefix)
        document = select_json_fields(new_fence, *FENCE_FIELDS)
        etag = write_object(clients, fence_config, FENCE_KEY, document, etag=fence.etag if fence else "")
        if etag is not None:
            return replace(new_fence, prefix=fence_config.prefix, etag=etag)
        fence = read_fence(clients, config)
    return None


def clear_pointer(clients: AwsClients, config: GuardConfig, pointer: LeasePointer) -> bool:
    """Let the pointer name no run, if it is still as it was read; whether it was.

    A start that read before is refused then. A lease that an older release wrote ends where it stands, and here too.

    Raises:
        RAISED: S3 does not answer, or denies it.
    """
    pointer_config = config.replace_prefix(pointer.prefix)
    if write_object(clients, pointer_config, POINTER_KEY, {"run": None}, etag=pointer.etag) is None:
        # its own write, of which the answer was lost and the repetition refused, is no stranger's
        return pointer.run is not None and read_pointer_at_prefix(clients, config, pointer.prefix).run is None
    if pointer_config.prefix == config.prefix:
        return True
    own_pointer = read_pointer_at_prefix(clients, config, config.prefix)
    return (
        own_pointer.run is None
        and write_object(clients, config, POINTER_KEY, {"run": None}, etag=own_pointer.etag) is not None
    )
