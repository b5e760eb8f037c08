"""Local files as they are stored: found, named and hashed.

Invariant: what is listed here are plain files with names that every program of the chain can carry; a link, a
device or an unreadable file is refused by name and never skipped.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tandem.artifacts.fault import RefusedError
from tandem.artifacts.manifest import LEASE_NAME, NAME, File, inside
from tandem.artifacts.parts import parts_of

PIECE = 1 << 18  # bytes read at once: it stays in the processor's cache between one use and the next
HASHERS = 4  # hashlib leaves the interpreter's lock, so files are hashed side by side
LONGEST_PATH = 800  # bytes; S3 takes keys of 1,024 and the prefix of a model or an artifact needs some


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal, read piece by piece.

    Raises:
        RefusedError: the file cannot be read.
    """
    try:
        with path.open("rb", buffering=0) as source:
            digest = hashlib.sha256()
            while piece := source.read(PIECE):
                digest.update(piece)
    except OSError as error:
        raise unreadable(path, error) from None
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashed:
    """One local file, read once.

    Args:
        file: what a manifest says of it.
        parts: the SHA-256 of each part that S3 is sent, in base64, of the same reading.
    """

    file: File
    parts: tuple[str, ...]


def files_below(folder: Path) -> tuple[File, ...]:
    """Return every file below a folder with its size and SHA-256, by path.

    Raises:
        RefusedError: as `hashed_below`.
    """
    return tuple(hashed.file for hashed in hashed_below(folder))


def hashed_below(folder: Path) -> tuple[Hashed, ...]:
    """Return every file below a folder with its size and digests, by path.

    Raises:
        RefusedError: as `LocalFiles`, and where a file cannot be read.
    """
    files = LocalFiles(folder)
    with ThreadPoolExecutor(HASHERS) as pool:
        return tuple(pool.map(files.hashed, files.sizes))


class LocalFiles:
    """Every file below a folder: found at once, hashed each when it is first asked for, and never again.

    Args:
        folder: the files lie below it.

    Raises:
        RefusedError: there is none, or one that cannot be stored: a link, a device, a name that S3 or a mount
            cannot carry, a name of Tandem's own.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        paths = sorted(_below(folder, folder), key=lambda path: path.relative_to(folder).as_posix())
        if not paths:
            change = "name the folder that has them"
            raise RefusedError("there is no file in the folder", where=str(folder), change=change)
        self.sizes = {_name(folder, path): path.stat().st_size for path in paths}  # bytes, by path, in its order
        self._hashed: dict[str, Hashed] = {}

    def hashed(self, name: str, going: Callable[[], None] = lambda: None) -> Hashed:
        """Return one file with its digests.

        Args:
            name: one of `sizes`; no two threads may ask for the same one at once.
            going: called before each part is read; raises when the work is not to go on.

        Raises:
            RefusedError: it cannot be read.
        """
        if name not in self._hashed:
            self._hashed[name] = _hashed(self.folder / name, name, going)
        return self._hashed[name]


def _hashed(path: Path, name: str, going: Callable[[], None]) -> Hashed:
    whole, size, parts = hashlib.sha256(), 0, []
    try:
        with path.open("rb", buffering=0) as source:
            for part in parts_of(os.fstat(source.fileno()).st_size):
                going()
                digest, left = hashlib.sha256(), part.length
                while left and (piece := source.read(min(PIECE, left))):
                    digest.update(piece)
                    whole.update(piece)
                    size, left = size + len(piece), left - len(piece)
                parts.append(base64.b64encode(digest.digest()).decode())
    except OSError as error:
        raise unreadable(path, error) from None
    return Hashed(file=File(path=name, size=size, sha256=whole.hexdigest()), parts=tuple(parts))


def unreadable(path: Path, error: OSError) -> RefusedError:
    """Return the fault of a file that cannot be read."""
    return RefusedError(
        f"the file cannot be read ({error.strerror or error})", where=str(path),
        change="make it readable for this process, or take it out of the folder",
    )  # fmt: skip


def _below(folder: Path, top: Path) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise unreadable(folder, error) from None
    for entry in entries:
        path = Path(entry.path)
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            yield from _below(path, top)
        elif stat.S_ISREG(mode):
            yield path
        else:
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
            raise RefusedError(
                f"it is {kind}, which a bucket cannot hold", where=str(path),
                change=f"put the content in its place (cp -rL copies {top.name} without links) or remove it",
            )  # fmt: skip


def _name(folder: Path, path: Path) -> str:
    name = path.relative_to(folder).as_posix()
    why = ""
    if path.name in {NAME, LEASE_NAME}:
        why = "it has a name that Tandem writes itself"
    elif not name.isprintable():  # control characters, and bytes that are no UTF-8
        why = "its name has characters that cannot be carried"
    elif len(name.encode()) > LONGEST_PATH:
        why = f"its path has more than {LONGEST_PATH} bytes"
    try:
        inside(name)
    except ValueError as error:
        why = str(error)
    if why:
        raise RefusedError(why, where=ascii(str(path)).strip("'"), change="rename it or take it out of the folder")
    return name
