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

from tandem.artifacts.asked import asked_holder, asked_key
from tandem.artifacts.driver import COMPILED, Outcome, read_outcome
from tandem.artifacts.fault import ArtifactError, RefusedError, StaleError
from tandem.artifacts.fetch import PRESENT, require_same
from tandem.artifacts.files import LocalFiles, digest_of
from tandem.artifacts.inspect_local import Inspection, inspection, spoken
from tandem.artifacts.lease import let_go, take
from tandem.artifacts.log import say
from tandem.artifacts.manifest import LEASE_NAME, Manifest
from tandem.artifacts.patience import add_patience, patiently
from tandem.artifacts.refused import write_refused
from tandem.artifacts.send import send_hashing
from tandem.artifacts.store import Store, open_store
from tandem.artifacts.stored import files_prefix, manifest_key, read_stored_manifest, write_stored_manifest
from tandem.shell_command import quote_command
from tandem.spec.artifact_key import ArtifactKey

LEASE_S = 120.0
WAIT_S = 600.0
OUTCOME = "outcome.json"  # what the driver says of the compile, in the work folder
CACHE = "compiler-cache"
REFUSED = "refused.json"  # in the work folder: what an earlier start of this container said
UNPROVEN_VARIABLE = "TANDEM_UNPROVEN"  # JSON list of sentences
RUN = "run.json"  # in the work folder: the name of what this pod's compile is stored under
CHANCE_BYTES = 6
CHANCE = rf"[0-9a-f]{{{2 * CHANCE_BYTES}}}"  # at the end of that name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    bucket = os.environ.get("TANDEM_BUCKET")
    parser.add_argument("--bucket", default=bucket, required=not bucket, help="bucket of models and artifacts")
    parser.add_argument("--artifact", type=Path, required=True, help="folder of what was compiled")
    parser.add_argument("--work", type=Path, required=True, help="folder of the driver's outcome and its caches")
    parser.add_argument("--wait-s", type=float, default=WAIT_S, help="seconds to wait for another job of the same key")
    parser.add_argument("--lease-s", type=float, default=LEASE_S, help="seconds until a dead run's lease is free")
    add_patience(parser)


def run(options: argparse.Namespace) -> int:
    """Store one compiled artifact; the exit code, which is the driver's where it gave the compile up.

    Raises:
        RefusedError: a variable is malformed, or nothing was compiled.
        StaleError: the artifact is not its key's or not whole, or what is stored under the key is something else.
        WorldError: S3 failed for longer than the patience, or somebody else holds the lease.
    """
    key, holder = asked_key(), asked_holder()
    store, local = open_store(options.bucket), _Local(options.artifact, options.work, key)
    try:
        code = patiently(lambda: _end(options, store, local, holder), options.patience_s)
    except BaseException:  # a restart takes the lease back; a new Job would wait for it in vain
        _free(store, key, holder)
        raise
    return code


class _Local:
    """What was compiled, inspected and hashed once, however often S3 fails."""

    def __init__(self, folder: Path, work: Path, key: ArtifactKey) -> None:
        self.folder, self.work, self.key = folder, work, key

    @cached_property
    def found(self) -> Inspection:
        if self.folder.is_symlink():
            raise RefusedError(
                "it is a symbolic link, where the compiler was to make a folder", where=str(self.folder),
                change="see what the compile container ran: a link may lead to what is not the compiler's",
            )  # fmt: skip
        return inspection(self.folder, self.key, cache=self.work / CACHE)

    @cached_property
    def files(self) -> LocalFiles:
        return LocalFiles(self.folder)


def _end(options: argparse.Namespace, store: Store, local: _Local, holder: str) -> int:
    """Say what is to be said, or store; the exit code."""
    if _present(store, local.key):
        _free(store, local.key, holder)
        return 0
    outcome = _outcome(options.work)
    if outcome.failure:
        _free(store, local.key, holder)
        say(**outcome.failure, level="error")
        return int(outcome.failure["exit_code"])
    _raise_again(options.work)
    return _store(options, store, local, holder, outcome)


def _store(options: argparse.Namespace, store: Store, local: _Local, holder: str, outcome: Outcome) -> int:
    key, faults, local_files = local.key, local.found.faults, local.files
    folder = _run(options.work, holder)
    with take(store, f"{key.prefix}/{LEASE_NAME}", holder, options.lease_s, options.wait_s) as lease:
        if _present(store, key):  # written by whoever held the lease before us
            return 0
        made = _made(store, key, holder, outcome, local.found.notes)
        sent = send_hashing(store, local_files, f"{key.prefix}/{folder}", check=lease.check)
        files = tuple(one.file for one in sent)
        manifest = Manifest(
            schema_version=1, kind="artifact", name=key.name, folder=folder, fields=key.as_fields(), files=files,
            made=made,
        )  # fmt: skip
        lease.confirm()
        if faults:
            write_refused(store, key.prefix, manifest, faults)
        elif not write_stored_manifest(store, key.prefix, manifest):
            _present(store, key)
            return 0
    if faults:
        raise _refusal(options.work, store.url(files_prefix(key.prefix, manifest)), manifest.folder, faults)
    say("stored", object=store.url(manifest_key(key.prefix)), files=len(files), size=manifest.size)
    return 0


def _refusal(work: Path, kept: str, run: str, faults: Sequence[str]) -> StaleError:
    """Return the refusal of what is kept, and leave it for a restart of this container, which need not hash again."""
    adopt = quote_command(
        "tandem", "artifacts", "adopt", "--refused", run, "--env", "ENVIRONMENT", "--variant", "EXPERIMENT/VARIANT"
    )
    said = {
        "what": spoken(faults), "where": f"{kept}/",
        "change": "it is kept there and no server finds it; if what is said of it is no fault, take it in: "
        f"{adopt}; else compile again",
    }  # fmt: skip
    (work / REFUSED).write_text(json.dumps({**said, "compile": digest_of(work / OUTCOME)}))
    return StaleError(said["what"], where=said["where"], change=said["change"])


def _raise_again(work: Path) -> None:
    """Raise what an earlier start of this container said of what the same compile made.

    Raises:
        StaleError: it was refused.
    """
    try:
        said = {name: str(value) for name, value in json.loads((work / REFUSED).read_text()).items()}
        error = StaleError(said["what"], where=said["where"], change=said["change"])
        same = said["compile"] == digest_of(work / OUTCOME)
    except (OSError, ValueError, KeyError, AttributeError):
        return
    if same:
        raise error


def _run(work: Path, holder: str) -> str:
    """Return the name of the folder below the artifact: one for each compile of a pod, the same at every start.

    What is read here the compile container may have written too, and no name leads it out of its own Job's folders.
    """
    path, compile_ = work / RUN, digest_of(work / OUTCOME)
    try:
        kept = json.loads(path.read_text())
        if kept["compile"] == compile_ and re.fullmatch(rf"{re.escape(holder)}-{CHANCE}", kept["run"]):
            return str(kept["run"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none yet, or half of one: nothing was sent under it
    name = f"{holder}-{secrets.token_hex(CHANCE_BYTES)}"
    try:
        descriptor, partial = tempfile.mkstemp(dir=work)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"compile": compile_, "run": name}, file)
        Path(partial).replace(path)
    except OSError as error:  # a full disk: what is compiled is stored all the same
        say("a restart would send all again", level="warning", where=str(path), reason=error.strerror or str(error))
    return name


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
