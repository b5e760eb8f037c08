"""Copies of files to objects and back: the transfer library moves, this module hashes.

Invariants: an object is completed only from bytes with the announced SHA-256, so the object's
metadata is true; a file has its name only if its content has the expected SHA-256, until then it
has a name that nobody reads. A whole file is not moved again; after a kill the next run moves
unfinished files again from the start (docs/decisions/0033-files-not-parts.md).
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

MAX_RECEIPTS = 2  # of one object whose content differs from the manifest
FILES_AT_ONCE = 4  # each hashes, reads or writes one file; their parts share the store's threads


def upload_file(store: ObjectStore, path: Path, key: str, sha256: str) -> None:
    """Upload a file to the object `key`, unless the object has its content already.

    Args:
        store: the bucket.
        path: the local file.
        key: the object.
        sha256: of the file's content, hexadecimal; compared with the bytes that are sent.

    Raises:
        InputError: the file cannot be read, or its content has another SHA-256.
        ExternalError: S3 failed.
    """
    _upload_content(store, path, key, sha256)
    _abort_leftovers(store, {key}, key)


def upload_files(
    store: ObjectStore, files: LocalFiles, prefix: str, *, check: Callable[[], None] = lambda: None
) -> tuple[ManifestFile, ...]:
    """Upload every file of a folder below `prefix`; hash some files while others are sent.

    Args:
        store: the bucket.
        files: the folder's; a file that was hashed before is not hashed again.
        prefix: of the objects, without a slash at its end.
        check: called before a file is hashed and before it is sent; raises to stop the work, e.g.
            after a lost lease.

    Returns:
        all files by path, as sent.

    Raises:
        TandemError: as `upload_file` does, for the first file that fails.
    """

    def upload_path(path: str) -> None:
        check()
        file = files.hash_file(path)
        store.require_not_halted()
        check()
        _upload_content(store, files.folder / path, f"{prefix}/{path}", file.sha256)

    # the largest first, so that none runs alone at the end
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
        store.finish_transfer(
            "PutObject", key, store.uploads.upload(reader, store.bucket, key, arguments)
        )
    log_event("sent", object=store.url(key), size=size)


class _HashReader:
    """A file read once, in order; its end comes only if its content has the announced SHA-256.

    The transfer library completes an object only after the end; each part has its own SHA-256,
    which S3 compares with the bytes that arrived.
    """

    def __init__(
        self, file: BinaryIO, path: Path, sha256: str, check_halt: Callable[[], None]
    ) -> None:
        self._file = file
        self._path = path
        self._sha256 = sha256
        self._check_halt = check_halt
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; without a size, all remaining bytes.

        Raises:
            InputError: the file ended with another content.
            OSError: the file cannot be read.
        """
        self._check_halt()
        piece = self._file.read(size)
        self._hash.update(piece)
        if (size < 0 or not piece) and self._hash.hexdigest() != self._sha256:
            problem = (
                "its content is not what was announced (SHA-256"
                f" {self._sha256}), so nothing was stored"
            )
            raise InputError(
                problem,
                where=str(self._path),
                change=(
                    "make sure that nothing writes to it and that the disk is sound, then run again"
                ),
            )
        return piece


def _abort_leftovers(store: ObjectStore, keys: set[str], prefix: str) -> None:
    """Abort open uploads of objects that are whole: of killed runs, or begun twice."""
    for upload in store.list_uploads(prefix):
        if upload.key in keys:
            store.abort_upload(upload)
            log_event("aborted a left-over upload", object=store.url(upload.key), upload=upload.id)


def download_object(store: ObjectStore, key: str, path: Path, file: ManifestFile) -> None:
    """Download an object to a file, unless the file has its content already.

    Args:
        store: the bucket.
        key: the object.
        path: the file; missing folders are made.
        file: the file's entry in the manifest.

    Raises:
        StaleError: the object is missing, or its size or content differs from the manifest.
        ExternalError: S3 failed, or the disk is full.
    """
    # overwrites the remainder of a killed run
    partial_path = path.with_name(f".{path.name}.receiving")
    with local_files.translate_disk_errors(path):
        local_files.create_open_folder(path.parent)
        if local_files.has_content(path, file):
            log_event("present", file=str(path), size=file.size)
            return
        head = store.head(key)
        if head is not None and head.sha256 is None:  # of another program: the content decides
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
                raise build_damage_error(
                    store, key, "its content has another SHA-256 than the manifest says, twice"
                )
            partial_path.chmod(local_files.OPEN_FILE_MODE)
            partial_path.rename(path)
        finally:
            partial_path.unlink(missing_ok=True)
    log_event("received", object=store.url(key), file=str(path), size=file.size)


def download_files(
    store: ObjectStore, prefix: str, folder: Path, files: Sequence[ManifestFile]
) -> None:
    """Download the objects below `prefix` to files below `folder`.

    Args:
        store: the bucket.
        prefix: of the objects, without a slash at its end.
        folder: of the files; made if it is missing.
        files: with size and SHA-256, from a manifest: none of its paths leaves the folder.

    Raises:
        TandemError: as `download_object` raises it.
    """

    def download_file(file: ManifestFile) -> None:
        store.require_not_halted()
        download_object(store, f"{prefix}/{file.path}", folder / file.path, file)

    by_size = sorted(files, key=lambda file: -file.size)
    local_files.run_in_threads(FILES_AT_ONCE, download_file, by_size, store.halt_event)


def receive_object(store: ObjectStore, key: str, file: BinaryIO | None = None) -> str:
    """Read one object, into an open file if one is given; return the SHA-256 of the received bytes.

    Args:
        store: the bucket.
        key: the object.
        file: target of the bytes, written in order.

    Raises:
        StaleError: the object was replaced during the read.
        ExternalError: S3 failed.
    """
    writer = _HashWriter(file, store.require_not_halted)
    try:
        store.finish_transfer("GetObject", key, store.downloads.download(store.bucket, key, writer))
    except S3DownloadFailedError:
        raise build_damage_error(store, key, "the object was replaced while it was read") from None
    return writer.hash.hexdigest()


class _HashWriter:
    """A writer that hashes the bytes and passes them to a file if one is given."""

    def __init__(self, file: BinaryIO | None, check_halt: Callable[[], None]) -> None:
        self._file = file
        self._check_halt = check_halt
        self.hash = hashlib.sha256()

    def write(self, piece: bytes) -> None:
        """Write the next bytes."""
        self._check_halt()
        self.hash.update(piece)
        if self._file is not None:
            self._file.write(piece)
