"""Local files as they are stored: found, named and hashed.

Invariant: what is listed here are plain files with names that every program of the chain can carry; a link, a
device or an unreadable file is refused by name and never skipped.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tandem.artifacts.manifest import LEASE_NAME, MANIFEST_NAME, ManifestFile, validate_path
from tandem.errors import InputError

READ_BYTES = 1 << 18  # bytes read at once: it stays in the processor's cache between one use and the next
HASH_THREADS = 4  # hashlib leaves the interpreter's lock, so files are hashed side by side
MAX_PATH_BYTES = 800  # bytes; S3 takes keys of 1,024 and the prefix of a model or an artifact needs some


def list_files(folder: Path) -> tuple[ManifestFile, ...]:
    """Return every file below a folder with its size and SHA-256, by path.

    Raises:
        InputError: as `LocalFiles`, and where a file cannot be read.
    """
    return LocalFiles(folder).hash_all()


class LocalFiles:
    """Every file below a folder: found at once, hashed each when it is first asked for, and never again.

    Args:
        folder: the files lie below it.

    Raises:
        InputError: there is none, or one that cannot be stored: a link, a device, a name that S3 or a mount
            cannot carry, a name of Tandem's own.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        paths = sorted(_walk_files(folder, folder), key=lambda path: path.relative_to(folder).as_posix())
        if not paths:
            change = "name the folder that has them"
            raise InputError("there is no file in the folder", where=str(folder), change=change)
        self.sizes = {
            _validate_name(folder, path): path.stat().st_size for path in paths
        }  # bytes, by path, in its order
        self._hashed_files: dict[str, ManifestFile] = {}

    def hash_file(self, name: str, check_cancel: Callable[[], None] = lambda: None) -> ManifestFile:
        """Return one file with its size and SHA-256.

        Args:
            name: one of `sizes`; no two threads may ask for the same one at once.
            check_cancel: called before each piece is read; raises when the work is not to go on.

        Raises:
            InputError: it cannot be read.
        """
        if name not in self._hashed_files:
            size, sha256 = _hash_content(self.folder / name, check_cancel)
            self._hashed_files[name] = ManifestFile(path=name, size=size, sha256=sha256)
        return self._hashed_files[name]

    def hash_all(self) -> tuple[ManifestFile, ...]:
        """Return every file with its size and SHA-256, by path.

        Raises:
            InputError: one cannot be read.
        """
        with ThreadPoolExecutor(HASH_THREADS) as pool:
            return tuple(pool.map(self.hash_file, self.sizes))


def compute_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal, read piece by piece.

    Raises:
        InputError: the file cannot be read.
    """
    return _hash_content(path, lambda: None)[1]


def _hash_content(path: Path, check_cancel: Callable[[], None]) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb", buffering=0) as source:
            while piece := source.read(READ_BYTES):
                check_cancel()
                digest.update(piece)
                size += len(piece)
    except OSError as error:
        raise unreadable_error(path, error) from None
    return size, digest.hexdigest()


def unreadable_error(path: Path, error: OSError) -> InputError:
    """Return the fault of a file that cannot be read."""
    return InputError(
        f"the file cannot be read ({error.strerror or error})", where=str(path),
        change="make it readable for this process, or take it out of the folder",
    )  # fmt: skip


def _walk_files(folder: Path, top_folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise unreadable_error(folder, error) from None
    for entry in entries:
        path = Path(entry.path)
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            yield from _walk_files(path, top_folder)
        elif stat.S_ISREG(mode):
            yield path
        else:
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
            raise InputError(
                f"it is {kind}, which a bucket cannot hold", where=str(path),
                change=f"put the content in its place (cp -rL copies {top_folder.name} without links) or remove it",
            )  # fmt: skip


def _validate_name(folder: Path, path: Path) -> str:
    name = path.relative_to(folder).as_posix()
    reason = ""
    if path.name in {MANIFEST_NAME, LEASE_NAME}:
        reason = "it has a name that Tandem writes itself"
    elif not name.isprintable():  # control characters, and bytes that are no UTF-8
        reason = "its name has characters that cannot be carried"
    elif len(name.encode()) > MAX_PATH_BYTES:
        reason = f"its path has more than {MAX_PATH_BYTES} bytes"
    try:
        validate_path(name)
    except ValueError as error:
        reason = str(error)
    if reason:
        raise InputError(reason, where=ascii(str(path)).strip("'"), change="rename it or take it out of the folder")
    return name
