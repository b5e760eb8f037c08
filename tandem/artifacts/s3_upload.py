"""Files to objects: a whole object is not sent again, and the transfer library cuts the others into parts.

Invariant: an object is completed only from bytes whose SHA-256 is the one announced, so what stands in the object's
metadata is true, and what is already there is replaced by the right content or not at all. A run that was killed
sends again the files that were not whole (docs/decisions/0033-files-not-parts.md).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.files import LocalFiles, unreadable_error
from tandem.artifacts.local_disk import run_in_threads
from tandem.artifacts.manifest import ManifestFile
from tandem.artifacts.store import ObjectStore, TransferFacts
from tandem.errors import InputError

FILES_AT_ONCE = 4  # each hashes or reads one file; their parts share the store's threads
MAX_OBJECT_BYTES = 5 << 40  # bytes; S3 user guide, "Uploading objects"


def upload_file(store: ObjectStore, path: Path, key: str, sha256: str) -> None:
    """Make the object `key` have the content of a file.

    Args:
        store: the bucket.
        path: the local file.
        key: the object.
        sha256: of the file's content, hexadecimal; held against the bytes that are sent.

    Raises:
        InputError: the file cannot be read, is too large for S3, or its content is not what was announced.
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

    def check_both() -> None:
        store.require_not_halted()
        check()

    def upload_path(path: str) -> None:
        check_both()
        file = files.hash_file(path, store.require_not_halted)
        check_both()
        _upload_content(store, files.folder / path, f"{prefix}/{path}", file.sha256)

    # the largest first, so that none is left alone at the end
    paths = sorted(files.sizes, key=lambda path: -files.sizes[path])
    run_in_threads(FILES_AT_ONCE, upload_path, paths, store.halt_event)
    _abort_leftovers(store, {f"{prefix}/{path}" for path in paths}, f"{prefix}/")
    return files.hash_all()


def _upload_content(store: ObjectStore, path: Path, key: str, sha256: str) -> None:
    try:
        file = path.open("rb")
    except OSError as error:
        raise unreadable_error(path, error) from None
    with file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_OBJECT_BYTES:
            raise InputError(
                f"the file has {size} bytes, S3 takes {MAX_OBJECT_BYTES} in an object", where=str(path),
                change="cut it into shards",
            )  # fmt: skip
        head = store.head(key)
        if head is not None and (head.size, head.sha256) == (size, sha256):
            log_event("present", object=store.url(key), size=size)
            return
        future = store.uploads.upload(
            _HashReader(file, path, sha256, store.require_not_halted), store.bucket, key,
            {"ChecksumAlgorithm": "SHA256", "Metadata": {"sha256": sha256}}, [TransferFacts(size=size)],
        )  # fmt: skip
        store.finish_transfer("PutObject", key, future)
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
            InputError: the file ended with another content, or cannot be read.
        """
        self._check_halt()
        try:
            piece = self._file.read(size)
        except OSError as error:
            raise unreadable_error(self._path, error) from None
        self._hash.update(piece)
        if (size < 0 or not piece) and self._hash.hexdigest() != self._sha256:
            raise InputError(
                f"its content is not what was announced (SHA-256 {self._sha256}): it was changed, or this disk "
                "corrupts data; nothing was stored", where=str(self._path),
                change="make sure that nothing writes to it, then run again",
            )  # fmt: skip
        return piece


def _abort_leftovers(store: ObjectStore, keys: set[str], prefix: str) -> None:
    """Abort uploads of objects that are whole now: of runs that were killed, or begun twice by a lost answer."""
    for upload in store.list_uploads(prefix):
        if upload.key in keys:
            store.abort_upload(upload)
            log_event("aborted a left-over upload", object=store.url(upload.key), upload=upload.id)
