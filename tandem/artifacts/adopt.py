"""`adopt`: take in an artifact that was compiled elsewhere, held against its key as if it had been compiled here.

Invariant: what is there already is left alone; what is taken in lies in a folder of its own, named after its
content, so a run that was killed is continued by the next, and the manifest says that it was adopted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.artifacts.asked import asked_key
from tandem.artifacts.explain import on_disk
from tandem.artifacts.fault import RefusedError
from tandem.artifacts.fetch import require_same
from tandem.artifacts.files import hashed_below
from tandem.artifacts.inspect_local import inspect_local
from tandem.artifacts.lease import take
from tandem.artifacts.log import say
from tandem.artifacts.manifest import LEASE_NAME, SCHEMA_VERSION, File, Manifest
from tandem.artifacts.refused import read_refused
from tandem.artifacts.send import send_all
from tandem.artifacts.store import Store, open_store
from tandem.artifacts.stored import manifest_key, read_stored_manifest, write_stored_manifest
from tandem.spec.artifact_key import ArtifactKey

LEASE_S = 120.0
RUN = "adopted-"
UNPROVEN = "it was compiled elsewhere: what its own files do not tell of how, nobody has checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """What became of it.

    Args:
        name, prefix: of the artifact; the prefix without a slash at its end.
        manifest: what is stored now.
        taken: whether it is ours; False where an artifact of this key was there.
    """

    name: str
    prefix: str
    manifest: Manifest
    taken: bool


def adopt(store: Store, folder: Path, key: ArtifactKey, *, wait_s: float = 0) -> Adopted:
    """Take in a folder as the artifact of a key.

    Args:
        store: the bucket.
        folder: the artifact, as the runtime wrote it.
        key: what it was compiled for.
        wait_s: seconds to wait for another writer of the same key.

    Raises:
        RefusedError: the folder cannot be stored, or the stored manifest cannot be read.
        StaleError: it is not whole or not the key's, or what is stored under the key's name is not the key's.
        WorldError: S3 failed, or somebody else writes this key.
    """
    there = _present(store, key)
    if there is not None:
        return there
    _require_folder(folder)
    unproven = inspect_local(folder, key)
    hashed = hashed_below(folder)
    files = tuple(one.file for one in hashed)
    run = f"{RUN}{_digest(files)}"
    manifest = Manifest(
        schema_version=SCHEMA_VERSION, kind="artifact", name=key.name, folder=run, fields=key.as_fields(), files=files,
        made={"run": run, "where": "elsewhere", "unproven": [UNPROVEN, *unproven]},
    )  # fmt: skip
    with take(store, f"{key.prefix}/{LEASE_NAME}", run, LEASE_S, wait_s) as lease:
        send_all(store, folder, f"{key.prefix}/{run}", hashed, check=lease.check)
        lease.confirm()
        ours = write_stored_manifest(store, key.prefix, manifest)
    there = None if ours else _present(store, key)
    return there or Adopted(name=key.name, prefix=key.prefix, manifest=manifest, taken=True)


def adopt_refused(store: Store, run: str, key: ArtifactKey, *, wait_s: float = 0) -> Adopted:
    """Take in what a compile made and its upload refused: its files are stored, and a person says that they are right.

    Args:
        store: the bucket.
        run: the folder that the refusal named.
        key: what it was compiled for.
        wait_s: seconds to wait for another writer of the same key.

    Raises:
        RefusedError: nothing was refused under this name.
        StaleError: it was made for another key, or a file of it is not whole any more.
        WorldError: S3 failed, or somebody else writes this key.
    """
    there = _present(store, key)
    if there is not None:
        return there
    manifest = read_refused(store, key.prefix, run)
    require_same(manifest, key, store.url(f"{key.prefix}/{run}/"))
    with take(store, f"{key.prefix}/{LEASE_NAME}", f"{RUN}{run}", LEASE_S, wait_s) as lease:
        lease.confirm()
        ours = write_stored_manifest(store, key.prefix, manifest)
    there = None if ours else _present(store, key)
    return there or Adopted(name=key.name, prefix=key.prefix, manifest=manifest, taken=True)


def _present(store: Store, key: ArtifactKey) -> Adopted | None:
    """Return the artifact that is there, None for none.

    Raises:
        StaleError: its manifest is of another key.
    """
    manifest = read_stored_manifest(store, key.prefix)
    if manifest is None:
        return None
    require_same(manifest, key, store.url(manifest_key(key.prefix)))
    return Adopted(name=key.name, prefix=key.prefix, manifest=manifest, taken=False)


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise RefusedError(
            "there is no such folder", where=str(folder),
            change="name the folder that the runtime wrote (of nxdi the one with neuron_config.json)",
        )  # fmt: skip


def _digest(files: Sequence[File]) -> str:
    """Return a name for a content: the same files are the same run, however often they are brought."""
    listing = json.dumps([[file.path, file.size, file.sha256] for file in files])
    return hashlib.sha256(listing.encode()).hexdigest()[:12]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    bucket = os.environ.get("TANDEM_BUCKET")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("folder", type=Path, nargs="?", metavar="DIR", help="the artifact, as the runtime wrote it")
    what.add_argument("--refused", metavar="RUN", help="what an upload kept and refused, as its log names it")
    parser.add_argument("--bucket", default=bucket, required=bucket is None, help="of models and artifacts")
    parser.add_argument(
        "--key", type=Path, metavar="FILE", help="JSON of the key's fields; left out: TANDEM_ARTIFACT_KEY"
    )
    parser.add_argument("--wait-s", type=float, default=0.0, help="seconds to wait for another writer of the same key")


def run(options: argparse.Namespace) -> int:
    """Take in a folder and log what became of it.

    Raises:
        ArtifactError: as `adopt` does.
    """
    key = _key_of(options.key) if options.key else asked_key()
    store = open_store(options.bucket)
    if options.refused is not None:
        done = adopt_refused(store, options.refused, key, wait_s=options.wait_s)
    else:
        done = adopt(store, options.folder, key, wait_s=options.wait_s)
    say(
        "adopted" if done.taken else "present: left alone", artifact=done.name, prefix=done.prefix,
        files=len(done.manifest.files), size=done.manifest.size, made=done.manifest.made,
    )  # fmt: skip
    return 0


def _key_of(path: Path) -> ArtifactKey:
    side = on_disk(path)
    try:
        return ArtifactKey.from_fields(side.fields)
    except ValueError as error:
        raise RefusedError(f"this is {error}", where=str(path), change="name a file with a key's fields") from None
