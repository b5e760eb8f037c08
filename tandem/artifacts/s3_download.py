"""Objects to files: received by the transfer library, held against their SHA-256, then named.

Invariant: a file has its name only when its content has the SHA-256 that was asked for; until then it has a name
that nobody reads, and a killed run leaves no file that passes for whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from s3transfer.exceptions import S3DownloadFailedError

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.local_disk import (
    OPEN_FILE_MODE,
    create_open_folder,
    has_content,
    read_file_size,
    require_disk_space,
    run_in_threads,
    translate_disk_errors,
)
from tandem.artifacts.manifest import ManifestFile, validate_path
from tandem.artifacts.manifest_store import build_damage_error, describe_difference
from tandem.artifacts.store import ObjectHead, ObjectStore, TransferFacts
from tandem.errors import InputError

FILES_AT_ONCE = 4


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
    with translate_disk_errors(path):
        create_open_folder(path.parent)
        with _reserve_partial_path(path) as partial_path:
            if has_content(path, file):
                log_event("present", file=str(path), size=file.size)
                return
            head = store.head(key)
            if head is not None and head.sha256 is None:  # of another program: its content tells
                head = replace(head, sha256=file.sha256)
            problem = describe_difference(head, file)
            if head is None or problem:
                raise build_damage_error(store, key, problem)
            for is_last in (False, True):
                with partial_path.open("wb") as partial_file:
                    sha256 = receive_object(store, key, head, partial_file)
                if sha256 == file.sha256:
                    break
                if is_last:
                    problem = "its content has another SHA-256 than the manifest says, twice"
                    raise build_damage_error(store, key, problem)
                log_event("received content differs, once more", level="warning", object=store.url(key))
            partial_path.chmod(OPEN_FILE_MODE)
            partial_path.rename(path)
    log_event("received", object=store.url(key), file=str(path), size=file.size)


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
    with translate_disk_errors(folder):
        create_open_folder(folder)
        for file in files:
            _require_path_inside(folder, file.path)
        missing_bytes = sum(file.size for file in files if read_file_size(folder / file.path) != file.size)
        require_disk_space(folder, missing_bytes, f"receiving {store.url(prefix)}")

    def download_file(file: ManifestFile) -> None:
        store.require_not_halted()
        download_object(store, f"{prefix}/{file.path}", folder / file.path, file)

    run_in_threads(FILES_AT_ONCE, download_file, sorted(files, key=lambda file: -file.size), store.halt_event)


def receive_object(store: ObjectStore, key: str, head: ObjectHead, file: BinaryIO | None = None) -> str:
    """Read one object, into an open file where one is given; the SHA-256 of what arrived.

    Args:
        store: the bucket.
        key: the object.
        head: of the object that is meant.
        file: what is written to, in order.

    Raises:
        StaleError: the object was replaced or deleted since.
        ExternalError: S3 failed.
    """
    writer = _HashWriter(file, store.require_not_halted)
    facts = TransferFacts(size=head.size, etag=head.etag)
    try:
        store.finish_transfer("GetObject", key, store.downloads.download(store.bucket, key, writer, {}, [facts]))
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


def _require_path_inside(folder: Path, path: str) -> None:
    try:
        validate_path(path)
    except ValueError as error:
        raise InputError(str(error), where=str(folder), change="write the manifest again from a whole set") from None
    if not (folder / path).parent.resolve().is_relative_to(folder.resolve()):
        raise InputError(
            "a symbolic link in the folder leads out of it", where=str(folder / path),
            change="remove the link, or receive into an empty folder",
        )  # fmt: skip


@contextlib.contextmanager
def _reserve_partial_path(path: Path) -> Iterator[Path]:
    """Yield the name under which `path` is received, this process's alone; a second process waits here.

    What a killed run left under that name is overwritten.
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
