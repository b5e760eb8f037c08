"""What lies in a folder, without a word about what is gone the moment after."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def walk_files(folder: Path) -> Iterator[Path]:
    """Yield every file below `folder`."""
    for parent, _, names in os.walk(folder):
        yield from (Path(parent) / name for name in names)


def find_locks(folder: Path) -> Iterator[Path]:
    """Yield every lock file below `folder`."""
    return (path for path in walk_files(folder) if path.suffix == ".lock")


def read_file_size(path: Path) -> int:
    """Return a file's bytes; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def find_existing_folder(folder: Path) -> Path:
    """Return the folder or the nearest one above it that is there."""
    return folder if folder.exists() or folder == folder.parent else find_existing_folder(folder.parent)
