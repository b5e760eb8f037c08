"""Facts of the measuring machine for documents, and disk use of files (standard library)."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

MB = 2**20
BLOCK_BYTES = 512  # of st_blocks, whatever the file system's own blocks are


def describe_day() -> str:
    """Return today, the machine's cores and Python's version in words."""
    return f"{datetime.now(UTC).date()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def describe_machine() -> str:
    """Return the cores that this process may use, the processor's model and the memory in words."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{len(os.sched_getaffinity(0))} cores ({[*models, platform.machine()][0]}), {gib:.0f} GiB"
    )


def measure_folder_mb(folder: Path) -> float:
    """Return what a folder takes, in units of 2^20 bytes; a link is not followed."""
    return sum_files_mb(
        path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    )


def sum_files_mb(files: Iterable[Path]) -> float:
    """Return what files take, in units of 2^20 bytes."""
    return sum(path.stat().st_blocks for path in files) * BLOCK_BYTES / MB
