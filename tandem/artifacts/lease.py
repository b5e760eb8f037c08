"""Write lease of a set: one holder at a time, by conditional writes of one small object.

Invariant: a holder that cannot prove its lease stops; another writer takes over only after the
lease has ended by S3's clock. "Released" is a state of the object, since writers may not delete.

A lease keeps two writers from doing the same work; results are safe because manifests are written
conditionally and last. This module measures durations by a clock that is never set and that runs
while the machine sleeps (a laptop that collects), and compares times only by S3's clock: the Date
of its answer and the LastModified of the object, both to the second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.store import ObjectContent, ObjectStore
from tandem.errors import ExternalError, InputError, SchemaError, TandemError
from tandem.shell_command import quote_command

SCHEMA_VERSION = 1
LEASE_S = 120.0  # of a writer that renews it
MAX_LEASE_S = 30 * 86_400.0
# both times are whole seconds; others wait so much longer than the holder's own count
CLOCK_ROUNDING_S = 2
RENEWALS_PER_TTL = 3  # during one lease time, so that two may fail
POLL_S = 5.0
# Linux' monotonic clock stops in sleep
CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LeaseConflictError(ExternalError):
    """Somebody else holds the lease."""


@dataclass(frozen=True, kw_only=True)
class LeaseState:
    """State of a lease, from its object.

    Args:
        holder: present or last holder.
        ends_at: end time unless the lease is renewed, by S3's clock; None once it is released.
        is_active: whether the holder has the lease now.
    """

    holder: str
    ends_at: datetime | None
    is_active: bool


def parse_lease(lease_object: ObjectContent, where: str) -> LeaseState:
    """Parse a lease's object.

    Raises:
        SchemaError: the lease has another schema.
        InputError: the object is no lease.
    """
    with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError):
        document = json.loads(lease_object.body)
        if document["schema_version"] != SCHEMA_VERSION:
            raise SchemaError("the lease", document["schema_version"], SCHEMA_VERSION, where=where)
        holder = str(document["holder"])
        if document["state"] == "released":
            return LeaseState(holder=holder, ends_at=None, is_active=False)
        if document["state"] == "held":
            ends_at = lease_object.modified_at + timedelta(seconds=float(document["ttl_s"]))
            free_at = ends_at + timedelta(seconds=CLOCK_ROUNDING_S)
            is_active = lease_object.read_at < free_at
            return LeaseState(holder=holder, ends_at=ends_at, is_active=is_active)
    problem = f"this is not a lease that this program knows: {lease_object.body[:80]!r}"
    raise InputError(
        problem, where=where, change="see who wrote it; when no job writes this set, remove it"
    )


def read_lease(store: ObjectStore, key: str) -> LeaseState | None:
    """Return the state of a stored lease; None if there is none.

    Raises:
        TandemError: S3 failed, or the object is no lease.
    """
    lease_object = store.read(key)
    if not lease_object:
        return None
    return parse_lease(lease_object, store.url(key))


def parse_ttl_s(text: str) -> float:
    """Parse the duration of a lease in seconds.

    Raises:
        argparse.ArgumentTypeError: a lease cannot last so long, or the text is no number.
    """
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= MAX_LEASE_S:
            return float(text)
    raise argparse.ArgumentTypeError(f"seconds, more than 0 and at most {MAX_LEASE_S:.0f}")


class WriteLease:
    """A held lease; a separate thread renews it while its `with` block runs."""

    def __init__(self, store: ObjectStore, key: str, holder: str, ttl_s: float) -> None:
        self.holder = holder
        self._store = store
        self._key = key
        self._ttl_s = ttl_s
        self._token = uuid.uuid4().hex
        self._write_count = 0
        self._etag = ""
        self._end_s = 0.0  # by CLOCK, counted from before the write
        self._is_lost = False  # or deleted: nothing more is written
        self._write_lock = threading.Lock()
        self._stop_event = threading.Event()
        self.renewal = threading.Thread(target=self._renew, name="lease", daemon=True)

    def check(self) -> None:
        """Return only if the lease is certainly ours.

        Raises:
            LeaseConflictError: the lease was taken over, or not renewed in time; nothing more may
                be written.
        """
        self._is_lost = self._is_lost or time.clock_gettime(CLOCK) >= self._end_s
        if self._is_lost:
            change = "nothing more was written; run again, it goes on where this run ended"
            problem = (
                "the lease was lost: it could not be renewed within"
                f" {self._ttl_s:g} s, or another writer has it"
            )
            raise LeaseConflictError(problem, where=self._store.url(self._key), change=change)

    def confirm(self) -> None:
        """Renew the lease in S3: proof that it is ours now, the last check before a manifest.

        Raises:
            LeaseConflictError: the lease was taken over, or not renewed in time.
            TandemError: S3 failed.
        """
        self._extend()
        self.check()

    def _extend(self) -> None:
        with self._write_lock:
            self._is_lost = self._is_lost or not self.take(self._etag)

    def take(self, etag: str | None) -> bool:
        """Replace the object with this ETag by our lease; return whether the lease is ours."""
        self._write_count += 1
        start_s = time.clock_gettime(CLOCK)
        new_etag = self._write(
            _build_lease_body(
                "held", self.holder, ttl_s=self._ttl_s, token=f"{self._token}-{self._write_count}"
            ),
            etag,
        )
        if new_etag is None:
            return False
        self._etag = new_etag
        self._end_s = start_s + self._ttl_s
        return True

    def _write(self, body: bytes, etag: str | None) -> str | None:
        """Replace the object with this ETag, or our own write that took effect unanswered."""
        new_etag = self._store.write_if(self._key, body, etag)
        if new_etag is None:
            current = self._store.read(self._key)
            if current is not None and self._token.encode() in current.body:
                new_etag = self._store.write_if(self._key, body, current.etag)
        return new_etag

    def delete(self) -> None:
        """Delete the lease's object; if somebody writes it at this moment, leave it released.

        S3 checks the ETag in general purpose buckets too (S3 user guide, "How to perform
        conditional deletes", read on 2026-11-21); the call needs s3:DeleteObject and s3:GetObject.
        """
        with self._write_lock:
            self._is_lost = self._is_lost or self._store.delete_if(self._key, self._etag)

    def stop(self, *, release: bool) -> None:
        """Stop the renewal; if `release`, mark the lease as free in its object."""
        self._stop_event.set()
        self.renewal.join()
        if release and not self._is_lost:
            try:
                self._write(_build_lease_body("released", self.holder), self._etag)
            except TandemError as error:  # the work is done, and the lease ends by itself
                self._warn("lease not released", error)

    def _renew(self) -> None:
        while not self._is_lost and not self._stop_event.wait(self._ttl_s / RENEWALS_PER_TTL):
            try:
                self._extend()
            except TandemError as error:
                self._warn("lease not renewed", error)

    def _warn(self, event: str, error: TandemError) -> None:
        log_event(event, level="warning", object=self._store.url(self._key), reason=error.problem)


def _build_lease_body(state: str, holder: str, **details: Any) -> bytes:
    """Return the object's bytes: unique for each "held", always the same for "released"."""
    document = {"schema_version": SCHEMA_VERSION, "state": state, "holder": holder, **details}
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


@contextlib.contextmanager
def hold_lease(  # noqa: PLR0913 - who, what, how long and until when; each caller names them all
    store: ObjectStore, key: str, holder: str, ttl_s: float, wait_s: float, *, keep: bool = False
) -> Iterator[WriteLease]:
    """Hold a lease for the time of a `with` block.

    Args:
        store: the bucket.
        key: of the lease's object.
        holder: our name, such as a Job's. A lease that the same holder left held is taken back at
            once.
        ttl_s: seconds after which others may take over a lease that is not renewed.
        wait_s: seconds to wait while somebody else holds the lease.
        keep: leave the lease held at the end, for another process of the same holder; an error
            still releases it.

    Raises:
        LeaseConflictError: somebody else holds the lease; the message has the holder and the end
            time.
        TandemError: S3 failed.
    """
    lease = _acquire_lease(store, key, holder, ttl_s, wait_s)
    try:
        yield lease
    except BaseException:
        lease.stop(release=True)
        raise
    lease.stop(release=not keep)


def _acquire_lease(
    store: ObjectStore, key: str, holder: str, ttl_s: float, wait_s: float
) -> WriteLease:
    lease = WriteLease(store, key, holder, ttl_s)
    deadline_s = time.monotonic() + wait_s
    last_holder = ""
    url = store.url(key)
    while True:
        lease_object = store.read(key)
        state = parse_lease(lease_object, url) if lease_object else None
        if state is None or not state.is_active or state.holder == holder:
            if lease.take(lease_object.etag if lease_object else None):
                lease.renewal.start()
                return lease
            continue  # somebody was quicker; read the lease again
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            problem = f"it is held by {state.holder} until {state.ends_at:%Y-%m-%dT%H:%M:%SZ}"
            command = quote_command("aws", "s3", "rm", url)
            raise LeaseConflictError(
                problem,
                where=url,
                change=(
                    "that job does the same work: wait for it; one that fails frees its lease. If"
                    " its pod was killed for good, run again after that time, or remove the lease"
                    f" ({command})"
                ),
            )
        if state.holder != last_holder:
            log_event(
                "waiting for a lease",
                object=url,
                holder=state.holder,
                until=state.ends_at,
                wait_s=round(left_s),
            )
            last_holder = state.holder
        time.sleep(min(POLL_S, left_s, ttl_s))


def release_lease(store: ObjectStore, key: str, holder: str) -> None:
    """Release a lease that a dead process of the same holder left; leave any other alone.

    Raises:
        TandemError: S3 failed, or the object is no lease.
    """
    lease_object = store.read(key)
    state = parse_lease(lease_object, store.url(key)) if lease_object else None
    if lease_object and state and state.ends_at is not None and state.holder == holder:
        store.write_if(key, _build_lease_body("released", holder), lease_object.etag)
