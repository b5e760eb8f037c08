"""`verify`: compare a stored set with its manifest byte by byte.

Invariant: a stored set is called right only if every byte of the manifest's files was read and
hashed, and the manifest itself is unchanged since it was written.
"""

from __future__ import annotations

import argparse
import hashlib

from tandem.artifacts import manifest as sets
from tandem.artifacts.driver.log import log_event
from tandem.artifacts.explain import compute_key_name
from tandem.artifacts.files import run_in_threads
from tandem.artifacts.job_env import ModelReference, add_bucket_argument
from tandem.artifacts.s3_transfer import receive_object
from tandem.artifacts.store import CONCURRENCY, ObjectStore, open_store
from tandem.errors import InputError, StaleError, TandemError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_bucket_argument(parser)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--model", metavar="ORG/NAME", help="a stored model; with --revision")
    group.add_argument("--artifact", metavar="NAME", help="a stored artifact: its key's name")
    parser.add_argument("--revision", help="of the model")


def run(options: argparse.Namespace) -> int:
    """Verify one set; return 0 if it is right, 1 if a file differs.

    Raises:
        InputError: an option is missing or malformed, or there is no set of that name.
        StaleError: the manifest is of another set or was changed.
        ExternalError: S3 failed.
    """
    kind = "artifact"
    name = options.artifact
    prefix = f"artifacts/{name}"
    if options.model is not None:
        model = ModelReference(id=options.model, revision=options.revision or "")
        kind = "model"
        name = model.name
        prefix = model.prefix
    store = open_store(options.bucket)
    manifest = _read_target_manifest(store, kind, name, prefix)
    faults = verify_files(store, prefix, manifest)
    for path, fault in faults.items():
        log_event(fault.problem, level="error", file=path, where=fault.where, change=fault.change)
    log_event(
        "differs" if faults else "right",
        level="error" if faults else "info",
        kind=kind,
        name=name,
        files=len(manifest.files),
        wrong=len(faults),
        size=manifest.size,
    )
    return StaleError.exit_code if faults else 0


def _read_target_manifest(store: ObjectStore, kind: str, name: str, prefix: str) -> sets.Manifest:
    """Return the manifest, checked: it is of this set and unchanged since it was written.

    Raises:
        InputError: there is no manifest, or it cannot be read.
        StaleError: the manifest is of another set, or was changed since it was written.
    """
    key = sets.manifest_key(prefix)
    where = store.url(key)
    manifest_object = store.read(key)
    if manifest_object is None:
        problem = f"there is no manifest, so no whole {kind} {name}"
        raise InputError(
            problem,
            where=where,
            change="`tandem artifacts list` shows what there is and who writes it",
        )
    manifest = sets.parse_manifest(manifest_object.body, where)
    head = store.head(key)
    is_intact = head is not None and head.sha256 == hashlib.sha256(manifest_object.body).hexdigest()
    # None: of another release
    key_name = compute_key_name(manifest.fields) if kind == "artifact" else None
    if not is_intact or (manifest.kind, manifest.name, key_name or name) != (kind, name, name):
        problem = f"the manifest was changed, or is not that of the {kind} {name}"
        raise StaleError(
            problem, where=where, change=f"see who wrote it; remove it and make the {kind} again"
        )
    return manifest


def verify_files(
    store: ObjectStore, prefix: str, manifest: sets.Manifest
) -> dict[str, TandemError]:
    """Read every object of a set; return the faults, by the path of the file.

    Args:
        store: the bucket.
        prefix: of the set.
        manifest: of the set.

    Raises:
        ExternalError: S3 failed, so there is no result.
    """
    files_root = sets.files_prefix(prefix, manifest)
    faults = {}

    def check_file(file: sets.ManifestFile) -> None:
        key = f"{files_root}/{file.path}"
        problem = sets.describe_difference(store.head(key), file)
        if not problem:
            sha256 = receive_object(store, key)
            if sha256 != file.sha256:
                problem = f"the content has SHA-256 {sha256}, the manifest says {file.sha256}"
        if problem:
            faults[file.path] = sets.build_damage_error(store, key, problem)
        else:
            log_event("right", object=store.url(key), size=file.size)

    run_in_threads(CONCURRENCY, check_file, manifest.files, store.halt_event)
    return dict(sorted(faults.items()))
