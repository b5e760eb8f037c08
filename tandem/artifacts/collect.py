"""`collect`: delete what no experiment uses and is old; without `--delete` only say what that would be.

Invariant: nothing that is used, young, being written or not Tandem's is ever deleted, and nothing outside of
models/ and artifacts/. A manifest goes before its files, so at no moment does a reader find one whose files are
not whole; the lease goes last, so a run that was interrupted is finished by the next.
"""

from __future__ import annotations

import argparse
import difflib
import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from platform import node

from botocore.exceptions import ClientError

from tandem.artifacts.contents import Begun, StoredSet, contents, look, prefix_of
from tandem.artifacts.explain import of_variable
from tandem.artifacts.fault import ArtifactError, RefusedError, WorldError
from tandem.artifacts.lease import HeldError, Lease, take
from tandem.artifacts.log import say
from tandem.artifacts.manifest import NewerSchemaError
from tandem.artifacts.store import CONFLICT, DELETED_AT_ONCE, GONE, UNMET, Listed, Store, open_store
from tandem.artifacts.store_fault import reason

DAYS = 30
LEASE_S = 60.0
WAIT_S = 70.0  # a collect that was killed leaves its lease for so long
HOLDER = "collect-"
DELETED = "deleted"
LAYOUT = "nobody took its lease and it has no manifest: not written by Tandem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What is deleted of one set, in this order: manifest, uploads, files, lease.

    Args:
        found: the set as it was seen.
        what: the whole set, or which part of it, for a person.
        manifest, lease: whether these go too.
        uploads: to abort.
        files: to delete.
    """

    found: StoredSet
    what: str
    manifest: bool = False
    uploads: tuple[Begun, ...] = ()
    files: tuple[Listed, ...] = ()
    lease: bool = False

    @property
    def keys(self) -> frozenset[str]:
        """Return the keys of the objects that go."""
        marks = {self.found.manifest_key: self.manifest, self.found.lease_key: self.lease}
        return frozenset((*(listed.key for listed in self.files), *(key for key, goes in marks.items() if goes)))

    @property
    def size(self) -> int:
        """Return the bytes of the objects that go; parts of broken uploads are not among them."""
        keys = self.keys
        return sum(listed.size for listed in self.found.objects if listed.key in keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A set that nobody uses and that stays all the same; `why` says so in words."""

    found: StoredSet
    why: str

    @property
    def fault(self) -> WorldError | None:
        """Return what S3 did not give of it, which the rights of the caller may be the cause of."""
        faults = (self.found.fault, self.found.lease_fault)
        return next((fault for fault in faults if isinstance(fault, WorldError)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What may go and what stays of all that nobody uses, or that is no whole set's."""

    removals: tuple[Removal, ...]
    kept: tuple[Kept, ...]

    @property
    def size(self) -> int:
        """Return the bytes that go."""
        return sum(removal.size for removal in self.removals)


def plan(stored: Iterable[StoredSet], used: Collection[str], cutoff: datetime) -> Plan:
    """Decide what may go.

    Args:
        stored: what stands in the bucket, with its unended uploads.
        used: names of what somebody uses: id@revision and artifact keys.
        cutoff: what was written at this time or since is young, by S3's clock.
    """
    removals: list[Removal] = []
    kept: list[Kept] = []
    for found in stored:
        why = spared(found)
        if why:
            kept += [Kept(found=found, why=why)] if found.name not in used else []
        elif found.name in used:
            removals += _leftovers(found, cutoff)
        elif found.written >= cutoff and not _remnant(found):
            kept.append(Kept(found=found, why=f"written {found.written:%Y-%m-%d}, which is not long enough ago"))
        else:
            removals.append(_whole(found))
    return Plan(removals=tuple(removals), kept=tuple(kept))


def _remnant(found: StoredSet) -> bool:
    """Tell whether nothing is left of a set but the lease of a collect that was interrupted."""
    alone = _keys(found) == {found.lease_key} and not found.begun
    return alone and found.lease is not None and found.lease.holder.startswith(HOLDER)


def spared(found: StoredSet) -> str:
    """Say why nothing of a set may go, whoever uses it and however old it is; empty where something may."""
    if not found.ours:
        return LAYOUT
    if found.lease_fault is not None:
        return f"its lease cannot be read: {found.lease_fault.what}"
    if found.lease is not None and found.lease.held and not found.lease.holder.startswith(HOLDER):
        return f"being written: {found.lease.holder} holds it until {found.lease.until:%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(found.fault, NewerSchemaError):
        return f"{found.fault.what}: collect with that release"
    if isinstance(found.fault, WorldError):
        return f"its manifest cannot be read: {found.fault.what}"
    return ""


def carry_out(store: Store, planned: Plan, used: Collection[str], cutoff: datetime) -> Iterator[tuple[Removal, str]]:
    """Delete what was planned, set after set; yield each with what became of it, `deleted` or why not.

    Raises:
        ArtifactError: S3 failed; what was deleted stays deleted, and the next run goes on from there.
    """
    for removal in planned.removals:
        try:
            done = remove(store, removal, used, cutoff)
        except HeldError as error:
            yield removal, f"kept: {error.what}"
        else:
            yield (done, DELETED) if done else (removal, "kept: it was written to since")


def remove(store: Store, removal: Removal, used: Collection[str], cutoff: datetime) -> Removal | None:
    """Delete what a plan said of one set, after a second look under its lease; None where nothing may go any more.

    Returns:
        What was deleted in the end.

    Raises:
        HeldError: somebody writes the set now.
        ArtifactError: S3 failed, or the lease was lost in the middle; what is left is found by the next run.
    """
    prefix, holder = removal.found.prefix, f"{HOLDER}{node()}-{uuid.uuid4().hex[:8]}"
    wait = WAIT_S if removal.found.lease is not None and removal.found.lease.held else 0.0
    with take(store, removal.found.lease_key, holder, LEASE_S, wait) as lease:
        again = plan([look(store, prefix)], used, cutoff).removals
        removal_now = next((found for found in again if found.lease == removal.lease), None)
        for batch in _batches(store, removal_now) if removal_now else ():
            _require(lease)
            _delete(store, prefix, batch)
    if removal_now is not None and removal_now.lease:
        _delete_lease(store, removal_now.found.lease_key, holder)
    return removal_now


def _whole(found: StoredSet) -> Removal:
    kind = "snapshot" if found.kind == "model" else "artifact"
    how = "damaged " if found.damage else "" if found.manifest else "unfinished "
    return Removal(
        found=found, what=f"{how}{kind}", manifest=found.manifest_key in _keys(found),
        uploads=found.begun, files=found.files, lease=True,
    )  # fmt: skip


def _leftovers(found: StoredSet, cutoff: datetime) -> Iterator[Removal]:
    """Yield what of a used set belongs to no whole one: runs beside the one that won, and broken uploads."""
    if found.damage:
        return  # an operator mends it first; until then nobody knows which files are worth keeping
    runs = _dead_runs(found, cutoff) if found.kind == "artifact" else {}
    files = tuple(listed for listed in found.files if found.folder(listed.key) in runs)
    uploads = tuple(upload for upload in found.begun if upload.at < cutoff)
    if files or uploads:
        parts = [f"left by {', '.join(sorted(runs))}"] if files else []
        parts += [f"{len(uploads)} broken upload{'s' if len(uploads) > 1 else ''}"] if uploads else []
        yield Removal(found=found, what="; ".join(parts), files=files, uploads=uploads)


def _dead_runs(found: StoredSet, cutoff: datetime) -> dict[str, datetime]:
    """Return the folders of runs that no manifest names and that nobody has written to since, to the last time."""
    written: dict[str, datetime] = {}
    for listed in found.files:
        folder = found.folder(listed.key)
        written[folder] = max(written.get(folder, listed.modified), listed.modified)
    for upload in found.begun:
        folder = found.folder(upload.key)
        written[folder] = max(written.get(folder, upload.at), upload.at)
    winner = found.manifest.folder if found.manifest else ""
    return {folder: at for folder, at in written.items() if folder not in {"", winner} and at < cutoff}


def _batches(store: Store, removal: Removal) -> Iterator[Sequence[str]]:
    """Yield the keys to delete, the manifest alone, files as many as S3 takes; abort the uploads between."""
    if removal.manifest:
        yield [removal.found.manifest_key]
    for upload in removal.uploads:
        _abort(store, upload)
    keys = [listed.key for listed in removal.files]
    yield from (keys[start : start + DELETED_AT_ONCE] for start in range(0, len(keys), DELETED_AT_ONCE))


def _require(lease: Lease) -> None:
    """Go on only while nobody else can be writing the set.

    Raises:
        WorldError: the lease was lost, as on a machine that slept: what somebody stored since must not go.
    """
    try:
        lease.check()
    except HeldError as error:
        raise WorldError(
            f"{error.what} while the set was deleted", where=error.where,
            change="run collect again: it looks anew at what is left",
        ) from None  # fmt: skip


def _delete(store: Store, prefix: str, keys: Sequence[str]) -> None:
    assert all(prefix and prefix_of(key) == prefix for key in keys)  # the last gate before what cannot be undone
    store.delete(keys)


def _abort(store: Store, upload: Begun) -> None:
    with store.asking("AbortMultipartUpload", upload.key):
        try:
            store.client.abort_multipart_upload(Bucket=store.bucket, Key=upload.key, UploadId=upload.id)
        except ClientError as error:
            if reason(error) != "NoSuchUpload":
                raise


def _delete_lease(store: Store, key: str, holder: str) -> None:
    """Delete the lease that we released, unless somebody has taken it since.

    S3 holds the ETag against the object in general purpose buckets too (S3 user guide, "How to perform conditional
    deletes", read on 2026-11-21); it takes s3:DeleteObject and s3:GetObject.
    """
    stored = store.read(key)
    if stored is None or holder.encode() not in stored.body:
        return
    with store.asking("DeleteObject", key):
        try:
            store.client.delete_object(Bucket=store.bucket, Key=key, IfMatch=stored.etag)
        except ClientError as error:
            if reason(error) not in UNMET | CONFLICT | GONE:
                raise


def keeps_versions(store: Store) -> bool | None:
    """Return whether a delete leaves the bytes behind as an old version; None where that may not be asked."""
    try:
        with store.asking("GetBucketVersioning", ""):
            answer = store.client.get_bucket_versioning(Bucket=store.bucket)
    except ArtifactError:
        return None
    return answer.get("Status") in {"Enabled", "Suspended"}


def _keys(found: StoredSet) -> set[str]:
    return {listed.key for listed in found.objects}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    bucket = os.environ.get("TANDEM_BUCKET")
    parser.add_argument("--bucket", default=bucket, required=bucket is None, help="of models and artifacts")
    parser.add_argument(
        "--used", action="append", default=[], metavar="NAME", help="id@revision or artifact key in use; repeatable"
    )
    parser.add_argument("--days", type=whole_days, default=DAYS, help=f"what was written since stays (default {DAYS})")
    parser.add_argument("--delete", action="store_true", help="delete; without it only say what would go")


def whole_days(text: str) -> int:
    """Parse a number of days.

    Raises:
        argparse.ArgumentTypeError: it is no whole number from 0 on.
    """
    if not text.isdecimal() or int(text) > 36_500:  # noqa: PLR2004 - a century
        raise argparse.ArgumentTypeError("a whole number of days, from 0 on")
    return int(text)


def _warn_of_unknown(used: Iterable[str], stored: Iterable[StoredSet]) -> None:
    """Tell each name that keeps nothing: not stored yet, or misspelt, and then what was meant goes."""
    known = [found.name for found in stored]
    for name in sorted(set(used) - set(known)):
        nearest = difflib.get_close_matches(name, known)
        say("used, and stored nowhere here", level="warning", name=name, nearest=nearest)


def run(options: argparse.Namespace) -> int:
    """Collect from a bucket, told by name what is in use.

    Raises:
        RefusedError: nothing is said to be in use.
        ArtifactError: S3 failed.
    """
    used = {*options.used, *(side.name for side in of_variable())}
    if not used:
        raise RefusedError(
            "nothing is said to be in use, so everything would go",
            change="name each id@revision and artifact key that is used by --used; `tandem artifacts collect` knows "
            "them from the experiments",
        )  # fmt: skip
    store = open_store(options.bucket)
    cutoff = store.now() - timedelta(days=options.days)
    stored = contents(store, with_uploads=True)
    _warn_of_unknown(options.used, stored)
    planned = plan(stored, used, cutoff)
    for kept in planned.kept:
        say("kept", prefix=kept.found.prefix, why=kept.why, size=kept.found.size)
    unread = next((kept.fault for kept in planned.kept if kept.fault), None)
    if options.delete:
        for removal, outcome in carry_out(store, planned, used, cutoff):
            say(outcome, prefix=removal.found.prefix, what=removal.what, size=removal.size)
    else:
        for removal in planned.removals:
            say("would delete", prefix=removal.found.prefix, what=removal.what, size=removal.size)
    say("collected" if options.delete else "dry run", size=planned.size, versions_kept=keeps_versions(store))
    if unread is not None:
        raise unread
    return 0
