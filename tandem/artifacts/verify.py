"""`verify`: hold a stored set against its manifest byte by byte, or a local artifact against its key.

Invariant: a set is called right only when every byte that its manifest names was read and hashed, and the manifest
itself is the one that was written.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.inspect_local import require_valid_artifact
from tandem.artifacts.job_env import ARTIFACTS, MODELS, read_artifact_key
from tandem.artifacts.local_disk import run_in_threads
from tandem.artifacts.manifest import Manifest, ManifestFile, parse_manifest, validate_path
from tandem.artifacts.manifest_store import build_damage_error, describe_difference, files_prefix, manifest_key
from tandem.artifacts.s3_download import receive_object
from tandem.artifacts.store import ObjectStore, open_store
from tandem.errors import InputError, StaleError, TandemError
from tandem.spec.artifact_key import ArtifactKey

CACHE = "compiler-cache"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--bucket", default=os.environ.get("TANDEM_BUCKET"), help="bucket of models and artifacts")
    target_group = parser.add_mutually_exclusive_group(required=True)
    target_group.add_argument("--model", metavar="ORG/NAME", help="a stored model; with --revision")
    target_group.add_argument(
        "--artifact", metavar="NAME", help="a stored artifact: its key's name, as `list` shows it"
    )
    target_group.add_argument("--folder", type=Path, help="a local artifact, held against TANDEM_ARTIFACT_KEY")
    parser.add_argument("--revision", help="of the model")
    parser.add_argument("--work", type=Path, help="with --folder: where the compiler's cache is")


def run(options: argparse.Namespace) -> int:
    """Verify one set; 0 where it is right, 1 where a file differs.

    Raises:
        InputError: what to verify is not named well, or there is nothing of that name.
        StaleError: the manifest is of something else, or the local artifact is not its key's.
        ExternalError: S3 failed.
    """
    if options.folder is not None:
        return _verify_local(options.folder, options.work)
    if not options.bucket:
        raise InputError("no bucket is named", change="give --bucket, or set TANDEM_BUCKET")
    kind, name, prefix = _parse_target(options)
    store = open_store(options.bucket)
    manifest = _read_target_manifest(store, kind, name, prefix)
    wrong_files = verify_files(store, prefix, manifest)
    for file, fault in wrong_files:
        log_event(fault.problem, level="error", file=file.path, where=fault.where, change=fault.change)
    log_event("differs" if wrong_files else "right", level="error" if wrong_files else "info", kind=kind, name=name,
        files=len(manifest.files), wrong=len(wrong_files), size=manifest.size)  # fmt: skip
    return StaleError.exit_code if wrong_files else 0


def _verify_local(folder: Path, work: Path | None) -> int:
    key = read_artifact_key()
    notes = require_valid_artifact(folder, key, cache=work / CACHE if work else None)
    log_event("right", kind="artifact", name=key.name, folder=str(folder), unproven=list(notes))
    return 0


def _parse_target(options: argparse.Namespace) -> tuple[str, str, str]:
    """Return kind, name and prefix of what is asked for."""
    if options.artifact is not None:
        kind, name, path = "artifact", options.artifact, f"{ARTIFACTS}/{options.artifact}"
    else:
        if not options.revision:
            raise InputError("no revision is named", change="give --revision beside --model")
        kind, name = "model", f"{options.model}@{options.revision}"
        path = f"{MODELS}/{options.model}/{options.revision}"
    try:
        return kind, name, validate_path(path)
    except ValueError as error:
        raise InputError(str(error), change="give the name as `list` shows it") from None


def _read_target_manifest(store: ObjectStore, kind: str, name: str, prefix: str) -> Manifest:
    """Return the manifest, which is of what it should be and as it was written.

    Raises:
        InputError: there is none, or it cannot be read.
        StaleError: it is of something else, or was changed since it was written.
    """
    key = manifest_key(prefix)
    where, manifest_object = store.url(key), store.read(key)
    if manifest_object is None:
        raise InputError(
            f"there is no manifest, so no whole {kind} {name}", where=where,
            change="`list` shows what there is and who writes it",
        )  # fmt: skip
    manifest = parse_manifest(manifest_object.body, where)
    head = store.head(key)
    remedy = f"see who wrote it; remove it and run the job that makes the {kind} again"
    if head is None or head.sha256 != hashlib.sha256(manifest_object.body).hexdigest():
        raise StaleError("the manifest is not as Tandem wrote it", where=where, change=remedy)
    if (manifest.kind, manifest.name) != (kind, name):
        raise StaleError(f"the manifest is of {manifest.kind} {manifest.name}", where=where, change=remedy)
    if kind == "artifact" and _compute_key_name(manifest) not in {"", name}:
        raise StaleError(
            f"the manifest's fields are those of {_compute_key_name(manifest)}", where=where, change=remedy
        )
    return manifest


def _compute_key_name(manifest: Manifest) -> str:
    """Return the name that the manifest's own fields give; empty where another release wrote them."""
    try:
        return ArtifactKey.from_fields(manifest.fields).name
    except ValueError:
        return ""


def verify_files(store: ObjectStore, prefix: str, manifest: Manifest) -> list[tuple[ManifestFile, TandemError]]:
    """Read every object of a set; the files that differ from its manifest, each with what is wrong and what to do.

    Args:
        store: the bucket.
        prefix: of the set.
        manifest: of the set.

    Raises:
        ExternalError: S3 failed, so that nothing can be said.
    """
    files_root = files_prefix(prefix, manifest)
    faults: dict[str, TandemError | None] = {}

    def check_file(file: ManifestFile) -> None:
        faults[file.path] = _verify_file(store, files_root, file)

    run_in_threads(store.concurrency, check_file, manifest.files, store.halt_event)
    return [(file, fault) for file in manifest.files if (fault := faults[file.path])]


def _verify_file(store: ObjectStore, files_root: str, file: ManifestFile) -> TandemError | None:
    key = f"{files_root}/{file.path}"
    head = store.head(key)
    if head is None or head.size != file.size:
        return build_damage_error(store, key, describe_difference(head, file))
    try:
        sha256 = receive_object(store, key, head)
    except StaleError as error:
        return error
    if sha256 != file.sha256:
        return build_damage_error(store, key, f"the content has SHA-256 {sha256}, the manifest says {file.sha256}")
    if head.sha256 != file.sha256:
        return build_damage_error(store, key, f"the content is right, but marked with SHA-256 {head.sha256}")
    log_event("right", object=store.url(key), size=file.size)
    return None
