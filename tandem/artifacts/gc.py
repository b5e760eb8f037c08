"""Garbage collection of a bucket: a plan of what goes, and its execution set by set.

Invariant: no set is deleted that is used, young, being written or not Tandem's, and nothing outside
models/ and artifacts/. A manifest is deleted before its files, so a reader never finds a manifest
without whole files; the lease is deleted last, so the next run finishes an interrupted one.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from platform import node

from tandem.artifacts import store as s3
from tandem.artifacts.inventory import (
    StoredSet,
    find_set_prefix,
    read_stored_set,
)
from tandem.artifacts.lease import LeaseConflictError, WriteLease, hold_lease
from tandem.errors import ExternalError, SchemaError

LEASE_S = 60.0
WAIT_S = 70.0  # a killed collect leaves its lease for so long
HOLDER_PREFIX = "collect-"
REMOVAL_RESULTS = ("deleted", "would delete")
FOREIGN_REASON = "it has neither lease nor manifest: not written by Tandem"


@dataclass(frozen=True)
class SetRemoval:
    """Removal of one set or of a part, in this order: manifest, uploads, files, lease.

    Args:
        stored_set: the set as read.
        description: the whole set, or which part of it, for a person.
        is_full: whether manifest and lease are deleted too.
        uploads: to abort.
        objects: to delete.
    """

    stored_set: StoredSet
    description: str
    is_full: bool
    uploads: tuple[s3.OpenUpload, ...]
    objects: tuple[s3.ObjectSummary, ...]

    @property
    def size(self) -> int:
        """Return the bytes of the deleted objects, without the parts of broken uploads."""
        return sum(summary.size for summary in self.objects)


@dataclass(frozen=True)
class GcPlan:
    """Removals and retentions of unused sets and left-over parts; each retention has a reason."""

    removals: tuple[SetRemoval, ...]
    retentions: tuple[tuple[StoredSet, str], ...]


def plan_removals(
    stored_sets: Iterable[StoredSet], used_names: Collection[str], cutoff: datetime
) -> GcPlan:
    """Return the sets and parts that may be deleted, and the unused sets that stay.

    Args:
        stored_sets: all sets of the bucket, with their open uploads.
        used_names: names in use: id@revision and artifact keys.
        cutoff: a set that was written at this time or later is young, by S3's clock.
    """
    removals: list[SetRemoval] = []
    retentions: list[tuple[StoredSet, str]] = []
    for stored_set in stored_sets:
        explanation = _explain_retention(stored_set)
        is_used = stored_set.name in used_names
        # only the lease of an interrupted collect is left of the set
        is_remnant = stored_set.keys == {stored_set.lease_key} and not stored_set.open_uploads
        is_remnant = is_remnant and bool(
            stored_set.lease and stored_set.lease.holder.startswith(HOLDER_PREFIX)
        )
        if not explanation and is_used:
            removals += _plan_leftovers(stored_set, cutoff)
        elif not explanation and (is_remnant or stored_set.last_write_at < cutoff):
            about = f"{stored_set.condition} {stored_set.kind}"
            uploads = stored_set.open_uploads
            removals.append(
                SetRemoval(
                    stored_set, about, is_full=True, uploads=uploads, objects=stored_set.objects
                )
            )
        elif not is_used:
            written = f"written {stored_set.last_write_at:%Y-%m-%d}, which is too recent"
            retentions.append((stored_set, explanation or written))
    return GcPlan(tuple(removals), tuple(retentions))


def _explain_retention(stored_set: StoredSet) -> str:
    """Return why nothing of a set may ever be deleted, used or not; empty if something may."""
    lease = stored_set.lease
    fault = stored_set.fault
    if not stored_set.is_ours:
        return FOREIGN_REASON
    if stored_set.lease_fault is not None:
        return f"its lease cannot be read: {stored_set.lease_fault.problem}"
    if lease is not None and lease.is_active and not lease.holder.startswith(HOLDER_PREFIX):
        return f"being written: {lease.holder} holds it until {lease.ends_at:%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(fault, SchemaError):
        return f"{fault.problem}: collect with the Tandem that wrote it"
    if isinstance(fault, ExternalError):
        return f"its manifest cannot be read: {fault.problem}"
    return ""


def _plan_leftovers(stored_set: StoredSet, cutoff: datetime) -> Iterator[SetRemoval]:
    """Yield left-over parts of a used set: runs other than the manifest's, and broken uploads."""
    if stored_set.damage:
        # an operator repairs it first; until then nobody knows which files are worth keeping
        return
    writes = [
        (stored_set.run_folder(summary.key), summary.modified_at) for summary in stored_set.files
    ]
    writes += [
        (stored_set.run_folder(upload.key), upload.initiated_at)
        for upload in stored_set.open_uploads
    ]
    live_runs = {"", stored_set.manifest.folder if stored_set.manifest else ""}
    live_runs |= {folder for folder, write_at in writes if write_at >= cutoff}
    dead_runs = set()
    if stored_set.kind == "artifact":
        dead_runs = {folder for folder, _ in writes} - live_runs
    files = tuple(
        summary for summary in stored_set.files if stored_set.run_folder(summary.key) in dead_runs
    )
    uploads = tuple(upload for upload in stored_set.open_uploads if upload.initiated_at < cutoff)
    if files or uploads:
        phrases = []
        if files:
            phrases = [f"left by {', '.join(sorted(dead_runs))}"]
        if uploads:
            plural = "s" if len(uploads) > 1 else ""
            phrases.append(f"{len(uploads)} broken upload{plural}")
        yield SetRemoval(
            stored_set, "; ".join(phrases), is_full=False, uploads=uploads, objects=files
        )


def execute_plan(
    store: s3.ObjectStore,
    plan: GcPlan,
    used_names: Collection[str],
    cutoff: datetime,
    *,
    delete: bool = True,
) -> Iterator[tuple[SetRemoval, str]]:
    """Remove what a plan says, set by set; yield each with one of REMOVAL_RESULTS, or why it stays.

    Raises:
        TandemError: S3 failed; finished deletions stay, and the next run continues from there.
    """
    for removal in plan.removals:
        if not delete:
            yield removal, REMOVAL_RESULTS[1]
            continue
        try:
            final_removal = _remove_set(store, removal, used_names, cutoff)
        except LeaseConflictError as error:
            yield removal, f"kept: {error.problem}"
        else:
            if final_removal:
                yield final_removal, REMOVAL_RESULTS[0]
            else:
                yield removal, "kept: it was written to since"


def _remove_set(
    store: s3.ObjectStore, removal: SetRemoval, used_names: Collection[str], cutoff: datetime
) -> SetRemoval | None:
    """Execute one removal of a plan, after a second look under the set's lease.

    Returns:
        The executed removal; None if nothing may be deleted any more.

    Raises:
        LeaseConflictError: somebody writes the set now.
        TandemError: S3 failed, or the lease was lost in the middle; the next run finds the rest.
    """
    prefix = removal.stored_set.prefix
    lease_key = removal.stored_set.lease_key
    holder = f"{HOLDER_PREFIX}{node()}-{uuid.uuid4().hex[:8]}"
    state = removal.stored_set.lease
    wait_s = WAIT_S if state and state.is_active else 0.0
    with hold_lease(store, lease_key, holder, LEASE_S, wait_s) as lease:
        current_plan = plan_removals([read_stored_set(store, prefix)], used_names, cutoff)
        current = next(
            (entry for entry in current_plan.removals if entry.is_full == removal.is_full), None
        )
        if current is None:
            return None
        keys = [row.key for row in current.objects if row.key != lease_key]
        keys.sort(key=current.stored_set.manifest_key.__ne__)  # the manifest is the first
        first_count = int(current.stored_set.manifest_key in keys)
        if first_count:
            _delete_objects(store, lease, prefix, keys[:1])
        for upload in current.uploads:
            store.abort_upload(upload)
        for start in range(first_count, len(keys), s3.DELETE_BATCH):
            _delete_objects(store, lease, prefix, keys[start : start + s3.DELETE_BATCH])
        if current.is_full:
            lease.delete()
    return current


def _delete_objects(
    store: s3.ObjectStore, lease: WriteLease, prefix: str, keys: Sequence[str]
) -> None:
    """Delete objects only while nobody else can be writing the set.

    Raises:
        ExternalError: the lease was lost, e.g. because the machine slept: newer objects must not be
            deleted.
    """
    try:
        lease.check()
    except LeaseConflictError as error:
        problem = f"{error.problem} while the set was deleted"
        raise ExternalError(
            problem, where=error.where, change="run it again: it looks anew at what is left"
        ) from None
    # the last check before an irreversible step
    assert all(prefix and find_set_prefix(key) == prefix for key in keys)
    store.delete(keys)


def has_versioning(store: s3.ObjectStore) -> bool:
    """Return whether a delete leaves the bytes in the bucket as an old version.

    Raises:
        TandemError: S3 failed.
    """
    with store.translate_errors("GetBucketVersioning", ""):
        answer = store.client.get_bucket_versioning(Bucket=store.bucket)
    return answer.get("Status") in {"Enabled", "Suspended"}
