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

from pydantic import Field, ValidationError, field_validator

from tandem.errors import InputError
from tandem.spec.record import SpecRecord

SCHEMA_VERSION: Final = 1
MANIFEST_NAME = "tandem-manifest.json"  # beside the files: neither the hub nor a runtime uses this name
LEASE_NAME = "tandem-lease.json"

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class NewerSchemaError(InputError):
    """The manifest is of a newer schema: whole perhaps, and not this program's to judge."""


class ManifestFile(SpecRecord):
    """One stored file."""

    path: str = Field(description="path below the set's folder, with forward slashes")
    size: int = Field(ge=0, description="bytes")
    sha256: Sha256 = Field(description="SHA-256 of the content, hexadecimal")

    @field_validator("path")
    @classmethod
    def _validate_path(cls, value: str) -> str:
        return validate_path(value)


class Manifest(SpecRecord):
    """A whole, immutable set of files.

    Two runs over the same input write the same bytes: there is no clock in it, S3 keeps the time.
    """

    schema_version: Literal[1] = Field(description="version of this form")
    kind: Literal["model", "artifact"] = Field(description="a staged snapshot, or a compiled artifact")
    name: str = Field(description="model id@revision, or the artifact key's name")
    folder: str = Field(description="folder of the files below the manifest's own; empty for the same folder")
    fields: dict[str, Any] = Field(description="every field of the artifact key; of a model its id and revision")
    files: tuple[ManifestFile, ...] = Field(min_length=1, description="every file, by path")
    made: dict[str, Any] = Field(description="how it came to be: run, where compiled, what of it is unproven")

    @field_validator("folder")
    @classmethod
    def _validate_folder(cls, value: str) -> str:
        return validate_path(value) if value else value

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(file.size for file in self.files)

    def to_bytes(self) -> bytes:
        """Return the canonical JSON: the same manifest is always the same bytes."""
        document = self.model_dump(mode="json")
        document["files"] = sorted(document["files"], key=lambda file: str(file["path"]))
        return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def validate_path(path: str) -> str:
    """Return `path` if it stays below its folder.

    Raises:
        ValueError: it is absolute, empty, or climbs out.
    """
    parts = PurePosixPath(path).parts
    if (
        not parts
        or path.startswith("/")
        or ".." in parts
        or "\\" in path
        or "\0" in path
        or str(PurePosixPath(path)) != path
    ):
        raise ValueError(f"the path {path!r} leaves its folder or is not in plain form")
    return path


def parse_manifest(body: bytes, where: str) -> Manifest:
    """Parse a manifest.

    Args:
        body: its bytes.
        where: file or `s3://` address, for the message.

    Raises:
        InputError: it is cut off, no JSON, of a newer schema, or holds what a manifest may not.
    """
    remedy = "write it again from a whole set: remove this object, then run the job that made it"
    try:
        document = json.loads(body)
    except ValueError as error:
        raise InputError(f"the manifest is cut off or no JSON ({error})", where=where, change=remedy) from None
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"the manifest has schema {version}, this program knows up to {SCHEMA_VERSION}", where=where,
            change="use the tools image of the release that wrote it, or a newer one",
        )  # fmt: skip
    try:
        manifest = Manifest.model_validate_json(body)
    except ValidationError as error:
        first_error = error.errors(include_url=False)[0]
        location = ".".join(str(step) for step in first_error["loc"]) or "the whole"
        raise InputError(
            f"the manifest is malformed at {location}: {first_error['msg']}", where=where, change=remedy
        ) from None
    path, count = Counter(file.path for file in manifest.files).most_common(1)[0]
    if count > 1:
        raise InputError(f"the manifest names {path} twice", where=where, change=remedy)
    return manifest
