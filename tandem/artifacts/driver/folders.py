"""What lies in a folder, without a word about what is gone the moment after."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def files_in(folder: Path) -> Iterator[Path]:
    """Yield every file below `folder`."""
    for parent, _, names in os.walk(folder):
        yield from (Path(parent) / name for name in names)


def locks_in(folder: Path) -> Iterator[Path]:
    """Yield every lock file below `folder`."""
    return (path for path in files_in(folder) if path.suffix == ".lock")


def size_of(path: Path) -> int:
    """Return a file's bytes; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def existing(folder: Path) -> Path:
    """Return the folder or the nearest one above it that is there."""
    return folder if folder.exists() or folder == folder.parent else existing(folder.parent)
