"""`upload`: after a compile, verify the artifact, store it, write its manifest last; or end as the compile failed.

Invariant: what is stored has passed the local inspection against its key; the first whole artifact of a key wins,
whoever comes second says so and ends well; a run that was killed goes on and ends in the same bytes; however this
ends but by a kill, the lease that `fetch` took is free.

An artifact's folder is named after its run and its content, so no two writers ever write one object differently,
not even two pods of one Job, of which one was thought dead.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tandem.artifacts.asked import asked_holder, asked_key
from tandem.artifacts.driver import COMPILED, Outcome, read_outcome
from tandem.artifacts.fault import ArtifactError, RefusedError, StaleError
from tandem.artifacts.fetch import PRESENT, require_same
from tandem.artifacts.files import hashed_below
from tandem.artifacts.inspect_local import inspect_local
from tandem.artifacts.lease import let_go, take
from tandem.artifacts.log import say
from tandem.artifacts.manifest import LEASE_NAME, File, Manifest
from tandem.artifacts.send import send_all
from tandem.artifacts.store import Store, open_store
from tandem.artifacts.stored import files_prefix, manifest_key, read_stored_manifest, write_stored_manifest
from tandem.spec.artifact_key import ArtifactKey

LEASE_S = 120.0
WAIT_S = 600.0
OUTCOME = "outcome.json"  # what the driver says of the compile, in the work folder
CACHE = "compiler-cache"
UNPROVEN_VARIABLE = "TANDEM_UNPROVEN"  # JSON list of sentences
CONTENT_CHARACTERS = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    bucket = os.environ.get("TANDEM_BUCKET")
    parser.add_argument("--bucket", default=bucket, required=not bucket, help="bucket of models and artifacts")
    parser.add_argument("--artifact", type=Path, required=True, help="folder of what was compiled")
    parser.add_argument("--work", type=Path, required=True, help="folder of the driver's outcome and its caches")
    parser.add_argument("--wait-s", type=float, default=WAIT_S, help="seconds to wait for another job of the same key")
    parser.add_argument("--lease-s", type=float, default=LEASE_S, help="seconds until a dead run's lease is free")


def run(options: argparse.Namespace) -> int:
    """Store one compiled artifact; the exit code, which is the driver's where it gave the compile up.

    Raises:
        RefusedError: a variable is malformed, or nothing was compiled.
        StaleError: the artifact is not its key's or not whole, or what is stored under the key is something else.
        WorldError: S3 failed, or somebody else holds the lease.
    """
    key, holder = asked_key(), asked_holder()
    store = open_store(options.bucket)
    try:
        code = _end(options, store, key, holder)
    except BaseException:  # a restart takes the lease back; a new Job would wait for it in vain
        _free(store, key, holder)
        raise
    return code


def _end(options: argparse.Namespace, store: Store, key: ArtifactKey, holder: str) -> int:
    """Say what is to be said, or store; the exit code."""
    if _present(store, key):
        _free(store, key, holder)
        return 0
    outcome = _outcome(options.work)
    if outcome.failure:
        _free(store, key, holder)
        say(**outcome.failure, level="error")
        return int(outcome.failure["exit_code"])
    return _store(options, store, key, holder, outcome)


def _store(options: argparse.Namespace, store: Store, key: ArtifactKey, holder: str, outcome: Outcome) -> int:
    notes = inspect_local(options.artifact, key, cache=options.work / CACHE)
    hashed = hashed_below(options.artifact)
    files = tuple(one.file for one in hashed)
    with take(store, f"{key.prefix}/{LEASE_NAME}", holder, options.lease_s, options.wait_s) as lease:
        if _present(store, key):  # written by whoever held the lease before us
            return 0
        manifest = Manifest(
            schema_version=1, kind="artifact", name=key.name, folder=f"{holder}-{_content(files)}",
            fields=key.as_fields(), files=files, made=_made(store, key, holder, outcome, notes),
        )  # fmt: skip
        send_all(store, options.artifact, files_prefix(key.prefix, manifest), hashed, check=lease.check)
        lease.confirm()
        if not write_stored_manifest(store, key.prefix, manifest):
            _present(store, key)
            return 0
    say("stored", object=store.url(manifest_key(key.prefix)), files=len(files), size=manifest.size)
    return 0


def _free(store: Store, key: ArtifactKey, holder: str) -> None:
    """Release our lease, if it is ours; a failure to do so hides nothing else that is to be said."""
    lease = f"{key.prefix}/{LEASE_NAME}"
    try:
        let_go(store, lease, holder)
    except ArtifactError as error:
        say("lease not released", level="warning", object=store.url(lease), reason=error.what)


def _present(store: Store, key: ArtifactKey) -> bool:
    """Tell whether the key's artifact is stored.

    Raises:
        RefusedError: its manifest cannot be read.
        StaleError: it is of another key.
    """
    manifest = read_stored_manifest(store, key.prefix)
    if manifest is None:
        return False
    where = store.url(manifest_key(key.prefix))
    require_same(manifest, key, where)
    say("present", object=where, made_by=manifest.made.get("run"), files=len(manifest.files), size=manifest.size)
    return True


def _outcome(work: Path) -> Outcome:
    """Return what the driver says of a compile that ended well or was given up.

    Raises:
        RefusedError: it says nothing, or that the compile has not ended.
    """
    path = work / OUTCOME
    outcome = read_outcome(path)
    if outcome is None and (work / PRESENT).exists():
        raise StaleError(
            "the artifact was stored when this Job began, so nothing was compiled, and its manifest is gone now",
            where=str(work / PRESENT), change="see who removed it (tandem artifacts list), then create the Job again",
        )  # fmt: skip
    if outcome is None or not (outcome.result == COMPILED or outcome.failure):
        said = f"the compile's result is {outcome.result!r}" if outcome else "nothing says that a compile ended well"
        raise RefusedError(
            said, where=str(path),
            change="see the log of the compile container; an artifact from elsewhere is taken in by "
            "`tandem artifacts adopt`",
        )  # fmt: skip
    return outcome


def _made(
    store: Store, key: ArtifactKey, holder: str, outcome: Outcome, notes: Sequence[str]
) -> dict[str, Any]:  # fmt: skip
    """Return how the artifact came to be: a run that goes on after a kill says the same."""
    unproven = [*outcome.unproven, *_declared_unproven(), *notes]
    return {
        "run": holder,
        "where": outcome.where,
        "attempts": [{"class": attempt.kind, "seconds": attempt.seconds} for attempt in outcome.attempts],
        "unproven": list(dict.fromkeys(unproven)),
        "models": {name: _snapshot(store, name) for name in (key.target, key.draft) if name},
    }


def _snapshot(store: Store, name: str) -> str | None:
    """Return the SHA-256 of the manifest of a model's snapshot; None where it has none any more."""
    stored = store.read(manifest_key(f"models/{name.replace('@', '/')}"))
    return hashlib.sha256(stored.body).hexdigest() if stored else None


def _declared_unproven() -> list[str]:
    said = os.environ.get(UNPROVEN_VARIABLE) or "[]"
    try:
        plain = json.loads(said)
    except ValueError:
        plain = None
    if not isinstance(plain, list) or not all(isinstance(sentence, str) for sentence in plain):
        raise RefusedError(f"{UNPROVEN_VARIABLE} is no JSON list of sentences", change="use the rendered manifest")
    return plain


def _content(files: Sequence[File]) -> str:
    """Return the first characters of a digest over every file's path and content."""
    listed: Mapping[str, str] = {file.path: file.sha256 for file in files}
    return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()[:CONTENT_CHARACTERS]
