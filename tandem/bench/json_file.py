"""The JSON files beside a run's records: one value written whole, or a line at a time.

Invariant: a reader of a file that is written whole sees the old one or the new one, also after a power cut.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tandem.bench.fault import ExternalBenchError


def save_json(path: Path, value: msgspec.Struct, *, label: str) -> None:
    """Write `value`, indented, in place of what is there.

    Args:
        path: of the file.
        value: what it says.
        label: the file is to a user, such as "the verdict".

    Raises:
        WorldError: the folder cannot be written to.
    """
    new_path = path.with_name(f"{path.name}.new")
    with _convert_write_errors(path, label, "make room, or choose a folder that may be written to"):
        with new_path.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new_path.replace(path)


def append_json(path: Path, value: msgspec.Struct, *, label: str) -> None:
    """Write `value` as one more line of a run that goes on; arguments and errors as of `save_json`."""
    with _convert_write_errors(path, label, "make room, then run again with --resume"), path.open("ab") as file:
        file.write(msgspec.json.encode(value) + b"\n")


@contextlib.contextmanager
def _convert_write_errors(path: Path, label: str, change: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ExternalBenchError(
            f"{label} cannot be written: {error.strerror or error}; what was recorded is kept",
            where=str(path),
            change=change,
        ) from error
