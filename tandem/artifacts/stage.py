"""`stage`: bring one snapshot, from a hub or a folder, into the bucket; one file at a time through local disk.

Invariant: the manifest is written last, of files that are whole; nothing is written under a prefix that holds a file
of another snapshot, so files of two commits never mix; what is written follows from the snapshot alone, so whoever
writes it, and however often it was killed, the end is the same bytes.

A pinned model lies under its commit. One that is not pinned lies under the name that moves, `main`: its manifest
says which commit that was, and stays so until an operator removes the prefix.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1, sha256
from pathlib import Path
from platform import node
from typing import Any, Protocol

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.job_env import HOLDER_VARIABLE
from tandem.artifacts.lease import WriteLease, hold_lease, release_lease
from tandem.artifacts.manifest import LEASE_NAME, MANIFEST_NAME, Manifest, ManifestFile
from tandem.artifacts.manifest_store import read_model_manifest, write_stored_manifest
from tandem.artifacts.progress import TransferProgress
from tandem.artifacts.s3_upload import upload_file
from tandem.artifacts.snapshot import (
    CONFIG_NAME,
    INDEX_NAME,
    SnapshotEntry,
    check_config,
    choose_files,
    require_config,
    select_tensor_files,
)
from tandem.artifacts.store import ObjectHead, ObjectStore, open_store
from tandem.errors import InputError, StaleError
from tandem.shell_command import quote_command
from tandem.spec.names import WORK_MOUNT

LEASE_S = 120.0
WAIT_S = 3600.0
_ID_PATTERN = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_REVISION_PATTERN = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_COMMIT_PATTERN = re.compile(r"[0-9a-f]{40}")


class SnapshotSource(Protocol):
    """Where a snapshot comes from: `hub.HubSnapshot` or `folder.FolderSnapshot`."""

    @property
    def where(self) -> str:
        """Return what messages call it."""

    @property
    def commit(self) -> str | None:
        """Return the commit; None where nobody knows it."""

    @property
    def entries(self) -> Mapping[str, SnapshotEntry]:
        """Return every file by its name."""

    @property
    def provenance(self) -> dict[str, Any]:
        """Return what the manifest says of it."""

    def prepare(self) -> None:
        """Make local disk ready; nobody else uses it now."""

    def check_entries(self, entries: Sequence[SnapshotEntry]) -> None:
        """Refuse to begin if one of these files will not fit on local disk."""

    def receive(self, entry: SnapshotEntry, on_progress: Callable[[int], None]) -> tuple[Path, str]:
        """Return a checked local file and its SHA-256."""

    def drop(self, entry: SnapshotEntry) -> None:
        """Let go of the local file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRevision:
    """What is staged: organisation/name and a revision, a commit or a name that moves."""

    id: str
    revision: str

    def __post_init__(self) -> None:
        """Refuse what cannot be a prefix.

        Raises:
            InputError: the id or the revision has another form.
        """
        if not _ID_PATTERN.fullmatch(self.id) or ".." in self.id:
            raise InputError(f"{self.id!r} is no model", change="give organisation/name, as the hub spells it")
        if not _REVISION_PATTERN.fullmatch(self.revision) or ".." in self.revision:
            raise InputError(
                f"{self.revision!r} is no revision that can be a folder's name",
                change="give the commit, 40 hexadecimal digits",
            )

    @property
    def prefix(self) -> str:
        """Return the S3 prefix, without a slash at its end; as `tandem.spec.model.ModelConfig.prefix` says it."""
        return f"models/{self.id}/{self.revision}"

    @property
    def name(self) -> str:
        """Return what its manifest is called by."""
        return f"{self.id}@{self.revision}"

    @property
    def is_pinned(self) -> bool:
        """Return whether the revision is a commit."""
        return _COMMIT_PATTERN.fullmatch(self.revision) is not None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    bucket = os.environ.get("TANDEM_BUCKET")
    parser.add_argument("--bucket", default=bucket, required=bucket is None, help="of models and artifacts")
    parser.add_argument("--model", required=True, metavar="ORG/NAME", help="as the hub spells it")
    parser.add_argument("--revision", required=True, help="commit of 40 hexadecimal digits, or a name that moves")
    parser.add_argument("--work", type=Path, default=Path(WORK_MOUNT), help="local disk for the largest file")
    parser.add_argument("--from", dest="folder", type=Path, metavar="DIR", help="a copy of the snapshot, no hub")
    parser.add_argument("--wait-s", type=float, default=WAIT_S, help="seconds to wait for another run of the same")
    parser.add_argument("--lease-s", type=float, default=LEASE_S, help="seconds until a dead run's lease is free")


def run(options: argparse.Namespace) -> int:
    """Stage one model.

    Returns:
        0: it is in the bucket, with its manifest.

    Raises:
        StaleError: the prefix holds something else.
        InputError: the snapshot cannot be served, or the hub does not give it.
        ExternalError: the hub, S3, the secret or the disk failed.
    """
    model = ModelRevision(id=options.model, revision=options.revision)
    store = open_store(options.bucket)
    holder = os.environ.get(HOLDER_VARIABLE) or f"hand-{node()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    lease_key = f"{model.prefix}/{LEASE_NAME}"
    if _is_present(store, model):
        release_lease(store, lease_key, holder)
        return 0
    work = options.work / "stage" / options.bucket / model.id / model.revision  # as the lease: one run at a time
    source = _open_source(model, options.folder, work)
    with hold_lease(store, lease_key, holder, options.lease_s, options.wait_s) as lease:
        if not _is_present(store, model):
            _stage_model(store, model, source, lease)
    if options.folder is None:
        shutil.rmtree(work, ignore_errors=True)
    return 0


def _is_present(store: ObjectStore, model: ModelRevision) -> bool:
    """Tell whether the model's manifest is there.

    Raises:
        InputError: it is cut off, or of a newer schema.
        StaleError: it is of something else.
    """
    manifest = read_model_manifest(store, model.prefix, model.name, "run this job again")
    if manifest is None:
        return False
    log_event(
        "present", object=store.url(f"{model.prefix}/{MANIFEST_NAME}"), model=model.name,
        commit=manifest.fields.get("commit"), files=len(manifest.files),
        size=manifest.size,
    )  # fmt: skip
    return True


def _open_source(model: ModelRevision, folder: Path | None, work: Path) -> SnapshotSource:
    if folder is not None:
        from tandem.artifacts.folder_snapshot import open_folder  # noqa: PLC0415 - only when there is something to bring

        return open_folder(folder, model.revision if model.is_pinned else None)
    from tandem.artifacts.hub import resolve_snapshot  # noqa: PLC0415 - only when there is something to fetch

    return resolve_snapshot(model.id, model.revision, work)


def _stage_model(store: ObjectStore, model: ModelRevision, source: SnapshotSource, lease: WriteLease) -> None:
    source.prepare()
    files, left_out = _plan_files(source)
    if left_out:
        log_event("left out", model=model.name, files=left_out)
    # the checksums of the hub decide on what lies below a commit; no manifest refers to it yet
    may_replace = model.is_pinned and source.provenance["from"] == "hub"
    digests = _find_whole_objects(store, model, files, source, may_replace=may_replace)
    missing = [entry for entry in files if entry.path not in digests]
    progress = TransferProgress(event="staging", files=len(missing), size=sum(entry.size for entry in missing))
    source.check_entries(missing)
    log_event(
        "planned", model=model.name, commit=source.commit, files=len(files), missing=len(missing), size=progress.size
    )

    def report_progress(byte_count: int) -> None:
        lease.check()
        progress.add_bytes(byte_count)

    for index, entry in enumerate(missing, start=1):
        progress.begin(index, entry.path)
        path, digests[entry.path] = source.receive(entry, report_progress)
        upload_file(store, path, f"{model.prefix}/{entry.path}", digests[entry.path])
        source.drop(entry)
    manifest = _build_manifest(
        model,
        source,
        [
            ManifestFile(path=file_entry.path, size=file_entry.size, sha256=digests[file_entry.path])
            for file_entry in files
        ],
        left_out,
    )
    lease.confirm()
    if not write_stored_manifest(store, model.prefix, manifest):
        _is_present(store, model)  # somebody else's, written since; it says so, or is refused
        return
    log_event(
        "staged",
        object=store.url(f"{model.prefix}/{MANIFEST_NAME}"),
        model=model.name,
        commit=source.commit,
        files=len(files),
        size=manifest.size,
        seconds=progress.seconds,
    )


def _plan_files(source: SnapshotSource) -> tuple[tuple[SnapshotEntry, ...], dict[str, str]]:
    """Return the files to stage, and those that are left out with the reason."""
    entries, where = source.entries, source.where
    require_config(entries, where)
    check_config(_read_small_file(source, CONFIG_NAME), f"{where}/{CONFIG_NAME}")
    index = _read_small_file(source, INDEX_NAME) if INDEX_NAME in entries else None
    return choose_files(entries, select_tensor_files(entries, index, where))


def _read_small_file(source: SnapshotSource, name: str) -> bytes:
    path, _ = source.receive(source.entries[name], lambda _size: None)
    return path.read_bytes()


def _find_whole_objects(
    store: ObjectStore,
    model: ModelRevision,
    files: Sequence[SnapshotEntry],
    source: SnapshotSource,
    *,
    may_replace: bool,
) -> dict[str, str]:
    """Return the SHA-256 of the files whose objects are whole.

    Raises:
        StaleError: under the prefix is an object that is not of this snapshot.
    """
    entries_by_path = {entry.path: entry for entry in files}
    digests: dict[str, str] = {}
    for summary in store.list(f"{model.prefix}/"):
        name = summary.key.removeprefix(f"{model.prefix}/")
        if name in {"", MANIFEST_NAME, LEASE_NAME}:  # "" is what a console writes for an empty folder
            continue
        digest = (
            _read_matching_digest(store, summary.key, entries_by_path[name], source)
            if name in entries_by_path
            else None
        )
        if digest is not None:
            digests[name] = digest
        elif name not in entries_by_path or not may_replace:
            remove_command = quote_command("aws", "s3", "rm", "--recursive", f"{store.url(model.prefix)}/")
            raise StaleError(
                f"the object is not of {model.name} as {source.where} has it, and files of two snapshots must not mix",
                where=store.url(summary.key),
                change=f"see that nobody serves from it, remove it ({remove_command}) and "
                "run this job again; a pinned revision has a prefix of its own",
            )
    return digests


def _read_matching_digest(store: ObjectStore, key: str, entry: SnapshotEntry, source: SnapshotSource) -> str | None:
    """Return the SHA-256 of an object that has the entry's content, else None."""
    head = store.head(key)
    if head is None or head.size != entry.size or head.sha256 is None:
        return None
    return head.sha256 if _has_content(store, key, entry, head, source) else None


def _has_content(store: ObjectStore, key: str, entry: SnapshotEntry, head: ObjectHead, source: SnapshotSource) -> bool:
    if entry.sha256:
        return head.sha256 == entry.sha256
    if entry.git_sha1:  # git stores small files only: the object itself tells, nothing is fetched from the hub again
        object_content = store.read(key)
        body = object_content.body if object_content else b""
        git_hash = sha1(b"blob %d\0%b" % (len(body), body), usedforsecurity=False)
        return git_hash.hexdigest() == entry.git_sha1 and sha256(body).hexdigest() == head.sha256
    return source.receive(entry, lambda _size: None)[1] == head.sha256


def _build_manifest(
    model: ModelRevision, source: SnapshotSource, files: Sequence[ManifestFile], left_out: Mapping[str, str]
) -> Manifest:
    return Manifest(
        schema_version=1, kind="model", name=model.name, folder="",
        fields={"id": model.id, "revision": model.revision, "commit": source.commit},
        files=tuple(files), made={**source.provenance, "left_out": dict(left_out)},
    )  # fmt: skip
