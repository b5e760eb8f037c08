"""An artifact that a compile made and the inspection refuses: stored all the same, and by no manifest.

Invariant: no reader ever takes what was refused for an artifact; nothing that took hours to make is lost because a
release of the runtime wrote what the inspection does not know. A person may take it in, and what was wrong with it
then stands in the manifest.

Beside the files of its run lies a manifest under a name of its own, with the faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tandem.artifacts.fault import RefusedError
from tandem.artifacts.manifest import Manifest, inside, read_manifest
from tandem.artifacts.store import Store

NAME = "tandem-refused.json"
FAULTS = "refused"  # in `made`, as the inspection said them
ACCEPTED = "accepted"  # in `made` of what was taken in all the same


def write_refused(store: Store, prefix: str, manifest: Manifest, faults: Sequence[str]) -> None:
    """Say beside the files of a run, which must be stored, what they are and why no manifest names them.

    Raises:
        ArtifactError: S3 failed.
    """
    said = manifest.model_copy(update={"made": {**manifest.made, FAULTS: list(faults)}})
    store.create(f"{prefix}/{manifest.folder}/{NAME}", said.to_bytes())


def read_refused(store: Store, prefix: str, run: str) -> Manifest:
    """Return the manifest to write when what was refused is taken in; its faults stand in it as accepted.

    Args:
        store: the bucket.
        prefix: of the artifact.
        run: the folder below it.

    Raises:
        RefusedError: nothing was refused under this name.
        ArtifactError: S3 failed.
    """
    try:
        formed = inside(run).count("/") == 0
    except ValueError:
        formed = False
    where = store.url(f"{prefix}/{run}/{NAME}")
    change = "name the run as the log of the upload does: --refused RUN"
    if not formed:
        raise RefusedError(f"{run!r} is no run", change=change)
    stored = store.read(f"{prefix}/{run}/{NAME}")
    if stored is None:
        raise RefusedError("nothing was refused here", where=where, change=change)
    manifest = read_manifest(stored.body, where)
    made: dict[str, Any] = dict(manifest.made)
    faults = [str(fault) for fault in made.pop(FAULTS, None) or ()]
    by_hand = [f"taken in by hand although the inspection said: {fault}" for fault in faults]
    made |= {ACCEPTED: faults, "unproven": [*(made.get("unproven") or ()), *by_hand]}
    return manifest.model_copy(update={"folder": run, "made": made})
