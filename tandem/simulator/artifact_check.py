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
    key = _read_key(artifact)
    try:
        content = (folder / MANIFEST_NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise StaleError(
            f"the artifact {key.name} is missing: it has no manifest", where=where,
            change="compile it, or name the folder of one that was compiled",
        ) from None  # fmt: skip
    except OSError as error:
        raise ExternalError(
            f"the manifest cannot be read: {error.strerror}", where=where, change="see that this user may read it"
        ) from None
    manifest = parse_manifest(content, where)
    _require_fields(manifest, key, where)
    _require_files(folder / manifest.folder, manifest)
    return manifest


def _read_key(artifact: ArtifactRequirement) -> ArtifactKey:
    try:
        return ArtifactKey.from_fields(artifact.key)
    except ValueError as error:
        raise InputError(
            f"start.artifact.key is {error}", change="write every field, as the rendered manifests do"
        ) from None


def _require_fields(manifest: Manifest, key: ArtifactKey, where: str) -> None:
    field_differences = compare_key_fields(manifest.fields, key.as_fields())
    if manifest.kind != "artifact":
        field_differences = {"kind": (manifest.kind, "artifact"), **field_differences}
    if field_differences:
        difference_text = "; ".join(
            f"{field}: artifact {artifact_value}, deployment {deployment_value}"
            for field, (artifact_value, deployment_value) in field_differences.items()
        )
        raise StaleError(
            f"the artifact is not the one this Deployment asks for: {difference_text}", where=where,
            change="deploy what was compiled, or compile what is deployed",
        )  # fmt: skip


def _require_files(folder: Path, manifest: Manifest) -> None:
    for file in manifest.files:
        path = folder / file.path
        size = path.stat().st_size if path.is_file() else None
        if size != file.size:
            problem = "is missing" if size is None else f"has {size} bytes instead of {file.size}"
            raise StaleError(
                f"{manifest.name} is not whole: {file.path} {problem}", where=str(folder),
                change=f"remove its {MANIFEST_NAME}, then make it again",
            )  # fmt: skip
