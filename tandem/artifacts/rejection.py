"""An artifact that a compile made and the inspection refuses: stored all the same, and by no manifest.

Invariant: no reader ever takes what was refused for an artifact; nothing that took hours to make is lost because a
release of the runtime wrote what the inspection does not know. A person may take it in, and what was wrong with it
then stands in the manifest.

Beside the files of its run lies a manifest under a name of its own, with the faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tandem.artifacts.manifest import Manifest, parse_manifest, validate_path
from tandem.artifacts.store import ObjectStore
from tandem.errors import InputError

REJECTION_NAME = "tandem-refused.json"
FAULTS_FIELD = "refused"  # in `made`, as the inspection said them
ACCEPTED_FIELD = "accepted"  # in `made` of what was taken in all the same


def write_rejection(store: ObjectStore, prefix: str, manifest: Manifest, faults: Sequence[str]) -> None:
    """Say beside the files of a run, which must be stored, what they are and why no manifest names them.

    Raises:
        TandemError: S3 failed.
    """
    rejection = manifest.model_copy(update={"made": {**manifest.made, FAULTS_FIELD: list(faults)}})
    store.create(f"{prefix}/{manifest.folder}/{REJECTION_NAME}", rejection.to_bytes())


def read_rejection(store: ObjectStore, prefix: str, run: str) -> Manifest:
    """Return the manifest to write when what was refused is taken in; its faults stand in it as accepted.

    Args:
        store: the bucket.
        prefix: of the artifact.
        run: the folder below it.

    Raises:
        InputError: nothing was refused under this name.
        TandemError: S3 failed.
    """
    try:
        is_valid = validate_path(run).count("/") == 0
    except ValueError:
        is_valid = False
    where = store.url(f"{prefix}/{run}/{REJECTION_NAME}")
    change = "name the run as the log of the upload does: --refused RUN"
    if not is_valid:
        raise InputError(f"{run!r} is no run", change=change)
    rejection_object = store.read(f"{prefix}/{run}/{REJECTION_NAME}")
    if rejection_object is None:
        raise InputError("nothing was refused here", where=where, change=change)
    manifest = parse_manifest(rejection_object.body, where)
    provenance: dict[str, Any] = dict(manifest.made)
    faults = [str(fault) for fault in provenance.pop(FAULTS_FIELD, None) or ()]
    accepted_notes = [f"taken in by hand although the inspection said: {fault}" for fault in faults]
    provenance |= {ACCEPTED_FIELD: faults, "unproven": [*(provenance.get("unproven") or ()), *accepted_notes]}
    return manifest.model_copy(update={"folder": run, "made": provenance})
