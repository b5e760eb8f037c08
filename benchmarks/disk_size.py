"""What files take on the disk, in units of 2^20 bytes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

MB = 2**20
BLOCK_BYTES = 512  # of st_blocks, whatever the file system's own blocks are


def measure_disk_mb(folder: Path) -> float:
    """Return what a folder takes; a link is not followed."""
    return sum_disk_mb(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def sum_disk_mb(files: Iterable[Path]) -> float:
    """Return what files take."""
    return sum(path.stat().st_blocks for path in files) * BLOCK_BYTES / MB
