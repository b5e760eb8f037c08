"""Stored sets: their manifests, read and written.

Invariant: a manifest is written only when every file that it names is in the bucket with its size and SHA-256,
and never over another one; so whoever finds a manifest finds the files whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from tandem.artifacts.manifest import MANIFEST_NAME, Manifest, ManifestFile, parse_manifest
from tandem.artifacts.store import ObjectHead, ObjectStore
from tandem.errors import StaleError
from tandem.shell_command import quote_command
from tandem.spec.artifact_key import ArtifactKey, compare_key_fields

MAX_NAMES = 5  # files that a message names; the rest is counted


def manifest_key(prefix: str) -> str:
    """Return the key of a set's manifest."""
    return f"{prefix}/{MANIFEST_NAME}"


def files_prefix(prefix: str, manifest: Manifest) -> str:
    """Return the prefix of a set's files, without a slash at its end."""
    return f"{prefix}/{manifest.folder}" if manifest.folder else prefix


def read_stored_manifest(store: ObjectStore, prefix: str) -> Manifest | None:
    """Return a stored set's manifest, None where there is none.

    Args:
        store: the bucket.
        prefix: of the set, `models/<org>/<name>/<revision>` or `artifacts/<key name>`.

    Raises:
        InputError: it is cut off, of a newer schema or malformed.
        TandemError: S3 failed.
    """
    key = manifest_key(prefix)
    manifest_object = store.read(key)
    return parse_manifest(manifest_object.body, store.url(key)) if manifest_object else None


def read_artifact_manifest(store: ObjectStore, key: ArtifactKey) -> Manifest | None:
    """Return the manifest of a key's artifact, None where there is none.

    Raises:
        InputError: it cannot be read.
        StaleError: it is of another key.
    """
    manifest = read_stored_manifest(store, key.prefix)
    if manifest is not None:
        require_key(manifest, key, store.url(manifest_key(key.prefix)))
    return manifest


def read_model_manifest(store: ObjectStore, prefix: str, name: str, stage_command: str) -> Manifest | None:
    """Return the manifest of a model's snapshot, None where there is none.

    Args:
        store: the bucket.
        prefix: of the snapshot.
        name: id@revision.
        stage_command: what stages it, for the message.

    Raises:
        InputError: it cannot be read.
        StaleError: it is of something else.
    """
    manifest = read_stored_manifest(store, prefix)
    if manifest is not None and (manifest.kind, manifest.name) != ("model", name):
        raise StaleError(
            f"the manifest is of the {manifest.kind} {manifest.name}, not of the model {name}",
            where=store.url(manifest_key(prefix)),
            change=f"see who wrote it; remove the prefix, then stage the model again: {stage_command}",
        )
    return manifest


def require_key(manifest: Manifest, key: ArtifactKey, where: str) -> None:
    """Refuse a manifest that is not for this key.

    Raises:
        StaleError: it differs; every field that differs is named.
    """
    field_differences = compare_key_fields(manifest.fields, key.as_fields())
    if not field_differences:
        return
    details = "; ".join(
        f"{field}: artifact {artifact_value}, asked {key_value}"
        for field, (artifact_value, key_value) in field_differences.items()
    )
    raise StaleError(
        f"under the key's own name lies something else: {details}", where=where,
        change="nobody but the jobs of one release should write here: see who did, remove the manifest, compile again",
    )  # fmt: skip


def write_stored_manifest(store: ObjectStore, prefix: str, manifest: Manifest) -> bool:
    """Write a set's manifest after its last file; False where another manifest is there already.

    Args:
        store: the bucket.
        prefix: of the set.
        manifest: what to write. One with the same bytes, there already, is as good as ours.

    Raises:
        StaleError: a file that it names is missing in the bucket or differs there; nothing is written.
        TandemError: S3 failed.
    """
    wrong_files = find_wrong_files(store, prefix, manifest)
    if wrong_files:
        details = "; ".join(f"{file.path}: {problem}" for file, problem in wrong_files[:MAX_NAMES])
        rest_note = f" and {len(wrong_files) - MAX_NAMES} more" if len(wrong_files) > MAX_NAMES else ""
        raise StaleError(
            f"the set is not whole, so its manifest is not written: {details}{rest_note}", where=store.url(prefix),
            change="run the job that sends it again; files that are whole are kept",
        )  # fmt: skip
    return store.create(manifest_key(prefix), manifest.to_bytes())


def find_wrong_files(store: ObjectStore, prefix: str, manifest: Manifest) -> Sequence[tuple[ManifestFile, str]]:
    """Return the files that the bucket does not have as a manifest says, each with what is wrong."""
    files_root = files_prefix(prefix, manifest)

    heads = store.pool.map(lambda file: store.head(f"{files_root}/{file.path}"), manifest.files)
    problems = [describe_difference(head, file) for head, file in zip(heads, manifest.files, strict=True)]
    return [(file, problem) for file, problem in zip(manifest.files, problems, strict=True) if problem]


def describe_difference(head: ObjectHead | None, file: ManifestFile) -> str:
    """Say in what an object is not the file that a manifest names; empty for nothing."""
    if head is None:
        return "the object is missing"
    if head.size != file.size:
        return f"the object has {head.size} bytes, the manifest says {file.size}"
    if head.sha256 != file.sha256:
        return f"the object is marked with SHA-256 {head.sha256}, the manifest says {file.sha256}"
    return ""


def build_damage_error(store: ObjectStore, key: str, problem: str) -> StaleError:
    """Return the fault of an object that is not what the manifest of its set says."""
    remove_command = quote_command("aws", "s3", "rm", store.url(key))
    return StaleError(
        problem, where=store.url(key),
        change=f"serve nothing from this set: remove its {MANIFEST_NAME} and this object ({remove_command}), then "
        "run the job that makes it again; a former version may lie in the bucket (aws s3api list-object-versions)",
    )  # fmt: skip
