"""Local files: listed, hashed, and written on a disk that may be full.

Invariant: only plain files are stored, with names that every program of the chain can carry; a
link, a device or an unreadable file is refused by name and never skipped; a full disk is a fault
that names the file or folder.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import TypeVar

from tandem.artifacts.driver.folders import read_file_size
from tandem.artifacts.manifest import LEASE_NAME, MANIFEST_NAME, ManifestFile, validate_path
from tandem.errors import ExternalError, InputError, convert_os_errors

Item = TypeVar("Item")

HASH_THREADS = 4  # hashlib releases the interpreter's lock, so files are hashed in parallel
# bytes; S3 takes keys of 1,024 and the prefix of a model or an artifact needs some
MAX_PATH_BYTES = 800
SPARE_BYTES = 64 * 1024**2  # bytes left for logs and other users of the disk
# the runtime's container and this one run as different users (docs/artifacts.md), and a cache keeps
# locks
OPEN_FOLDER_MODE = 0o777
OPEN_FILE_MODE = 0o666


class LocalFiles:
    """Every file below a folder: listed at once, each hashed once, at its first use.

    Args:
        folder: of the files.

    Raises:
        InputError: there is no file, or a file cannot be stored: a link, a device, a name that S3
            or a mount cannot carry, a name that Tandem writes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        paths = {_check_name(folder, path): path for path in _walk_files(folder)}
        if not paths:
            raise InputError(
                "the folder has no files",
                where=str(folder),
                change="name the folder of the files",
            )
        self.sizes = {name: paths[name].stat().st_size for name in sorted(paths)}  # bytes, by path
        self._hashed_files: dict[str, ManifestFile] = {}

    def hash_file(self, name: str) -> ManifestFile:
        """Return one file with its size and SHA-256.

        Args:
            name: one of `sizes`; two threads must not use the same name at once.

        Raises:
            InputError: the file cannot be read.
        """
        if name not in self._hashed_files:
            sha256 = compute_sha256(self.folder / name)
            self._hashed_files[name] = ManifestFile(path=name, size=self.sizes[name], sha256=sha256)
        return self._hashed_files[name]

    def hash_all(self) -> tuple[ManifestFile, ...]:
        """Return every file with its size and SHA-256, by path.

        Raises:
            InputError: a file cannot be read.
        """
        with ThreadPoolExecutor(HASH_THREADS) as pool:
            return tuple(pool.map(self.hash_file, self.sizes))


def compute_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal, read piece by piece.

    Raises:
        InputError: the file cannot be read.
    """
    with translate_read_errors(path), path.open("rb", buffering=0) as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def translate_read_errors(path: Path) -> AbstractContextManager[None]:
    """Turn an error of the file system while `path` is read into an InputError."""
    return convert_os_errors(
        "the file cannot be read", path, "make it readable, or take it out of the folder"
    )


def _walk_files(folder: Path) -> Iterator[Path]:
    with translate_read_errors(folder):
        entries = list(os.scandir(folder))
    for entry in entries:
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            yield from _walk_files(Path(entry.path))
        elif stat.S_ISREG(mode):
            yield Path(entry.path)
        else:
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
            raise InputError(
                f"it is {kind}, which a bucket cannot hold",
                where=entry.path,
                change="put the content in its place (cp -rL copies without links) or remove it",
            )


def _check_name(folder: Path, path: Path) -> str:
    name = path.relative_to(folder).as_posix()
    if reason := describe_bad_name(name):
        raise InputError(
            reason,
            where=ascii(str(path)).strip("'"),
            change="rename it or take it out of the folder",
        )
    return name


def describe_bad_name(name: str) -> str:
    """Return why S3, a mount or a log cannot carry a relative path; empty if they can."""
    if not name.isprintable():  # control characters, and bytes that are no UTF-8
        return "its name has characters that S3 or a mount cannot hold"
    if {MANIFEST_NAME, LEASE_NAME} & set(name.split("/")):
        return "it has a name that Tandem writes itself"
    if len(name.encode()) > MAX_PATH_BYTES:
        return f"its path has more than {MAX_PATH_BYTES} bytes"
    try:
        validate_path(name)
    except ValueError as error:
        return str(error)
    return ""


def require_disk_space(folder: Path, byte_count: int, purpose: str) -> None:
    """Refuse a write for which the disk has too little room.

    Args:
        folder: target of the bytes; exists.
        byte_count: bytes still to be written.
        purpose: of the bytes, for the message.

    Raises:
        ExternalError: the disk has less than that and SPARE_BYTES free.
    """
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < byte_count + SPARE_BYTES:
        needs = (
            f"{purpose} needs {format_bytes(byte_count)} on this disk and"
            f" {format_bytes(SPARE_BYTES)} spare"
        )
        raise ExternalError(
            f"{needs}; {format_bytes(free_bytes)} are free",
            where=str(folder),
            change="give the pod more ephemeral storage, or name a folder on a larger disk",
        )


@contextmanager
def translate_disk_errors(path: Path) -> Iterator[None]:
    """Turn an error of the file system while `path` is written into a fault.

    Raises:
        ExternalError: the disk is full, or refuses the file.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:  # no system call: a library raised it
            raise
        problem = "the file cannot be written"
        change = "check the volume's mount, its owner and mode (fsGroup)"
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            problem = "the disk is full"
            change = "give the pod more ephemeral storage; whole files are kept"
        where = str(error.filename or path)
        raise ExternalError(f"{problem} ({error.strerror})", where=where, change=change) from None


def create_open_folder(folder: Path) -> None:
    """Make a folder and its parents, open to the other containers of the pod under any umask."""
    if not folder.is_dir():
        create_open_folder(folder.parent)
        with suppress(FileExistsError):  # another thread made it
            folder.mkdir()
            folder.chmod(OPEN_FOLDER_MODE)


def has_content(path: Path, file: ManifestFile) -> bool:
    """Return whether a plain file is whole; its size proves nothing while a server may write it."""
    is_plain = path.is_file() and not path.is_symlink()
    return is_plain and read_file_size(path) == file.size and compute_sha256(path) == file.sha256


def run_in_threads(
    thread_count: int,
    action: Callable[[Item], None],
    items: Sequence[Item],
    halt_event: Event | None = None,
) -> None:
    """Call `action` for every item in threads; after the first error start no more, and raise it.

    Args:
        thread_count: number of threads.
        action: called for each item.
        items: in the order of their begin.
        halt_event: set while the threads end, so that running actions may check it.
    """
    halt_event = halt_event or Event()
    pool = ThreadPoolExecutor(thread_count, thread_name_prefix="file")
    try:
        done, _ = wait([pool.submit(action, item) for item in items], return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
    finally:
        halt_event.set()
        pool.shutdown(cancel_futures=True)
        halt_event.clear()


def format_bytes(byte_count: int) -> str:
    """Return bytes as text in a readable unit: GiB, MiB or bytes."""
    for unit, unit_bytes in (("GiB", 1024**3), ("MiB", 1024**2)):
        if byte_count >= unit_bytes:
            return f"{byte_count / unit_bytes:.1f} {unit}"
    return f"{byte_count} bytes"
