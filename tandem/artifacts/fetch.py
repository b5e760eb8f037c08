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

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.driver_archive import ARCHIVE_NAME as DRIVER
from tandem.artifacts.driver_archive import build_driver_archive
from tandem.artifacts.job_env import ModelReference, parse_model_references, read_artifact_key, read_holder
from tandem.artifacts.lease import LeaseConflictError, hold_lease
from tandem.artifacts.local_disk import create_open_folder, require_disk_space
from tandem.artifacts.manifest import LEASE_NAME, Manifest
from tandem.artifacts.manifest_store import (
    files_prefix,
    manifest_key,
    read_artifact_manifest,
    read_model_manifest,
)
from tandem.artifacts.s3_download import download_files
from tandem.artifacts.store import ObjectStore, open_store
from tandem.errors import InputError
from tandem.shell_command import quote_command
from tandem.spec.artifact_key import ArtifactKey

PRESENT_NAME = "present"  # in the work folder: the artifact is stored, nothing is to be done
DISK_SPACE_FACTOR = 2  # the artifact of models of one byte, as tandem/spec/disk.py asks the node for
POLL_INTERVAL_S = 5.0


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
        InputError: a variable or option is malformed, or a model is not staged.
        StaleError: what is stored under the key's name is something else.
        ExternalError: S3 failed, the disk has too little room, or another job holds the lease.
    """
    key, models, holder = read_artifact_key(), parse_model_references(options.model), read_holder()
    create_open_folder(options.work)
    (options.work / PRESENT_NAME).unlink(missing_ok=True)
    _copy_driver(options.work)  # in any case: it is what the next container runs, also to do nothing
    store = open_store(options.bucket)
    if _skip_if_stored(store, key, options.work):
        return 0
    lease_key, deadline_s = f"{key.prefix}/{LEASE_NAME}", time.monotonic() + options.wait_s
    while True:
        try:
            with hold_lease(store, lease_key, holder, options.lease_s, 0.0, keep=True) as lease:
                if _skip_if_stored(store, key, options.work):  # stored by whoever held it before us
                    return 0
                _download_models(store, models, options.models)
                lease.check()
        except LeaseConflictError as error:
            if time.monotonic() >= deadline_s:
                remove_command = quote_command("aws", "s3", "rm", error.where)
                raise LeaseConflictError(
                    f"somebody else compiles this: {error.problem}", where=error.where,
                    change="wait for that Job: one that fails frees its lease; if it was deleted, or its pod or node "
                    f"killed for good, remove the lease by hand ({remove_command}) and create this Job again",
                ) from None  # fmt: skip
        else:
            return 0
        time.sleep(min(POLL_INTERVAL_S, options.wait_s))
        if _skip_if_stored(store, key, options.work):
            return 0


def _skip_if_stored(store: ObjectStore, key: ArtifactKey, work: Path) -> bool:
    """Whether the artifact is stored already; if so the next containers are told."""
    manifest = read_artifact_manifest(store, key)
    if manifest is None:
        return False
    where = store.url(manifest_key(key.prefix))
    (work / PRESENT_NAME).write_text(f"{where}\n")
    log_event("the artifact is there already", object=where, files=len(manifest.files), bytes=manifest.size)
    return True


def _download_models(store: ObjectStore, models: Sequence[ModelReference], folder: Path) -> None:
    """Receive every file of every model; what is whole already stays as it is."""
    manifests = [_require_model_manifest(store, model) for model in models]
    create_open_folder(folder)
    size = sum(manifest.size for manifest in manifests)
    present_bytes = sum(
        file.size
        for model, manifest in zip(models, manifests, strict=True)
        for file in manifest.files
        if (folder / model.path / file.path).exists()
    )
    require_disk_space(
        folder, size - present_bytes + DISK_SPACE_FACTOR * size, "bringing the models and making the artifact"
    )
    for model, manifest in zip(models, manifests, strict=True):
        start_s = time.monotonic()
        download_files(store, files_prefix(model.prefix, manifest), folder / model.path, manifest.files)
        log_event("model is there", model=model.name, files=len(manifest.files), bytes=manifest.size,
            seconds=round(time.monotonic() - start_s, 1))  # fmt: skip


def _require_model_manifest(store: ObjectStore, model: ModelReference) -> Manifest:
    manifest = read_model_manifest(store, model.prefix, model.name, model.command)
    if manifest is None:
        raise InputError(
            f"the model {model.name} is not staged: it has no manifest", where=store.url(manifest_key(model.prefix)),
            change=f"stage it, then run this again: {model.command}",
        )  # fmt: skip
    return manifest


def _copy_driver(work: Path) -> None:
    """Put the driver where the runtime's container finds it, whole or not at all."""
    new_file = work / f".{DRIVER}.new"
    new_file.write_bytes(build_driver_archive())
    new_file.chmod(0o644)
    new_file.replace(work / DRIVER)
