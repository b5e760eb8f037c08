"""`verify`: hold a stored set against its manifest byte by byte, or a local artifact against its key.

Invariant: a set is called right only when every byte that its manifest names was read and hashed, and the manifest
itself is the one that was written.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path

from tandem.artifacts.asked import ARTIFACTS, MODELS, asked_key
from tandem.artifacts.fault import ArtifactError, RefusedError, StaleError
from tandem.artifacts.inspect_local import inspect_local
from tandem.artifacts.log import say
from tandem.artifacts.manifest import File, Manifest, inside, read_manifest
from tandem.artifacts.receive import stream
from tandem.artifacts.store import Store, each, open_store
from tandem.artifacts.stored import files_prefix, manifest_key
from tandem.shell_command import quote_command
from tandem.spec.artifact_key import ArtifactKey

CACHE = "compiler-cache"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--bucket", default=os.environ.get("TANDEM_BUCKET"), help="bucket of models and artifacts")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="ORG/NAME", help="a stored model; with --revision")
    what.add_argument("--artifact", metavar="NAME", help="a stored artifact: its key's name, as `list` shows it")
    what.add_argument("--folder", type=Path, help="a local artifact, held against TANDEM_ARTIFACT_KEY")
    parser.add_argument("--revision", help="of the model")
    parser.add_argument("--work", type=Path, help="with --folder: where the compiler's cache is")


def run(options: argparse.Namespace) -> int:
    """Verify one set; 0 where it is right, 1 where a file differs.

    Raises:
        RefusedError: what to verify is not named well, or there is nothing of that name.
        StaleError: the manifest is of something else, or the local artifact is not its key's.
        WorldError: S3 failed.
    """
    if options.folder is not None:
        return _local(options.folder, options.work)
    if not options.bucket:
        raise RefusedError("no bucket is named", change="give --bucket, or set TANDEM_BUCKET")
    kind, name, prefix = _asked(options)
    store = open_store(options.bucket)
    manifest = _manifest(store, kind, name, prefix)
    wrong = differing(store, prefix, manifest)
    for file, fault in wrong:
        say(fault.what, level="error", file=file.path, where=fault.where, change=fault.change)
    say("differs" if wrong else "right", level="error" if wrong else "info", kind=kind, name=name,
        files=len(manifest.files), wrong=len(wrong), size=manifest.size)  # fmt: skip
    return StaleError.code if wrong else 0


def _local(folder: Path, work: Path | None) -> int:
    key = asked_key()
    notes = inspect_local(folder, key, cache=work / CACHE if work else None)
    say("right", kind="artifact", name=key.name, folder=str(folder), unproven=list(notes))
    return 0


def _asked(options: argparse.Namespace) -> tuple[str, str, str]:
    """Return kind, name and prefix of what is asked for."""
    if options.artifact is not None:
        kind, name, path = "artifact", options.artifact, f"{ARTIFACTS}/{options.artifact}"
    else:
        if not options.revision:
            raise RefusedError("no revision is named", change="give --revision beside --model")
        kind, name = "model", f"{options.model}@{options.revision}"
        path = f"{MODELS}/{options.model}/{options.revision}"
    try:
        return kind, name, inside(path)
    except ValueError as error:
        raise RefusedError(str(error), change="give the name as `list` shows it") from None


def _manifest(store: Store, kind: str, name: str, prefix: str) -> Manifest:
    """Return the manifest, which is of what it should be and as it was written.

    Raises:
        RefusedError: there is none, or it cannot be read.
        StaleError: it is of something else, or was changed since it was written.
    """
    key = manifest_key(prefix)
    where, stored = store.url(key), store.read(key)
    if stored is None:
        raise RefusedError(
            f"there is no manifest, so no whole {kind} {name}", where=where,
            change="`list` shows what there is and who writes it",
        )  # fmt: skip
    manifest = read_manifest(stored.body, where)
    head = store.head(key)
    again = f"see who wrote it; remove it and run the job that makes the {kind} again"
    if head is None or head.sha256 != hashlib.sha256(stored.body).hexdigest():
        raise StaleError("the manifest is not as Tandem wrote it", where=where, change=again)
    if (manifest.kind, manifest.name) != (kind, name):
        raise StaleError(f"the manifest is of {manifest.kind} {manifest.name}", where=where, change=again)
    if kind == "artifact" and _named_by(manifest) not in {"", name}:
        raise StaleError(f"the manifest's fields are those of {_named_by(manifest)}", where=where, change=again)
    return manifest


def _named_by(manifest: Manifest) -> str:
    """Return the name that the manifest's own fields give; empty where another release wrote them."""
    try:
        return ArtifactKey.from_fields(manifest.fields).name
    except ValueError:
        return ""


def differing(store: Store, prefix: str, manifest: Manifest) -> list[tuple[File, ArtifactError]]:
    """Read every object of a set; the files that differ from its manifest, each with what is wrong and what to do.

    Args:
        store: the bucket.
        prefix: of the set.
        manifest: of the set.

    Raises:
        WorldError: S3 failed, so that nothing can be said.
    """
    below = files_prefix(prefix, manifest)
    faults: dict[str, ArtifactError | None] = {}

    def judge(file: File) -> None:
        faults[file.path] = _fault(store, below, file)

    each(store, store.concurrency, judge, manifest.files)
    return [(file, fault) for file in manifest.files if (fault := faults[file.path])]


def _fault(store: Store, below: str, file: File) -> ArtifactError | None:
    key = f"{below}/{file.path}"
    head = store.head(key)
    if head is None:
        return _damaged(store, key, "the object is missing")
    if head.size != file.size:
        return _damaged(store, key, f"the object has {head.size} bytes, the manifest says {file.size}")
    digest = hashlib.sha256()
    try:
        for piece in stream(store, key, head.etag, 0, head.size) if head.size else ():
            digest.update(piece)
            store.require_going()
    except StaleError as error:
        return error
    if digest.hexdigest() != file.sha256:
        return _damaged(store, key, f"the content has SHA-256 {digest.hexdigest()}, the manifest says {file.sha256}")
    if head.sha256 != file.sha256:
        return _damaged(store, key, f"the content is right, but marked with SHA-256 {head.sha256}")
    say("right", object=store.url(key), size=file.size)
    return None


def _damaged(store: Store, key: str, what: str) -> StaleError:
    manifest, remove = "tandem-manifest.json", quote_command("aws", "s3", "rm", store.url(key))
    return StaleError(
        what, where=store.url(key),
        change=f"serve nothing from this set: remove its {manifest} and this object ({remove}), then "
        "run the job that makes it again; a former version may lie in the bucket (aws s3api list-object-versions)",
    )  # fmt: skip
