"""Sets as a bucket holds them: stored for real, or made up for what needs no bucket."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

from tandem.artifacts.files import LocalFiles
from tandem.artifacts.inventory import OpenUpload, StoredSet
from tandem.artifacts.lease import LeaseState
from tandem.artifacts.manifest import (
    LEASE_NAME,
    MANIFEST_NAME,
    Manifest,
    ManifestFile,
    write_stored_manifest,
)
from tandem.artifacts.store import ObjectSummary

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
MODEL = "models/org/name/main"
FILES = {"config.json": b"{}", "weights/tp0.safetensors": b"0123456789"}


def manifest_of(prefix, folder, fields, files=FILES):
    kind, _, rest = prefix.partition("/")
    return Manifest(
        schema_version=1,
        kind="model" if kind == "models" else "artifact",
        folder=folder,
        fields=dict(fields),
        name="@".join(rest.rsplit("/", 1)) if kind == "models" else rest,
        made={"run": "run"},
        files=tuple(
            ManifestFile(path=path, size=len(body), sha256=hashlib.sha256(body).hexdigest())
            for path, body in files.items()
        ),
    )


def list_files(folder):
    return LocalFiles(folder).hash_all()


def read_folder(folder):
    """Return the content of each file below a folder, by its path there."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def put(store, key, body=b"x"):
    """Write an object as Tandem's writers do, with its SHA-256 in the metadata."""
    digest = hashlib.sha256(body).hexdigest()
    store.client.put_object(Bucket=store.bucket, Key=key, Body=body, Metadata={"sha256": digest})


def put_lease(store, prefix, *, is_held=False, holder="job", ttl_s=600):
    state = f'"held", "ttl_s": {ttl_s}' if is_held else '"released"'
    put(
        store,
        f"{prefix}/{LEASE_NAME}",
        f'{{"schema_version": 1, "holder": "{holder}", "state": {state}}}'.encode(),
    )


def put_set(
    store,
    prefix,
    folder="",
    fields=None,
    files=FILES,
):
    """Store a whole set: lease, files, manifest."""
    put_lease(store, prefix)
    for path, body in files.items():
        put(store, "/".join(filter(None, (prefix, folder, path))), body)
    manifest = manifest_of(prefix, folder, fields or {}, files)
    assert write_stored_manifest(store, prefix, manifest)
    return manifest


def keys(store, prefix=""):
    return {row.key for row in store.list(prefix)}


def made_up(
    prefix,
    *paths,
    days=100,
    folder="",
    lease=None,
    open_paths=(),
    has_manifest=True,
    **more,
):
    """A set that nothing stores, everything of it so many days old."""
    at = NOW - timedelta(days=days)
    names = [*paths, LEASE_NAME, *([MANIFEST_NAME] if has_manifest else [])]
    below = (
        [path.removeprefix(f"{folder}/") for path in paths if path.startswith(f"{folder}/")]
        if folder
        else paths
    )
    kind: Any = "model" if prefix.startswith("models/") else "artifact"
    return StoredSet(
        kind=kind,
        prefix=prefix,
        objects=tuple(
            ObjectSummary(key=f"{prefix}/{path}", size=7, modified_at=at) for path in names
        ),
        open_uploads=tuple(
            OpenUpload(key=f"{prefix}/{path}", id="id", initiated_at=at) for path in open_paths
        ),
        manifest=(
            manifest_of(prefix, folder, {}, dict.fromkeys(below, b"1234567"))
            if has_manifest
            else None
        ),
        lease=lease or LeaseState(holder="job", ends_at=None, is_active=False),
        **more,
    )


def held_by(holder):
    return LeaseState(holder=holder, ends_at=NOW, is_active=True)
