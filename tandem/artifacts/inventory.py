"""Inventory of a bucket, set by set: objects, manifest, lease, and open uploads.

Invariant: an unreadable manifest or lease is a fault of its own set, and never hides another; ages
are from S3's clock.

A set has Tandem's layout: `models/<org>/<name>/<revision>/` or `artifacts/<key name>/`. This module
ignores other objects of the bucket.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from tandem.artifacts import manifest as sets
from tandem.artifacts.explain import KeySide
from tandem.artifacts.lease import LeaseState, read_lease
from tandem.artifacts.store import ObjectStore, ObjectSummary, OpenUpload
from tandem.errors import ExternalError, SchemaError, TandemError

Kind = Literal["model", "artifact"]
Condition = Literal["whole", "damaged", "partial", "unread", "unknown"]

# parts of a prefix
PREFIX_DEPTHS: dict[str, tuple[Kind, int]] = {"models": ("model", 4), "artifacts": ("artifact", 2)}
MAX_NAMES = 3  # files that a sentence names; the rest is counted


@dataclass(frozen=True, kw_only=True)
class StoredSet:
    """One set of a bucket.

    Args:
        kind: a model snapshot, or a compiled artifact.
        prefix: without a slash at its end.
        objects: every object below the prefix, manifest and lease included.
        open_uploads: unfinished uploads below the prefix.
        manifest: None without one, or if it cannot be used.
        fault: why the manifest cannot be used.
        lease: None without one, or if it cannot be read.
        lease_fault: why the lease cannot be read.
    """

    kind: Kind
    prefix: str
    objects: tuple[ObjectSummary, ...]
    open_uploads: tuple[OpenUpload, ...] = ()
    manifest: sets.Manifest | None = None
    fault: TandemError | None = None
    lease: LeaseState | None = None
    lease_fault: TandemError | None = None

    @property
    def name(self) -> str:
        """Return id@revision of a model, the key's name of an artifact."""
        rest = self.prefix.partition("/")[2]
        if self.kind == "artifact":
            return rest
        return "@".join(rest.rsplit("/", 1))

    @property
    def size(self) -> int:
        """Return the bytes of all objects of the set."""
        return sum(summary.size for summary in self.objects)

    @property
    def last_write_at(self) -> datetime:
        """Return when the set was last written, by S3's clock; a lease counts only alone."""
        times = [summary.modified_at for summary in self.objects if summary.key != self.lease_key]
        times += [upload.initiated_at for upload in self.open_uploads]
        return max(times or [summary.modified_at for summary in self.objects])

    @property
    def is_ours(self) -> bool:
        """Whether Tandem wrote the set: it has a manifest if whole, else the writer's lease."""
        return bool({self.manifest_key, self.lease_key} & self.keys)

    @property
    def keys(self) -> frozenset[str]:
        """Return the keys of all objects of the set."""
        return frozenset(summary.key for summary in self.objects)

    @property
    def manifest_key(self) -> str:
        """Return the key of the manifest."""
        return sets.manifest_key(self.prefix)

    @property
    def lease_key(self) -> str:
        """Return the key of the lease."""
        return f"{self.prefix}/{sets.LEASE_NAME}"

    @property
    def files(self) -> tuple[ObjectSummary, ...]:
        """Return the objects without manifest and lease."""
        return tuple(
            summary
            for summary in self.objects
            if summary.key not in {self.manifest_key, self.lease_key}
        )

    @property
    def rejection_runs(self) -> tuple[str, ...]:
        """Return the runs that an upload stored and refused."""
        return tuple(
            self.run_folder(row.key)
            for row in self.objects
            if row.key.endswith(f"/{sets.REJECTION_NAME}")
        )

    def run_folder(self, key: str) -> str:
        """Return the run's folder of an artifact's object; empty if the object is in none."""
        return key.removeprefix(f"{self.prefix}/").rpartition("/")[0].partition("/")[0]

    @property
    def condition(self) -> Condition:
        """Return the condition of the set.

        whole: has a manifest and every file of it; damaged: a file is missing or has another size,
        or the manifest is malformed or another set's; partial: no manifest yet; unknown: the
        manifest has another schema; unread: S3 did not return the manifest.
        """
        if isinstance(self.fault, SchemaError):
            return "unknown"
        if isinstance(self.fault, ExternalError):
            return "unread"
        if self.damage:
            return "damaged"
        return "partial" if self.manifest is None else "whole"

    @property
    def writer(self) -> str:
        """Return the writer of the set, or the last writer, in words."""
        if self.lease_fault is not None:
            return f"its lease cannot be read: {self.lease_fault.problem}"
        if self.lease is None:
            return "nobody writes it"
        if self.lease.is_active:
            return f"held by {self.lease.holder} until {self.lease.ends_at:%Y-%m-%d %H:%M:%S} UTC"
        return f"nobody writes it, {self.lease.holder} was the last"

    @property
    def damage(self) -> str:
        """Return the set's faults in words; empty for none, and for a set without a manifest."""
        if self.fault is not None:
            return self.fault.problem
        if self.manifest is None:
            return ""
        if (self.manifest.kind, self.manifest.name) != (self.kind, self.name):
            return f"its manifest is of {self.manifest.kind} {self.manifest.name}"
        sizes = {row.key: row.size for row in self.objects}
        root = sets.files_prefix(self.prefix, self.manifest)
        paths: dict[str, list[str]] = {"missing": [], "of another size": []}
        for file in self.manifest.files:
            size = sizes.get(f"{root}/{file.path}")
            if size is None:
                paths["missing"].append(file.path)
            elif size != file.size:
                paths["of another size"].append(file.path)
        faults = []
        for problem, problem_paths in paths.items():
            if problem_paths:
                names = sets.shorten_list(problem_paths, MAX_NAMES, ", ")
                faults.append(f"{names} {problem}")
        return "; ".join(faults)


def read_inventory(store: ObjectStore, *, with_uploads: bool = False) -> tuple[StoredSet, ...]:
    """Return every set of the bucket, by prefix, with its manifest and lease read.

    Args:
        store: the bucket.
        with_uploads: whether to list open uploads too; readers lack the right for that.

    Raises:
        TandemError: the bucket cannot be listed.
    """
    objects = defaultdict[str, list[ObjectSummary]](list)
    uploads = defaultdict[str, list[OpenUpload]](list)
    for top in PREFIX_DEPTHS:
        for row in store.list(f"{top}/"):
            objects[find_set_prefix(row.key)].append(row)
        if with_uploads:
            for upload in store.list_uploads(f"{top}/"):
                uploads[find_set_prefix(upload.key)].append(upload)
    prefixes = sorted({*objects, *uploads} - {""})

    def read_set(prefix: str) -> StoredSet:
        set_uploads = tuple(uploads.get(prefix, ()))
        stored_set = _read_set(store, prefix, tuple(objects.get(prefix, ())), set_uploads)
        # the set may have become whole between two pages
        if stored_set.manifest is not None and stored_set.damage:
            stored_set = _read_set(store, prefix, tuple(store.list(f"{prefix}/")), set_uploads)
        return stored_set

    return tuple(store.pool.map(read_set, prefixes))


def find_read_fault(stored_sets: Iterable[StoredSet]) -> ExternalError | None:
    """Return the first manifest or lease that S3 failed to read; rights may be missing."""
    for stored_set in stored_sets:
        for fault in (stored_set.fault, stored_set.lease_fault):
            if isinstance(fault, ExternalError):
                return fault
    return None


def list_artifact_sides(stored_sets: Sequence[StoredSet], url: str) -> Iterator[KeySide]:
    """Yield the key of every stored artifact whose manifest can be read.

    Raises:
        ExternalError: S3 did not return one of the manifests.
    """
    if fault := find_read_fault(stored_sets):
        raise fault
    for stored_set in stored_sets:
        if stored_set.kind == "artifact" and stored_set.manifest is not None:
            yield KeySide(
                name=stored_set.name,
                fields=stored_set.manifest.fields,
                where=f"{url}{stored_set.manifest_key}",
            )


def read_stored_set(store: ObjectStore, prefix: str) -> StoredSet:
    """Return the present state of one set; it may be empty.

    Raises:
        TandemError: the bucket cannot be listed.
    """
    return _read_set(
        store, prefix, tuple(store.list(f"{prefix}/")), tuple(store.list_uploads(f"{prefix}/"))
    )


def find_set_prefix(key: str) -> str:
    """Return the prefix of an object's set; empty for an object of no set."""
    parts = key.split("/")
    _, depth = PREFIX_DEPTHS.get(parts[0], ("", 0))
    if depth and len(parts) > depth and all(parts[:depth]):
        return "/".join(parts[:depth])
    return ""


def _read_set(
    store: ObjectStore,
    prefix: str,
    objects: tuple[ObjectSummary, ...],
    uploads: tuple[OpenUpload, ...],
) -> StoredSet:
    """Return the set with its manifest and its lease."""
    kind, _ = PREFIX_DEPTHS[prefix.partition("/")[0]]
    stored_set = StoredSet(kind=kind, prefix=prefix, objects=objects, open_uploads=uploads)
    manifest = lease = fault = lease_fault = None
    try:
        if stored_set.manifest_key in stored_set.keys:
            manifest = sets.read_stored_manifest(store, prefix)
    except TandemError as error:
        fault = error
    try:
        if stored_set.lease_key in stored_set.keys:
            lease = read_lease(store, stored_set.lease_key)
    except TandemError as error:
        lease_fault = error
    return replace(stored_set, manifest=manifest, fault=fault, lease=lease, lease_fault=lease_fault)
