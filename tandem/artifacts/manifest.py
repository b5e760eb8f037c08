"""The manifest of a stored set of files: what it is for, and every file with its size and SHA-256.

Invariant: a manifest is written after the last of its files and never before, so whoever reads one reads of
files that are whole. What parses here is typed, of a schema this program knows, and names no file outside its
own folder.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, ValidationError

from tandem.errors import InputError, StaleError
from tandem.spec.record import SpecRecord

SCHEMA_VERSION: Final = 1
MANIFEST_NAME = "tandem-manifest.json"  # beside the files: neither the hub nor a runtime uses this name
LEASE_NAME = "tandem-lease.json"


class NewerSchemaError(InputError):
    """The manifest is of a newer schema: whole perhaps, and not this program's to judge."""


def validate_path(path: str) -> str:
    """Return `path` if it stays below its folder.

    Raises:
        ValueError: it is absolute, empty, or climbs out.
    """
    plain_path = PurePosixPath(path)
    leaves = not plain_path.parts or plain_path.is_absolute() or ".." in plain_path.parts or {"\\", "\0"} & set(path)
    if leaves or str(plain_path) != path:
        raise ValueError(f"the path {path!r} leaves its folder or is not in plain form")
    return path


SetPath = Annotated[str, AfterValidator(validate_path)]


class ManifestFile(SpecRecord):
    """One stored file."""

    path: SetPath = Field(description="path below the set's folder, with forward slashes")
    size: int = Field(ge=0, description="bytes")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the content, hexadecimal")


class Manifest(SpecRecord):
    """A whole, immutable set of files.

    Two runs over the same input write the same bytes: there is no clock in it, S3 keeps the time.
    """

    schema_version: Literal[1] = Field(description="version of this form")
    kind: Literal["model", "artifact"] = Field(description="a staged snapshot, or a compiled artifact")
    name: str = Field(description="model id@revision, or the artifact key's name")
    folder: SetPath | Literal[""] = Field(
        description="folder of the files below the manifest's own; empty for the same"
    )
    fields: dict[str, Any] = Field(description="every field of the artifact key; of a model its id and revision")
    files: tuple[ManifestFile, ...] = Field(min_length=1, description="every file, by path")
    made: dict[str, Any] = Field(description="how it came to be: run, where compiled, what of it is unproven")

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(file.size for file in self.files)

    def to_bytes(self) -> bytes:
        """Return the canonical JSON: the same manifest is always the same bytes."""
        document = self.model_dump(mode="json")
        document["files"] = sorted(document["files"], key=lambda file: str(file["path"]))
        return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def parse_manifest(body: bytes, where: str) -> Manifest:
    """Parse a manifest.

    Args:
        body: its bytes.
        where: file or `s3://` address, for the message.

    Raises:
        InputError: it is cut off, no JSON, of a newer schema, or holds what a manifest may not.
    """
    change = "remove this object, then run the job that made it again"
    try:
        document = json.loads(body)
    except ValueError as error:
        raise InputError(f"the manifest is cut off or no JSON ({error})", where=where, change=change) from None
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        problem = f"the manifest has schema {version}, this program knows up to {SCHEMA_VERSION}"
        raise NewerSchemaError(problem, where=where, change="use the tools image of the release that wrote it")
    try:
        manifest = Manifest.model_validate_json(body)
    except ValidationError as error:
        first_error = error.errors(include_url=False)[0]
        problem = f"malformed at {'.'.join(map(str, first_error['loc'])) or 'the whole'}: {first_error['msg']}"
        raise InputError(f"the manifest is {problem}", where=where, change=change) from None
    path, count = Counter(file.path for file in manifest.files).most_common(1)[0]
    if count > 1:
        raise InputError(f"the manifest names {path} twice", where=where, change=change)
    return manifest


def require_model(manifest: Manifest, name: str, where: str, stage_command: str) -> None:
    """Refuse a manifest that is not of this model; raises StaleError."""
    if (manifest.kind, manifest.name) != ("model", name):
        problem = f"the manifest is of the {manifest.kind} {manifest.name}, not of the model {name}"
        raise StaleError(problem, where=where, change=f"see who wrote it, remove it, then: {stage_command}")
