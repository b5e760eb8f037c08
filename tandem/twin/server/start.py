"""A start that is warm or fails: the compiled artifact is held against what the Deployment renders.

Invariant: a server with an artifact knob accepts nothing before every field of the key agrees and every file of the
manifest is there with its size; else its process ends with a sentence and the exit code that `admit` has for it:
1 missing or another artifact, 2 a manifest that cannot be read.
"""

from __future__ import annotations

from pathlib import Path

from tandem.artifacts.fault import RefusedError, StaleError, WorldError
from tandem.artifacts.manifest import NAME, Manifest, read_manifest
from tandem.spec.artifact_key import ArtifactKey, differences
from tandem.twin.server.knobs import ArtifactKnobs


def require_artifact(artifact: ArtifactKnobs) -> Manifest:
    """Hold an artifact against its key.

    Raises:
        StaleError: it is missing, of another key, or not whole.
        RefusedError: the key or the manifest is malformed.
        WorldError: the folder cannot be read.
    """
    folder = Path(artifact.folder)
    where = str(folder / NAME)
    key = _key(artifact)
    try:
        body = (folder / NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise StaleError(
            f"the artifact {key.name} is missing: it has no manifest", where=where,
            change="compile it, or name the folder of one that was compiled",
        ) from None  # fmt: skip
    except OSError as error:
        raise WorldError(
            f"the manifest cannot be read: {error.strerror}", where=where, change="see that this user may read it"
        ) from None
    manifest = read_manifest(body, where)
    _require_fields(manifest, key, where)
    _require_files(folder / manifest.folder, manifest)
    return manifest


def _key(artifact: ArtifactKnobs) -> ArtifactKey:
    try:
        return ArtifactKey.from_fields(artifact.key)
    except ValueError as error:
        raise RefusedError(
            f"start.artifact.key is {error}", change="write every field, as the rendered manifests do"
        ) from None


def _require_fields(manifest: Manifest, key: ArtifactKey, where: str) -> None:
    differing = differences(manifest.fields, key.as_fields())
    if manifest.kind != "artifact":
        differing = {"kind": (manifest.kind, "artifact"), **differing}
    if differing:
        said = "; ".join(
            f"{field}: artifact {theirs}, deployment {ours}" for field, (theirs, ours) in differing.items()
        )
        raise StaleError(
            f"the artifact is not the one this Deployment asks for: {said}", where=where,
            change="deploy what was compiled, or compile what is deployed",
        )  # fmt: skip


def _require_files(folder: Path, manifest: Manifest) -> None:
    for file in manifest.files:
        path = folder / file.path
        size = path.stat().st_size if path.is_file() else None
        if size != file.size:
            found = "is missing" if size is None else f"has {size} bytes instead of {file.size}"
            raise StaleError(
                f"{manifest.name} is not whole: {file.path} {found}", where=str(folder),
                change=f"remove its {NAME}, then make it again",
            )  # fmt: skip
