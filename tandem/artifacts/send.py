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

from tandem.artifacts.fault import RefusedError, WorldError
from tandem.artifacts.files import HASHERS, PIECE, Hashed, LocalFiles, unreadable
from tandem.artifacts.log import say
from tandem.artifacts.manifest import File
from tandem.artifacts.parts import LARGEST, Part, Span, part_size, parts_of
from tandem.artifacts.store import Store, each
from tandem.artifacts.store_fault import reason

FILES_AT_ONCE = 4  # each reads and hashes one file; their parts share the store's threads
ROUNDS = 5  # times to begin again when somebody else completed or aborted the upload under way
BROKEN_OFF = {"NoSuchUpload", "InvalidPart", "InvalidPartOrder"}
ALGORITHM = "SHA256"


def send(store: Store, path: Path, key: str, sha256: str) -> None:
    """Make the object `key` have the content of a file.

    Args:
        store: the bucket.
        path: the local file.
        key: the object.
        sha256: of the file's content, hexadecimal; held against the bytes that are sent.

    Raises:
        RefusedError: the file cannot be read, is too large for S3, or its content is not what was announced.
        WorldError: S3 failed. Parts that arrived stay, and the next run goes on from them.
    """
    begun = _uploads(store, key)
    _send(store, path, key, sha256, [upload for name, upload in begun if name == key])
    _sweep(store, {key}, key)


def send_all(
    store: Store, folder: Path, prefix: str, files: Sequence[File | Hashed], *, check: Callable[[], None] = lambda: None
) -> None:
    """Make the objects below `prefix` have the content of the files below `folder`.

    Args:
        store: the bucket.
        folder: of the files.
        prefix: of the objects, without a slash at its end.
        files: which, with their SHA-256; what `hashed_below` returned is not hashed again.
        check: called before each file; raises when the work is not to go on, as when a lease is lost.

    Raises:
        ArtifactError: as `send` does, for the first file that fails.
    """
    hashed = [file if isinstance(file, Hashed) else Hashed(file=file, parts=()) for file in files]
    by_path = {one.file.path: one for one in hashed}
    sizes = {path: one.file.size for path, one in by_path.items()}
    _send_each(store, folder, prefix, sizes, by_path.__getitem__, check)


def send_hashing(
    store: Store, files: LocalFiles, prefix: str, *, check: Callable[[], None] = lambda: None
) -> tuple[Hashed, ...]:  # fmt: skip
    """Make the objects below `prefix` have the content of every file of a folder; one is hashed while others are sent.

    Args:
        store: the bucket.
        files: what of it was hashed before is not hashed again.
        prefix: of the objects, without a slash at its end; what they are to be is not known yet, so nobody but
            this run may write there.
        check: as of `send_all`, called before a file is hashed and before it is sent.

    Returns:
        all files by path, as they were sent.

    Raises:
        ArtifactError: as `send` does, for the first file that fails.
    """
    turn = threading.Semaphore(max(1, min(HASHERS, (os.cpu_count() or 1) - 1)))  # one processor is left to send

    def hashed(path: str) -> Hashed:
        with turn:
            check()
            return files.hashed(path, store.require_going)

    _send_each(store, files.folder, prefix, files.sizes, hashed, check)
    return tuple(files.hashed(path) for path in files.sizes)


def _send_each(  # noqa: PLR0913, PLR0917 - what is sent, where to, and what is to be asked of whom
    store: Store, folder: Path, prefix: str, sizes: Mapping[str, int], hashed: Callable[[str], Hashed],
    check: Callable[[], None],
) -> None:  # fmt: skip
    """Send some files at once, the largest first, so that none is left alone at the end."""
    begun: dict[str, list[str]] = {}
    for name, upload in _uploads(store, f"{prefix}/"):
        begun.setdefault(name, []).append(upload)

    def act(path: str) -> None:
        one, key = hashed(path), f"{prefix}/{path}"
        check()
        _send(store, folder / path, key, one.file.sha256, begun.get(key, ()), one.parts)

    each(store, FILES_AT_ONCE, act, sorted(sizes, key=lambda path: -sizes[path]))
    _sweep(store, {f"{prefix}/{path}" for path in sizes}, f"{prefix}/")


def _uploads(store: Store, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield key and upload id of every upload that was begun and not ended."""
    with store.asking("ListMultipartUploads", prefix):
        for page in store.pages("list_multipart_uploads", Prefix=prefix):
            for upload in page.get("Uploads", ()):
                yield upload["Key"], upload["UploadId"]


def _sweep(store: Store, keys: set[str], prefix: str) -> None:
    """Abort what is left of uploads whose object is whole: begun twice by a lost answer, or by another writer."""
    for key, upload in _uploads(store, prefix):
        if key in keys:
            _abort(store, key, upload)


def _abort(store: Store, key: str, upload: str) -> None:
    with store.asking("AbortMultipartUpload", key):
        try:
            store.client.abort_multipart_upload(Bucket=store.bucket, Key=key, UploadId=upload)
        except ClientError as error:
            if reason(error) != "NoSuchUpload":
                raise
    say("aborted a left-over upload", object=store.url(key), upload=upload)


class _BrokenOffError(Exception):
    """The upload under way is no more, or has lost a part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Upload:
    """An upload under way, and what S3 has of it: part number -> size, SHA-256 in base64, ETag."""

    id: str
    parts: Mapping[int, tuple[int, str, str]]


def _send(  # noqa: PLR0913, PLR0917 - a file, its object, and what is known of both
    store: Store, path: Path, key: str, sha256: str, begun: Iterable[str], parts: Sequence[str] = ()
) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(path, error) from None
    try:
        size = os.fstat(descriptor).st_size
        _Sending(
            store=store, key=key, path=path, descriptor=descriptor, size=size, sha256=sha256, digests=tuple(parts)
        ).act(begun)  # fmt: skip
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sending:
    """One open file on its way to one object.

    Args:
        digests: SHA-256 of each part in base64, of the same reading as `sha256`; empty where nobody knows them.
    """

    store: Store
    key: str
    path: Path
    descriptor: int
    size: int
    sha256: str
    digests: tuple[str, ...]

    @property
    def url(self) -> str:
        return self.store.url(self.key)

    def act(self, begun: Iterable[str]) -> None:
        """Make the object whole; `begun` are the uploads of this key that S3 lists."""
        if self.size > LARGEST:
            raise RefusedError(
                f"the file has {self.size} bytes, S3 takes {LARGEST} in an object", where=str(self.path),
                change="cut it into shards",
            )  # fmt: skip
        if self.digests and len(self.digests) != len(list(parts_of(self.size))):
            raise self._changed()
        for again in range(ROUNDS):
            if self._whole():
                say("present", object=self.url, size=self.size)
                return
            if again:
                begun = [upload for key, upload in _uploads(self.store, self.key) if key == self.key]
            if self._sent(begun):
                return
        raise WorldError(
            f"the upload was broken off by somebody else {ROUNDS} times", where=self.url,
            change="see which other process writes this object, let it end, run again",
        )  # fmt: skip

    def _whole(self) -> bool:
        head = self.store.head(self.key)
        return head is not None and (head.size, head.sha256) == (self.size, self.sha256)

    def _sent(self, begun: Iterable[str]) -> bool:
        """Send the file; False where somebody else ended the upload under way."""
        if self.size <= part_size(self.size):
            for upload_id in begun:  # of another content: this one never has an upload
                _abort(self.store, self.key, upload_id)
            self._put()
            return True
        try:
            upload = self._resumed(begun) or self._begin()
            parts = self._send_parts(upload)
            self._complete(upload, parts)
        except _BrokenOffError as broken:
            say("upload was broken off, looking again", level="warning", object=self.url, reason=str(broken))
            return False
        return True

    def _changed(self) -> RefusedError:
        return RefusedError(
            f"its content is not what was announced (SHA-256 {self.sha256}): it was changed, or this disk corrupts "
            "data; nothing was stored", where=str(self.path),
            change="make sure that nothing writes to it, then run again",
        )  # fmt: skip

    @contextlib.contextmanager
    def _body_sent(self, operation: str) -> Iterator[None]:
        """Tell what was wrong with the file from what was wrong with S3."""
        with self.store.asking(operation, self.key):
            try:
                yield
            except ClientError as error:
                if reason(error) in BROKEN_OFF:
                    raise _BrokenOffError(reason(error)) from None
                if reason(error) == "BadDigest":  # S3 itself holds the bytes against the announced SHA-256
                    raise self._changed() from None
                raise
            except BotoCoreError:
                if os.fstat(self.descriptor).st_size != self.size:
                    raise self._changed() from None
                raise

    def _put(self) -> None:
        """Send a small file in one request."""
        with self._body_sent("PutObject"):
            self.store.client.put_object(
                Bucket=self.store.bucket, Key=self.key, Body=Span(self.descriptor, 0, self.size),
                ChecksumSHA256=base64.b64encode(bytes.fromhex(self.sha256)).decode(),
                Metadata={"sha256": self.sha256},
            )  # fmt: skip
        say("sent", object=self.url, size=self.size)

    def _begin(self) -> _Upload:
        with self.store.asking("CreateMultipartUpload", self.key):
            answer = self.store.client.create_multipart_upload(
                Bucket=self.store.bucket, Key=self.key, ChecksumAlgorithm=ALGORITHM, Metadata={"sha256": self.sha256}
            )
        return _Upload(id=answer["UploadId"], parts={})

    def _resumed(self, begun: Iterable[str]) -> _Upload | None:
        """Return the upload of this content that has most of it; abort all others of the key."""
        fitting: list[_Upload] = []
        for upload_id in begun:
            parts = self._known_parts(upload_id)
            if parts is not None and self._fits(parts):
                fitting.append(_Upload(id=upload_id, parts=parts))
            elif parts is not None:
                _abort(self.store, self.key, upload_id)
        fitting.sort(key=lambda upload: -len(upload.parts))
        for upload in fitting[1:]:
            _abort(self.store, self.key, upload.id)
        return fitting[0] if fitting else None

    def _known_parts(self, upload_id: str) -> dict[int, tuple[int, str, str]] | None:
        """Return what S3 has of an upload; None where it is no more."""
        with self.store.asking("ListParts", self.key):
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

    def _fits(self, known: Mapping[int, tuple[int, str, str]]) -> bool:
        """Tell whether an upload can be of this content: it is cut the same, and its first part is the same.

        An upload without parts is not taken up: nothing says which content its metadata announces.
        """
        parts = {part.number: part for part in parts_of(self.size)}
        cut_the_same = all(number in parts and size == parts[number].length for number, (size, *_) in known.items())
        if not known or not cut_the_same:
            return False
        first = min(known)
        return self._digest_of(parts[first], hashlib.sha256()) == known[first][1]

    def _digest_of(self, part: Part, whole: Any) -> str:
        """Return a part's SHA-256 in base64; one that is not known yet is computed, its bytes go into `whole` too."""
        return self.digests[part.number - 1] if self.digests else self._digest(part, whole)

    def _digest(self, part: Part, whole: Any) -> str:
        digest = hashlib.sha256()
        span = Span(self.descriptor, part.offset, part.length)
        try:
            while piece := span.read(PIECE):
                digest.update(piece)
                whole.update(piece)
        except OSError:
            raise self._changed() from None
        return base64.b64encode(digest.digest()).decode()

    def _send_parts(self, upload: _Upload) -> list[dict[str, Any]]:
        """Send every part that S3 does not have; what completes the upload.

        This thread hashes in order what is not hashed yet, a few parts ahead of the threads that send. S3 holds every
        part against its digest, so the object has the announced SHA-256 when the digests are of the same reading.
        """
        whole = hashlib.sha256()
        line = _Line(self.store)
        parts: list[dict[str, Any]] = []
        try:
            for part in parts_of(self.size):
                digest = self._digest_of(part, whole)
                known = upload.parts.get(part.number)
                if known is None:
                    line.add(part.number, self._send_part, upload.id, part, digest)
                elif known[1] != digest:
                    _abort(self.store, self.key, upload.id)
                    raise _BrokenOffError(f"its part {part.number} is of another content")
                etag = known[2] if known else ""
                parts.append({"PartNumber": part.number, "ChecksumSHA256": digest, "ETag": etag})
            if not self.digests and whole.hexdigest() != self.sha256:
                raise self._changed()
            for entry in parts:
                entry["ETag"] = entry["ETag"] or line.result(entry["PartNumber"])
        finally:
            line.end()
        say("sent", object=self.url, size=self.size, parts=len(parts), parts_sent=line.length)
        return parts

    def _send_part(self, upload_id: str, part: Part, digest: str) -> str:
        self.store.require_going()
        with self._body_sent("UploadPart"):
            answer = self.store.client.upload_part(
                Bucket=self.store.bucket, Key=self.key, UploadId=upload_id, PartNumber=part.number,
                ChecksumSHA256=digest, Body=Span(self.descriptor, part.offset, part.length),
            )  # fmt: skip
        return str(answer["ETag"])

    def _complete(self, upload: _Upload, parts: Sequence[Mapping[str, Any]]) -> None:
        with self._body_sent("CompleteMultipartUpload"):
            self.store.client.complete_multipart_upload(
                Bucket=self.store.bucket, Key=self.key, UploadId=upload.id, MultipartUpload={"Parts": list(parts)}
            )
        if not self._whole():  # an upload of another content was taken up, and the parts it had were the same
            raise _BrokenOffError("the object carries the SHA-256 of another content")


class _Line:
    """Parts that wait for a thread of the store: a few at a time, so that they are sent while they are still cached."""

    def __init__(self, store: Store) -> None:
        self._store, self._pool = store, store.pool
        self._room = threading.Semaphore(2 * store.concurrency)
        self._futures: dict[int, Future[str]] = {}
        self._failed: list[Future[str]] = []

    @property
    def length(self) -> int:
        return len(self._futures)

    def add(self, number: int, act: Callable[..., str], *arguments: Any) -> None:
        """Begin one more when there is room; raise what befell an earlier one, or another file."""
        self._room.acquire()
        self._store.require_going()
        if self._failed:
            self._failed[0].result()
        self._futures[number] = self._pool.submit(act, *arguments)
        self._futures[number].add_done_callback(self._ended)

    def _ended(self, future: Future[str]) -> None:
        if not future.cancelled() and future.exception():
            self._failed.append(future)
        self._room.release()

    def result(self, number: int) -> str:
        """Wait for one; what it returned or raised."""
        return self._futures[number].result()

    def end(self) -> None:
        """Begin no more, and wait for those under way: they read from a file that is about to be closed."""
        wait([future for future in self._futures.values() if not future.cancel()])
