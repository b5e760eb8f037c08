"""What stands in a bucket, set by set: objects, manifest, lease, and uploads that were begun and not ended.

Invariant: what cannot be read of one set is told of that set, and never hides another; ages are S3's own.

Only what has Tandem's layout is a set: `models/<org>/<name>/<revision>/` and `artifacts/<key name>/`. Whatever
else lies in the bucket is nobody's business here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Literal

from tandem.artifacts.lease import LeaseState, parse_lease
from tandem.artifacts.manifest import LEASE_NAME, Manifest, NewerSchemaError
from tandem.artifacts.manifest_store import files_prefix, manifest_key, read_stored_manifest
from tandem.artifacts.rejection import REJECTION_NAME as REFUSED
from tandem.artifacts.store import ObjectStore, ObjectSummary, OpenUpload
from tandem.errors import ExternalError, TandemError

Kind = Literal["model", "artifact"]
Condition = Literal["whole", "damaged", "partial", "unread", "newer"]

PREFIX_DEPTHS: dict[str, tuple[Kind, int]] = {
    "models": ("model", 4),
    "artifacts": ("artifact", 2),
}  # parts of a set's prefix
MAX_NAMES = 3  # files that a sentence names; the rest is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSet:
    """One set as it stands.

    Args:
        kind: a model snapshot, or a compiled artifact.
        prefix: without a slash at its end.
        objects: every object below it, manifest and lease among them.
        open_uploads: uploads below it that were not ended.
        manifest: None without one, or where it cannot be used.
        fault: why the manifest cannot be used.
        lease: None without one, or where it cannot be read.
        lease_fault: why the lease cannot be read.
    """

    kind: Kind
    prefix: str
    objects: tuple[ObjectSummary, ...]
    open_uploads: tuple[OpenUpload, ...] = ()
    manifest: Manifest | None = None
    fault: TandemError | None = None
    lease: LeaseState | None = None
    lease_fault: TandemError | None = None

    @property
    def name(self) -> str:
        """Return id@revision of a model, the key's name of an artifact."""
        _, _, rest = self.prefix.partition("/")
        return rest if self.kind == "artifact" else "@".join(rest.rsplit("/", 1))

    @property
    def size(self) -> int:
        """Return the bytes of all its objects."""
        return sum(summary.size for summary in self.objects)

    @property
    def last_write_at(self) -> datetime:
        """Return when something of it was last written, by S3's clock; a lease counts where there is nothing else."""
        objects = [summary for summary in self.objects if summary.key != self.lease_key]
        times = [*(summary.modified_at for summary in objects), *(upload.initiated_at for upload in self.open_uploads)]
        return max(times or [summary.modified_at for summary in self.objects])

    @property
    def is_ours(self) -> bool:
        """Whether Tandem wrote it: every writer takes the lease first, and a whole set has its manifest."""
        return bool({self.manifest_key, self.lease_key} & {summary.key for summary in self.objects})

    @property
    def manifest_key(self) -> str:
        """Return the key of its manifest."""
        return manifest_key(self.prefix)

    @property
    def lease_key(self) -> str:
        """Return the key of its lease."""
        return f"{self.prefix}/{LEASE_NAME}"

    @property
    def files(self) -> tuple[ObjectSummary, ...]:
        """Return its objects without manifest and lease."""
        return tuple(summary for summary in self.objects if summary.key not in {self.manifest_key, self.lease_key})

    @property
    def rejection_runs(self) -> tuple[str, ...]:
        """Return the runs that an upload refused and kept."""
        suffix = f"/{REFUSED}"
        return tuple(self.run_folder(summary.key) for summary in self.objects if summary.key.endswith(suffix))

    def run_folder(self, key: str) -> str:
        """Return the run's folder that an object of an artifact lies in; empty for one that lies in none."""
        return key.removeprefix(f"{self.prefix}/").rpartition("/")[0].partition("/")[0]

    @property
    def condition(self) -> Condition:
        """Return what it is.

        `whole` has a manifest and every file of it, `damaged` lacks one or has one of another size, `partial` has no
        manifest yet, `newer` has one that only a newer release can read, `unread` one that S3 did not give.
        """
        if isinstance(self.fault, NewerSchemaError):
            return "newer"
        if isinstance(self.fault, ExternalError):
            return "unread"
        if self.damage:
            return "damaged"
        return "partial" if self.manifest is None else "whole"

    @property
    def writer(self) -> str:
        """Return in words who is writing it, or who was."""
        if self.lease_fault is not None:
            return f"its lease cannot be read: {self.lease_fault.problem}"
        if self.lease is None:
            return "nobody writes it"
        if self.lease.is_active and self.lease.ends_at:
            return f"held by {self.lease.holder} until {self.lease.ends_at:%Y-%m-%d %H:%M:%S} UTC"
        return f"nobody writes it, {self.lease.holder} was the last"

    @property
    def damage(self) -> str:
        """Return in words what is wrong with it; empty for nothing, and for a set without a manifest."""
        if self.fault is not None:
            return self.fault.problem
        if self.manifest is None:
            return ""
        if (self.manifest.kind, self.manifest.name) != (self.kind, self.name):
            return f"its manifest is of {self.manifest.kind} {self.manifest.name}"
        sizes, files_root = (
            {summary.key: summary.size for summary in self.objects},
            files_prefix(self.prefix, self.manifest),
        )
        missing_paths = [file.path for file in self.manifest.files if f"{files_root}/{file.path}" not in sizes]
        resized_paths = [
            file.path for file in self.manifest.files if sizes.get(f"{files_root}/{file.path}", file.size) != file.size
        ]
        phrases = [f"{', '.join(paths[:MAX_NAMES])}{_format_rest(paths)} {problem}" for paths, problem in
                ((missing_paths, "missing"), (resized_paths, "of another size")) if paths]  # fmt: skip
        return "; ".join(phrases)


def read_inventory(store: ObjectStore, *, with_uploads: bool = False) -> tuple[StoredSet, ...]:
    """Return every set of the bucket, by prefix, with its manifest and lease read.

    Args:
        store: the bucket.
        with_uploads: look for uploads that were begun, too; that takes a right that readers do not have.

    Raises:
        TandemError: the bucket cannot be listed.
    """
    objects = [summary for top_prefix in PREFIX_DEPTHS for summary in store.list(f"{top_prefix}/")]
    open_uploads = (
        [upload for top_prefix in PREFIX_DEPTHS for upload in store.list_uploads(f"{top_prefix}/")]
        if with_uploads
        else []
    )
    keys = [*(summary.key for summary in objects), *(upload.key for upload in open_uploads)]
    prefixes = sorted({set_prefix(key) for key in keys} - {""})
    by_prefix = {
        prefix: tuple(group) for prefix, group in groupby(objects, key=lambda summary: set_prefix(summary.key))
    }
    unread_sets = [
        StoredSet(
            kind=PREFIX_DEPTHS[prefix.partition("/")[0]][0], prefix=prefix, objects=by_prefix.get(prefix, ()),
            open_uploads=tuple(upload for upload in open_uploads if set_prefix(upload.key) == prefix),
        )
        for prefix in prefixes
    ]  # fmt: skip
    return tuple(
        store.pool.map(
            lambda stored_set: _reread_damaged_set(store, _read_manifest_and_lease(store, stored_set)), unread_sets
        )
    )


def _reread_damaged_set(store: ObjectStore, stored_set: StoredSet) -> StoredSet:
    """Return the set as another look finds it, where files are missing: it may have become whole between two pages."""
    if stored_set.manifest is None or not stored_set.damage:
        return stored_set
    return _read_manifest_and_lease(
        store, replace(stored_set, objects=tuple(store.list(f"{stored_set.prefix}/")), manifest=None)
    )


def read_stored_set(store: ObjectStore, prefix: str) -> StoredSet:
    """Return one set as it stands now; it may be empty.

    Raises:
        TandemError: the bucket cannot be listed.
    """
    unread_set = StoredSet(
        kind=PREFIX_DEPTHS[prefix.partition("/")[0]][0], prefix=prefix, objects=tuple(store.list(f"{prefix}/")),
        open_uploads=tuple(store.list_uploads(f"{prefix}/")),
    )  # fmt: skip
    return _read_manifest_and_lease(store, unread_set)


def set_prefix(key: str) -> str:
    """Return the prefix of the set that an object is of; empty for an object of none."""
    parts = key.split("/")
    _, depth = PREFIX_DEPTHS.get(parts[0], ("", 0))
    return "/".join(parts[:depth]) if depth and len(parts) > depth and all(parts[:depth]) else ""


def _read_manifest_and_lease(store: ObjectStore, stored_set: StoredSet) -> StoredSet:
    """Return the set with what its manifest and its lease say."""
    keys = {summary.key for summary in stored_set.objects}
    if stored_set.manifest_key in keys:
        try:
            stored_set = replace(stored_set, manifest=read_stored_manifest(store, stored_set.prefix))
        except TandemError as error:
            stored_set = replace(stored_set, fault=error)
    if stored_set.lease_key in keys:
        try:
            lease_object = store.read(stored_set.lease_key)
            stored_set = replace(
                stored_set, lease=parse_lease(lease_object, store.url(stored_set.lease_key)) if lease_object else None
            )
        except TandemError as error:
            stored_set = replace(stored_set, lease_fault=error)
    return stored_set


def _format_rest(paths: Iterable[str]) -> str:
    rest_count = len(list(paths)) - MAX_NAMES
    return f" and {rest_count} more" if rest_count > 0 else ""
