"""One file to one object: whole objects are skipped, finished parts are never sent again.

Invariant: an object is completed only from bytes whose SHA-256 is the one announced, so what stands in the
object's metadata is true, and what is already there is replaced by the right content or not at all.

A multipart upload is found again by S3's own list of uploads; nothing is kept on this side, so a run that was
killed at any moment goes on from whatever reached S3, on this machine or another.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from tandem.artifacts.files import HASH_THREADS, READ_BYTES, FileDigest, LocalFiles, unreadable_error
from tandem.artifacts.log import log_event
from tandem.artifacts.manifest import ManifestFile
from tandem.artifacts.parts import MAX_OBJECT_BYTES, FilePart, FileSpan, part_size, split_parts
from tandem.artifacts.store import ObjectStore, run_in_threads
from tandem.artifacts.store_fault import reason
from tandem.errors import ExternalError, InputError

FILES_AT_ONCE = 4  # each reads and hashes one file; their parts share the store's threads
MAX_ROUNDS = 5  # times to begin again when somebody else completed or aborted the upload under way
INVALID_UPLOAD_CODES = {"NoSuchUpload", "InvalidPart", "InvalidPartOrder"}
CHECKSUM_ALGORITHM = "SHA256"


def upload_file(store: ObjectStore, path: Path, key: str, sha256: str) -> None:
    """Make the object `key` have the content of a file.

    Args:
        store: the bucket.
        path: the local file.
        key: the object.
        sha256: of the file's content, hexadecimal; held against the bytes that are sent.

    Raises:
        InputError: the file cannot be read, is too large for S3, or its content is not what was announced.
        ExternalError: S3 failed. Parts that arrived stay, and the next run goes on from them.
    """
    open_uploads = _list_open_uploads(store, key)
    _upload_content(store, path, key, sha256, [upload for name, upload in open_uploads if name == key])
    _abort_leftovers(store, {key}, key)


def upload_files(
    store: ObjectStore,
    folder: Path,
    prefix: str,
    files: Sequence[ManifestFile | FileDigest],
    *,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Make the objects below `prefix` have the content of the files below `folder`.

    Args:
        store: the bucket.
        folder: of the files.
        prefix: of the objects, without a slash at its end.
        files: which, with their SHA-256; what `hash_files` returned is not hashed again.
        check: called before each file; raises when the work is not to go on, as when a lease is lost.

    Raises:
        TandemError: as `upload_file` does, for the first file that fails.
    """
    digests = [file if isinstance(file, FileDigest) else FileDigest(file=file, part_digests=()) for file in files]
    digests_by_path = {digest.file.path: digest for digest in digests}
    sizes = {path: digest.file.size for path, digest in digests_by_path.items()}
    _upload_in_parallel(store, folder, prefix, sizes, digests_by_path.__getitem__, check)


def hash_and_upload(
    store: ObjectStore, files: LocalFiles, prefix: str, *, check: Callable[[], None] = lambda: None
) -> tuple[FileDigest, ...]:  # fmt: skip
    """Make the objects below `prefix` have the content of every file of a folder; one is hashed while others are sent.

    Args:
        store: the bucket.
        files: what of it was hashed before is not hashed again.
        prefix: of the objects, without a slash at its end; what they are to be is not known yet, so nobody but
            this run may write there.
        check: as of `upload_files`, called before a file is hashed and before it is sent.

    Returns:
        all files by path, as they were sent.

    Raises:
        TandemError: as `upload_file` does, for the first file that fails.
    """
    hash_slots = threading.Semaphore(
        max(1, min(HASH_THREADS, (os.cpu_count() or 1) - 1))
    )  # one processor is left to send

    def hash_file(path: str) -> FileDigest:
        with hash_slots:
            check()
            return files.hash_file(path, store.require_not_halted)

    _upload_in_parallel(store, files.folder, prefix, files.sizes, hash_file, check)
    return tuple(files.hash_file(path) for path in files.sizes)


def _upload_in_parallel(  # noqa: PLR0913, PLR0917 - what is sent, where to, and what is to be asked of whom
    store: ObjectStore, folder: Path, prefix: str, sizes: Mapping[str, int], hash_file: Callable[[str], FileDigest],
    check: Callable[[], None],
) -> None:  # fmt: skip
    """Send some files at once, the largest first, so that none is left alone at the end."""
    open_uploads: dict[str, list[str]] = {}
    for name, upload in _list_open_uploads(store, f"{prefix}/"):
        open_uploads.setdefault(name, []).append(upload)

    def upload_path(path: str) -> None:
        digest, key = hash_file(path), f"{prefix}/{path}"
        check()
        _upload_content(store, folder / path, key, digest.file.sha256, open_uploads.get(key, ()), digest.part_digests)

    run_in_threads(store, FILES_AT_ONCE, upload_path, sorted(sizes, key=lambda path: -sizes[path]))
    _abort_leftovers(store, {f"{prefix}/{path}" for path in sizes}, f"{prefix}/")


def _list_open_uploads(store: ObjectStore, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield key and upload id of every upload that was begun and not ended."""
    with store.translate_errors("ListMultipartUploads", prefix):
        for page in store.pages("list_multipart_uploads", Prefix=prefix):
            for upload in page.get("Uploads", ()):
                yield upload["Key"], upload["UploadId"]


def _abort_leftovers(store: ObjectStore, keys: set[str], prefix: str) -> None:
    """Abort what is left of uploads whose object is whole: begun twice by a lost answer, or by another writer."""
    for key, upload in _list_open_uploads(store, prefix):
        if key in keys:
            _abort_upload(store, key, upload)


def _abort_upload(store: ObjectStore, key: str, upload: str) -> None:
    with store.translate_errors("AbortMultipartUpload", key):
        try:
            store.client.abort_multipart_upload(Bucket=store.bucket, Key=key, UploadId=upload)
        except ClientError as error:
            if reason(error) != "NoSuchUpload":
                raise
    log_event("aborted a left-over upload", object=store.url(key), upload=upload)


class _InvalidUploadError(Exception):
    """The upload under way is no more, or has lost a part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _UploadState:
    """An upload under way, and what S3 has of it: part number -> size, SHA-256 in base64, ETag."""

    id: str
    parts: Mapping[int, tuple[int, str, str]]


def _upload_content(  # noqa: PLR0913, PLR0917 - a file, its object, and what is known of both
    store: ObjectStore, path: Path, key: str, sha256: str, open_uploads: Iterable[str], part_digests: Sequence[str] = ()
) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable_error(path, error) from None
    try:
        size = os.fstat(descriptor).st_size
        _ObjectUpload(
            store=store,
            key=key,
            path=path,
            descriptor=descriptor,
            size=size,
            sha256=sha256,
            part_digests=tuple(part_digests),
        ).run(open_uploads)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ObjectUpload:
    """One open file on its way to one object.

    Args:
        part_digests: SHA-256 of each part in base64, of the same reading as `sha256`; empty where nobody knows them.
    """

    store: ObjectStore
    key: str
    path: Path
    descriptor: int
    size: int
    sha256: str
    part_digests: tuple[str, ...]

    @property
    def url(self) -> str:
        return self.store.url(self.key)

    def run(self, open_uploads: Iterable[str]) -> None:
        """Make the object whole; `open_uploads` are the uploads of this key that S3 lists."""
        if self.size > MAX_OBJECT_BYTES:
            raise InputError(
                f"the file has {self.size} bytes, S3 takes {MAX_OBJECT_BYTES} in an object", where=str(self.path),
                change="cut it into shards",
            )  # fmt: skip
        if self.part_digests and len(self.part_digests) != len(list(split_parts(self.size))):
            raise self._build_change_error()
        for round_index in range(MAX_ROUNDS):
            if self._is_whole():
                log_event("present", object=self.url, size=self.size)
                return
            if round_index:
                open_uploads = [upload for key, upload in _list_open_uploads(self.store, self.key) if key == self.key]
            if self._try_upload(open_uploads):
                return
        raise ExternalError(
            f"the upload was broken off by somebody else {MAX_ROUNDS} times", where=self.url,
            change="see which other process writes this object, let it end, run again",
        )  # fmt: skip

    def _is_whole(self) -> bool:
        head = self.store.head(self.key)
        return head is not None and (head.size, head.sha256) == (self.size, self.sha256)

    def _try_upload(self, open_uploads: Iterable[str]) -> bool:
        """Send the file; False where somebody else ended the upload under way."""
        if self.size <= part_size(self.size):
            for upload_id in open_uploads:  # of another content: this one never has an upload
                _abort_upload(self.store, self.key, upload_id)
            self._put_object()
            return True
        try:
            upload = self._find_resumable_upload(open_uploads) or self._create_upload()
            parts = self._upload_parts(upload)
            self._complete_upload(upload, parts)
        except _InvalidUploadError as error:
            log_event("upload was broken off, looking again", level="warning", object=self.url, reason=str(error))
            return False
        return True

    def _build_change_error(self) -> InputError:
        return InputError(
            f"its content is not what was announced (SHA-256 {self.sha256}): it was changed, or this disk corrupts "
            "data; nothing was stored", where=str(self.path),
            change="make sure that nothing writes to it, then run again",
        )  # fmt: skip

    @contextlib.contextmanager
    def _translate_body_errors(self, operation: str) -> Iterator[None]:
        """Tell what was wrong with the file from what was wrong with S3."""
        with self.store.translate_errors(operation, self.key):
            try:
                yield
            except ClientError as error:
                if reason(error) in INVALID_UPLOAD_CODES:
                    raise _InvalidUploadError(reason(error)) from None
                if reason(error) == "BadDigest":  # S3 itself holds the bytes against the announced SHA-256
                    raise self._build_change_error() from None
                raise
            except BotoCoreError:
                if os.fstat(self.descriptor).st_size != self.size:
                    raise self._build_change_error() from None
                raise

    def _put_object(self) -> None:
        """Send a small file in one request."""
        with self._translate_body_errors("PutObject"):
            self.store.client.put_object(
                Bucket=self.store.bucket, Key=self.key, Body=FileSpan(self.descriptor, 0, self.size),
                ChecksumSHA256=base64.b64encode(bytes.fromhex(self.sha256)).decode(),
                Metadata={"sha256": self.sha256},
            )  # fmt: skip
        log_event("sent", object=self.url, size=self.size)

    def _create_upload(self) -> _UploadState:
        with self.store.translate_errors("CreateMultipartUpload", self.key):
            answer = self.store.client.create_multipart_upload(
                Bucket=self.store.bucket,
                Key=self.key,
                ChecksumAlgorithm=CHECKSUM_ALGORITHM,
                Metadata={"sha256": self.sha256},
            )
        return _UploadState(id=answer["UploadId"], parts={})

    def _find_resumable_upload(self, open_uploads: Iterable[str]) -> _UploadState | None:
        """Return the upload of this content that has most of it; abort all others of the key."""
        candidates: list[_UploadState] = []
        for upload_id in open_uploads:
            parts = self._list_stored_parts(upload_id)
            if parts is not None and self._fits(parts):
                candidates.append(_UploadState(id=upload_id, parts=parts))
            elif parts is not None:
                _abort_upload(self.store, self.key, upload_id)
        candidates.sort(key=lambda upload: -len(upload.parts))
        for upload in candidates[1:]:
            _abort_upload(self.store, self.key, upload.id)
        return candidates[0] if candidates else None

    def _list_stored_parts(self, upload_id: str) -> dict[int, tuple[int, str, str]] | None:
        """Return what S3 has of an upload; None where it is no more."""
        with self.store.translate_errors("ListParts", self.key):
            try:
                return {
                    part["PartNumber"]: (part["Size"], part.get("ChecksumSHA256", ""), part["ETag"])
                    for page in self.store.pages("list_parts", Key=self.key, UploadId=upload_id)
                    for part in page.get("Parts", ())
                }
            except ClientError as error:
                if reason(error) != "NoSuchUpload":
                    raise
        return None

    def _fits(self, stored_parts: Mapping[int, tuple[int, str, str]]) -> bool:
        """Tell whether an upload can be of this content: it is cut the same, and its first part is the same.

        An upload without parts is not taken up: nothing says which content its metadata announces.
        """
        parts = {part.number: part for part in split_parts(self.size)}
        has_same_cut = all(
            part_number in parts and size == parts[part_number].length
            for part_number, (size, *_) in stored_parts.items()
        )
        if not stored_parts or not has_same_cut:
            return False
        first_number = min(stored_parts)
        return self._read_part_digest(parts[first_number], hashlib.sha256()) == stored_parts[first_number][1]

    def _read_part_digest(self, part: FilePart, file_hash: Any) -> str:
        """Return a part's SHA-256 in base64; compute an unknown one, and feed its bytes to `file_hash` too."""
        return self.part_digests[part.number - 1] if self.part_digests else self._hash_part(part, file_hash)

    def _hash_part(self, part: FilePart, file_hash: Any) -> str:
        part_hash = hashlib.sha256()
        span = FileSpan(self.descriptor, part.offset, part.length)
        try:
            while piece := span.read(READ_BYTES):
                part_hash.update(piece)
                file_hash.update(piece)
        except OSError:
            raise self._build_change_error() from None
        return base64.b64encode(part_hash.digest()).decode()

    def _upload_parts(self, upload: _UploadState) -> list[dict[str, Any]]:
        """Send every part that S3 does not have; what completes the upload.

        This thread hashes in order what is not hashed yet, a few parts ahead of the threads that send. S3 holds every
        part against its digest, so the object has the announced SHA-256 when the digests are of the same reading.
        """
        file_hash = hashlib.sha256()
        queue = _PartQueue(self.store)
        parts: list[dict[str, Any]] = []
        try:
            for part in split_parts(self.size):
                digest = self._read_part_digest(part, file_hash)
                stored_part = upload.parts.get(part.number)
                if stored_part is None:
                    queue.add(part.number, self._upload_part, upload.id, part, digest)
                elif stored_part[1] != digest:
                    _abort_upload(self.store, self.key, upload.id)
                    raise _InvalidUploadError(f"its part {part.number} is of another content")
                etag = stored_part[2] if stored_part else ""
                parts.append({"PartNumber": part.number, "ChecksumSHA256": digest, "ETag": etag})
            if not self.part_digests and file_hash.hexdigest() != self.sha256:
                raise self._build_change_error()
            for entry in parts:
                entry["ETag"] = entry["ETag"] or queue.result(entry["PartNumber"])
        finally:
            queue.end()
        log_event("sent", object=self.url, size=self.size, parts=len(parts), parts_sent=queue.length)
        return parts

    def _upload_part(self, upload_id: str, part: FilePart, digest: str) -> str:
        self.store.require_not_halted()
        with self._translate_body_errors("UploadPart"):
            answer = self.store.client.upload_part(
                Bucket=self.store.bucket, Key=self.key, UploadId=upload_id, PartNumber=part.number,
                ChecksumSHA256=digest, Body=FileSpan(self.descriptor, part.offset, part.length),
            )  # fmt: skip
        return str(answer["ETag"])

    def _complete_upload(self, upload: _UploadState, parts: Sequence[Mapping[str, Any]]) -> None:
        with self._translate_body_errors("CompleteMultipartUpload"):
            self.store.client.complete_multipart_upload(
                Bucket=self.store.bucket, Key=self.key, UploadId=upload.id, MultipartUpload={"Parts": list(parts)}
            )
        if not self._is_whole():  # an upload of another content was taken up, and the parts it had were the same
            raise _InvalidUploadError("the object carries the SHA-256 of another content")


class _PartQueue:
    """Parts that wait for a thread of the store: a few at a time, so that they are sent while they are still cached."""

    def __init__(self, store: ObjectStore) -> None:
        self._store, self._pool = store, store.pool
        self._slots = threading.Semaphore(2 * store.concurrency)
        self._futures: dict[int, Future[str]] = {}
        self._failures: list[Future[str]] = []

    @property
    def length(self) -> int:
        return len(self._futures)

    def add(self, part_number: int, action: Callable[..., str], *arguments: Any) -> None:
        """Begin one more when there is room; raise what befell an earlier one, or another file."""
        self._slots.acquire()
        self._store.require_not_halted()
        if self._failures:
            self._failures[0].result()
        self._futures[part_number] = self._pool.submit(action, *arguments)
        self._futures[part_number].add_done_callback(self._on_done)

    def _on_done(self, future: Future[str]) -> None:
        if not future.cancelled() and future.exception():
            self._failures.append(future)
        self._slots.release()

    def result(self, part_number: int) -> str:
        """Wait for one; what it returned or raised."""
        return self._futures[part_number].result()

    def end(self) -> None:
        """Begin no more, and wait for those under way: they read from a file that is about to be closed."""
        wait([future for future in self._futures.values() if not future.cancel()])
