"""A snapshot in a folder: an air-gapped copy, held against its own index, sizes and, where there is one, SHA256SUMS.

Invariant: every file lies in the folder itself and is no link; after `expect` every tensor file has the length its
header asks for and the tensors its index names. Nobody but SHA256SUMS vouches for the bytes, and the manifest says
whether there was one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.artifacts.files import compute_sha256, unreadable_error
from tandem.artifacts.snapshot import INDEX_NAME, TENSOR_SUFFIX, SnapshotEntry, parse_weight_map
from tandem.artifacts.tensor_file import read_tensor_file
from tandem.errors import InputError

SUMS_NAME = "SHA256SUMS"  # as coreutils' sha256sum writes it
_SUMS_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64}) [ *](?P<path>.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSnapshot:
    """A folder that holds one snapshot.

    Args:
        folder: the snapshot's own files lie in it.
        commit: the commit that the caller says it is a copy of; None for a name that moves.
        entries: every file by its name.
        sums: SHA-256 by name from SHA256SUMS; None without one.
        weights: tensor -> file of the index; None without one.
    """

    folder: Path
    commit: str | None
    entries: Mapping[str, SnapshotEntry]
    sums: Mapping[str, str] | None
    weights: Mapping[str, str] | None

    @property
    def where(self) -> str:
        """Return the folder, for messages."""
        return str(self.folder)

    @property
    def provenance(self) -> dict[str, Any]:
        """Return what the manifest says of where the files came from."""
        check_note = "index, lengths and configuration of the copy; no checksum of a hub"
        return {
            "from": "folder",
            "checked": f"{check_note}; {SUMS_NAME} of the copy" if self.sums is not None else check_note,
        }

    def prepare(self) -> None:
        """Do nothing: the files are read where they lie."""

    def check_entries(self, entries: Sequence[SnapshotEntry]) -> None:
        """Refuse a copy of which one of these files is not whole, before any is stored.

        Raises:
            InputError: a file is cut off, lacks a tensor of the index, or SHA256SUMS does not name it.
        """
        for entry in entries:
            path = self.folder / entry.path
            if entry.path.endswith(TENSOR_SUFFIX):
                self._check_tensors(entry.path, path)
            if self.sums is not None and entry.path not in self.sums:
                raise InputError(
                    f"{SUMS_NAME} does not name it", where=str(path), change=f"add its line to {SUMS_NAME}"
                )

    def receive(self, entry: SnapshotEntry, on_progress: Callable[[int], None]) -> tuple[Path, str]:
        """Hash one file where it lies.

        Args:
            entry: one of `entries`.
            on_progress: called with the file's bytes.

        Returns:
            the file, and the SHA-256 of its content.

        Raises:
            InputError: it cannot be read, or is not what SHA256SUMS says.
        """
        path = self.folder / entry.path
        sha256 = compute_sha256(path)
        if self.sums is not None and self.sums.get(entry.path) != sha256:
            raise InputError(
                f"its SHA-256 is not that of {SUMS_NAME}", where=str(path), change="copy it again from its source"
            )
        on_progress(entry.size)
        return path, sha256

    def drop(self, entry: SnapshotEntry) -> None:
        """Leave the file: the copy is the operator's."""

    def _check_tensors(self, name: str, path: Path) -> None:
        file_tensors = read_tensor_file(path).tensors
        index_tensors = {tensor for tensor, file in (self.weights or {}).items() if file == name}
        missing = sorted(index_tensors - file_tensors)
        if missing:
            raise InputError(
                f"{INDEX_NAME} looks for the tensor {missing[0]} in it, which it does not hold ({len(missing)} "
                "missing)",
                where=str(path),
                change="copy index and tensor files again, from one snapshot",
            )


def open_folder(folder: Path, commit: str | None) -> FolderSnapshot:
    """List a folder.

    Args:
        folder: holds config.json.
        commit: what it is said to be a copy of; None if that is a name that moves.

    Raises:
        InputError: it is no folder, cannot be read, or a file in it is a link.
    """
    if not folder.is_dir():
        raise InputError(
            "there is no such folder", where=str(folder), change="give the snapshot's own folder to --from"
        )
    try:
        entries = {entry.path: entry for entry in map(_read_entry, sorted(folder.iterdir()))}
        sums = _read_sums(folder / SUMS_NAME) if SUMS_NAME in entries else None
        index = (folder / INDEX_NAME).read_bytes() if INDEX_NAME in entries else None
    except OSError as error:
        raise unreadable_error(Path(error.filename or folder), error) from None
    weights = parse_weight_map(index, str(folder / INDEX_NAME)) if index is not None else None
    model_entries = {name: entry for name, entry in entries.items() if name != SUMS_NAME}
    return FolderSnapshot(folder=folder, commit=commit, entries=model_entries, sums=sums, weights=weights)


def _read_entry(path: Path) -> SnapshotEntry:
    name = path.name
    reason, change = "", "copy the snapshot to a folder of its own"
    if not name.isprintable():  # control characters, and bytes that are no UTF-8
        reason = "its name has characters that cannot be carried"
    elif path.is_dir() and not path.is_symlink():
        return SnapshotEntry(path=f"{name}/", size=0)
    elif path.is_symlink():
        reason = "it is a link, as in the hub client's cache"
        change = "copy the files themselves (cp -rL, or download to a local folder) and name that folder"
    elif not path.is_file():
        reason = "it is no plain file"
    if reason:
        raise InputError(reason, where=ascii(str(path)).strip("'"), change=change)
    return SnapshotEntry(path=name, size=path.stat().st_size)


def _read_sums(path: Path) -> dict[str, str]:
    sums: dict[str, str] = {}
    for line_number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        match = _SUMS_LINE.fullmatch(line)
        if not match:
            raise InputError(
                f"line {line_number} is not as sha256sum writes it", where=str(path),
                change="write it anew: cd to the folder, then sha256sum -- * > SHA256SUMS",
            )  # fmt: skip
        sums[match["path"].removeprefix("./")] = match["sha256"]
    return sums
