"""What stands in a bucket, set by set: objects, manifest, lease, and uploads that were begun and not ended.

Invariant: what cannot be read of one set is told of that set, and never hides another; ages are S3's own.

Only what has Tandem's layout is a set: `models/<org>/<name>/<revision>/` and `artifacts/<key name>/`. Whatever
else lies in the bucket is nobody's business here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Literal

from tandem.artifacts.fault import ArtifactError, WorldError
from tandem.artifacts.lease import Tenure, tenure
from tandem.artifacts.manifest import LEASE_NAME, Manifest, NewerSchemaError
from tandem.artifacts.refused import NAME as REFUSED
from tandem.artifacts.store import Listed, Store
from tandem.artifacts.stored import files_prefix, manifest_key, read_stored_manifest

Kind = Literal["model", "artifact"]
Condition = Literal["whole", "damaged", "partial", "unread", "newer"]

DEPTH: dict[str, tuple[Kind, int]] = {"models": ("model", 4), "artifacts": ("artifact", 2)}  # parts of a set's prefix
SHOWN = 3  # files that a sentence names; the rest is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An upload in parts that was begun and not ended; what it holds is paid for until it is aborted."""

    key: str
    id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSet:
    """One set as it stands.

    Args:
        kind: a model snapshot, or a compiled artifact.
        prefix: without a slash at its end.
        objects: every object below it, manifest and lease among them.
        begun: uploads below it that were not ended.
        manifest: None without one, or where it cannot be used.
        fault: why the manifest cannot be used.
        lease: None without one, or where it cannot be read.
        lease_fault: why the lease cannot be read.
    """

    kind: Kind
    prefix: str
    objects: tuple[Listed, ...]
    begun: tuple[Begun, ...] = ()
    manifest: Manifest | None = None
    fault: ArtifactError | None = None
    lease: Tenure | None = None
    lease_fault: ArtifactError | None = None

    @property
    def name(self) -> str:
        """Return id@revision of a model, the key's name of an artifact."""
        _, _, rest = self.prefix.partition("/")
        return rest if self.kind == "artifact" else "@".join(rest.rsplit("/", 1))

    @property
    def size(self) -> int:
        """Return the bytes of all its objects."""
        return sum(listed.size for listed in self.objects)

    @property
    def written(self) -> datetime:
        """Return when something of it was last written, by S3's clock; a lease counts where there is nothing else."""
        rest = [listed for listed in self.objects if listed.key != self.lease_key]
        times = [*(listed.modified for listed in rest), *(upload.at for upload in self.begun)]
        return max(times or [listed.modified for listed in self.objects])

    @property
    def ours(self) -> bool:
        """Whether Tandem wrote it: every writer takes the lease first, and a whole set has its manifest."""
        return bool({self.manifest_key, self.lease_key} & {listed.key for listed in self.objects})

    @property
    def manifest_key(self) -> str:
        """Return the key of its manifest."""
        return manifest_key(self.prefix)

    @property
    def lease_key(self) -> str:
        """Return the key of its lease."""
        return f"{self.prefix}/{LEASE_NAME}"

    @property
    def files(self) -> tuple[Listed, ...]:
        """Return its objects without manifest and lease."""
        return tuple(listed for listed in self.objects if listed.key not in {self.manifest_key, self.lease_key})

    @property
    def refused(self) -> tuple[str, ...]:
        """Return the runs that an upload refused and kept."""
        end = f"/{REFUSED}"
        return tuple(self.folder(listed.key) for listed in self.objects if listed.key.endswith(end))

    def folder(self, key: str) -> str:
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
        if isinstance(self.fault, WorldError):
            return "unread"
        if self.damage:
            return "damaged"
        return "partial" if self.manifest is None else "whole"

    @property
    def writer(self) -> str:
        """Return in words who is writing it, or who was."""
        if self.lease_fault is not None:
            return f"its lease cannot be read: {self.lease_fault.what}"
        if self.lease is None:
            return "nobody writes it"
        if self.lease.held and self.lease.until:
            return f"held by {self.lease.holder} until {self.lease.until:%Y-%m-%d %H:%M:%S} UTC"
        return f"nobody writes it, {self.lease.holder} was the last"

    @property
    def damage(self) -> str:
        """Return in words what is wrong with it; empty for nothing, and for a set without a manifest."""
        if self.fault is not None:
            return self.fault.what
        if self.manifest is None:
            return ""
        if (self.manifest.kind, self.manifest.name) != (self.kind, self.name):
            return f"its manifest is of {self.manifest.kind} {self.manifest.name}"
        sizes, below = {listed.key: listed.size for listed in self.objects}, files_prefix(self.prefix, self.manifest)
        missing = [file.path for file in self.manifest.files if f"{below}/{file.path}" not in sizes]
        other = [file.path for file in self.manifest.files if sizes.get(f"{below}/{file.path}", file.size) != file.size]
        said = [f"{', '.join(paths[:SHOWN])}{_more(paths)} {what}" for paths, what in
                ((missing, "missing"), (other, "of another size")) if paths]  # fmt: skip
        return "; ".join(said)


def contents(store: Store, *, with_uploads: bool = False) -> tuple[StoredSet, ...]:
    """Return every set of the bucket, by prefix, with its manifest and lease read.

    Args:
        store: the bucket.
        with_uploads: look for uploads that were begun, too; that takes a right that readers do not have.

    Raises:
        ArtifactError: the bucket cannot be listed.
    """
    objects = [listed for top in DEPTH for listed in store.list(f"{top}/")]
    begun = [upload for top in DEPTH for upload in uploads(store, f"{top}/")] if with_uploads else []
    keys = [*(listed.key for listed in objects), *(upload.key for upload in begun)]
    prefixes = sorted({prefix_of(key) for key in keys} - {""})
    by_prefix = {prefix: tuple(group) for prefix, group in groupby(objects, key=lambda listed: prefix_of(listed.key))}
    bare = [
        StoredSet(
            kind=DEPTH[prefix.partition("/")[0]][0], prefix=prefix, objects=by_prefix.get(prefix, ()),
            begun=tuple(upload for upload in begun if prefix_of(upload.key) == prefix),
        )
        for prefix in prefixes
    ]  # fmt: skip
    return tuple(store.pool.map(lambda found: _settled(store, _read(store, found)), bare))


def _settled(store: Store, found: StoredSet) -> StoredSet:
    """Return the set as another look finds it, where files are missing: it may have become whole between two pages."""
    if found.manifest is None or not found.damage:
        return found
    return _read(store, replace(found, objects=tuple(store.list(f"{found.prefix}/")), manifest=None))


def look(store: Store, prefix: str) -> StoredSet:
    """Return one set as it stands now; it may be empty.

    Raises:
        ArtifactError: the bucket cannot be listed.
    """
    bare = StoredSet(
        kind=DEPTH[prefix.partition("/")[0]][0], prefix=prefix, objects=tuple(store.list(f"{prefix}/")),
        begun=tuple(uploads(store, f"{prefix}/")),
    )  # fmt: skip
    return _read(store, bare)


def prefix_of(key: str) -> str:
    """Return the prefix of the set that an object is of; empty for an object of none."""
    parts = key.split("/")
    _, depth = DEPTH.get(parts[0], ("", 0))
    return "/".join(parts[:depth]) if depth and len(parts) > depth and all(parts[:depth]) else ""


def uploads(store: Store, prefix: str) -> Iterator[Begun]:
    """Yield the uploads below a prefix that were begun and not ended.

    Raises:
        ArtifactError: they cannot be listed.
    """
    with store.asking("ListMultipartUploads", prefix):
        pages = store.client.get_paginator("list_multipart_uploads").paginate(Bucket=store.bucket, Prefix=prefix)
        for page in pages:
            for upload in page.get("Uploads", ()):
                yield Begun(key=upload["Key"], id=upload["UploadId"], at=upload["Initiated"].astimezone(UTC))


def _read(store: Store, found: StoredSet) -> StoredSet:
    """Return the set with what its manifest and its lease say."""
    keys = {listed.key for listed in found.objects}
    if found.manifest_key in keys:
        try:
            found = replace(found, manifest=read_stored_manifest(store, found.prefix))
        except ArtifactError as error:
            found = replace(found, fault=error)
    if found.lease_key in keys:
        try:
            stored = store.read(found.lease_key)
            found = replace(found, lease=tenure(stored, store.url(found.lease_key)) if stored else None)
        except ArtifactError as error:
            found = replace(found, lease_fault=error)
    return found


def _more(paths: Iterable[str]) -> str:
    left = len(list(paths)) - SHOWN
    return f" and {left} more" if left > 0 else ""
