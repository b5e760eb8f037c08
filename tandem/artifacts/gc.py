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

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.explain import read_variable_sides
from tandem.artifacts.inventory import StoredSet, read_inventory, read_stored_set, set_prefix
from tandem.artifacts.lease import LeaseConflictError, WriteLease, hold_lease
from tandem.artifacts.manifest import NewerSchemaError
from tandem.artifacts.store import (
    CONFLICT_CODES,
    DELETE_BATCH,
    MISSING_CODES,
    PRECONDITION_CODES,
    ObjectStore,
    ObjectSummary,
    OpenUpload,
    open_store,
)
from tandem.artifacts.store_fault import reason
from tandem.errors import ExternalError, InputError, TandemError

MIN_AGE_DAYS = 30
LEASE_S = 60.0
WAIT_S = 70.0  # a collect that was killed leaves its lease for so long
HOLDER_PREFIX = "collect-"
DELETION_RESULT = "deleted"
FOREIGN_REASON = "nobody took its lease and it has no manifest: not written by Tandem"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRemoval:
    """What is deleted of one set, in this order: manifest, uploads, files, lease.

    Args:
        stored_set: the set as it was seen.
        description: the whole set, or which part of it, for a person.
        removes_manifest, removes_lease: whether these go too.
        uploads: to abort.
        files: to delete.
    """

    stored_set: StoredSet
    description: str
    removes_manifest: bool = False
    uploads: tuple[OpenUpload, ...] = ()
    files: tuple[ObjectSummary, ...] = ()
    removes_lease: bool = False

    @property
    def keys(self) -> frozenset[str]:
        """Return the keys of the objects that go."""
        control_keys = {
            self.stored_set.manifest_key: self.removes_manifest,
            self.stored_set.lease_key: self.removes_lease,
        }
        return frozenset(
            (
                *(summary.key for summary in self.files),
                *(key for key, is_deletion in control_keys.items() if is_deletion),
            )
        )

    @property
    def size(self) -> int:
        """Return the bytes of the objects that go; parts of broken uploads are not among them."""
        keys = self.keys
        return sum(summary.size for summary in self.stored_set.objects if summary.key in keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRetention:
    """A set that nobody uses and that stays all the same; `explanation` says so in words."""

    stored_set: StoredSet
    explanation: str

    @property
    def fault(self) -> ExternalError | None:
        """Return what S3 did not give of it, which the rights of the caller may be the cause of."""
        faults = (self.stored_set.fault, self.stored_set.lease_fault)
        return next((fault for fault in faults if isinstance(fault, ExternalError)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GcPlan:
    """What may go and what stays of all that nobody uses, or that is no whole set's."""

    removals: tuple[SetRemoval, ...]
    retentions: tuple[SetRetention, ...]

    @property
    def size(self) -> int:
        """Return the bytes that go."""
        return sum(removal.size for removal in self.removals)


def plan_removals(stored_sets: Iterable[StoredSet], used_names: Collection[str], cutoff: datetime) -> GcPlan:
    """Decide what may go.

    Args:
        stored_sets: what stands in the bucket, with its unended uploads.
        used_names: names of what somebody uses: id@revision and artifact keys.
        cutoff: what was written at this time or since is young, by S3's clock.
    """
    removals: list[SetRemoval] = []
    retentions: list[SetRetention] = []
    for stored_set in stored_sets:
        explanation = explain_retention(stored_set)
        if explanation:
            retentions += (
                [SetRetention(stored_set=stored_set, explanation=explanation)]
                if stored_set.name not in used_names
                else []
            )
        elif stored_set.name in used_names:
            removals += _plan_leftovers(stored_set, cutoff)
        elif stored_set.last_write_at >= cutoff and not _is_lease_remnant(stored_set):
            retentions.append(
                SetRetention(
                    stored_set=stored_set,
                    explanation=f"written {stored_set.last_write_at:%Y-%m-%d}, which is not long enough ago",
                )
            )
        else:
            removals.append(_plan_full_removal(stored_set))
    return GcPlan(removals=tuple(removals), retentions=tuple(retentions))


def _is_lease_remnant(stored_set: StoredSet) -> bool:
    """Tell whether nothing is left of a set but the lease of a collect that was interrupted."""
    is_lease_only = _list_object_keys(stored_set) == {stored_set.lease_key} and not stored_set.open_uploads
    return is_lease_only and stored_set.lease is not None and stored_set.lease.holder.startswith(HOLDER_PREFIX)


def explain_retention(stored_set: StoredSet) -> str:
    """Say why nothing of a set may go, whoever uses it and however old it is; empty where something may."""
    if not stored_set.is_ours:
        return FOREIGN_REASON
    if stored_set.lease_fault is not None:
        return f"its lease cannot be read: {stored_set.lease_fault.problem}"
    if (
        stored_set.lease is not None
        and stored_set.lease.is_active
        and not stored_set.lease.holder.startswith(HOLDER_PREFIX)
    ):
        return (
            f"being written: {stored_set.lease.holder} holds it until {stored_set.lease.ends_at:%Y-%m-%d %H:%M:%S} UTC"
        )
    if isinstance(stored_set.fault, NewerSchemaError):
        return f"{stored_set.fault.problem}: collect with that release"
    if isinstance(stored_set.fault, ExternalError):
        return f"its manifest cannot be read: {stored_set.fault.problem}"
    return ""


def execute_plan(
    store: ObjectStore, plan: GcPlan, used_names: Collection[str], cutoff: datetime
) -> Iterator[tuple[SetRemoval, str]]:
    """Delete what was planned, set after set; yield each with what became of it, `deleted` or why not.

    Raises:
        TandemError: S3 failed; what was deleted stays deleted, and the next run goes on from there.
    """
    for removal in plan.removals:
        try:
            final_removal = remove_set(store, removal, used_names, cutoff)
        except LeaseConflictError as error:
            yield removal, f"kept: {error.problem}"
        else:
            yield (final_removal, DELETION_RESULT) if final_removal else (removal, "kept: it was written to since")


def remove_set(
    store: ObjectStore, removal: SetRemoval, used_names: Collection[str], cutoff: datetime
) -> SetRemoval | None:
    """Delete what a plan said of one set, after a second look under its lease; None where nothing may go any more.

    Returns:
        What was deleted in the end.

    Raises:
        LeaseConflictError: somebody writes the set now.
        TandemError: S3 failed, or the lease was lost in the middle; what is left is found by the next run.
    """
    prefix, holder = removal.stored_set.prefix, f"{HOLDER_PREFIX}{node()}-{uuid.uuid4().hex[:8]}"
    wait_s = WAIT_S if removal.stored_set.lease is not None and removal.stored_set.lease.is_active else 0.0
    with hold_lease(store, removal.stored_set.lease_key, holder, LEASE_S, wait_s) as lease:
        current_removals = plan_removals([read_stored_set(store, prefix)], used_names, cutoff).removals
        current_removal = next(
            (candidate for candidate in current_removals if candidate.removes_lease == removal.removes_lease), None
        )
        for batch in _iterate_key_batches(store, current_removal) if current_removal else ():
            _require_lease(lease)
            _delete_objects(store, prefix, batch)
    if current_removal is not None and current_removal.removes_lease:
        _delete_lease(store, current_removal.stored_set.lease_key, holder)
    return current_removal


def _plan_full_removal(stored_set: StoredSet) -> SetRemoval:
    kind = "snapshot" if stored_set.kind == "model" else "artifact"
    adjective = "damaged " if stored_set.damage else "" if stored_set.manifest else "unfinished "
    return SetRemoval(
        stored_set=stored_set,
        description=f"{adjective}{kind}",
        removes_manifest=stored_set.manifest_key in _list_object_keys(stored_set),
        uploads=stored_set.open_uploads,
        files=stored_set.files,
        removes_lease=True,
    )


def _plan_leftovers(stored_set: StoredSet, cutoff: datetime) -> Iterator[SetRemoval]:
    """Yield what of a used set belongs to no whole one: runs beside the one that won, and broken uploads."""
    if stored_set.damage:
        return  # an operator mends it first; until then nobody knows which files are worth keeping
    runs = _find_dead_runs(stored_set, cutoff) if stored_set.kind == "artifact" else {}
    files = tuple(summary for summary in stored_set.files if stored_set.run_folder(summary.key) in runs)
    uploads = tuple(upload for upload in stored_set.open_uploads if upload.initiated_at < cutoff)
    if files or uploads:
        phrases = [f"left by {', '.join(sorted(runs))}"] if files else []
        phrases += [f"{len(uploads)} broken upload{'s' if len(uploads) > 1 else ''}"] if uploads else []
        yield SetRemoval(stored_set=stored_set, description="; ".join(phrases), files=files, uploads=uploads)


def _find_dead_runs(stored_set: StoredSet, cutoff: datetime) -> dict[str, datetime]:
    """Return the folders of runs that no manifest names and that nobody has written to since, to the last time."""
    write_times: dict[str, datetime] = {}
    for summary in stored_set.files:
        folder = stored_set.run_folder(summary.key)
        write_times[folder] = max(write_times.get(folder, summary.modified_at), summary.modified_at)
    for upload in stored_set.open_uploads:
        folder = stored_set.run_folder(upload.key)
        write_times[folder] = max(write_times.get(folder, upload.initiated_at), upload.initiated_at)
    manifest_folder = stored_set.manifest.folder if stored_set.manifest else ""
    return {
        folder: write_time
        for folder, write_time in write_times.items()
        if folder not in {"", manifest_folder} and write_time < cutoff
    }


def _iterate_key_batches(store: ObjectStore, removal: SetRemoval) -> Iterator[Sequence[str]]:
    """Yield the keys to delete, the manifest alone, files as many as S3 takes; abort the uploads between."""
    if removal.removes_manifest:
        yield [removal.stored_set.manifest_key]
    for upload in removal.uploads:
        store.abort_upload(upload)
    keys = [summary.key for summary in removal.files]
    yield from (keys[start : start + DELETE_BATCH] for start in range(0, len(keys), DELETE_BATCH))


def _require_lease(lease: WriteLease) -> None:
    """Go on only while nobody else can be writing the set.

    Raises:
        ExternalError: the lease was lost, as on a machine that slept: what somebody stored since must not go.
    """
    try:
        lease.check()
    except LeaseConflictError as error:
        raise ExternalError(
            f"{error.problem} while the set was deleted", where=error.where,
            change="run collect again: it looks anew at what is left",
        ) from None  # fmt: skip


def _delete_objects(store: ObjectStore, prefix: str, keys: Sequence[str]) -> None:
    assert all(prefix and set_prefix(key) == prefix for key in keys)  # the last gate before what cannot be undone
    store.delete(keys)


def _delete_lease(store: ObjectStore, key: str, holder: str) -> None:
    """Delete the lease that we released, unless somebody has taken it since.

    S3 holds the ETag against the object in general purpose buckets too (S3 user guide, "How to perform conditional
    deletes", read on 2026-11-21); it takes s3:DeleteObject and s3:GetObject.
    """
    lease_object = store.read(key)
    if lease_object is None or holder.encode() not in lease_object.body:
        return
    with store.translate_errors("DeleteObject", key):
        try:
            store.client.delete_object(Bucket=store.bucket, Key=key, IfMatch=lease_object.etag)
        except ClientError as error:
            if reason(error) not in PRECONDITION_CODES | CONFLICT_CODES | MISSING_CODES:
                raise


def has_versioning(store: ObjectStore) -> bool | None:
    """Return whether a delete leaves the bytes behind as an old version; None where that may not be asked."""
    try:
        with store.translate_errors("GetBucketVersioning", ""):
            answer = store.client.get_bucket_versioning(Bucket=store.bucket)
    except TandemError:
        return None
    return answer.get("Status") in {"Enabled", "Suspended"}


def _list_object_keys(stored_set: StoredSet) -> set[str]:
    return {summary.key for summary in stored_set.objects}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    bucket = os.environ.get("TANDEM_BUCKET")
    parser.add_argument("--bucket", default=bucket, required=bucket is None, help="of models and artifacts")
    parser.add_argument(
        "--used", action="append", default=[], metavar="NAME", help="id@revision or artifact key in use; repeatable"
    )
    parser.add_argument(
        "--days", type=parse_days, default=MIN_AGE_DAYS, help=f"what was written since stays (default {MIN_AGE_DAYS})"
    )
    parser.add_argument("--delete", action="store_true", help="delete; without it only say what would go")


def parse_days(text: str) -> int:
    """Parse a number of days.

    Raises:
        argparse.ArgumentTypeError: it is no whole number from 0 on.
    """
    if not text.isdecimal() or int(text) > 36_500:  # noqa: PLR2004 - a century
        raise argparse.ArgumentTypeError("a whole number of days, from 0 on")
    return int(text)


def _warn_unknown_names(used_names: Iterable[str], stored_sets: Iterable[StoredSet]) -> None:
    """Tell each name that keeps nothing: not stored yet, or misspelt, and then what was meant goes."""
    stored_names = [stored_set.name for stored_set in stored_sets]
    for name in sorted(set(used_names) - set(stored_names)):
        suggestions = difflib.get_close_matches(name, stored_names)
        log_event("used, and stored nowhere here", level="warning", name=name, nearest=suggestions)


def run(options: argparse.Namespace) -> int:
    """Collect from a bucket, told by name what is in use.

    Raises:
        InputError: nothing is said to be in use.
        TandemError: S3 failed.
    """
    used_names = {*options.used, *(side.name for side in read_variable_sides())}
    if not used_names:
        raise InputError(
            "nothing is said to be in use, so everything would go",
            change="name each id@revision and artifact key that is used by --used; `tandem artifacts gc` knows "
            "them from the experiments",
        )  # fmt: skip
    store = open_store(options.bucket)
    cutoff = store.now() - timedelta(days=options.days)
    stored_sets = read_inventory(store, with_uploads=True)
    _warn_unknown_names(options.used, stored_sets)
    gc_plan = plan_removals(stored_sets, used_names, cutoff)
    for retention in gc_plan.retentions:
        log_event("kept", prefix=retention.stored_set.prefix, why=retention.explanation, size=retention.stored_set.size)
    read_fault = next((retention.fault for retention in gc_plan.retentions if retention.fault), None)
    if options.delete:
        for removal, result in execute_plan(store, gc_plan, used_names, cutoff):
            log_event(result, prefix=removal.stored_set.prefix, what=removal.description, size=removal.size)
    else:
        for removal in gc_plan.removals:
            log_event("would delete", prefix=removal.stored_set.prefix, what=removal.description, size=removal.size)
    log_event("collected" if options.delete else "dry run", size=gc_plan.size, versions_kept=has_versioning(store))
    if read_fault is not None:
        raise read_fault
    return 0
