"""Task sets in the bucket: the files of a task in one archive, which its digest names.

Invariant: the same files give the same archive, a stored set never changes, and no set is used
whose bytes have another digest than the experiment declares. `fetch-tasks` brings the sets of an
experiment to local disk.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import re
import zipfile
from pathlib import Path

from tandem.artifacts.archive import build_archive
from tandem.artifacts.driver.log import log_event
from tandem.artifacts.files import LocalFiles, create_open_folder, translate_disk_errors
from tandem.artifacts.job_env import add_bucket_argument
from tandem.artifacts.store import ObjectStore, open_store
from tandem.declarations.names import TASK_NAME_PATTERN, TASK_NAME_WORDS, task_set_key
from tandem.errors import InputError

MAX_SET_BYTES = 64 * 1024**2  # it passes through the memory of a small pod


def store_task_set(store: ObjectStore, folder: Path) -> tuple[str, str]:
    """Store a folder as the task of the folder's name; return the archive's SHA-256 and key.

    Args:
        store: the bucket.
        folder: with `items.jsonl`, or with the YAML and the data files of a task of lm-eval.

    Raises:
        InputError: the folder's name is no task's, it has no file, one cannot be stored, or all are
            too large together.
        ExternalError: S3 failed.
    """
    if not re.match(TASK_NAME_PATTERN, folder.name):
        change = f"rename the folder as the task: {TASK_NAME_WORDS}"
        raise InputError(f"{folder.name!r} is no name of a task", where=str(folder), change=change)
    files = LocalFiles(folder)
    size = sum(files.sizes.values())
    if size > MAX_SET_BYTES:
        change = "keep only the items that servers are to answer: 200 to some thousands"
        raise InputError(
            f"{size} bytes, and a set has at most {MAX_SET_BYTES}", where=str(folder), change=change
        )
    archive = build_archive({name: (folder / name).read_bytes() for name in files.sizes})
    sha256 = hashlib.sha256(archive).hexdigest()
    key = task_set_key(folder.name, sha256)
    store.write_fixed(key, archive)
    return sha256, key


def read_task_set(store: ObjectStore, name: str, sha256: str) -> zipfile.ZipFile:
    """Return the archive of a stored set.

    Raises:
        InputError: the bucket has no such set, its bytes have another digest, or they are no
            archive.
        ExternalError: S3 failed.
    """
    key = task_set_key(name, sha256)
    where = store.url(key)
    change = f"store the set again: tandem artifacts stage-task {name}"
    if (content := store.read(key)) is None:
        raise InputError(
            f"the bucket has no task set {name} of this digest", where=where, change=change
        )
    stored_sha256 = hashlib.sha256(content.body).hexdigest()
    if stored_sha256 != sha256:
        raise InputError(
            f"the task set {name} has the SHA-256 {stored_sha256}", where=where, change=change
        )
    try:
        return zipfile.ZipFile(io.BytesIO(content.body))
    except zipfile.BadZipFile as error:
        raise InputError(
            f"the task set {name} is no zip archive", where=where, change=change
        ) from error


def fetch_task_set(store: ObjectStore, name: str, sha256: str, folder: Path) -> None:
    """Unpack a stored set into a new folder.

    Raises:
        InputError: as `read_task_set`.
        ExternalError: S3 or the disk failed.
    """
    with translate_disk_errors(folder), read_task_set(store, name, sha256) as archive:
        create_open_folder(folder)
        archive.extractall(folder)
    log_event("the task set is there", task=name, sha256=sha256, files=len(archive.namelist()))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `fetch-tasks`."""
    add_bucket_argument(parser)
    parser.add_argument(
        "--task-set", action="append", default=[], metavar="NAME=SHA256", help="repeatable"
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="folder for a folder of each set"
    )


def run(options: argparse.Namespace) -> int:
    """Fetch every set; return the exit code.

    Raises:
        InputError: the bucket lacks a set, or a set has other bytes.
        ExternalError: S3 or the disk failed.
    """
    store = open_store(options.bucket)
    for name, _, sha256 in (word.partition("=") for word in options.task_set):
        fetch_task_set(store, name, sha256, options.folder / name)
    return 0
