"""Room on a local disk: said before it is needed, and named when it ran out.

Invariant: a full disk is a clear fault with the folder, what was needed and what is free, never a traceback.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tandem.errors import ExternalError

SPARE_BYTES = 64 * 1024**2  # bytes left for logs and whatever else shares the disk
_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT}


def require_disk_space(folder: Path, byte_count: int, purpose: str) -> None:
    """Refuse to begin what cannot end.

    Args:
        folder: where the bytes will go; it exists.
        byte_count: bytes still to be written.
        purpose: whose bytes, for the message.

    Raises:
        ExternalError: the disk has less than that free.
    """
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < byte_count + SPARE_BYTES:
        raise ExternalError(
            f"{purpose} needs {format_bytes(byte_count)} on this disk, {format_bytes(free_bytes)} are free (and "
            f"{format_bytes(SPARE_BYTES)} stay spare)",
            where=str(folder),
            change="give the pod more ephemeral storage, or name a folder on a larger disk",
        )


@contextmanager
def translate_disk_errors(path: Path, byte_count: int) -> Iterator[None]:
    """Turn what a disk says while `path` is written into a fault.

    Args:
        path: the file.
        byte_count: bytes of the whole file, for the message.

    Raises:
        ExternalError: the disk is full, or refuses the file.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:  # no system call: a library's own word
            raise
        if error.errno in _DISK_FULL_ERRNOS:
            raise ExternalError(
                f"the disk is full before the file of {format_bytes(byte_count)} is whole", where=str(path),
                change="give the pod more ephemeral storage; what is there is kept and the next run goes on with it",
            ) from None  # fmt: skip
        raise ExternalError(
            f"the file cannot be written: {error.strerror}", where=str(path),
            change="check that the folder is a disk that this user may write",
        ) from None  # fmt: skip


def format_bytes(byte_count: int) -> str:
    """Return bytes in the unit that an operator reads."""
    for unit, unit_bytes in (("GiB", 1024**3), ("MiB", 1024**2)):
        if byte_count >= unit_bytes:
            return f"{byte_count / unit_bytes:.1f} {unit}"
    return f"{byte_count} bytes"
