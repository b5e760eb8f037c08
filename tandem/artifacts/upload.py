"""`upload`: after a compile, verify the artifact, store it, write its manifest last; or end as the compile failed.

Invariant: what a manifest names has passed the local inspection against its key, and what has not is kept without
one; the first whole artifact of a key wins, whoever comes second says so and ends well; a run that was killed goes on
and ends in the same bytes; however this ends but by a kill, the lease that `fetch` took is free.

An artifact's folder is named after its Job, its pod and the driver's outcome: no two writers ever write one object, not
even two pods of one Job, of which one was thought dead, and a container that is started again goes on where it was. The
content takes no part in the name, so sending need not wait for all hashes.
"""

from __future__ import annotations

import argparse
import hashlib
from functools import cached_property
from pathlib import Path
from platform import node
from typing import Any

from tandem.artifacts import manifest as sets
from tandem.artifacts.driver.log import log_event
from tandem.artifacts.driver.outcome import RESULT_SUCCESS, CompileOutcome, read_outcome
from tandem.artifacts.files import LocalFiles, compute_sha256
from tandem.artifacts.inspection import format_faults, inspect_artifact
from tandem.artifacts.job_env import add_bucket_argument, read_artifact_key, read_holder, read_json_variable
from tandem.artifacts.lease import LEASE_S, hold_lease, parse_ttl_s, release_lease
from tandem.artifacts.retry import add_retry_argument, retry_upload
from tandem.artifacts.s3_transfer import upload_files
from tandem.artifacts.store import ObjectStore, open_store
from tandem.errors import InputError, StaleError, TandemError
from tandem.shell_command import quote_command
from tandem.spec.artifact_key import ArtifactKey

WAIT_S = 600.0
OUTCOME_NAME = "outcome.json"  # what the driver says of the compile, in the work folder
CACHE_NAME = "compiler-cache"
UNPROVEN_VARIABLE = "TANDEM_UNPROVEN"  # JSON list of sentences
DIGEST_CHARACTERS = 12  # at the end of the name that a pod's compile is stored under


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_bucket_argument(parser)
    parser.add_argument("--artifact", type=Path, required=True, help="folder of what was compiled")
    parser.add_argument("--work", type=Path, required=True, help="folder of the driver's outcome and its caches")
    parser.add_argument("--wait-s", type=float, default=WAIT_S, help="seconds to wait for another job of the same key")
    parser.add_argument("--lease-s", type=parse_ttl_s, default=LEASE_S, help="seconds until a dead run's lease is free")
    add_retry_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Store one compiled artifact; the exit code, which is the driver's where it gave the compile up.

    Raises:
        InputError: a variable is malformed, or nothing was compiled.
        StaleError: the artifact is not its key's or not whole, or what is stored under the key is something else.
        ExternalError: S3 failed for longer than the patience, or somebody else holds the lease.
    """
    key, holder = read_artifact_key(), read_holder()
    upload = ArtifactUpload(open_store(options.bucket), key, holder, options)
    try:
        return retry_upload(upload.finish, options.patience_s)
    except BaseException:  # a restart takes the lease back; a new Job would wait for it in vain
        upload.release()
        raise


class ArtifactUpload:
    """One upload; what was compiled is inspected and hashed once, however often S3 fails."""

    def __init__(self, store: ObjectStore, key: ArtifactKey, holder: str, options: argparse.Namespace) -> None:
        self.store, self.key, self.holder, self.options = store, key, holder, options
        self.lease_key = f"{key.prefix}/{sets.LEASE_NAME}"  # of the lease that `fetch` took

    @cached_property
    def files(self) -> LocalFiles:
        """Return the artifact's files."""
        return LocalFiles(self.options.artifact)

    @cached_property
    def inspection(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the artifact's faults, and what of it is unproven.

        Raises:
            InputError: it is a link: the compiler may have made one that leads to what is not its own.
        """
        folder = self.options.artifact
        if folder.is_symlink():
            change = "see what the compile container ran: a link may lead to what is not the compiler's"
            raise InputError("it is a symbolic link, no folder", where=str(folder), change=change)
        return inspect_artifact(folder, self.key, cache=self.options.work / CACHE_NAME)

    def finish(self) -> int:
        """Say what is to be said, or store; the exit code."""
        if sets.find_stored_set(self.store, self.key):
            self.release()
            return 0
        outcome = _require_outcome(self.options.work)
        if outcome.failure:
            self.release()
            log_event(**outcome.failure, level="error")
            return int(outcome.failure["exit_code"])
        self._store(outcome)
        return 0

    def release(self) -> None:
        """Release our lease, if it is ours; a failure to do so hides nothing else that is to be said."""
        try:
            release_lease(self.store, self.lease_key, self.holder)
        except TandemError as error:
            where = self.store.url(self.lease_key)
            log_event("lease not released", level="warning", object=where, reason=error.problem)

    def _store(self, outcome: CompileOutcome) -> None:
        store, key, options = self.store, self.key, self.options
        faults, run_name = self.inspection[0], choose_run_name(options.work, self.holder)
        folder = f"{key.prefix}/{run_name}"
        with hold_lease(store, self.lease_key, self.holder, options.lease_s, options.wait_s) as lease:
            if sets.find_stored_set(store, key):  # written by whoever held the lease before us
                return
            made = self._describe_provenance(outcome) | ({sets.FAULTS_FIELD: list(faults)} if faults else {})
            files = upload_files(store, self.files, folder, check=lease.check)
            manifest = sets.build_manifest(key, files, made, run_name)
            lease.confirm()
            if faults:
                store.create(f"{folder}/{sets.REJECTION_NAME}", manifest.to_bytes())
            elif not sets.write_stored_manifest(store, key.prefix, manifest):
                sets.find_stored_set(store, key)
                return
        if faults:
            words = ("--refused", run_name, "--env", "ENVIRONMENT", "--variant", "EXPERIMENT/VARIANT")
            command = quote_command("tandem", "artifacts", "import", *words)
            change = f"no server finds what is kept there; if it is no fault, take it in: {command}; else compile again"
            raise StaleError(format_faults(faults), where=f"{store.url(folder)}/", change=change)
        where = store.url(sets.manifest_key(key.prefix))
        log_event("stored", object=where, files=len(manifest.files), size=manifest.size)

    def _describe_provenance(self, outcome: CompileOutcome) -> dict[str, Any]:
        """Return how the artifact came to be: a run that goes on after a kill says the same."""
        notes = read_json_variable(UNPROVEN_VARIABLE, list, "[]")
        models: dict[str, str | None] = {}  # to the SHA-256 of its manifest, None where it has none any more
        for name in filter(None, (self.key.target, self.key.draft)):
            manifest_object = self.store.read(sets.manifest_key(f"models/{name.replace('@', '/')}"))
            models[name] = hashlib.sha256(manifest_object.body).hexdigest() if manifest_object else None
        return {
            "run": self.holder,
            "where": outcome.where,
            "attempts": [{"class": attempt.kind, "seconds": attempt.seconds} for attempt in outcome.attempts],
            "unproven": list(dict.fromkeys([*outcome.unproven, *notes, *self.inspection[1]])),
            "models": models,
        }


def choose_run_name(work: Path, holder: str) -> str:
    """Return the name of the folder below the artifact: one for each compile of a pod, the same at every start.

    The outcome says to the microsecond when the compile began; two pods of one Job have two host names. It is hashed:
    whatever the compile container left there, no name leads out of its own Job's folders.
    """
    digest = hashlib.sha256(f"{node()} {compute_sha256(work / OUTCOME_NAME)}".encode())
    return f"{holder}-{digest.hexdigest()[:DIGEST_CHARACTERS]}"


def _require_outcome(work: Path) -> CompileOutcome:
    """Return what the driver says of a compile that ended well or was given up.

    Raises:
        InputError: it says nothing, or that the compile has not ended.
    """
    outcome = read_outcome(work / OUTCOME_NAME)
    if outcome is None or not (outcome.result == RESULT_SUCCESS or outcome.failure):
        problem = f"the compile's result is {outcome.result!r}" if outcome else "nothing says that a compile ended well"
        change = "see the log of the compile container; `tandem artifacts import` takes in an artifact from elsewhere"
        raise InputError(problem, where=str(work / OUTCOME_NAME), change=change)
    return outcome
