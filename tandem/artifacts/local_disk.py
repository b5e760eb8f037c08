"""The local disk: room asked for before it is needed, faults of the file system, folders that a pod's containers share.

Invariant: a full disk is a clear fault with the file or folder, never a traceback.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import TypeVar

from tandem.artifacts.files import compute_sha256
from tandem.artifacts.manifest import ManifestFile
from tandem.errors import ExternalError

Item = TypeVar("Item")

SPARE_BYTES = 64 * 1024**2  # bytes left for logs and whatever else shares the disk
# the runtime's container and this one run as different users (docs/artifacts.md), and a cache keeps locks
OPEN_FOLDER_MODE, OPEN_FILE_MODE = 0o777, 0o666
_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


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
def translate_disk_errors(path: Path) -> Iterator[None]:
    """Turn what the file system refuses while `path` is written into a fault.

    Raises:
        ExternalError: the disk is full, or refuses the file.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:  # no system call: a library's own word
            raise
        problem, change = "the file cannot be written", "check the volume's mount, its owner and mode (fsGroup)"
        if error.errno in _DISK_FULL_ERRNOS:
            problem, change = "the disk is full", "give the pod more ephemeral storage; whole files are kept"
        where = str(error.filename or path)
        raise ExternalError(f"{problem} ({error.strerror})", where=where, change=change) from None


def create_open_folder(folder: Path) -> None:
    """Make a folder and those above it, open to the other containers of the pod whatever the umask."""
    if folder.is_dir():
        return
    create_open_folder(folder.parent)
    with suppress(FileExistsError):  # another thread made it
        folder.mkdir()
        folder.chmod(OPEN_FOLDER_MODE)


def read_file_size(path: Path) -> int | None:
    """Return a file's bytes, None where it cannot be looked at."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def has_content(path: Path, file: ManifestFile) -> bool:
    """Tell whether a plain file is whole; where a server may have written to it, its size alone does not say so."""
    is_plain = path.is_file() and not path.is_symlink()
    return is_plain and read_file_size(path) == file.size and compute_sha256(path) == file.sha256


def run_in_threads(
    thread_count: int, action: Callable[[Item], None], items: Sequence[Item], halt_event: Event | None = None
) -> None:
    """Call `action` for every item in some threads; at the first error no further one begins, and it is raised.

    Args:
        thread_count: threads.
        action: called for each item.
        items: in the order in which they begin.
        halt_event: set while the threads end, so that those under way may look at it.
    """
    pool = ThreadPoolExecutor(thread_count, thread_name_prefix="file")
    futures = [pool.submit(action, item) for item in items]
    try:
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
    finally:
        if halt_event is not None:
            halt_event.set()
        pool.shutdown(cancel_futures=True)
        if halt_event is not None:
            halt_event.clear()


def format_bytes(byte_count: int) -> str:
    """Return bytes in the unit that an operator reads."""
    for unit, unit_bytes in (("GiB", 1024**3), ("MiB", 1024**2)):
        if byte_count >= unit_bytes:
            return f"{byte_count / unit_bytes:.1f} {unit}"
    return f"{byte_count} bytes"
