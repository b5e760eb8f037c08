"""`upload`: inspect the compiled artifact and store it, its manifest last; or report the failure.

Invariant: an artifact with a manifest has passed the local inspection against its key, and a
refused one is stored without a set manifest; the first whole artifact of a key wins, and a second
writer logs that and ends well; a killed run continues and ends with the same bytes; after any end
except a kill, the lease of `fetch` is free.

An artifact's folder is named after its Job, its pod and the driver's outcome: two writers never
write the same object, not even two pods of one Job, of which one seemed dead, and a restarted
container continues its own folder. The name does not depend on the content, so uploads need not
wait for all hashes.
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
from tandem.artifacts.job_env import (
    add_bucket_argument,
    read_artifact_key,
    read_holder,
    read_json_variable,
)
from tandem.artifacts.lease import LEASE_S, hold_lease, parse_ttl_s, release_lease
from tandem.artifacts.retry import add_retry_argument, retry_upload
from tandem.artifacts.s3_transfer import upload_files
from tandem.artifacts.store import ObjectStore, open_store
from tandem.declarations.artifact_key import ArtifactKey
from tandem.errors import InputError, StaleError, TandemError
from tandem.shell_command import quote_command

WAIT_S = 600.0  # for another job of the same key
OUTCOME_NAME = "outcome.json"  # the driver's record of the compile, in the work folder
CACHE_NAME = "compiler-cache"
UNPROVEN_VARIABLE = "TANDEM_UNPROVEN"  # JSON list of sentences
DIGEST_CHARACTERS = 12  # at the end of the stored folder's name of a compile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_bucket_argument(parser)
    parser.add_argument("--artifact", type=Path, required=True, help="folder of what was compiled")
    parser.add_argument(
        "--work", type=Path, required=True, help="folder of the driver's outcome and its caches"
    )
    parser.add_argument(
        "--lease-s",
        type=parse_ttl_s,
        default=LEASE_S,
        help="seconds until a dead run's lease is free",
    )
    add_retry_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Store one compiled artifact; return the exit code: the driver's if it gave up the compile.

    Raises:
        InputError: a variable is malformed, or nothing was compiled.
        StaleError: the artifact is not its key's or not whole, or the stored set of the key's name
            has another key.
        ExternalError: S3 failed for longer than the patience, or somebody else holds the lease.
    """
    key = read_artifact_key()
    holder = read_holder()
    upload = ArtifactUpload(open_store(options.bucket), key, holder, options)
    try:
        return retry_upload(upload.finish, options.patience_s)
    except BaseException:  # a restart takes the lease back; a new Job would wait in vain
        upload.release()
        raise


class ArtifactUpload:
    """One upload; the artifact is inspected and hashed once, for any number of S3's failures."""

    def __init__(
        self, store: ObjectStore, key: ArtifactKey, holder: str, options: argparse.Namespace
    ) -> None:
        self.store = store
        self.key = key
        self.holder = holder
        self.options = options
        self.lease_key = f"{key.prefix}/{sets.LEASE_NAME}"  # of the lease that `fetch` took

    @cached_property
    def files(self) -> LocalFiles:
        """Return the artifact's files."""
        return LocalFiles(self.options.artifact)

    @cached_property
    def inspection(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the artifact's faults, and its unproven facts.

        Raises:
            InputError: the folder is a link: the compiler may have made a link to files that are
                not its own.
        """
        folder = self.options.artifact
        if folder.is_symlink():
            raise InputError(
                "it is a symbolic link, no folder",
                where=str(folder),
                change=(
                    "see what the compile container ran: a link may lead to what is not the"
                    " compiler's"
                ),
            )
        return inspect_artifact(folder, self.key, cache=self.options.work / CACHE_NAME)

    def finish(self) -> int:
        """Store the artifact, unless it is stored or was given up; return the exit code."""
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
        """Release the lease, if it is ours; log a failure, so that it hides no other error."""
        try:
            release_lease(self.store, self.lease_key, self.holder)
        except TandemError as error:
            where = self.store.url(self.lease_key)
            log_event("lease not released", level="warning", object=where, reason=error.problem)

    def _store(self, outcome: CompileOutcome) -> None:
        store = self.store
        key = self.key
        options = self.options
        faults, _ = self.inspection
        run_name = choose_run_name(options.work, self.holder)
        folder = f"{key.prefix}/{run_name}"
        with hold_lease(store, self.lease_key, self.holder, options.lease_s, WAIT_S) as lease:
            if sets.find_stored_set(store, key):  # written by the holder before us
                return
            made = self._describe_provenance(outcome)
            if faults:
                made[sets.FAULTS_FIELD] = list(faults)
            files = upload_files(store, self.files, folder, check=lease.check)
            manifest = sets.build_manifest(key, files, made, run_name)
            lease.confirm()
            if faults:
                store.create(f"{folder}/{sets.REJECTION_NAME}", manifest.to_bytes())
            elif not sets.write_stored_manifest(store, key.prefix, manifest):
                sets.find_stored_set(store, key)
                return
        if faults:
            words = (
                "--refused",
                run_name,
                "--env",
                "ENVIRONMENT",
                "--variant",
                "EXPERIMENT/VARIANT",
            )
            command = quote_command("tandem", "artifacts", "import", *words)
            raise StaleError(
                format_faults(faults),
                where=f"{store.url(folder)}/",
                change=(
                    "no server uses the files kept there; if the difference is harmless,"
                    f" import them: {command}; otherwise compile again"
                ),
            )
        where = store.url(sets.manifest_key(key.prefix))
        log_event("stored", object=where, files=len(manifest.files), size=manifest.size)

    def _describe_provenance(self, outcome: CompileOutcome) -> dict[str, Any]:
        """Return the origin of the artifact: a run that continues after a kill returns the same."""
        notes = read_json_variable(UNPROVEN_VARIABLE, list, "[]")
        _, unproven = self.inspection
        models = {}  # name -> SHA-256 of its manifest, None if that is gone
        for name in filter(None, (self.key.target, self.key.draft)):
            manifest_object = self.store.read(sets.manifest_key(f"models/{name.replace('@', '/')}"))
            models[name] = (
                hashlib.sha256(manifest_object.body).hexdigest() if manifest_object else None
            )
        return {
            "run": self.holder,
            "where": outcome.where,
            "attempts": [
                {"class": attempt.kind, "seconds": attempt.seconds} for attempt in outcome.attempts
            ],
            "unproven": list(dict.fromkeys([*outcome.unproven, *notes, *unproven])),
            "models": models,
        }


def choose_run_name(work: Path, holder: str) -> str:
    """Return the folder's name below the artifact: one for each compile of a pod.

    The outcome has the begin of the compile to the microsecond; two pods of one Job have two host
    names. Both are hashed: no content that the compile container left there can make a name outside
    its own Job's folders.
    """
    digest = hashlib.sha256(f"{node()} {compute_sha256(work / OUTCOME_NAME)}".encode())
    return f"{holder}-{digest.hexdigest()[:DIGEST_CHARACTERS]}"


def _require_outcome(work: Path) -> CompileOutcome:
    """Return the driver's record of a compile that ended well or was given up.

    Raises:
        InputError: there is no record, or the compile has not ended.
    """
    outcome = read_outcome(work / OUTCOME_NAME)
    if outcome is None or not (outcome.result == RESULT_SUCCESS or outcome.failure):
        problem = "no record says that a compile succeeded"
        if outcome:
            problem = f"the compile's result is {outcome.result!r}"
        raise InputError(
            problem,
            where=str(work / OUTCOME_NAME),
            change=(
                "see the log of the compile container;"
                " `tandem artifacts import` takes in an artifact from elsewhere"
            ),
        )
    return outcome
