"""`stage`: bring one snapshot, from a hub or a folder, into the bucket; one file at a time through local disk.

Invariant: the manifest is written last, of files that are whole; nothing is written under a prefix that holds a file
of another snapshot, so files of two commits never mix; what is written follows from the snapshot alone, so whoever
writes it, and however often it was killed, the end is the same bytes.

A pinned model lies under its commit. One that is not pinned lies under the name that moves, `main`: its manifest
says which commit that was, and stays so until an operator removes the prefix.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1, sha256
from pathlib import Path
from platform import node
from typing import Any, Protocol

from tandem.artifacts.asked import HOLDER_VARIABLE
from tandem.artifacts.fault import RefusedError, StaleError
from tandem.artifacts.lease import Lease, let_go, take
from tandem.artifacts.log import say
from tandem.artifacts.manifest import LEASE_NAME, NAME, File, Manifest
from tandem.artifacts.progress import Progress
from tandem.artifacts.send import send
from tandem.artifacts.snapshot import CONFIG, INDEX, Entry, check_config, choose, require_config, tensors_of
from tandem.artifacts.store import Head, Store, open_store
from tandem.artifacts.stored import read_stored_manifest, write_stored_manifest
from tandem.shell_command import quote_command
from tandem.spec.names import WORK_MOUNT

LEASE_S = 120.0
WAIT_S = 3600.0
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")


class Source(Protocol):
    """Where a snapshot comes from: `hub.HubSnapshot` or `folder.FolderSnapshot`."""

    @property
    def where(self) -> str:
        """Return what messages call it."""

    @property
    def commit(self) -> str | None:
        """Return the commit; None where nobody knows it."""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Return every file by its name."""

    @property
    def made(self) -> dict[str, Any]:
        """Return what the manifest says of it."""

    def prepare(self) -> None:
        """Make local disk ready; nobody else uses it now."""

    def expect(self, entries: Sequence[Entry]) -> None:
        """Refuse to begin if one of these files will not fit on local disk."""

    def receive(self, entry: Entry, moved: Callable[[int], None]) -> tuple[Path, str]:
        """Return a checked local file and its SHA-256."""

    def drop(self, entry: Entry) -> None:
        """Let go of the local file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What is staged: organisation/name and a revision, a commit or a name that moves."""

    id: str
    revision: str

    def __post_init__(self) -> None:
        """Refuse what cannot be a prefix.

        Raises:
            RefusedError: the id or the revision has another form.
        """
        if not _ID.fullmatch(self.id) or ".." in self.id:
            raise RefusedError(f"{self.id!r} is no model", change="give organisation/name, as the hub spells it")
        if not _REVISION.fullmatch(self.revision) or ".." in self.revision:
            raise RefusedError(
                f"{self.revision!r} is no revision that can be a folder's name",
                change="give the commit, 40 hexadecimal digits",
            )

    @property
    def prefix(self) -> str:
        """Return the S3 prefix, without a slash at its end; as `tandem.spec.model.Model.prefix` says it."""
        return f"models/{self.id}/{self.revision}"

    @property
    def name(self) -> str:
        """Return what its manifest is called by."""
        return f"{self.id}@{self.revision}"

    @property
    def pinned(self) -> bool:
        """Return whether the revision is a commit."""
        return _COMMIT.fullmatch(self.revision) is not None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    bucket = os.environ.get("TANDEM_BUCKET")
    parser.add_argument("--bucket", default=bucket, required=bucket is None, help="of models and artifacts")
    parser.add_argument("--model", required=True, metavar="ORG/NAME", help="as the hub spells it")
    parser.add_argument("--revision", required=True, help="commit of 40 hexadecimal digits, or a name that moves")
    parser.add_argument("--work", type=Path, default=Path(WORK_MOUNT), help="local disk for the largest file")
    parser.add_argument("--from", dest="folder", type=Path, metavar="DIR", help="a copy of the snapshot, no hub")
    parser.add_argument("--wait-s", type=float, default=WAIT_S, help="seconds to wait for another run of the same")
    parser.add_argument("--lease-s", type=float, default=LEASE_S, help="seconds until a dead run's lease is free")


def run(options: argparse.Namespace) -> int:
    """Stage one model.

    Returns:
        0: it is in the bucket, with its manifest.

    Raises:
        StaleError: the prefix holds something else.
        RefusedError: the snapshot cannot be served, or the hub does not give it.
        WorldError: the hub, S3, the secret or the disk failed.
    """
    model = Model(id=options.model, revision=options.revision)
    store = open_store(options.bucket)
    holder = os.environ.get(HOLDER_VARIABLE) or f"hand-{node()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    key = f"{model.prefix}/{LEASE_NAME}"
    if _present(store, model):
        let_go(store, key, holder)
        return 0
    work = options.work / "stage" / options.bucket / model.id / model.revision  # as the lease: one run at a time
    source = _source(model, options.folder, work)
    with take(store, key, holder, options.lease_s, options.wait_s) as lease:
        if not _present(store, model):
            _stage(store, model, source, lease)
    if options.folder is None:
        shutil.rmtree(work, ignore_errors=True)
    return 0


def _present(store: Store, model: Model) -> bool:
    """Tell whether the model's manifest is there.

    Raises:
        RefusedError: it is cut off, or of a newer schema.
        StaleError: it is of something else.
    """
    manifest = read_stored_manifest(store, model.prefix)
    where = store.url(f"{model.prefix}/{NAME}")
    if manifest is None:
        return False
    if manifest.kind != "model" or manifest.name != model.name:
        raise StaleError(
            f"the manifest is of the {manifest.kind} {manifest.name}, not of {model.name}", where=where,
            change="see who wrote it; remove the prefix, then run this job again",
        )  # fmt: skip
    say(
        "present", object=where, model=model.name, commit=manifest.fields.get("commit"), files=len(manifest.files),
        size=manifest.size,
    )  # fmt: skip
    return True


def _source(model: Model, folder: Path | None, work: Path) -> Source:
    if folder is not None:
        from tandem.artifacts.folder import open_folder  # noqa: PLC0415 - only when there is something to bring

        return open_folder(folder, model.revision if model.pinned else None)
    from tandem.artifacts.hub import resolve  # noqa: PLC0415 - only when there is something to fetch

    return resolve(model.id, model.revision, work)


def _stage(store: Store, model: Model, source: Source, lease: Lease) -> None:
    source.prepare()
    files, left_out = _plan(source)
    if left_out:
        say("left out", model=model.name, files=left_out)
    # the checksums of the hub decide on what lies below a commit; no manifest refers to it yet
    may_replace = model.pinned and source.made["from"] == "hub"
    digests = _whole_already(store, model, files, source, may_replace=may_replace)
    missing = [entry for entry in files if entry.path not in digests]
    progress = Progress(event="staging", files=len(missing), size=sum(entry.size for entry in missing))
    source.expect(missing)
    say("planned", model=model.name, commit=source.commit, files=len(files), missing=len(missing), size=progress.size)

    def moved(size: int) -> None:
        lease.check()
        progress.moved(size)

    for index, entry in enumerate(missing, start=1):
        progress.begin(index, entry.path)
        path, digests[entry.path] = source.receive(entry, moved)
        send(store, path, f"{model.prefix}/{entry.path}", digests[entry.path])
        source.drop(entry)
    manifest = _manifest(model, source, [File(path=one.path, size=one.size, sha256=digests[one.path]) for one in files],
                         left_out)  # fmt: skip
    lease.confirm()
    if not write_stored_manifest(store, model.prefix, manifest):
        _present(store, model)  # somebody else's, written since; it says so, or is refused
        return
    say("staged", object=store.url(f"{model.prefix}/{NAME}"), model=model.name, commit=source.commit,
        files=len(files), size=manifest.size, seconds=progress.seconds)  # fmt: skip


def _plan(source: Source) -> tuple[tuple[Entry, ...], dict[str, str]]:
    """Return the files to stage, and those that are left out with the reason."""
    entries, where = source.entries, source.where
    require_config(entries, where)
    check_config(_small(source, CONFIG), f"{where}/{CONFIG}")
    index = _small(source, INDEX) if INDEX in entries else None
    return choose(entries, tensors_of(entries, index, where))


def _small(source: Source, name: str) -> bytes:
    path, _ = source.receive(source.entries[name], lambda _size: None)
    return path.read_bytes()


def _whole_already(
    store: Store, model: Model, files: Sequence[Entry], source: Source, *, may_replace: bool
) -> dict[str, str]:
    """Return the SHA-256 of the files whose objects are whole.

    Raises:
        StaleError: under the prefix is an object that is not of this snapshot.
    """
    wanted = {entry.path: entry for entry in files}
    digests: dict[str, str] = {}
    for listed in store.list(f"{model.prefix}/"):
        name = listed.key.removeprefix(f"{model.prefix}/")
        if name in {"", NAME, LEASE_NAME}:  # "" is what a console writes for an empty folder
            continue
        digest = _stored_digest(store, listed.key, wanted[name], source) if name in wanted else None
        if digest is not None:
            digests[name] = digest
        elif name not in wanted or not may_replace:
            remove = quote_command("aws", "s3", "rm", "--recursive", f"{store.url(model.prefix)}/")
            raise StaleError(
                f"the object is not of {model.name} as {source.where} has it, and files of two snapshots must not mix",
                where=store.url(listed.key),
                change=f"see that nobody serves from it, remove it ({remove}) and "
                "run this job again; a pinned revision has a prefix of its own",
            )
    return digests


def _stored_digest(store: Store, key: str, entry: Entry, source: Source) -> str | None:
    """Return the SHA-256 of an object that has the entry's content, else None."""
    head = store.head(key)
    if head is None or head.size != entry.size or head.sha256 is None:
        return None
    return head.sha256 if _same(store, key, entry, head, source) else None


def _same(store: Store, key: str, entry: Entry, head: Head, source: Source) -> bool:
    if entry.sha256:
        return head.sha256 == entry.sha256
    if entry.git_sha1:  # git stores small files only: the object itself tells, nothing is fetched from the hub again
        stored = store.read(key)
        body = stored.body if stored else b""
        blob = sha1(b"blob %d\0%b" % (len(body), body), usedforsecurity=False)
        return blob.hexdigest() == entry.git_sha1 and sha256(body).hexdigest() == head.sha256
    return source.receive(entry, lambda _size: None)[1] == head.sha256


def _manifest(model: Model, source: Source, files: Sequence[File], left_out: Mapping[str, str]) -> Manifest:
    return Manifest(
        schema_version=1, kind="model", name=model.name, folder="",
        fields={"id": model.id, "revision": model.revision, "commit": source.commit},
        files=tuple(files), made={**source.made, "left_out": dict(left_out)},
    )  # fmt: skip
