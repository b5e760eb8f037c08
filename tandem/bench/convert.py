"""Conversion of an earlier Tandem's records to the current schema.

Invariant: a reader sees the complete old or the complete new file; the old file stays next to the new one; every
figure stays the same.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from tandem.bench.folder import RECORDS_FILE, WARM_UP_FILE, claim_folder
from tandem.bench.json_file import DECODE_ERRORS
from tandem.bench.record import SCHEMA, Chunk, split_chunks
from tandem.errors import ExternalError, InputError, convert_os_errors

OLD_SCHEMA = 1


def convert_run(folder: Path) -> list[Path]:
    """Rewrite the records of a run of schema 1 in schema 2.

    Returns:
        the rewritten files; each old file is kept as `<name>-schema1.jsonl`.

    Raises:
        InputError: there are no records, a line is no record, a run is writing to the folder, or the file for the old
            records already exists.
        ExternalError: the disk write failed.
    """
    if not (folder / RECORDS_FILE).is_file():
        change = "name the folder that a run wrote"
        raise InputError(f"there is no {RECORDS_FILE} in it", where=str(folder), change=change)
    paths = [folder / name for name in (RECORDS_FILE, WARM_UP_FILE) if (folder / name).is_file()]
    change = "make room, or see that the folder may be written to; the records are as they were"
    problem = "the records cannot be converted"
    with claim_folder(folder, resume=True), convert_os_errors(problem, folder, change, ExternalError):
        return [path for path in paths if _convert_file(path)]


def _convert_file(path: Path) -> bool:
    """Rewrite one file; return whether it had a line of schema 1. A torn last line is unchanged."""
    new_path, old_path = path.with_name(f"{path.name}.new"), path.with_name(f"{path.stem}-schema{OLD_SCHEMA}.jsonl")
    has_old_line = False
    try:
        with path.open("rb") as lines, new_path.open("wb") as new_file:
            for number, line in enumerate(lines, 1):
                new_line = _convert_line(line, f"{path}:{number}") if line.endswith(b"\n") else line
                has_old_line |= new_line is not line
                new_file.write(new_line)
            new_file.flush()
            os.fsync(new_file.fileno())
        if has_old_line:
            if not old_path.exists():
                old_path.hardlink_to(path)
            elif not old_path.samefile(path):  # else an earlier conversion was cut after the link
                problem = "it exists already, and the old records would be kept there"
                raise InputError(problem, where=str(old_path), change="move it")
            new_path.replace(path)
    finally:
        new_path.unlink(missing_ok=True)
    return has_old_line


def _convert_line(line: bytes, where: str) -> bytes:
    """Return a line of schema 1 in schema 2, any other line unchanged.

    Raises:
        InputError: the line is no record.
    """
    try:
        record: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        if record.get("schema", OLD_SCHEMA) != OLD_SCHEMA:
            return line
        chunks = [Chunk(*chunk) for chunk in record.get("chunks", ())]
        new_record: dict[str, Any] = {}
        for name, value in {**record, "schema": SCHEMA}.items():
            new_record |= split_chunks(chunks) if name == "chunks" else {name: value}
    except (*DECODE_ERRORS, TypeError) as error:
        problem = f"this is no record of schema {OLD_SCHEMA}: {error}"
        raise InputError(problem, where=where, change="restore the line from a copy") from error
    return msgspec.json.encode(new_record) + b"\n"
