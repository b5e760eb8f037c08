"""Stored sets: their manifests, read and written; beside one, what the inspection refused.

Invariant: a manifest is written only when every file that it names is in the bucket with its size and SHA-256,
and never over another one; so whoever finds a manifest finds the files whole.

What a compile made and the inspection refuses lies by no manifest: no reader takes it for an artifact, and nothing
that took hours to make is lost. Beside the files of its run lies a manifest under a name of its own, with the faults; a
person may take it in, and what was wrong with it then stands in the manifest.
"""

from __future__ import annotations

from tandem.artifacts.files import shorten_list
from tandem.artifacts.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestFile,
    parse_manifest,
    require_model,
    validate_path,
)
from tandem.artifacts.store import ObjectHead, ObjectStore
from tandem.errors import InputError, StaleError
from tandem.shell_command import quote_command
from tandem.spec.artifact_key import ArtifactKey, compare_key_fields

MAX_NAMES = 5  # files that a message names; the rest is counted
REJECTION_NAME = "tandem-refused.json"
FAULTS_FIELD = "refused"  # in `made`, as the inspection said them
ACCEPTED_FIELD = "accepted"  # in `made` of what was taken in all the same


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
    manifest_object = store.read(manifest_key(prefix))
    return parse_manifest(manifest_object.body, store.url(manifest_key(prefix))) if manifest_object else None


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
    if manifest is not None:
        require_model(manifest, name, store.url(manifest_key(prefix)), stage_command)
    return manifest


def require_key(manifest: Manifest, key: ArtifactKey, where: str) -> None:
    """Refuse a manifest that is not for this key.

    Raises:
        StaleError: it differs; every field that differs is named.
    """
    differences = compare_key_fields(manifest.fields, key.as_fields())
    if differences:
        details = "; ".join(
            f"{field}: artifact {stored}, asked {asked}" for field, (stored, asked) in differences.items()
        )
        problem = f"under the key's own name lies something else: {details}"
        raise StaleError(problem, where=where, change="see who wrote it, remove the manifest, compile again")


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
    files_root = files_prefix(prefix, manifest)
    heads = store.pool.map(lambda file: store.head(f"{files_root}/{file.path}"), manifest.files)
    problems = [(file, describe_difference(head, file)) for head, file in zip(heads, manifest.files, strict=True)]
    details = shorten_list([f"{file.path}: {problem}" for file, problem in problems if problem], MAX_NAMES)
    if details:
        problem = f"the set is not whole, so its manifest is not written: {details}"
        raise StaleError(problem, where=store.url(prefix), change="run the job that sends it again")
    return store.create(manifest_key(prefix), manifest.to_bytes())


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
    removal = f"remove its {MANIFEST_NAME} and this object ({quote_command('aws', 's3', 'rm', store.url(key))})"
    change = (
        f"serve nothing from this set: {removal}, then run the job that makes it again; a former version may lie in "
    )
    return StaleError(problem, where=store.url(key), change=f"{change}the bucket (aws s3api list-object-versions)")


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
    change = "name the run as the log of the upload does: --refused RUN"
    try:
        key = f"{prefix}/{validate_path(run)}/{REJECTION_NAME}"
    except ValueError:
        raise InputError(f"{run!r} is no run", change=change) from None
    rejection_object = store.read(key) if "/" not in run else None
    if rejection_object is None:
        raise InputError("nothing was refused here", where=store.url(key), change=change)
    manifest = parse_manifest(rejection_object.body, store.url(key))
    faults = [str(fault) for fault in manifest.made.get(FAULTS_FIELD) or ()]
    notes = [f"taken in by hand although the inspection said: {fault}" for fault in faults]
    provenance = {name: value for name, value in manifest.made.items() if name != FAULTS_FIELD}
    provenance |= {ACCEPTED_FIELD: faults, "unproven": [*(provenance.get("unproven") or ()), *notes]}
    return manifest.model_copy(update={"folder": run, "made": provenance})
