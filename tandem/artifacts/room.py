"""Room on a local disk: said before it is needed, and named when it ran out.

Invariant: a full disk is a clear fault with the folder, what was needed and what is free, never a traceback.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tandem.artifacts.fault import WorldError

SPARE = 64 * 1024**2  # bytes left for logs and whatever else shares the disk
_FULL = {errno.ENOSPC, errno.EDQUOT}


def require_room(folder: Path, needed: int, what: str) -> None:
    """Refuse to begin what cannot end.

    Args:
        folder: where the bytes will go; it exists.
        needed: bytes still to be written.
        what: whose bytes, for the message.

    Raises:
        WorldError: the disk has less than that free.
    """
    free = shutil.disk_usage(folder).free
    if free < needed + SPARE:
        raise WorldError(
            f"{what} needs {spoken(needed)} on this disk, {spoken(free)} are free (and {spoken(SPARE)} stay spare)",
            where=str(folder), change="give the pod more ephemeral storage, or name a folder on a larger disk",
        )  # fmt: skip


@contextmanager
def writing(path: Path, needed: int) -> Iterator[None]:
    """Turn what a disk says while `path` is written into a fault.

    Args:
        path: the file.
        needed: bytes of the whole file, for the message.

    Raises:
        WorldError: the disk is full, or refuses the file.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:  # no system call: a library's own word
            raise
        if error.errno in _FULL:
            raise WorldError(
                f"the disk is full before the file of {spoken(needed)} is whole", where=str(path),
                change="give the pod more ephemeral storage; what is there is kept and the next run goes on with it",
            ) from None  # fmt: skip
        raise WorldError(
            f"the file cannot be written: {error.strerror}", where=str(path),
            change="check that the folder is a disk that this user may write",
        ) from None  # fmt: skip


def spoken(size: int) -> str:
    """Return bytes in the unit that an operator reads."""
    for unit, one in (("GiB", 1024**3), ("MiB", 1024**2)):
        if size >= one:
            return f"{size / one:.1f} {unit}"
    return f"{size} bytes"
