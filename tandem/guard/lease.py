"""The lease of a fleet and the pointer to it: which run may have nodes, how many, until when.

Invariant: standard library and boto3 only, because a Lambda packs this file; a lease that cannot be
parsed is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from tandem.guard import values
from tandem.guard.bucket import SCHEMA, parse_document, read_object, write_object
from tandem.guard.config import AwsClients, GuardConfig

POINTER_KEY = "lease.json"  # names the run that holds the only live lease
LEASE_SCHEMA = 2
STOP_PREFIX = "stop-"  # plus the run: the name of a lease's one-shot stop
# `stop-` and it are a schedule's name, of at most 64
RUN_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,58}")
MAX_NODES = 10_000
_PARSERS: dict[str, Callable[[Any], Any]] = {
    "who": values.shorten_sentence,
    "experiment": values.parse_optional_text,
    "nodes": partial(values.parse_count, maximum=MAX_NODES),
    **dict.fromkeys(("node_label", "former_label"), values.parse_labels),
    **dict.fromkeys(("created", "deadline"), values.parse_timestamp),
    "unarmed": values.parse_texts,
    "ending": values.parse_optional_timestamp,
}
LEASE_FIELDS = ("run", "beats", "schedule", *_PARSERS)


@dataclass(frozen=True, kw_only=True)
class Lease:
    """`runs/<run>/lease.json`, to which `lease.json` points: who may have a fleet, until when.

    Args:
        who: the person's ARN, or the runner.
        nodes: maximum.
        node_label: labels that its nodes carry.
        former_label: labels that its nodes carried before the latest relabel.
        deadline: time at which the one-shot stop fires.
        beats: whether its run writes heartbeats; a lease by hand has none, and only the deadline
            ends it.
        schedule: name of the one-shot stop.
        unarmed: paths that were unarmed at the raise and that its operator accepted.
        ending: time since which its normal end is under way; None: it is not.
        etag: of the lease's object; empty if none was read.
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
    etag: str = ""


@dataclass(frozen=True, kw_only=True)
class LeasePointer:
    """`lease.json` at the root: the run with the only lease, or none.

    Args:
        etag: empty if there is no object yet.
        fault: why the object could not be parsed; then the pointer names no run.
    """

    run: str | None = None
    etag: str = ""
    fault: str = ""


def lease_key(run: str) -> str:
    """Return the key of a run's lease, after the environment's prefix as every key here."""
    return f"runs/{run}/lease.json"


def heartbeat_key(run: str) -> str:
    """Return the key of a run's heartbeat."""
    return f"runs/{run}/heartbeat.json"


def write_lease(clients: AwsClients, config: GuardConfig, lease: Lease) -> Lease | None:
    """Write a lease if unchanged since it was read; return it with its ETag, or None if lost.

    Args:
        lease: with the ETag of its reading; a new one has none.

    Raises:
        CALL_ERRORS: S3 does not answer, or denies the call. The lease may have been written.
    """
    document = {"schema": LEASE_SCHEMA, **values.select_json_fields(lease, *LEASE_FIELDS)}
    etag = write_object(clients, config, lease_key(lease.run), document, etag=lease.etag)
    return None if etag is None else replace(lease, etag=etag)


def read_pointer(clients: AwsClients, config: GuardConfig) -> LeasePointer:
    """Return the pointer to the lease.

    Raises:
        CALL_ERRORS: S3 does not answer, or denies the call.
    """
    bucket_object = read_object(clients, config, POINTER_KEY)
    if bucket_object is None:
        return LeasePointer()
    try:
        run = values.parse_optional_text(parse_document(bucket_object.body, SCHEMA)["run"])
        if run is not None and not RUN_NAME_PATTERN.fullmatch(run):
            raise ValueError(f"names no run: {run!r}")
        return LeasePointer(run=run, etag=bucket_object.etag)
    except values.PARSE_ERRORS as error:
        reason = values.shorten_text(error)
        return LeasePointer(
            etag=bucket_object.etag,
            fault=f"{config.url(POINTER_KEY)}: not understood ({reason}), so it counts as no lease",
        )


def read_lease(
    clients: AwsClients, config: GuardConfig, pointer: LeasePointer
) -> tuple[Lease | None, str]:
    """Return the lease to which a pointer points, or None and why there is none.

    Raises:
        CALL_ERRORS: S3 does not answer, or denies the call.
    """
    if pointer.run is None:
        return None, pointer.fault
    key = lease_key(pointer.run)
    bucket_object = read_object(clients, config, key)
    if bucket_object is None:
        return (
            None,
            f"{config.url(key)}: not there, though {POINTER_KEY} leads to it, so there is no lease",
        )
    try:
        document = parse_document(bucket_object.body, LEASE_SCHEMA)
        if document["run"] != pointer.run or not isinstance(document["beats"], bool):
            raise ValueError("another run's" if document["run"] != pointer.run else "beats")
        if document["schedule"] != f"{STOP_PREFIX}{pointer.run}":
            raise ValueError("names another run's stop")
        fields = {name: document[name] for name in ("run", "beats", "schedule")}
        fields |= {name: parse(document[name]) for name, parse in _PARSERS.items()}
        return Lease(**fields, etag=bucket_object.etag), ""
    except values.PARSE_ERRORS as error:
        return (
            None,
            (
                f"{config.url(key)}: not understood ({values.shorten_text(error)}), so it counts as"
                " no lease"
            ),
        )


def clear_pointer(clients: AwsClients, config: GuardConfig, pointer: LeasePointer) -> bool:
    """Clear the run in the pointer if unchanged since it was read; return whether it was.

    A start that read the pointer before is then refused.

    Raises:
        CALL_ERRORS: S3 does not answer, or denies the call.
    """
    if write_object(clients, config, POINTER_KEY, {"run": None}, etag=pointer.etag) is not None:
        return True
    # an own write whose answer was lost and whose repetition was refused is no stranger's
    return pointer.run is not None and read_pointer(clients, config).run is None
