"""`stage`: copy a snapshot from a hub or folder into the bucket, a file at a time.

Invariant: the manifest is written last, and only of whole files; `stage` refuses a prefix that has
a file of another snapshot, so files of two commits never mix; the written bytes depend only on the
snapshot, so any writer, after any number of kills, ends with the same bytes.

A run that was cut is run again: it skips the files that are whole in the bucket, and hub.py resumes
a download where it ended.

The prefix of a pinned model has its commit. The prefix of an unpinned model has the branch or tag,
e.g. `main`: its manifest has the commit at that time, until an operator removes the prefix.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from platform import node
from typing import Any

from tandem.artifacts import manifest as sets
from tandem.artifacts.driver.log import log_event
from tandem.artifacts.job_env import HOLDER_VARIABLE, ModelReference, add_bucket_argument
from tandem.artifacts.lease import LEASE_S, WriteLease, hold_lease, release_lease
from tandem.artifacts.s3_transfer import upload_file
from tandem.artifacts.snapshot import SnapshotEntry, SnapshotSource, choose_files, open_folder
from tandem.artifacts.store import ObjectStore, open_store
from tandem.declarations.names import WORK_MOUNT
from tandem.errors import StaleError
from tandem.shell_command import quote_command

WAIT_S = 3600.0  # for another run of the same


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_bucket_argument(parser)
    parser.add_argument("--model", required=True, metavar="ORG/NAME", help="as the hub spells it")
    parser.add_argument(
        "--revision", required=True, help="commit of 40 hexadecimal digits, or a name that moves"
    )
    parser.add_argument(
        "--work", type=Path, default=Path(WORK_MOUNT), help="local disk for the largest file"
    )
    parser.add_argument(
        "--from", dest="folder", type=Path, metavar="DIR", help="a copy of the snapshot, no hub"
    )


def run(options: argparse.Namespace) -> int:
    """Stage one model.

    Returns:
        0: the model is in the bucket, with its manifest.

    Raises:
        StaleError: the prefix has files or a manifest of something else.
        InputError: the snapshot cannot be served, or the hub refuses it.
        ExternalError: the hub, S3, the secret or the disk failed.
    """
    model = ModelReference(id=options.model, revision=options.revision)
    store = open_store(options.bucket)
    holder = (
        os.environ.get(HOLDER_VARIABLE) or f"hand-{node()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    )
    lease_key = f"{model.prefix}/{sets.LEASE_NAME}"
    if sets.find_stored_set(store, model):
        release_lease(store, lease_key, holder)
        return 0
    # as the lease: one run at a time
    work = options.work / "stage" / options.bucket / model.id / model.revision
    source: SnapshotSource
    if options.folder is not None:
        source = open_folder(options.folder, model.revision if model.is_pinned else None)
    else:
        from tandem.artifacts.hub import resolve_snapshot  # noqa: PLC0415 - only when there is something to fetch

        source = resolve_snapshot(model.id, model.revision, work)
    with hold_lease(store, lease_key, holder, LEASE_S, WAIT_S) as lease:
        if not sets.find_stored_set(store, model):
            _stage_model(store, model, source, lease)
    if options.folder is None:
        shutil.rmtree(work, ignore_errors=True)
    return 0


def _stage_model(
    store: ObjectStore, model: ModelReference, source: SnapshotSource, lease: WriteLease
) -> None:
    files, left_out = choose_files(source)
    if left_out:
        log_event("left out", model=model.name, files=left_out)
    digests = _find_whole_objects(store, model, files, source)
    missing = [entry for entry in files if entry.path not in digests]
    start_s = time.monotonic()
    source.check_entries(missing)
    about: dict[str, Any] = {"model": model.name, "commit": source.commit, "files": len(files)}
    log_event("planned", **about, missing=len(missing), size=sum(entry.size for entry in missing))

    for entry in missing:
        path, digests[entry.path] = source.receive(entry, lease.check)
        upload_file(store, path, f"{model.prefix}/{entry.path}", digests[entry.path])
        if source.is_temporary:
            path.unlink()
    manifest = sets.build_manifest(
        model,
        tuple(
            sets.ManifestFile(path=file.path, size=file.size, sha256=digests[file.path])
            for file in files
        ),
        {**source.provenance, "left_out": left_out},
        commit=source.commit,
    )
    lease.confirm()
    if sets.write_stored_manifest(store, model.prefix, manifest):
        where = store.url(sets.manifest_key(model.prefix))
        log_event(
            "staged",
            object=where,
            **about,
            size=manifest.size,
            seconds=round(time.monotonic() - start_s, 1),
        )
    else:
        # another writer was first: log its manifest, or refuse it
        sets.find_stored_set(store, model)


def _find_whole_objects(
    store: ObjectStore,
    model: ModelReference,
    files: Sequence[SnapshotEntry],
    source: SnapshotSource,
) -> dict[str, str]:
    """Return the SHA-256 of the files whose objects are whole.

    Raises:
        StaleError: the prefix has an object that is not of this snapshot.
    """
    # the checksums of the hub decide on the objects below a commit; no manifest names them yet
    may_replace = model.is_pinned and source.provenance["from"] == "hub"
    entries = {entry.path: entry for entry in files}
    digests = {}
    for summary in store.list(f"{model.prefix}/"):
        name = summary.key.removeprefix(f"{model.prefix}/")
        # a console writes "" for an empty folder
        if name in {"", sets.MANIFEST_NAME, sets.LEASE_NAME}:
            continue
        digest = ""
        if name in entries:  # git's name of a small file is no SHA-256: such a file is read again
            digest = entries[name].sha256 or source.receive(entries[name])[1]
        head = store.head(summary.key)
        if head and digest and (head.size, head.sha256) == (entries[name].size, digest):
            digests[name] = digest
        elif name not in entries or not may_replace:
            command = quote_command("aws", "s3", "rm", "--recursive", f"{store.url(model.prefix)}/")
            problem = (
                f"the object is not of {model.name} as {source.where} has it; files of two"
                " snapshots must not mix"
            )
            raise StaleError(
                problem,
                where=store.url(summary.key),
                change=(
                    f"see that nobody serves from it, remove it ({command}) and run this job again"
                ),
            )
    return digests
