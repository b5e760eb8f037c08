"""One object to one file: ranges side by side, the whole held against its SHA-256, then named.

Invariant: a file has its name only when its content has the SHA-256 that was asked for; until then it has a name
that nobody reads, and a killed run leaves no file that passes for whole.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import random
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from tandem.artifacts.files import READ_BYTES, compute_sha256
from tandem.artifacts.log import log_event
from tandem.artifacts.manifest import ManifestFile, validate_path
from tandem.artifacts.parts import MIN_PART_BYTES
from tandem.artifacts.store import ObjectStore, run_in_threads
from tandem.artifacts.store_fault import S3_ERRORS, S3Request, convert_error, reason
from tandem.errors import ExternalError, InputError, StaleError

FILES_AT_ONCE = 4
RANGE_BYTES = MIN_PART_BYTES  # bytes asked for at once
MAX_TRIES = 5  # of a range that is cut short; each goes on where the last one ended
FIRST_WAIT_S = 0.5  # at most before the second try, then twice as long each
OPEN_FOLDER_MODE = 0o777  # the runtime's container and this one run as different users (docs/artifacts.md)
OPEN_FILE_MODE = 0o666
REPLACEMENT_CODES = {"PreconditionFailed", "412", "NoSuchKey", "404", "InvalidRange", "416"}
DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def download_object(store: ObjectStore, key: str, path: Path, size: int, sha256: str) -> None:
    """Make a file have the content of an object; one that has it already is left alone.

    Args:
        store: the bucket.
        key: the object.
        path: the file; missing folders are made.
        size: of the object, in bytes, as its manifest says.
        sha256: of its content, as its manifest says.

    Raises:
        StaleError: the object is missing, or its size or content is not what was asked for.
        ExternalError: S3 failed, or the disk is full.
    """
    with _translate_disk_errors(path):
        _create_folder(path.parent)
        with _reserve_partial_path(path) as partial_path:
            if _has_content(path, size, sha256):
                log_event("present", file=str(path), size=size)
                return
            etag = _require_object(store, key, size, sha256)
            for is_last in (False, True):
                if _download_content(store, key, etag, size, partial_path) == sha256:
                    break
                if is_last:
                    raise _mismatch_error(store, key, "its content has another SHA-256 than the manifest says, twice")
                log_event("received content differs, once more", level="warning", object=store.url(key))
            partial_path.chmod(OPEN_FILE_MODE)
            partial_path.rename(path)
    log_event("received", object=store.url(key), file=str(path), size=size)


def download_files(store: ObjectStore, prefix: str, folder: Path, files: Sequence[ManifestFile]) -> None:
    """Make the files below `folder` have the content of the objects below `prefix`.

    Args:
        store: the bucket.
        prefix: of the objects, without a slash at its end.
        folder: of the files; made where it is missing.
        files: which, with size and SHA-256.

    Raises:
        InputError: a file's path would lead out of the folder.
        ExternalError: the disk has too little room, before anything is received; or as `download_object`.
        StaleError: as `download_object`.
    """
    with _translate_disk_errors(folder):
        _create_folder(folder)
        for file in files:
            _require_path_inside(folder, file.path)
        _require_disk_space(folder, files)

    def download_file(file: ManifestFile) -> None:
        download_object(store, f"{prefix}/{file.path}", folder / file.path, file.size, file.sha256)

    run_in_threads(store, FILES_AT_ONCE, download_file, sorted(files, key=lambda file: -file.size))


@contextlib.contextmanager
def _translate_disk_errors(path: Path) -> Iterator[None]:
    """Turn what the file system refuses within into an TandemError that names the file."""
    try:
        yield
    except OSError as error:
        where = str(error.filename or path)
        if error.errno in DISK_FULL_ERRNOS:
            raise ExternalError(
                f"the disk is full ({error.strerror})", where=where,
                change="give the pod more local storage (ephemeral-storage), or remove what it does not need; then "
                "run again: files that are whole are kept",
            ) from None  # fmt: skip
        raise ExternalError(
            f"the file cannot be written ({error.strerror or error})", where=where,
            change="see the volume's mount, its owner and mode (fsGroup); then run again",
        ) from None  # fmt: skip


def _create_folder(folder: Path) -> None:
    """Make a folder and those above it, open to the other containers of the pod whatever the umask."""
    if folder.is_dir():
        return
    _create_folder(folder.parent)
    with contextlib.suppress(FileExistsError):  # another thread made it
        folder.mkdir()
        folder.chmod(OPEN_FOLDER_MODE)


def _require_path_inside(folder: Path, path: str) -> None:
    try:
        validate_path(path)
    except ValueError as error:
        raise InputError(str(error), where=str(folder), change="write the manifest again from a whole set") from None
    top_folder = folder.resolve()
    target = (folder / path).parent.resolve()
    if target != top_folder and top_folder not in target.parents:
        raise InputError(
            "a symbolic link in the folder leads out of it", where=str(folder / path),
            change="remove the link, or receive into an empty folder",
        )  # fmt: skip


def _require_disk_space(folder: Path, files: Sequence[ManifestFile]) -> None:
    missing_bytes = sum(file.size for file in files if _file_size(folder / file.path) != file.size)
    free_bytes = shutil.disk_usage(folder).free
    if missing_bytes > free_bytes:
        raise ExternalError(
            f"the disk has room for {free_bytes / (1 << 30):.2f} GiB, {missing_bytes / (1 << 30):.2f} GiB are to come",
            where=str(folder), change="give the pod more local storage (ephemeral-storage or the NVMe volume)",
        )  # fmt: skip


def _file_size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _has_content(path: Path, size: int, sha256: str) -> bool:
    return not path.is_symlink() and path.is_file() and _file_size(path) == size and compute_sha256(path) == sha256


@contextlib.contextmanager
def _reserve_partial_path(path: Path) -> Iterator[Path]:
    """Yield the name under which `path` is received, this process's alone; a second process waits here.

    What a killed run left under that name is overwritten: ranges that arrived out of order cannot be told from
    those that did not.
    """
    partial_path = path.with_name(f".{path.name}.receiving")
    while True:
        descriptor = os.open(partial_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is_same_file(descriptor, partial_path):  # the one that had it before has finished and named it
                continue
            try:
                yield partial_path
            finally:
                if _is_same_file(descriptor, partial_path):
                    partial_path.unlink()
            return
        finally:
            os.close(descriptor)


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        path_stat = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), path_stat)


def _require_object(store: ObjectStore, key: str, size: int, sha256: str) -> str:
    """Return the ETag of the object, held against what it should be."""
    head = store.head(key)
    if head is None:
        raise _mismatch_error(store, key, "the object is missing")
    if head.size != size:
        raise _mismatch_error(store, key, f"the object has {head.size} bytes, the manifest says {size}")
    if head.sha256 not in {None, sha256}:
        raise _mismatch_error(
            store, key, f"the object is marked with SHA-256 {head.sha256}, the manifest says {sha256}"
        )
    return head.etag


def _mismatch_error(store: ObjectStore, key: str, problem: str) -> StaleError:
    return StaleError(
        problem, where=store.url(key),
        change="the stored set is damaged: remove its manifest (tandem-manifest.json), then run the job that made it",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _ObjectDownload:
    """One object on its way into one open file."""

    store: ObjectStore
    key: str
    etag: str
    size: int
    descriptor: int

    def download(self) -> str:
        """Receive all; the SHA-256 of what arrived, read back behind the ranges while they come in."""
        slots = threading.Semaphore(2 * self.store.concurrency)
        ranges: list[Future[None]] = []
        digest, hash_count = hashlib.sha256(), 0
        try:
            for offset in range(0, self.size, RANGE_BYTES):
                slots.acquire()
                self.store.require_not_halted()
                ranges.append(
                    self.store.pool.submit(self._download_range, offset, min(RANGE_BYTES, self.size - offset))
                )
                ranges[-1].add_done_callback(lambda _: slots.release())
                while hash_count < len(ranges) and ranges[hash_count].done():
                    self._hash_range(ranges, hash_count, digest)
                    hash_count += 1
            for range_index in range(hash_count, len(ranges)):
                self._hash_range(ranges, range_index, digest)
        finally:
            wait([future for future in ranges if not future.cancel()])
        return digest.hexdigest()

    def _hash_range(self, ranges: Sequence[Future[None]], range_index: int, digest: Any) -> None:
        """Wait for one range and hash what was written, or raise what befell it."""
        ranges[range_index].result()
        end = min(self.size, (range_index + 1) * RANGE_BYTES)
        for offset in range(range_index * RANGE_BYTES, end, READ_BYTES):
            digest.update(os.pread(self.descriptor, min(READ_BYTES, end - offset), offset))

    def _download_range(self, offset: int, length: int) -> None:
        self.store.require_not_halted()
        for piece in stream_object(self.store, self.key, self.etag, offset, length):
            offset += _write_piece(self.descriptor, piece, offset)


def stream_object(store: ObjectStore, key: str, etag: str, offset: int, length: int) -> Iterator[bytes]:
    """Yield a stretch of an object piece by piece; where an answer is cut short, the rest is asked for.

    Args:
        store: the bucket.
        key: the object.
        etag: of the object that is meant.
        offset: where the stretch begins, in bytes.
        length: its bytes.

    Raises:
        StaleError: the object has another ETag by now, or is gone.
        ExternalError: S3 failed, or cut every answer short.
    """
    received_bytes = 0
    last_error: BaseException = _PartialBodyError("it sent less than its length says")
    for attempt in range(MAX_TRIES):
        try:
            for piece in _read_pieces(store, key, etag, offset + received_bytes, length - received_bytes):
                received_bytes += len(piece)
                yield piece
        except _PartialBodyError as error:
            last_error = error.__cause__ or error
        if received_bytes == length:
            return
        if attempt + 1 < MAX_TRIES:
            time.sleep(random.uniform(0, FIRST_WAIT_S * 2**attempt))  # noqa: S311 - a wait is no secret
    raise convert_error(last_error, S3Request(operation="GetObject", bucket=store.bucket, key=key))


def _read_pieces(store: ObjectStore, key: str, etag: str, offset: int, length: int) -> Iterator[bytes]:
    with store.translate_errors("GetObject", key):
        try:
            answer = store.client.get_object(
                Bucket=store.bucket, Key=key, IfMatch=etag, Range=f"bytes={offset}-{offset + length - 1}"
            )
        except ClientError as error:
            if reason(error) in REPLACEMENT_CODES:
                raise _mismatch_error(
                    store, key, f"the object was replaced while it was read ({reason(error)})"
                ) from None
            raise
    with contextlib.closing(answer["Body"]) as body:
        while length:
            try:
                piece = body.read(min(READ_BYTES, length))
            except S3_ERRORS as error:
                raise _PartialBodyError from error
            if not piece:
                return
            yield piece
            length -= len(piece)


class _PartialBodyError(Exception):
    """The answer ended within its body."""


def _write_piece(descriptor: int, piece: bytes, offset: int) -> int:
    """Write a piece whole; its length."""
    written_bytes = 0
    while written_bytes < len(piece):  # a disk that fills up takes a part first, and says so at the next write
        written_bytes += os.pwrite(descriptor, memoryview(piece)[written_bytes:], offset + written_bytes)
    return written_bytes


def _download_content(store: ObjectStore, key: str, etag: str, size: int, partial_path: Path) -> str:
    descriptor = os.open(partial_path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, 0)
        os.ftruncate(descriptor, size)
        return _ObjectDownload(store=store, key=key, etag=etag, size=size, descriptor=descriptor).download()
    finally:
        os.close(descriptor)
