"""The JSON files next to a run's records: one value in a file, or one value a line.

Invariant: a reader of a file with one value sees the complete old or the complete new file, also
after a power cut; a line is appended completely or not at all, and never to a line that a kill
tore.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import TypeVar

import msgspec

from tandem.errors import ExternalError, InputError, SchemaError, convert_os_errors

# errors of a decoder for bytes that are not the expected JSON; the last one for too deep nesting
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Line = TypeVar("Line")


class _SchemaHeader(msgspec.Struct):
    schema: int | None = None


def require_schema(
    text: bytes | str, known: int, *, label: str, where: str, change: str = ""
) -> None:
    """Refuse a JSON object of another schema; leave any other text to the caller's decoder.

    Args:
        text: of the object.
        known: the only schema that is read.
        label: the user's name for the object, such as "the record".
        where: the file and line, or the `s3://` address.
        change: what to do about another schema; empty: to read the object with the Tandem that
            wrote it.

    Raises:
        SchemaError: the object has another schema, or names none.
    """
    try:
        schema = msgspec.json.decode(text, type=_SchemaHeader).schema
    except DECODE_ERRORS:
        return
    if schema != known:
        raise SchemaError(label, schema, known, where=where, change=change)


def save_json(path: Path, value: msgspec.Struct, *, label: str) -> None:
    """Write `value`, indented; it replaces the file.

    Args:
        path: of the file.
        value: content of the file.
        label: the user's name for the file, such as "the verdict".

    Raises:
        ExternalError: the folder cannot be written to.
    """
    new_path = path.with_name(f"{path.name}.new")
    change = "make room, or choose a folder that may be written to; what was recorded is kept"
    with convert_os_errors(f"{label} cannot be written", path, change, ExternalError):
        with new_path.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new_path.replace(path)


def append_json(path: Path, value: msgspec.Struct, *, label: str) -> None:
    """Append `value` as a line during a run; arguments and errors as for `save_json`."""
    change = "make room, then run again with --resume; what was recorded is kept"
    with (
        convert_os_errors(f"{label} cannot be written", path, change, ExternalError),
        open_lines(path) as file,
    ):
        append_line(file, msgspec.json.encode(value))


def open_lines(path: Path) -> FileIO:
    """Open a file to append lines.

    This moves a torn last line of an earlier run to `<name>.torn`, so the next line begins at the
    start of a line.

    Raises:
        OSError: the file cannot be opened.
    """
    if path.exists() and path.stat().st_size:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            start = text.rfind(b"\n") + 1
            tail = text[start:]
            if tail:
                with path.with_name(f"{path.name}.torn").open("ab") as torn_file:
                    torn_file.write(tail + b"\n")
        if tail:
            os.truncate(path, start)
    return path.open("ab", buffering=0)


def append_line(file: FileIO, line: bytes) -> None:
    """Append a complete line or nothing.

    Raises:
        OSError: the write failed.
    """
    part = memoryview(line + b"\n")
    end_offset = file.seek(0, os.SEEK_END)
    try:
        while part:
            part = part[file.write(part) :]  # a nearly full disk takes a part; the next write fails
    except OSError:
        with contextlib.suppress(OSError):  # else half a line would stay in the middle of the file
            file.truncate(end_offset)
        raise


def read_json_lines(path: Path, kind: type[Line], *, label: str, change: str) -> Iterator[Line]:
    """Yield the lines of a file; skip a torn last line, which a killed program may leave.

    Args:
        path: of the file.
        kind: of each line.
        label: the user's name for the file, such as "the counters".
        change: the user's remedy for an unreadable file.

    Raises:
        InputError: the file cannot be read, or a line is not of this kind.
    """
    with convert_os_errors(f"{label} cannot be read", path, change), path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield msgspec.json.decode(line, type=kind)
            except DECODE_ERRORS as error:
                problem = f"not a line of {label}: {error}"
                raise InputError(problem, where=f"{path}:{number}", change=change) from error
