"""`fetch`: before a compile, bring the staged models to local disk, or say that the artifact is there.

Invariant: nobody compiles what is stored, nor what somebody else is compiling; a model file has its name only when
it has the SHA-256 that its manifest says.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

from tandem.artifacts.asked import Snapshot, asked_holder, asked_key, asked_models
from tandem.artifacts.driver_archive import NAME as DRIVER
from tandem.artifacts.driver_archive import driver_archive
from tandem.artifacts.fault import RefusedError, StaleError
from tandem.artifacts.lease import HeldError, take
from tandem.artifacts.log import say
from tandem.artifacts.manifest import LEASE_NAME, Manifest
from tandem.artifacts.receive import receive_all
from tandem.artifacts.room import require_room
from tandem.artifacts.store import Store, open_store
from tandem.artifacts.stored import files_prefix, manifest_key, read_stored_manifest
from tandem.shell_command import quote_command
from tandem.spec.artifact_key import ArtifactKey, differences

PRESENT = "present"  # in the work folder: the artifact is stored, nothing is to be done
ROOM_FACTOR = 2  # the artifact of models of one byte, as tandem/spec/disk.py asks the node for
ASK_S = 5.0
OPEN_FOLDER, OPEN_FILE = 0o777, 0o666  # the runtime's container is another user


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `fetch`."""
    bucket = os.environ.get("TANDEM_BUCKET")
    parser.add_argument("--bucket", default=bucket, required=not bucket, help="bucket of models and artifacts")
    parser.add_argument("--model", action="append", required=True, help="organisation/name@revision; repeatable")
    parser.add_argument("--models", type=Path, required=True, help="folder for the models")
    parser.add_argument("--work", type=Path, required=True, help="folder for the driver, and for what it says")
    parser.add_argument("--lease-s", type=float, required=True, help="seconds that the whole job may take")
    parser.add_argument(
        "--wait-s",
        type=float,
        default=0.0,
        help="seconds to wait while another job compiles the same; a node waits too",
    )


def run(options: argparse.Namespace) -> int:
    """Fetch what a compile needs; the exit code.

    Raises:
        RefusedError: a variable or option is malformed, or a model is not staged.
        StaleError: what is stored under the key's name is something else.
        WorldError: S3 failed, the disk has too little room, or another job holds the lease.
    """
    key, models, holder = asked_key(), asked_models(options.model), asked_holder()
    _open_folder(options.work)
    (options.work / PRESENT).unlink(missing_ok=True)
    _copy_driver(options.work)  # in any case: it is what the next container runs, also to do nothing
    store = open_store(options.bucket)
    if _skip(store, key, options.work):
        return 0
    lease_key, ends = f"{key.prefix}/{LEASE_NAME}", time.monotonic() + options.wait_s
    while True:
        try:
            with take(store, lease_key, holder, options.lease_s, 0.0, keep=True) as lease:
                if _skip(store, key, options.work):  # stored by whoever held it before us
                    return 0
                _bring(store, models, options.models)
                lease.check()
        except HeldError as error:
            if time.monotonic() >= ends:
                remove = quote_command("aws", "s3", "rm", error.where)
                raise HeldError(
                    f"somebody else compiles this: {error.what}", where=error.where,
                    change="wait for that Job: one that fails frees its lease; if it was deleted, or its pod or node "
                    f"killed for good, remove the lease by hand ({remove}) and create this Job again",
                ) from None  # fmt: skip
        else:
            return 0
        time.sleep(min(ASK_S, options.wait_s))
        if _skip(store, key, options.work):
            return 0


def _skip(store: Store, key: ArtifactKey, work: Path) -> bool:
    """Whether the artifact is stored already; if so the next containers are told."""
    manifest = read_stored_manifest(store, key.prefix)
    if manifest is None:
        return False
    where = store.url(manifest_key(key.prefix))
    require_same(manifest, key, where)
    (work / PRESENT).write_text(f"{where}\n")
    say("the artifact is there already", object=where, files=len(manifest.files), bytes=manifest.size)
    return True


def require_same(manifest: Manifest, key: ArtifactKey, where: str) -> None:
    """Refuse a manifest that is not for this key.

    Raises:
        StaleError: it differs; every field that differs is named.
    """
    differing = differences(manifest.fields, key.as_fields())
    if not differing:
        return
    said = "; ".join(f"{field}: artifact {theirs}, asked {ours}" for field, (theirs, ours) in differing.items())
    raise StaleError(
        f"under the key's own name lies something else: {said}", where=where,
        change="nobody but the jobs of one release should write here: see who did, remove the manifest, compile again",
    )  # fmt: skip


def _bring(store: Store, models: Sequence[Snapshot], folder: Path) -> None:
    """Receive every file of every model; what is whole already stays as it is."""
    manifests = [_staged(store, model) for model in models]
    _open_folder(folder)
    size = sum(manifest.size for manifest in manifests)
    there = sum(
        file.size
        for model, manifest in zip(models, manifests, strict=True)
        for file in manifest.files
        if (folder / model.path / file.path).exists()
    )
    require_room(folder, size - there + ROOM_FACTOR * size, "bringing the models and making the artifact")
    for model, manifest in zip(models, manifests, strict=True):
        began = time.monotonic()
        receive_all(store, files_prefix(model.prefix, manifest), folder / model.path, manifest.files)
        say("model is there", model=model.name, files=len(manifest.files), bytes=manifest.size,
            seconds=round(time.monotonic() - began, 1))  # fmt: skip


def _staged(store: Store, model: Snapshot) -> Manifest:
    manifest = read_stored_manifest(store, model.prefix)
    where = store.url(manifest_key(model.prefix))
    if manifest is None:
        raise RefusedError(
            f"the model {model.name} is not staged: it has no manifest", where=where,
            change=f"stage it, then run this again: {model.command}",
        )  # fmt: skip
    if manifest.kind != "model" or manifest.name != model.name:
        raise StaleError(
            f"the manifest is of the {manifest.kind} {manifest.name}, not of the model {model.name}", where=where,
            change=f"remove it and stage the model again: {model.command}",
        )  # fmt: skip
    return manifest


def _copy_driver(work: Path) -> None:
    """Put the driver where the runtime's container finds it, whole or not at all."""
    fresh = work / f".{DRIVER}.new"
    fresh.write_bytes(driver_archive())
    fresh.chmod(0o644)
    fresh.replace(work / DRIVER)


def _open_folder(folder: Path) -> None:
    """Make a folder that the pod's other containers may write to, whoever they run as; a mount is one already."""
    if not folder.is_dir():
        folder.mkdir(parents=True)
        folder.chmod(OPEN_FOLDER)
