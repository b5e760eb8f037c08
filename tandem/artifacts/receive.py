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

from tandem.artifacts.fault import RefusedError, StaleError, WorldError
from tandem.artifacts.files import PIECE, digest_of
from tandem.artifacts.log import say
from tandem.artifacts.manifest import File, inside
from tandem.artifacts.parts import PART
from tandem.artifacts.store import Store, each
from tandem.artifacts.store_fault import RAISED, Asked, fault_of, reason

FILES_AT_ONCE = 4
RANGE = PART  # bytes asked for at once
TRIES = 5  # of a range that is cut short; each goes on where the last one ended
WAIT_S = 0.5  # at most before the second try, then twice as long each
OPEN_FOLDER = 0o777  # the runtime's container and this one run as different users (docs/artifacts.md)
OPEN_FILE = 0o666
REPLACED = {"PreconditionFailed", "412", "NoSuchKey", "404", "InvalidRange", "416"}
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def receive(store: Store, key: str, path: Path, size: int, sha256: str) -> None:
    """Make a file have the content of an object; one that has it already is left alone.

    Args:
        store: the bucket.
        key: the object.
        path: the file; missing folders are made.
        size: of the object, in bytes, as its manifest says.
        sha256: of its content, as its manifest says.

    Raises:
        StaleError: the object is missing, or its size or content is not what was asked for.
        WorldError: S3 failed, or the disk is full.
    """
    with _on_disk(path):
        _make_folder(path.parent)
        with _reserved(path) as part:
            if _has(path, size, sha256):
                say("present", file=str(path), size=size)
                return
            etag = _held(store, key, size, sha256)
            for last in (False, True):
                if _fetch(store, key, etag, size, part) == sha256:
                    break
                if last:
                    raise _differs(store, key, "its content has another SHA-256 than the manifest says, twice")
                say("received content differs, once more", level="warning", object=store.url(key))
            part.chmod(OPEN_FILE)
            part.rename(path)
    say("received", object=store.url(key), file=str(path), size=size)


def receive_all(store: Store, prefix: str, folder: Path, files: Sequence[File]) -> None:
    """Make the files below `folder` have the content of the objects below `prefix`.

    Args:
        store: the bucket.
        prefix: of the objects, without a slash at its end.
        folder: of the files; made where it is missing.
        files: which, with size and SHA-256.

    Raises:
        RefusedError: a file's path would lead out of the folder.
        WorldError: the disk has too little room, before anything is received; or as `receive`.
        StaleError: as `receive`.
    """
    with _on_disk(folder):
        _make_folder(folder)
        for file in files:
            _refuse_way_out(folder, file.path)
        _refuse_too_little_room(folder, files)

    def act(file: File) -> None:
        receive(store, f"{prefix}/{file.path}", folder / file.path, file.size, file.sha256)

    each(store, FILES_AT_ONCE, act, sorted(files, key=lambda file: -file.size))


@contextlib.contextmanager
def _on_disk(path: Path) -> Iterator[None]:
    """Turn what the file system refuses within into an ArtifactError that names the file."""
    try:
        yield
    except OSError as error:
        where = str(error.filename or path)
        if error.errno in FULL:
            raise WorldError(
                f"the disk is full ({error.strerror})", where=where,
                change="give the pod more local storage (ephemeral-storage), or remove what it does not need; then "
                "run again: files that are whole are kept",
            ) from None  # fmt: skip
        raise WorldError(
            f"the file cannot be written ({error.strerror or error})", where=where,
            change="see the volume's mount, its owner and mode (fsGroup); then run again",
        ) from None  # fmt: skip


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, open to the other containers of the pod whatever the umask."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):  # another thread made it
        folder.mkdir()
        folder.chmod(OPEN_FOLDER)


def _refuse_way_out(folder: Path, name: str) -> None:
    try:
        inside(name)
    except ValueError as error:
        raise RefusedError(str(error), where=str(folder), change="write the manifest again from a whole set") from None
    top = folder.resolve()
    target = (folder / name).parent.resolve()
    if target != top and top not in target.parents:
        raise RefusedError(
            "a symbolic link in the folder leads out of it", where=str(folder / name),
            change="remove the link, or receive into an empty folder",
        )  # fmt: skip


def _refuse_too_little_room(folder: Path, files: Sequence[File]) -> None:
    missing = sum(file.size for file in files if _size(folder / file.path) != file.size)
    free = shutil.disk_usage(folder).free
    if missing > free:
        raise WorldError(
            f"the disk has room for {free / (1 << 30):.2f} GiB, {missing / (1 << 30):.2f} GiB are to come",
            where=str(folder), change="give the pod more local storage (ephemeral-storage or the NVMe volume)",
        )  # fmt: skip


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _has(path: Path, size: int, sha256: str) -> bool:
    return not path.is_symlink() and path.is_file() and _size(path) == size and digest_of(path) == sha256


@contextlib.contextmanager
def _reserved(path: Path) -> Iterator[Path]:
    """Yield the name under which `path` is received, this process's alone; a second process waits here.

    What a killed run left under that name is overwritten: ranges that arrived out of order cannot be told from
    those that did not.
    """
    part = path.with_name(f".{path.name}.receiving")
    while True:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _same(descriptor, part):  # the one that had it before has finished and named it
                continue
            try:
                yield part
            finally:
                if _same(descriptor, part):
                    part.unlink()
            return
        finally:
            os.close(descriptor)


def _same(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def _held(store: Store, key: str, size: int, sha256: str) -> str:
    """Return the ETag of the object, held against what it should be."""
    head = store.head(key)
    if head is None:
        raise _differs(store, key, "the object is missing")
    if head.size != size:
        raise _differs(store, key, f"the object has {head.size} bytes, the manifest says {size}")
    if head.sha256 not in {None, sha256}:
        raise _differs(store, key, f"the object is marked with SHA-256 {head.sha256}, the manifest says {sha256}")
    return head.etag


def _differs(store: Store, key: str, what: str) -> StaleError:
    return StaleError(
        what, where=store.url(key),
        change="the stored set is damaged: remove its manifest (tandem-manifest.json), then run the job that made it",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Receiving:
    """One object on its way into one open file."""

    store: Store
    key: str
    etag: str
    size: int
    descriptor: int

    def act(self) -> str:
        """Receive all; the SHA-256 of what arrived, read back behind the ranges while they come in."""
        ahead = threading.Semaphore(2 * self.store.concurrency)
        ranges: list[Future[None]] = []
        digest, hashed = hashlib.sha256(), 0
        try:
            for offset in range(0, self.size, RANGE):
                ahead.acquire()
                self.store.require_going()
                ranges.append(self.store.pool.submit(self._range, offset, min(RANGE, self.size - offset)))
                ranges[-1].add_done_callback(lambda _: ahead.release())
                while hashed < len(ranges) and ranges[hashed].done():
                    self._hash(ranges, hashed, digest)
                    hashed += 1
            for number in range(hashed, len(ranges)):
                self._hash(ranges, number, digest)
        finally:
            wait([future for future in ranges if not future.cancel()])
        return digest.hexdigest()

    def _hash(self, ranges: Sequence[Future[None]], number: int, digest: Any) -> None:
        """Wait for one range and hash what was written, or raise what befell it."""
        ranges[number].result()
        end = min(self.size, (number + 1) * RANGE)
        for offset in range(number * RANGE, end, PIECE):
            digest.update(os.pread(self.descriptor, min(PIECE, end - offset), offset))

    def _range(self, offset: int, length: int) -> None:
        self.store.require_going()
        for piece in stream(self.store, self.key, self.etag, offset, length):
            offset += _written(self.descriptor, piece, offset)


def stream(store: Store, key: str, etag: str, offset: int, length: int) -> Iterator[bytes]:
    """Yield a stretch of an object piece by piece; where an answer is cut short, the rest is asked for.

    Args:
        store: the bucket.
        key: the object.
        etag: of the object that is meant.
        offset: where the stretch begins, in bytes.
        length: its bytes.

    Raises:
        StaleError: the object has another ETag by now, or is gone.
        WorldError: S3 failed, or cut every answer short.
    """
    done = 0
    cut: BaseException = _CutShortError("it sent less than its length says")
    for attempt in range(TRIES):
        try:
            for piece in _pieces(store, key, etag, offset + done, length - done):
                done += len(piece)
                yield piece
        except _CutShortError as error:
            cut = error.__cause__ or error
        if done == length:
            return
        if attempt + 1 < TRIES:
            time.sleep(random.uniform(0, WAIT_S * 2**attempt))  # noqa: S311 - a wait is no secret
    raise fault_of(cut, Asked(operation="GetObject", bucket=store.bucket, key=key))


def _pieces(store: Store, key: str, etag: str, offset: int, length: int) -> Iterator[bytes]:
    with store.asking("GetObject", key):
        try:
            answer = store.client.get_object(
                Bucket=store.bucket, Key=key, IfMatch=etag, Range=f"bytes={offset}-{offset + length - 1}"
            )
        except ClientError as error:
            if reason(error) in REPLACED:
                raise _differs(store, key, f"the object was replaced while it was read ({reason(error)})") from None
            raise
    with contextlib.closing(answer["Body"]) as body:
        while length:
            try:
                piece = body.read(min(PIECE, length))
            except RAISED as error:
                raise _CutShortError from error
            if not piece:
                return
            yield piece
            length -= len(piece)


class _CutShortError(Exception):
    """The answer ended within its body."""


def _written(descriptor: int, piece: bytes, offset: int) -> int:
    """Write a piece whole; its length."""
    done = 0
    while done < len(piece):  # a disk that fills up takes a part first, and says so at the next write
        done += os.pwrite(descriptor, memoryview(piece)[done:], offset + done)
    return done


def _fetch(store: Store, key: str, etag: str, size: int, part: Path) -> str:
    descriptor = os.open(part, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, 0)
        os.ftruncate(descriptor, size)
        return _Receiving(store=store, key=key, etag=etag, size=size, descriptor=descriptor).act()
    finally:
        os.close(descriptor)
