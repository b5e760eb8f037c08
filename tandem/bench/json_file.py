"""The JSON files beside a run's records: one value written whole, or a line at a time.

Invariant: a reader of a file that is written whole sees the old one or the new one, also after a power cut.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tandem.bench.fault import WorldError


def save(path: Path, value: msgspec.Struct, *, what: str) -> None:
    """Write `value`, indented, in place of what is there.

    Args:
        path: of the file.
        value: what it says.
        what: the file is to a user, such as "the verdict".

    Raises:
        WorldError: the folder cannot be written to.
    """
    new = path.with_name(f"{path.name}.new")
    with _told(path, what, "make room, or choose a folder that may be written to"):
        with new.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)


def append(path: Path, value: msgspec.Struct, *, what: str) -> None:
    """Write `value` as one more line of a run that goes on; arguments and errors as of `save`."""
    with _told(path, what, "make room, then run again with --resume"), path.open("ab") as file:
        file.write(msgspec.json.encode(value) + b"\n")


@contextlib.contextmanager
def _told(path: Path, what: str, change: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WorldError(
            f"{what} cannot be written: {error.strerror or error}; what was recorded is kept",
            where=str(path),
            change=change,
        ) from error
