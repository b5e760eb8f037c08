"""`import_artifact`: take in an artifact compiled elsewhere, held against its key as if compiled here.

Invariant: what is there already is left alone; what is taken in lies in a folder of its own, named after its
content, so a run that was killed is continued by the next, and the manifest says that it was adopted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.explain import read_key_side
from tandem.artifacts.files import LocalFiles
from tandem.artifacts.inspect_local import require_valid_artifact
from tandem.artifacts.job_env import read_artifact_key
from tandem.artifacts.lease import hold_lease
from tandem.artifacts.manifest import LEASE_NAME, SCHEMA_VERSION, Manifest, ManifestFile
from tandem.artifacts.manifest_store import read_artifact_manifest, require_key, write_stored_manifest
from tandem.artifacts.rejection import read_rejection
from tandem.artifacts.s3_upload import upload_files
from tandem.artifacts.store import ObjectStore, open_store
from tandem.errors import InputError
from tandem.spec.artifact_key import ArtifactKey

LEASE_S = 120.0
RUN_PREFIX = "adopted-"
UNPROVEN_NOTE = "it was compiled elsewhere: what its own files do not tell of how, nobody has checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """What became of it.

    Args:
        name, prefix: of the artifact; the prefix without a slash at its end.
        manifest: what is stored now.
        is_new: whether it is ours; False where an artifact of this key was there.
    """

    name: str
    prefix: str
    manifest: Manifest
    is_new: bool


def import_artifact(store: ObjectStore, folder: Path, key: ArtifactKey, *, wait_s: float = 0) -> ImportResult:
    """Take in a folder as the artifact of a key.

    Args:
        store: the bucket.
        folder: the artifact, as the runtime wrote it.
        key: what it was compiled for.
        wait_s: seconds to wait for another writer of the same key.

    Raises:
        InputError: the folder cannot be stored, or the stored manifest cannot be read.
        StaleError: it is not whole or not the key's, or what is stored under the key's name is not the key's.
        ExternalError: S3 failed, or somebody else writes this key.
    """
    existing = _find_existing(store, key)
    if existing is not None:
        return existing
    _require_folder(folder)
    unproven = require_valid_artifact(folder, key)
    local_files = LocalFiles(folder)
    files = local_files.hash_all()
    run_name = f"{RUN_PREFIX}{_compute_content_digest(files)}"
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        kind="artifact",
        name=key.name,
        folder=run_name,
        fields=key.as_fields(),
        files=files,
        made={"run": run_name, "where": "elsewhere", "unproven": [UNPROVEN_NOTE, *unproven]},
    )
    with hold_lease(store, f"{key.prefix}/{LEASE_NAME}", run_name, LEASE_S, wait_s) as lease:
        upload_files(store, local_files, f"{key.prefix}/{run_name}", check=lease.check)
        lease.confirm()
        is_ours = write_stored_manifest(store, key.prefix, manifest)
    existing = None if is_ours else _find_existing(store, key)
    return existing or ImportResult(name=key.name, prefix=key.prefix, manifest=manifest, is_new=True)


def import_rejection(store: ObjectStore, run_name: str, key: ArtifactKey, *, wait_s: float = 0) -> ImportResult:
    """Take in what a compile made and its upload refused: its files are stored, and a person says that they are right.

    Args:
        store: the bucket.
        run_name: the folder that the refusal named.
        key: what it was compiled for.
        wait_s: seconds to wait for another writer of the same key.

    Raises:
        InputError: nothing was refused under this name.
        StaleError: it was made for another key, or a file of it is not whole any more.
        ExternalError: S3 failed, or somebody else writes this key.
    """
    existing = _find_existing(store, key)
    if existing is not None:
        return existing
    manifest = read_rejection(store, key.prefix, run_name)
    require_key(manifest, key, store.url(f"{key.prefix}/{run_name}/"))
    with hold_lease(store, f"{key.prefix}/{LEASE_NAME}", f"{RUN_PREFIX}{run_name}", LEASE_S, wait_s) as lease:
        lease.confirm()
        is_ours = write_stored_manifest(store, key.prefix, manifest)
    existing = None if is_ours else _find_existing(store, key)
    return existing or ImportResult(name=key.name, prefix=key.prefix, manifest=manifest, is_new=True)


def _find_existing(store: ObjectStore, key: ArtifactKey) -> ImportResult | None:
    """Return the artifact that is there, None for none.

    Raises:
        StaleError: its manifest is of another key.
    """
    manifest = read_artifact_manifest(store, key)
    if manifest is None:
        return None
    return ImportResult(name=key.name, prefix=key.prefix, manifest=manifest, is_new=False)


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise InputError(
            "there is no such folder", where=str(folder),
            change="name the folder that the runtime wrote (of nxdi the one with neuron_config.json)",
        )  # fmt: skip


def _compute_content_digest(files: Sequence[ManifestFile]) -> str:
    """Return a name for a content: the same files are the same run, however often they are brought."""
    listing = json.dumps([[file.path, file.size, file.sha256] for file in files])
    return hashlib.sha256(listing.encode()).hexdigest()[:12]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    bucket = os.environ.get("TANDEM_BUCKET")
    source_group = parser.add_mutually_exclusive_group(required=True)
    source_group.add_argument(
        "folder", type=Path, nargs="?", metavar="DIR", help="the artifact, as the runtime wrote it"
    )
    source_group.add_argument("--refused", metavar="RUN", help="what an upload kept and refused, as its log names it")
    parser.add_argument("--bucket", default=bucket, required=bucket is None, help="of models and artifacts")
    parser.add_argument(
        "--key", type=Path, metavar="FILE", help="JSON of the key's fields; left out: TANDEM_ARTIFACT_KEY"
    )
    parser.add_argument("--wait-s", type=float, default=0.0, help="seconds to wait for another writer of the same key")


def run(options: argparse.Namespace) -> int:
    """Take in a folder and log what became of it.

    Raises:
        TandemError: as `import_artifact` does.
    """
    key = _read_key_file(options.key) if options.key else read_artifact_key()
    store = open_store(options.bucket)
    if options.refused is not None:
        result = import_rejection(store, options.refused, key, wait_s=options.wait_s)
    else:
        result = import_artifact(store, options.folder, key, wait_s=options.wait_s)
    log_event(
        "adopted" if result.is_new else "present: left alone", artifact=result.name, prefix=result.prefix,
        files=len(result.manifest.files), size=result.manifest.size, made=result.manifest.made,
    )  # fmt: skip
    return 0


def _read_key_file(path: Path) -> ArtifactKey:
    side = read_key_side(path)
    try:
        return ArtifactKey.from_fields(side.fields)
    except ValueError as error:
        raise InputError(f"this is {error}", where=str(path), change="name a file with a key's fields") from None
