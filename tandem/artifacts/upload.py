"""`upload`: after a compile, verify the artifact, store it, write its manifest last; or end as the compile failed.

Invariant: what a manifest names has passed the local inspection against its key, and what has not is kept without
one; the first whole artifact of a key wins, whoever comes second says so and ends well; a run that was killed goes on
and ends in the same bytes; however this ends but by a kill, the lease that `fetch` took is free.

An artifact's folder is named after its Job and by chance, once for each compile of a pod, whose disk keeps the name: no
two writers ever write one object, not even two pods of one Job, of which one was thought dead, and a container that
is started again goes on where it was. The content takes no part in the name, so sending need not wait for all hashes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tandem.artifacts.driver import RESULT_SUCCESS, CompileOutcome, read_outcome
from tandem.artifacts.driver.log import log_event
from tandem.artifacts.fetch import PRESENT_NAME
from tandem.artifacts.files import LocalFiles, compute_sha256
from tandem.artifacts.inspect_local import ArtifactInspection, format_faults, inspect_artifact
from tandem.artifacts.job_env import read_artifact_key, read_holder
from tandem.artifacts.lease import hold_lease, release_lease
from tandem.artifacts.manifest import LEASE_NAME, Manifest
from tandem.artifacts.manifest_store import (
    files_prefix,
    manifest_key,
    read_artifact_manifest,
    write_stored_manifest,
)
from tandem.artifacts.rejection import write_rejection
from tandem.artifacts.retry import add_retry_argument, retry_upload
from tandem.artifacts.s3_upload import upload_files
from tandem.artifacts.store import ObjectStore, open_store
from tandem.errors import InputError, StaleError, TandemError
from tandem.shell_command import quote_command
from tandem.spec.artifact_key import ArtifactKey

LEASE_S = 120.0
WAIT_S = 600.0
OUTCOME_NAME = "outcome.json"  # what the driver says of the compile, in the work folder
CACHE_NAME = "compiler-cache"
REJECTION_NAME = "refused.json"  # in the work folder: what an earlier start of this container said
UNPROVEN_VARIABLE = "TANDEM_UNPROVEN"  # JSON list of sentences
RUN_NAME = "run.json"  # in the work folder: the name of what this pod's compile is stored under
SUFFIX_BYTES = 6
SUFFIX_PATTERN = rf"[0-9a-f]{{{2 * SUFFIX_BYTES}}}"  # at the end of that name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    bucket = os.environ.get("TANDEM_BUCKET")
    parser.add_argument("--bucket", default=bucket, required=not bucket, help="bucket of models and artifacts")
    parser.add_argument("--artifact", type=Path, required=True, help="folder of what was compiled")
    parser.add_argument("--work", type=Path, required=True, help="folder of the driver's outcome and its caches")
    parser.add_argument("--wait-s", type=float, default=WAIT_S, help="seconds to wait for another job of the same key")
    parser.add_argument("--lease-s", type=float, default=LEASE_S, help="seconds until a dead run's lease is free")
    add_retry_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Store one compiled artifact; the exit code, which is the driver's where it gave the compile up.

    Raises:
        InputError: a variable is malformed, or nothing was compiled.
        StaleError: the artifact is not its key's or not whole, or what is stored under the key is something else.
        ExternalError: S3 failed for longer than the patience, or somebody else holds the lease.
    """
    key, holder = read_artifact_key(), read_holder()
    store, local = open_store(options.bucket), _LocalArtifact(options.artifact, options.work, key)
    try:
        exit_code = retry_upload(lambda: _finish_upload(options, store, local, holder), options.patience_s)
    except BaseException:  # a restart takes the lease back; a new Job would wait for it in vain
        _release_lease(store, key, holder)
        raise
    return exit_code


class _LocalArtifact:
    """What was compiled, inspected and hashed once, however often S3 fails."""

    def __init__(self, folder: Path, work: Path, key: ArtifactKey) -> None:
        self.folder, self.work, self.key = folder, work, key

    @cached_property
    def inspection(self) -> ArtifactInspection:
        if self.folder.is_symlink():
            raise InputError(
                "it is a symbolic link, where the compiler was to make a folder", where=str(self.folder),
                change="see what the compile container ran: a link may lead to what is not the compiler's",
            )  # fmt: skip
        return inspect_artifact(self.folder, self.key, cache=self.work / CACHE_NAME)

    @cached_property
    def files(self) -> LocalFiles:
        return LocalFiles(self.folder)


def _finish_upload(options: argparse.Namespace, store: ObjectStore, local: _LocalArtifact, holder: str) -> int:
    """Say what is to be said, or store; the exit code."""
    if _is_present(store, local.key):
        _release_lease(store, local.key, holder)
        return 0
    outcome = _require_outcome(options.work)
    if outcome.failure:
        _release_lease(store, local.key, holder)
        log_event(**outcome.failure, level="error")
        return int(outcome.failure["exit_code"])
    _raise_earlier_rejection(options.work)
    return _store_artifact(options, store, local, holder, outcome)


def _store_artifact(
    options: argparse.Namespace, store: ObjectStore, local: _LocalArtifact, holder: str, outcome: CompileOutcome
) -> int:
    key, faults, local_files = local.key, local.inspection.faults, local.files
    run_name = _choose_run_name(options.work, holder)
    with hold_lease(store, f"{key.prefix}/{LEASE_NAME}", holder, options.lease_s, options.wait_s) as lease:
        if _is_present(store, key):  # written by whoever held the lease before us
            return 0
        provenance = _build_provenance(store, key, holder, outcome, local.inspection.notes)
        files = upload_files(store, local_files, f"{key.prefix}/{run_name}", check=lease.check)
        manifest = Manifest(
            schema_version=1, kind="artifact", name=key.name, folder=run_name, fields=key.as_fields(), files=files,
            made=provenance,
        )  # fmt: skip
        lease.confirm()
        if faults:
            write_rejection(store, key.prefix, manifest, faults)
        elif not write_stored_manifest(store, key.prefix, manifest):
            _is_present(store, key)
            return 0
    if faults:
        raise _record_rejection(options.work, store.url(files_prefix(key.prefix, manifest)), manifest.folder, faults)
    log_event("stored", object=store.url(manifest_key(key.prefix)), files=len(files), size=manifest.size)
    return 0


def _record_rejection(work: Path, kept_url: str, run_name: str, faults: Sequence[str]) -> StaleError:
    """Return the refusal of what is kept, and leave it for a restart of this container, which need not hash again."""
    import_command = quote_command(
        "tandem",
        "artifacts",
        "import",
        "--refused",
        run_name,
        "--env",
        "ENVIRONMENT",
        "--variant",
        "EXPERIMENT/VARIANT",
    )
    rejection = {
        "what": format_faults(faults), "where": f"{kept_url}/",
        "change": "it is kept there and no server finds it; if what is said of it is no fault, take it in: "
        f"{import_command}; else compile again",
    }  # fmt: skip
    (work / REJECTION_NAME).write_text(json.dumps({**rejection, "compile": compute_sha256(work / OUTCOME_NAME)}))
    return StaleError(rejection["what"], where=rejection["where"], change=rejection["change"])


def _raise_earlier_rejection(work: Path) -> None:
    """Raise what an earlier start of this container said of what the same compile made.

    Raises:
        StaleError: it was refused.
    """
    try:
        rejection = {name: str(value) for name, value in json.loads((work / REJECTION_NAME).read_text()).items()}
        error = StaleError(rejection["what"], where=rejection["where"], change=rejection["change"])
        is_same_compile = rejection["compile"] == compute_sha256(work / OUTCOME_NAME)
    except (OSError, ValueError, KeyError, AttributeError):
        return
    if is_same_compile:
        raise error


def _choose_run_name(work: Path, holder: str) -> str:
    """Return the name of the folder below the artifact: one for each compile of a pod, the same at every start.

    What is read here the compile container may have written too, and no name leads it out of its own Job's folders.
    """
    path, outcome_digest = work / RUN_NAME, compute_sha256(work / OUTCOME_NAME)
    try:
        earlier_run = json.loads(path.read_text())
        if earlier_run["compile"] == outcome_digest and re.fullmatch(
            rf"{re.escape(holder)}-{SUFFIX_PATTERN}", earlier_run["run"]
        ):
            return str(earlier_run["run"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none yet, or half of one: nothing was sent under it
    name = f"{holder}-{secrets.token_hex(SUFFIX_BYTES)}"
    try:
        descriptor, partial_path = tempfile.mkstemp(dir=work)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"compile": outcome_digest, "run": name}, file)
        Path(partial_path).replace(path)
    except OSError as error:  # a full disk: what is compiled is stored all the same
        log_event(
            "a restart would send all again", level="warning", where=str(path), reason=error.strerror or str(error)
        )
    return name


def _release_lease(store: ObjectStore, key: ArtifactKey, holder: str) -> None:
    """Release our lease, if it is ours; a failure to do so hides nothing else that is to be said."""
    lease_key = f"{key.prefix}/{LEASE_NAME}"
    try:
        release_lease(store, lease_key, holder)
    except TandemError as error:
        log_event("lease not released", level="warning", object=store.url(lease_key), reason=error.problem)


def _is_present(store: ObjectStore, key: ArtifactKey) -> bool:
    """Tell whether the key's artifact is stored.

    Raises:
        InputError: its manifest cannot be read.
        StaleError: it is of another key.
    """
    manifest = read_artifact_manifest(store, key)
    if manifest is not None:
        log_event(
            "present", object=store.url(manifest_key(key.prefix)), made_by=manifest.made.get("run"),
            files=len(manifest.files), size=manifest.size,
        )  # fmt: skip
    return manifest is not None


def _require_outcome(work: Path) -> CompileOutcome:
    """Return what the driver says of a compile that ended well or was given up.

    Raises:
        InputError: it says nothing, or that the compile has not ended.
    """
    path = work / OUTCOME_NAME
    outcome = read_outcome(path)
    if outcome is None and (work / PRESENT_NAME).exists():
        raise StaleError(
            "the artifact was stored when this Job began, so nothing was compiled, and its manifest is gone now",
            where=str(work / PRESENT_NAME),
            change="see who removed it (tandem artifacts list), then create the Job again",
        )
    if outcome is None or not (outcome.result == RESULT_SUCCESS or outcome.failure):
        problem = f"the compile's result is {outcome.result!r}" if outcome else "nothing says that a compile ended well"
        raise InputError(
            problem, where=str(path),
            change="see the log of the compile container; an artifact from elsewhere is taken in by "
            "`tandem artifacts import`",
        )  # fmt: skip
    return outcome


def _build_provenance(
    store: ObjectStore, key: ArtifactKey, holder: str, outcome: CompileOutcome, notes: Sequence[str]
) -> dict[str, Any]:  # fmt: skip
    """Return how the artifact came to be: a run that goes on after a kill says the same."""
    unproven = [*outcome.unproven, *_read_unproven_notes(), *notes]
    return {
        "run": holder,
        "where": outcome.where,
        "attempts": [{"class": attempt.kind, "seconds": attempt.seconds} for attempt in outcome.attempts],
        "unproven": list(dict.fromkeys(unproven)),
        "models": {name: _read_manifest_digest(store, name) for name in (key.target, key.draft) if name},
    }


def _read_manifest_digest(store: ObjectStore, name: str) -> str | None:
    """Return the SHA-256 of the manifest of a model's snapshot; None where it has none any more."""
    manifest_object = store.read(manifest_key(f"models/{name.replace('@', '/')}"))
    return hashlib.sha256(manifest_object.body).hexdigest() if manifest_object else None


def _read_unproven_notes() -> list[str]:
    text = os.environ.get(UNPROVEN_VARIABLE) or "[]"
    try:
        notes = json.loads(text)
    except ValueError:
        notes = None
    if not isinstance(notes, list) or not all(isinstance(sentence, str) for sentence in notes):
        raise InputError(f"{UNPROVEN_VARIABLE} is no JSON list of sentences", change="use the rendered manifest")
    return notes
