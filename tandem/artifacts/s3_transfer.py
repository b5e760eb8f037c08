"""Files to objects and back: moved by the transfer library, hashed on the way.

Invariants: an object is completed only from bytes whose SHA-256 is the one announced, so what stands in the object's
metadata is true; a file has its name only when its content has the SHA-256 that was asked for, until then it has a
name that nobody reads. What is whole is not moved again; a run that was killed moves again what was not
(docs/decisions/0033-files-not-parts.md).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from s3transfer.exceptions import S3DownloadFailedError

from tandem.artifacts import files as local_files
from tandem.artifacts.driver.log import log_event
from tandem.artifacts.files import LocalFiles
from tandem.artifacts.manifest import ManifestFile, build_damage_error, describe_difference
from tandem.artifacts.store import ObjectStore
from tandem.errors import InputError

MAX_RECEIPTS = 2  # of one object whose content is not what the manifest says
FILES_AT_ONCE = 4  # each hashes, reads or writes one file; their parts share the store's threads


def upload_file(store: ObjectStore, path: Path, key: str, sha256: str) -> None:
    """Make the object `key` have the content of a file.

    Args:
        store: the bucket.
        path: the local file.
        key: the object.
        sha256: of the file's content, hexadecimal; compared with the bytes that are sent.

    Raises:
        InputError: the file cannot be read, or its content is not what was announced.
        ExternalError: S3 failed.
    """
    _upload_content(store, path, key, sha256)
    _abort_leftovers(store, {key}, key)


def upload_files(
    store: ObjectStore, files: LocalFiles, prefix: str, *, check: Callable[[], None] = lambda: None
) -> tuple[ManifestFile, ...]:
    """Make the objects below `prefix` have the content of every file of a folder; hash some while others are sent.

    Args:
        store: the bucket.
        files: what of it was hashed before is not hashed again.
        prefix: of the objects, without a slash at its end.
        check: called before a file is hashed and before it is sent; raises when the work is not to go on, as when a
            lease is lost.

    Returns:
        all files by path, as they were sent.

    Raises:
        TandemError: as `upload_file` does, for the first file that fails.
    """

    def upload_path(path: str) -> None:
        check()
        file = files.hash_file(path)
        store.require_not_halted()
        check()
        _upload_content(store, files.folder / path, f"{prefix}/{path}", file.sha256)

    # the largest first, so that none is left alone at the end
    paths = sorted(files.sizes, key=lambda path: -files.sizes[path])
    local_files.run_in_threads(FILES_AT_ONCE, upload_path, paths, store.halt_event)
    _abort_leftovers(store, {f"{prefix}/{path}" for path in paths}, f"{prefix}/")
    return files.hash_all()


def _upload_content(store: ObjectStore, path: Path, key: str, sha256: str) -> None:
    with local_files.translate_read_errors(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = store.head(key)
        if head is not None and (head.size, head.sha256) == (size, sha256):
            log_event("present", object=store.url(key), size=size)
            return
        reader = _HashReader(file, path, sha256, store.require_not_halted)
        arguments = {"ChecksumAlgorithm": "SHA256", "Metadata": {"sha256": sha256}}
        store.finish_transfer("PutObject", key, store.uploads.upload(reader, store.bucket, key, arguments))
    log_event("sent", object=store.url(key), size=size)


class _HashReader:
    """A file that is read once, in order, and whose end is not told before its content is what was announced.

    The transfer library completes an object after the end alone; each part that it was given has its own SHA-256,
    which S3 holds against what arrived.
    """

    def __init__(self, file: BinaryIO, path: Path, sha256: str, check_halt: Callable[[], None]) -> None:
        self._file, self._path, self._sha256, self._check_halt = file, path, sha256, check_halt
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, all that is left without a size.

        Raises:
            InputError: the file ended with another content.
            OSError: it cannot be read.
        """
        self._check_halt()
        piece = self._file.read(size)
        self._hash.update(piece)
        if (size < 0 or not piece) and self._hash.hexdigest() != self._sha256:
            problem = f"its content is not what was announced (SHA-256 {self._sha256}), so nothing was stored"
            change = "make sure that nothing writes to it and that the disk is sound, then run again"
            raise InputError(problem, where=str(self._path), change=change)
        return piece


def _abort_leftovers(store: ObjectStore, keys: set[str], prefix: str) -> None:
    """Abort uploads of objects that are whole now: of runs that were killed, or begun twice by a lost answer."""
    for upload in store.list_uploads(prefix):
        if upload.key in keys:
            store.abort_upload(upload)
            log_event("aborted a left-over upload", object=store.url(upload.key), upload=upload.id)


def download_object(store: ObjectStore, key: str, path: Path, file: ManifestFile) -> None:
    """Make a file have the content of an object; one that has it already is left alone.

    Args:
        store: the bucket.
        key: the object.
        path: the file; missing folders are made.
        file: what the manifest says of it.

    Raises:
        StaleError: the object is missing, or its size or content is not what was asked for.
        ExternalError: S3 failed, or the disk is full.
    """
    partial_path = path.with_name(f".{path.name}.receiving")  # what a killed run left there is overwritten
    with local_files.translate_disk_errors(path):
        local_files.create_open_folder(path.parent)
        if local_files.has_content(path, file):
            log_event("present", file=str(path), size=file.size)
            return
        head = store.head(key)
        if head is not None and head.sha256 is None:  # of another program: its content tells
            head = replace(head, sha256=file.sha256)
        problem = describe_difference(head, file)
        if head is None or problem:
            raise build_damage_error(store, key, problem)
        try:
            for _ in range(MAX_RECEIPTS):
                with partial_path.open("wb") as content:
                    if receive_object(store, key, content) == file.sha256:
                        break
                log_event("received content differs", level="warning", object=store.url(key))
            else:
                raise build_damage_error(store, key, "its content has another SHA-256 than the manifest says, twice")
            partial_path.chmod(local_files.OPEN_FILE_MODE)
            partial_path.rename(path)
        finally:
            partial_path.unlink(missing_ok=True)
    log_event("received", object=store.url(key), file=str(path), size=file.size)


def download_files(store: ObjectStore, prefix: str, folder: Path, files: Sequence[ManifestFile]) -> None:
    """Make the files below `folder` have the content of the objects below `prefix`.

    Args:
        store: the bucket.
        prefix: of the objects, without a slash at its end.
        folder: of the files; made where it is missing.
        files: which, with size and SHA-256, of a manifest: no path of it leads out of the folder by itself.

    Raises:
        TandemError: as `download_object` raises it.
    """

    def download_file(file: ManifestFile) -> None:
        store.require_not_halted()
        download_object(store, f"{prefix}/{file.path}", folder / file.path, file)

    by_size = sorted(files, key=lambda file: -file.size)
    local_files.run_in_threads(FILES_AT_ONCE, download_file, by_size, store.halt_event)


def receive_object(store: ObjectStore, key: str, file: BinaryIO | None = None) -> str:
    """Read one object, into an open file where one is given; the SHA-256 of what arrived.

    Args:
        store: the bucket.
        key: the object.
        file: what is written to, in order.

    Raises:
        StaleError: the object was replaced meanwhile.
        ExternalError: S3 failed.
    """
    writer = _HashWriter(file, store.require_not_halted)
    try:
        store.finish_transfer("GetObject", key, store.downloads.download(store.bucket, key, writer))
    except S3DownloadFailedError:
        raise build_damage_error(store, key, "the object was replaced while it was read") from None
    return writer.hash.hexdigest()


class _HashWriter:
    """A file that is written in order, and hashed meanwhile."""

    def __init__(self, file: BinaryIO | None, check_halt: Callable[[], None]) -> None:
        self._file, self._check_halt = file, check_halt
        self.hash = hashlib.sha256()

    def write(self, piece: bytes) -> None:
        """Write the next bytes."""
        self._check_halt()
        self.hash.update(piece)
        if self._file is not None:
            self._file.write(piece)
