"""The manifest of a stored set of files: its purpose, and every file's size and SHA-256.

Invariant: a manifest is written only if every file in it is in the bucket with its size and
SHA-256, and never over another one; so a reader of a manifest finds whole files. A parsed manifest
is typed, of a schema this program knows, and names no file outside its own folder.

A compiled artifact that the inspection refuses gets no set manifest: no reader takes it for an
artifact, and hours of work are not lost. Next to the files of its run is a manifest under another
name (REJECTION_NAME), with the faults; a person may import the artifact, and the set's manifest
then lists these faults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, ValidationError

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.job_env import ModelReference
from tandem.declarations.artifact_key import ArtifactKey, compare_key_fields
from tandem.declarations.record import SpecRecord
from tandem.errors import InputError, SchemaError, StaleError
from tandem.shell_command import quote_command

if TYPE_CHECKING:
    from tandem.artifacts.store import ObjectHead, ObjectStore

SCHEMA_VERSION: Final = 1
# next to the files: neither the hub nor a runtime uses this name
MANIFEST_NAME = "tandem-manifest.json"
LEASE_NAME = "tandem-lease.json"
MAX_NAMES = 5  # files that a message names; the rest is counted
REJECTION_NAME = "tandem-refused.json"
FAULTS_FIELD = "refused"  # in `made`: the faults of the inspection
ACCEPTED_FIELD = "accepted"  # in `made`: faults that a person accepted at import


def validate_path(path: str) -> str:
    """Return `path` if it stays below its folder.

    Raises:
        ValueError: `path` is absolute, empty, not in plain form, or leaves the folder.
    """
    plain_path = PurePosixPath(path)
    leaves_folder = (
        not plain_path.parts
        or plain_path.is_absolute()
        or ".." in plain_path.parts
        or {"\\", "\0"} & set(path)
    )
    if leaves_folder or str(plain_path) != path:
        raise ValueError(f"the path {path!r} leaves its folder or is not in plain form")
    return path


SetPath = Annotated[str, AfterValidator(validate_path)]


class ManifestFile(SpecRecord):
    """One stored file."""

    path: SetPath = Field(description="path below the set's folder, with forward slashes")
    size: int = Field(ge=0, description="bytes")
    sha256: str = Field(
        pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the content, hexadecimal"
    )


class Manifest(SpecRecord):
    """A whole, immutable set of files.

    Two runs over the same input write the same bytes: the manifest has no time, S3 keeps it.
    """

    schema_version: Literal[1] = Field(description="version of this form")
    kind: Literal["model", "artifact"] = Field(
        description="a staged snapshot, or a compiled artifact"
    )
    name: str = Field(description="model id@revision, or the artifact key's name")
    folder: SetPath | Literal[""] = Field(
        description="of the files, below the manifest's own; empty for the same"
    )
    fields: dict[str, Any] = Field(
        description="every field of the artifact key; of a model its id and revision"
    )
    files: tuple[ManifestFile, ...] = Field(min_length=1, description="every file, by path")
    made: dict[str, Any] = Field(
        description="how it came to be: run, where compiled, what of it is unproven"
    )

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(file.size for file in self.files)

    def to_bytes(self) -> bytes:
        """Return the canonical JSON: the same manifest always gives the same bytes."""
        document = self.model_dump(mode="json")
        document["files"] = sorted(document["files"], key=lambda file: str(file["path"]))
        return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def parse_manifest(body: bytes, where: str) -> Manifest:
    """Parse a manifest.

    Args:
        body: bytes of the manifest.
        where: file or `s3://` address, for the message.

    Raises:
        SchemaError: the manifest has another schema: it may be whole, but this program cannot judge
            it.
        InputError: the manifest is cut off, no JSON, or has an invalid field.
    """
    try:
        return Manifest.model_validate_json(body)
    except ValidationError as error:
        first_error = error.errors(include_url=False)[0]
    place = ".".join(map(str, first_error["loc"]))
    version = first_error["input"]
    if place == "schema_version" and isinstance(version, int):
        raise SchemaError("the manifest", version, SCHEMA_VERSION, where=where)
    problem = f"the manifest is cut off or malformed{place and ' at '}{place}: {first_error['msg']}"
    raise InputError(
        problem, where=where, change="remove this object, then run the job that made it again"
    )


def compare_manifest_fields(
    manifest: Manifest, kind: str, fields: Mapping[str, Any]
) -> dict[str, tuple[object, object]]:
    """Return the fields in which a manifest differs from these: (manifest's value, expected)."""
    stored_fields = manifest.fields
    if kind == "model":  # a model's manifest has more, e.g. the commit of a branch
        stored_fields = {name: stored_fields.get(name) for name in fields}
    return compare_key_fields({"kind": manifest.kind, **stored_fields}, {"kind": kind, **fields})


def describe_mismatch(manifest: Manifest, target: ArtifactKey | ModelReference) -> list[str]:
    """Return the fields in which a manifest differs from this artifact or model, one a line."""
    kind = "model" if isinstance(target, ModelReference) else "artifact"
    differences = compare_manifest_fields(manifest, kind, target.as_fields())
    return [
        f"{field}: artifact {stored}, deployment {asked}"
        for field, (stored, asked) in differences.items()
    ]


def require_target(manifest: Manifest, target: ArtifactKey | ModelReference, where: str) -> None:
    """Refuse a manifest that is not of this artifact or model.

    Raises:
        StaleError: the manifest differs; the message names every field that differs.
    """
    if lines := describe_mismatch(manifest, target):
        problem = f"under the name {target.name} something else is stored: {'; '.join(lines)}"
        raise StaleError(
            problem, where=where, change="see who wrote it, remove the manifest, make it again"
        )


def build_manifest(
    target: ArtifactKey | ModelReference,
    files: tuple[ManifestFile, ...],
    made: dict[str, Any],
    folder: str = "",
    **more_fields: str | None,
) -> Manifest:
    """Return the manifest of an artifact or a model.

    Args:
        target: source of name and fields.
        files: every file.
        made: origin of the set.
        folder: of the files, below the manifest's folder; empty for the same.
        more_fields: further fields next to the target's.
    """
    return Manifest(
        schema_version=SCHEMA_VERSION,
        kind="model" if isinstance(target, ModelReference) else "artifact",
        name=target.name,
        folder=folder,
        fields=target.as_fields() | more_fields,
        files=files,
        made=made,
    )


def manifest_key(prefix: str) -> str:
    """Return the key of a set's manifest."""
    return f"{prefix}/{MANIFEST_NAME}"


def files_prefix(prefix: str, manifest: Manifest) -> str:
    """Return the prefix of a set's files, without a slash at its end."""
    if not manifest.folder:
        return prefix
    return f"{prefix}/{manifest.folder}"


def read_stored_manifest(store: ObjectStore, prefix: str) -> Manifest | None:
    """Return a stored set's manifest, None if there is none.

    Args:
        store: the bucket.
        prefix: of the set, `models/<org>/<name>/<revision>` or `artifacts/<key name>`.

    Raises:
        InputError: the manifest is cut off, of another schema or malformed.
        TandemError: S3 failed.
    """
    manifest_object = store.read(manifest_key(prefix))
    if not manifest_object:
        return None
    return parse_manifest(manifest_object.body, store.url(manifest_key(prefix)))


def find_stored_set(store: ObjectStore, target: ArtifactKey | ModelReference) -> Manifest | None:
    """Return the manifest of an artifact or a model and log that it is there; else None.

    Raises:
        InputError: the manifest cannot be read.
        StaleError: the manifest is of another artifact or model.
    """
    manifest = read_stored_manifest(store, target.prefix)
    where = store.url(manifest_key(target.prefix))
    if manifest is not None:
        require_target(manifest, target, where)
        log_event(
            "present",
            object=where,
            made_by=manifest.made.get("run"),
            commit=manifest.fields.get("commit"),
            files=len(manifest.files),
            size=manifest.size,
        )
    return manifest


def write_stored_manifest(store: ObjectStore, prefix: str, manifest: Manifest) -> bool:
    """Write a set's manifest after its last file; return False if another one is there.

    Args:
        store: the bucket.
        prefix: of the set.
        manifest: to write. A stored manifest with the same bytes counts as ours.

    Raises:
        StaleError: a file of the manifest is missing in the bucket or differs there; nothing is
            written.
        TandemError: S3 failed.
    """
    files_root = files_prefix(prefix, manifest)
    heads = store.pool.map(lambda file: store.head(f"{files_root}/{file.path}"), manifest.files)
    differences = {
        file.path: describe_difference(head, file)
        for head, file in zip(heads, manifest.files, strict=True)
    }
    details = shorten_list(
        [f"{path}: {problem}" for path, problem in differences.items() if problem], MAX_NAMES
    )
    if details:
        problem = f"the set is not whole, so its manifest is not written: {details}"
        raise StaleError(problem, where=store.url(prefix), change="run the job that sends it again")
    return store.create(manifest_key(prefix), manifest.to_bytes())


def describe_difference(head: ObjectHead | None, file: ManifestFile) -> str:
    """Return how an object differs from the manifest's file; empty if they are equal."""
    if head is None:
        return "the object is missing"
    if head.size != file.size:
        return f"the object has {head.size} bytes, the manifest says {file.size}"
    if head.sha256 != file.sha256:
        return f"the object is marked with SHA-256 {head.sha256}, the manifest says {file.sha256}"
    return ""


def build_damage_error(store: ObjectStore, key: str, problem: str) -> StaleError:
    """Return the fault of an object that differs from the manifest of its set."""
    command = quote_command("aws", "s3", "rm", store.url(key))
    return StaleError(
        problem,
        where=store.url(key),
        change=(
            f"serve nothing from this set: remove its {MANIFEST_NAME} and this object ({command}),"
            " then run the job that makes it again; a former version may lie in the bucket (aws"
            " s3api list-object-versions)"
        ),
    )


def shorten_list(items: Sequence[str], max_count: int, separator: str = "; ") -> str:
    """Return the first items as one text, with the number of further items."""
    rest_note = ""
    if len(items) > max_count:
        rest_note = f" and {len(items) - max_count} more"
    return separator.join(items[:max_count]) + rest_note
