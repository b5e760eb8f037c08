"""A start that is warm or fails: the compiled artifact is held against what the Deployment renders.

Invariant: a server with an artifact knob accepts nothing before every field of the key agrees and every file of the
manifest is there with its size; else its process ends with a sentence and the exit code that `admit` has for it:
1 missing or another artifact, 2 a manifest that cannot be read.
"""

from __future__ import annotations

from pathlib import Path

from tandem.artifacts.manifest import MANIFEST_NAME, Manifest, parse_manifest
from tandem.errors import ExternalError, InputError, StaleError
from tandem.simulator.settings import ArtifactRequirement
from tandem.spec.artifact_key import ArtifactKey, compare_key_fields


def require_artifact(artifact: ArtifactRequirement) -> Manifest:
    """Hold an artifact against its key.

    Raises:
        StaleError: it is missing, of another key, or not whole.
        InputError: the key or the manifest is malformed.
        ExternalError: the folder cannot be read.
    """
    folder = Path(artifact.folder)
    where = str(folder / MANIFEST_NAME)
    try:
        key = ArtifactKey.from_fields(artifact.key)
    except ValueError as error:
        change = "write every field, as the rendered manifests do"
        raise InputError(f"start.artifact.key is {error}", change=change) from None
    try:
        manifest = parse_manifest((folder / MANIFEST_NAME).read_bytes(), where)
    except (FileNotFoundError, NotADirectoryError):
        change = "compile it, or name the folder of one that was compiled"
        raise StaleError(f"the artifact {key.name} has no manifest", where=where, change=change) from None
    except OSError as error:
        change = "see that this user may read it"
        raise ExternalError(f"the manifest cannot be read: {error.strerror}", where=where, change=change) from None
    differences = compare_key_fields({"kind": manifest.kind} | manifest.fields, {"kind": "artifact"} | key.as_fields())
    if differences:
        texts = (f"{field}: artifact {pair[0]}, deployment {pair[1]}" for field, pair in differences.items())
        problem = f"the artifact is not the one this Deployment asks for: {'; '.join(texts)}"
        raise StaleError(problem, where=where, change="deploy what was compiled, or compile what is deployed")
    for file in manifest.files:
        path = folder / manifest.folder / file.path
        size = path.stat().st_size if path.is_file() else None
        if size != file.size:
            problem = "is missing" if size is None else f"has {size} bytes instead of {file.size}"
            change = f"remove its {MANIFEST_NAME}, then make it again"
            raise StaleError(f"{manifest.name}: {file.path} {problem}", where=str(path.parent), change=change)
    return manifest
