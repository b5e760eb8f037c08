"""Import of an artifact compiled elsewhere, compared with its key as if compiled here.

Invariant: an artifact that is already stored stays unchanged; an imported one is in a separate
folder, named after its content, so the next run continues a killed one, and the manifest says that
the artifact was adopted.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from tandem.artifacts import manifest as sets
from tandem.artifacts.files import LocalFiles
from tandem.artifacts.inspection import require_valid_artifact
from tandem.artifacts.lease import LEASE_S, hold_lease
from tandem.artifacts.s3_transfer import upload_files
from tandem.artifacts.store import ObjectStore
from tandem.declarations.artifact_key import ArtifactKey
from tandem.errors import InputError

RUN_PREFIX = "adopted-"
UNPROVEN_NOTE = (
    "it was compiled elsewhere: what its own files do not tell of how, nobody has checked"
)


def import_artifact(
    store: ObjectStore, source: Path | str, key: ArtifactKey
) -> tuple[sets.Manifest, bool]:
    """Import an artifact of a key; return its stored manifest, and whether this call wrote it.

    An artifact that an upload refused is already stored; by importing it, a person says that it is
    right.

    Args:
        store: the bucket.
        source: the artifact's folder as the runtime wrote it, or the name of the run that an upload
            refused.
        key: of the artifact.

    Raises:
        InputError: there is no such folder, a file in it cannot be stored, or no upload refused
            this run.
        StaleError: the artifact is not whole or not the key's, or the stored set of the key's name
            has another key.
        ExternalError: S3 failed, or another writer has this key.
    """
    if stored_manifest := sets.find_stored_set(store, key):
        return stored_manifest, False
    files = None
    if isinstance(source, Path):
        manifest, files = _inspect_folder(source, key)
    else:
        manifest = _read_rejection(store, source, key)
    holder = RUN_PREFIX + manifest.folder.removeprefix(RUN_PREFIX)
    with hold_lease(store, f"{key.prefix}/{sets.LEASE_NAME}", holder, LEASE_S, 0.0) as lease:
        if files is not None:
            upload_files(store, files, f"{key.prefix}/{manifest.folder}", check=lease.check)
        lease.confirm()
        is_ours = sets.write_stored_manifest(store, key.prefix, manifest)
    # another writer was first and wins
    other_manifest = None if is_ours else sets.find_stored_set(store, key)
    return other_manifest or manifest, not other_manifest


def _inspect_folder(folder: Path, key: ArtifactKey) -> tuple[sets.Manifest, LocalFiles]:
    if not folder.is_dir():
        raise InputError(
            "there is no such folder",
            where=str(folder),
            change=(
                "name the folder that the runtime wrote (of nxdi the one with neuron_config.json)"
            ),
        )
    unproven = require_valid_artifact(folder, key)
    local_files = LocalFiles(folder)
    files = local_files.hash_all()
    # a name for the content: the same files always give the same run
    listing = json.dumps([[file.path, file.size, file.sha256] for file in files])
    run_name = f"{RUN_PREFIX}{hashlib.sha256(listing.encode()).hexdigest()[:12]}"
    made = {"run": run_name, "where": "elsewhere", "unproven": [UNPROVEN_NOTE, *unproven]}
    return sets.build_manifest(key, files, made, run_name), local_files


def _read_rejection(store: ObjectStore, run_name: str, key: ArtifactKey) -> sets.Manifest:
    """Return the manifest of a refused upload, with its faults as accepted."""
    rejection_key = f"{key.prefix}/{run_name}/{sets.REJECTION_NAME}"
    rejection = (
        store.read(rejection_key) if re.fullmatch(r"\w[\w.-]*", run_name, re.ASCII) else None
    )
    if rejection is None:
        raise InputError(
            "no upload refused this run",
            where=store.url(rejection_key),
            change="name the run as the log of the upload does: --refused RUN",
        )
    manifest = sets.parse_manifest(rejection.body, store.url(rejection_key))
    sets.require_target(manifest, key, store.url(f"{key.prefix}/{run_name}/"))
    provenance = dict(manifest.made)
    faults = [str(fault) for fault in provenance.pop(sets.FAULTS_FIELD, None) or ()]
    notes = [f"taken in by hand although the inspection said: {fault}" for fault in faults]
    provenance |= {
        sets.ACCEPTED_FIELD: faults,
        "unproven": [*(provenance.get("unproven") or ()), *notes],
    }
    return manifest.model_copy(update={"folder": run_name, "made": provenance})
