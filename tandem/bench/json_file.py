"""The JSON files next to a run's records: one value written whole, or a line at a time.

Invariant: a reader of a file that is written whole sees the old one or the new one, also after a power cut; a line is
appended whole or not at all, and behind a line that a kill tore none is appended.
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

from tandem.errors import ExternalError, InputError, convert_os_errors

# what a decoder raises of bytes that are not the JSON asked for; the last one of JSON that is nested without end
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Line = TypeVar("Line")


def save_json(path: Path, value: msgspec.Struct, *, label: str) -> None:
    """Write `value`, indented, in place of what is there.

    Args:
        path: of the file.
        value: what it says.
        label: the file is to a user, such as "the verdict".

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
    """Write `value` as one more line of a run that goes on; arguments and errors as of `save_json`."""
    change = "make room, then run again with --resume; what was recorded is kept"
    with convert_os_errors(f"{label} cannot be written", path, change, ExternalError), open_lines(path) as file:
        append_line(file, msgspec.json.encode(value))


def open_lines(path: Path) -> FileIO:
    """Open a file to append lines to.

    A torn last line of an earlier run is moved to `<name>.torn`, so that what follows starts on a line of its own.

    Raises:
        OSError: the file cannot be opened.
    """
    if path.exists() and path.stat().st_size:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            start = text.rfind(b"\n") + 1
            if tail := text[start:]:
                with path.with_name(f"{path.name}.torn").open("ab") as torn_file:
                    torn_file.write(tail + b"\n")
        if tail:
            os.truncate(path, start)
    return path.open("ab", buffering=0)


def append_line(file: FileIO, line: bytes) -> None:
    """Append a line whole, or none of it.

    Raises:
        OSError: the disk took no more.
    """
    part, end_offset = memoryview(line + b"\n"), file.seek(0, os.SEEK_END)
    try:
        while part:
            part = part[file.write(part) :]  # a nearly full disk takes a part and says so the next time
    except OSError:
        with contextlib.suppress(OSError):  # half a line would stand in the middle once there is room again
            file.truncate(end_offset)
        raise


def read_json_lines(path: Path, kind: type[Line], *, label: str, change: str) -> Iterator[Line]:
    """Yield the lines of a file; a torn last one is passed over, because a killed program may have left half a line.

    Args:
        path: of the file.
        kind: of each line.
        label: what the file is to a user, such as "the counters".
        change: what a user does about a file that cannot be read.

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
                problem = f"this is no line of {label}: {error}"
                raise InputError(problem, where=f"{path}:{number}", change=change) from error
