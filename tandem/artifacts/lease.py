"""Who may write a set: one holder at a time, by conditional writes of one small object.

Invariant: a holder that cannot prove its lease stops; whoever takes over does so only after the lease has ended by
S3's own clock. "Released" is a state of the object, since no writer may delete.

A lease keeps two writers from doing the same work; what makes their results safe is that manifests are written
conditionally and last. Durations are measured here by a clock that is never set and that runs on while the machine
sleeps (a laptop that collects), times compared by S3's alone: the Date of its answer and the LastModified of the
object, both to the second.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tandem.artifacts.fault import ArtifactError, RefusedError, WorldError
from tandem.artifacts.log import say
from tandem.artifacts.store import Store, Stored

SCHEMA_VERSION = 1
ROUNDING_S = 2  # both times are whole seconds; others wait so much longer than the holder counts on
RENEWALS = 3  # in the time that a lease lasts, so that two may fail
POLL_S = 5.0
LONGEST_S = 30 * 86_400.0
CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # Linux' monotonic clock stands still in sleep


class HeldError(WorldError):
    """Somebody else holds the lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """What a lease's object says.

    Args:
        holder: who has it, or had it last.
        until: when it ends unless it is renewed, by S3's clock; None once it is released.
        held: whether somebody has it now.
    """

    holder: str
    until: datetime | None
    held: bool


def tenure(stored: Stored, where: str) -> Tenure:
    """Read a lease's object.

    Raises:
        RefusedError: it is no lease.
    """
    try:
        plain = json.loads(stored.body)
        holder, state = str(plain["holder"]), str(plain["state"])
        until = stored.modified + timedelta(seconds=float(plain["ttl_s"])) if state == "held" else None
        known = plain["schema_version"] == SCHEMA_VERSION and state in {"held", "released"}
    except (ValueError, KeyError, TypeError, OverflowError):
        known = False
    if not known:
        raise RefusedError(
            f"this is no lease that this program knows: {stored.body[:80]!r}", where=where,
            change="see who wrote it; when no job writes this set, remove the object",
        )  # fmt: skip
    over = until is None or stored.now >= until + timedelta(seconds=ROUNDING_S)
    return Tenure(holder=holder, until=until, held=not over)


class Lease:
    """A lease that is held, and renewed from a thread of its own while its `with` block runs."""

    def __init__(self, store: Store, key: str, holder: str, ttl_s: float) -> None:
        self.holder = holder
        self._store, self._key, self._ttl_s = store, key, ttl_s
        self._token, self._count = uuid.uuid4().hex, 0
        self._etag = ""
        self._until = 0.0  # by CLOCK, counted from before the write was asked for
        self._lost = ""
        self._writing = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def check(self) -> None:
        """Return while the lease is ours beyond doubt.

        Raises:
            HeldError: it was taken over, or could not be renewed in time; nothing more may be written.
        """
        if not self._lost and time.clock_gettime(CLOCK) >= self._until:
            self._lost = f"it could not be renewed within {self._ttl_s:g} s"
        if self._lost:
            raise HeldError(
                f"the lease was lost: {self._lost}", where=self._store.url(self._key),
                change="nothing more was written; run again, it goes on where this run ended",
            )  # fmt: skip

    def confirm(self) -> None:
        """Return when S3 itself says that the lease is ours now; the last thing to ask before a manifest.

        Raises:
            HeldError: it was taken over, or could not be renewed in time.
            ArtifactError: S3 failed.
        """
        self._extend()
        self.check()

    def _extend(self) -> None:
        with self._writing:
            if not self._lost and not self.take(self._etag):
                self._lost = "another writer has taken it over"

    def take(self, etag: str | None) -> bool:
        """Write ourselves into the object in the place of what has this ETag; whether it is ours."""
        self._count += 1
        began = time.clock_gettime(CLOCK)
        taken = self._write(self._held(self._count), etag)
        if taken is None:
            return False
        self._etag, self._until = taken, began + self._ttl_s
        return True

    def _write(self, body: bytes, etag: str | None) -> str | None:
        """Write in the place of what has this ETag, or of our own write that was done though every try of it failed."""
        written = self._store.write_if(self._key, body, etag)
        if written is None:
            there = self._store.read(self._key)
            if there is not None and there.body in map(self._held, range(1, self._count + 1)):
                written = self._store.write_if(self._key, body, there.etag)
        return written

    def _held(self, number: int) -> bytes:
        return _body("held", self.holder, ttl_s=self._ttl_s, token=f"{self._token}-{number}")

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def stop(self, *, release: bool) -> None:
        """Renew no more, and say in the object that it is free."""
        self._end.set()
        self._thread.join()
        if not release or self._lost:
            return
        try:
            self._write(_body("released", self.holder), self._etag)
        except ArtifactError as error:  # what was done is done, and the lease ends by itself
            say("lease not released", level="warning", object=self._store.url(self._key), reason=error.what)

    def _renew(self) -> None:
        while not self._lost and not self._end.wait(self._ttl_s / RENEWALS):
            try:
                self._extend()
            except ArtifactError as error:
                say("lease not renewed", level="warning", object=self._store.url(self._key), reason=error.what)


def _body(state: str, holder: str, **details: Any) -> bytes:
    """Return the object's bytes: never the same twice while held, always the same when released."""
    plain = {"schema_version": SCHEMA_VERSION, "state": state, "holder": holder, **details}
    return (json.dumps(plain, indent=1, sort_keys=True) + "\n").encode()


@contextlib.contextmanager
def take(  # noqa: PLR0913 - who, what, how long and until when; each caller names them all
    store: Store, key: str, holder: str, ttl_s: float, wait_s: float, *, keep: bool = False
) -> Iterator[Lease]:
    """Hold a lease for the time of a `with` block.

    Args:
        store: the bucket.
        key: of the lease's object.
        holder: who we are, such as a Job's name. What the same holder left held is taken back at once.
        ttl_s: seconds after which others may take it over if it is not renewed.
        wait_s: seconds to wait while somebody else holds it.
        keep: leave it held at the end, for another process of the same holder; an error releases it all the same.

    Raises:
        RefusedError: `ttl_s` is no time that a lease can last.
        HeldError: somebody else holds it; the message says who and until when.
        ArtifactError: S3 failed.
    """
    if not 0 < ttl_s <= LONGEST_S:
        raise RefusedError(
            f"a lease lasts more than 0 and at most {LONGEST_S:g} seconds, not {ttl_s:g}", change="correct --lease-s"
        )
    lease = _taken(store, key, holder, ttl_s, wait_s)
    lease.start()
    try:
        yield lease
    except BaseException:
        lease.stop(release=True)
        raise
    lease.stop(release=not keep)


def _taken(store: Store, key: str, holder: str, ttl_s: float, wait_s: float) -> Lease:
    lease, deadline, told = Lease(store, key, holder, ttl_s), time.monotonic() + wait_s, ""
    while True:
        stored = store.read(key)
        seen = tenure(stored, store.url(key)) if stored else None
        if seen is None or not seen.held or seen.holder == holder:
            if lease.take(stored.etag if stored else None):
                return lease
            continue  # somebody was quicker; see who
        left = deadline - time.monotonic()
        if left <= 0:
            raise HeldError(
                f"it is held by {seen.holder} until {seen.until:%Y-%m-%dT%H:%M:%SZ}", where=store.url(key),
                change="that job does the same work: wait for it; if it is dead, run again after that time",
            )  # fmt: skip
        if seen.holder != told:
            say("waiting for a lease", object=store.url(key), holder=seen.holder, until=seen.until, wait_s=round(left))
            told = seen.holder
        time.sleep(min(POLL_S, left, ttl_s))


def let_go(store: Store, key: str, holder: str) -> None:
    """Say that a lease is free which a dead process of the same holder left held; anything else is left alone.

    Raises:
        ArtifactError: S3 failed, or the object is no lease.
    """
    stored = store.read(key)
    seen = tenure(stored, store.url(key)) if stored else None
    if stored and seen and seen.until is not None and seen.holder == holder:
        store.write_if(key, _body("released", holder), stored.etag)
