"""`admit`: before a server starts, hold the stored artifact against what the Deployment renders; then make it local.

Invariant: a server finds its artifact under `current` only when every field of the key agrees and every file has
its size, and, where it was copied, its SHA-256; a copy that was cut off is never found there. No network, no AWS:
it reads mounts alone.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from tandem.artifacts.asked import Snapshot, asked_compile, asked_key, asked_models
from tandem.artifacts.fault import StaleError, WorldError
from tandem.artifacts.inspect_nxdi import CONFIG, config_differences, read_config
from tandem.artifacts.log import say
from tandem.artifacts.manifest import NAME, File, Manifest, read_manifest
from tandem.artifacts.room import require_room, writing
from tandem.spec.artifact_key import ArtifactKey, differences

CURRENT = "current"  # what every runtime is told (tandem.spec.names.ARTIFACT_FOLDER)
INCOMING = ".incoming"  # a copy on its way
ADMITTED = ".admitted"  # beside `current`: the manifest that it was copied by
THREADS = 4
PIECE = 4 << 20  # bytes; so a copy takes THREADS times this in memory, whatever the sizes
SHOWN = 5  # files that a message names; the rest is counted
OPEN_FOLDER, OPEN_FILE = 0o777, 0o666  # the runtime's container is another user, and a cache keeps locks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `admit`."""
    parser.add_argument("--stored", type=Path, required=True, help="mount of the stored artifact")
    parser.add_argument("--models", type=Path, required=True, help="mount of the staged models")
    parser.add_argument("--model", action="append", required=True, help="organisation/name@revision; repeatable")
    parser.add_argument("--artifact", type=Path, required=True, help="local folder: `current` in it is the artifact")
    parser.add_argument("--copy", action="store_true", help="copy to local disk; left out: a link to the mount")


def run(options: argparse.Namespace) -> int:
    """Admit the server or say why not; the exit code.

    Raises:
        RefusedError: a variable is malformed, or a manifest cannot be read by this release.
        StaleError: artifact or model is missing, differs from what is asked, or is not whole.
        WorldError: a mount cannot be read, or the local disk is full.
    """
    key, models = asked_key(), asked_models(options.model)
    manifest = _artifact_manifest(options.stored, key)
    source = options.stored / manifest.folder
    _require_fields(manifest, key, options.stored / NAME)
    _require_files(source, manifest, asked_compile())
    if key.nxdi is not None:
        _require_config(source, key, accepted=_accepted(manifest))
    for model in models:
        _require_model(options.models, model)
    _say_if_writable(options.stored)
    for sentence in manifest.made.get("unproven") or ():
        say("unproven", level="warning", artifact=key.name, sentence=sentence)
    if options.copy:
        _copy(source, options.artifact, manifest)
    else:
        _link(source, options.artifact)
    say("admitted", artifact=key.name, files=len(manifest.files), bytes=manifest.size, copied=options.copy,
        made=manifest.made)  # fmt: skip
    return 0


def _artifact_manifest(stored: Path, key: ArtifactKey) -> Manifest:
    body = _read(stored / NAME)
    if body is None:
        raise StaleError(
            f"the artifact {key.name} is missing: it has no manifest", where=str(stored / NAME),
            change=f"compile it, then delete this pod: {asked_compile()}",
        )  # fmt: skip
    return read_manifest(body, str(stored / NAME))


def _require_fields(manifest: Manifest, key: ArtifactKey, where: Path) -> None:
    """Name every field in which artifact and Deployment differ, one a line."""
    differing = differences(manifest.fields, key.as_fields())
    if manifest.kind != "artifact":
        differing = {"kind": (manifest.kind, "artifact"), **differing}
    _refuse(
        [f"{field}: artifact {theirs}, deployment {ours}" for field, (theirs, ours) in differing.items()], str(where)
    )


def _accepted(manifest: Manifest) -> frozenset[str]:
    """Return what a person took the artifact in in spite of (tandem/artifacts/refused.py)."""
    said = manifest.made.get("accepted")
    return frozenset(str(fault) for fault in said) if isinstance(said, list) else frozenset()


def _require_config(source: Path, key: ArtifactKey, *, accepted: frozenset[str]) -> None:
    """Hold the runtime's own record of its settings against the key: the manifest's fields are what was asked for."""
    with _mount(source / CONFIG):
        config = read_config(source)
    said = [config] if isinstance(config, str) else list(config_differences(config, key))
    for line in said:
        if line in accepted:
            say(line, level="warning", where=str(source / CONFIG), accepted=True)
    _refuse([line for line in said if line not in accepted], str(source / CONFIG))


def _refuse(lines: Sequence[str], where: str) -> None:
    if not lines:
        return
    for line in lines:
        say(line, level="error", where=where)
    raise StaleError(
        f"the artifact is not the one this Deployment asks for: {'; '.join(lines)}", where=where,
        change=f"deploy what was compiled, or compile what is deployed: {asked_compile()}",
    )  # fmt: skip


def _require_files(folder: Path, manifest: Manifest, command: str) -> None:
    """Refuse a set with a file that is missing or has another size."""

    def judge(file: File) -> str:
        path = folder / file.path
        with _mount(path):
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                return f"{file.path} is missing"
        return "" if size == file.size else f"{file.path} has {size} bytes instead of {file.size}"

    with ThreadPoolExecutor(THREADS) as pool:
        wrong = [what for what in pool.map(judge, manifest.files) if what]
    if wrong:
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise StaleError(
            f"{manifest.name} is not whole: {'; '.join(wrong[:SHOWN])}{more}", where=str(folder),
            change=f"remove its {NAME} from the bucket, then make it again: {command}",
        )  # fmt: skip


def _require_model(models: Path, model: Snapshot) -> None:
    folder = models / model.path
    body = _read(folder / NAME)
    if body is None:
        raise StaleError(
            f"the model {model.name} is not staged: it has no manifest", where=str(folder / NAME),
            change=f"stage it, then delete this pod: {model.command}",
        )  # fmt: skip
    manifest = read_manifest(body, str(folder / NAME))
    if (manifest.kind, manifest.name) != ("model", model.name):
        raise StaleError(
            f"the manifest is of the {manifest.kind} {manifest.name}, not of the model {model.name}",
            where=str(folder / NAME), change=f"remove it and stage the model again: {model.command}",
        )  # fmt: skip
    _require_files(folder / manifest.folder, manifest, model.command)


def _say_if_writable(stored: Path) -> None:
    if os.access(stored, os.W_OK):
        say(
            "the stored artifact is mounted writable", level="warning", where=str(stored),
            change="mount it with readOnly: a server that misses a file would compile into the store of all others",
        )  # fmt: skip


def _link(source: Path, artifact: Path) -> None:
    """Point `current` at the mount, in one step."""
    current, fresh = artifact / CURRENT, artifact / f".{CURRENT}.new"
    with writing(fresh, 0):
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(source)
        if current.is_dir() and not current.is_symlink():
            shutil.rmtree(current)  # a copy by an earlier rendering
        fresh.replace(current)


def _copy(source: Path, artifact: Path, manifest: Manifest) -> None:
    """Copy to local disk and name it `current` when the last file is whole."""
    current, incoming, mark = artifact / CURRENT, artifact / INCOMING, artifact / ADMITTED
    identity = hashlib.sha256(manifest.to_bytes()).hexdigest()
    known = not current.is_symlink() and mark.exists() and mark.read_text() == identity
    if known and all(_size(current / file.path) == file.size for file in manifest.files):
        say("copied already", folder=str(current))
        return
    with writing(current, manifest.size):
        mark.unlink(missing_ok=True)
        if current.is_symlink():
            current.unlink()
        elif current.exists():  # cut off after its naming, or of another manifest: what is whole of it is kept
            shutil.rmtree(incoming, ignore_errors=True)
            current.rename(incoming)
        _drop_strangers(incoming, manifest)
        _make_folder(incoming)
    lacking = [file for file in manifest.files if not _has(incoming / file.path, file)]
    require_room(artifact, sum(file.size for file in lacking), "the copy of the artifact")
    _each(lambda file: _copy_file(source / file.path, incoming / file.path, file), lacking)
    with writing(current, manifest.size):
        incoming.rename(current)
        mark.write_text(identity)


def _drop_strangers(incoming: Path, manifest: Manifest) -> None:
    """Remove what no file of the manifest is: parts of files that were cut off, files of another artifact."""
    named = {incoming / file.path for file in manifest.files}
    for path in [path for path in incoming.rglob("*") if path.is_symlink() or not path.is_dir()]:
        if path not in named:
            path.unlink()


def _copy_file(source: Path, target: Path, file: File) -> None:
    """Copy one file and give it its name when its content is what the manifest says."""
    part = target.with_name(f".{target.name}.copying")
    digest, size = hashlib.sha256(), 0
    with writing(target, file.size):
        _make_folder(target.parent)
        with _open(source) as reads, part.open("wb") as writes:
            while piece := _piece(reads, source):
                digest.update(piece)
                size += len(piece)
                writes.write(piece)
        if (size, digest.hexdigest()) != (file.size, file.sha256):
            part.unlink()
            raise StaleError(
                f"its content is not what the manifest says ({size} bytes, SHA-256 {digest.hexdigest()} instead of "
                f"{file.size} bytes, {file.sha256})", where=str(source),
                change=f"remove {NAME} from the artifact's prefix, then compile it again: {asked_compile()}",
            )  # fmt: skip
        part.chmod(OPEN_FILE)
        part.replace(target)
    say("copied", file=file.path, bytes=size)


@contextmanager
def _open(path: Path) -> Iterator[int]:
    with _mount(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _piece(descriptor: int, path: Path) -> bytes:
    with _mount(path):
        return os.read(descriptor, PIECE)


def _has(path: Path, file: File) -> bool:
    """Whether the file is there and whole; its name alone does not say so where a server may have written to it."""
    if _size(path) != file.size:
        return False
    with path.open("rb") as reads:
        return hashlib.file_digest(reads, "sha256").hexdigest() == file.sha256


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, open to others whatever the umask."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    folder.chmod(OPEN_FOLDER)


def _each(act: Callable[[File], None], files: Sequence[File]) -> None:
    """Act on every file in a few threads, the largest first; the first error ends it."""
    with ThreadPoolExecutor(THREADS) as pool:
        futures: list[Future[None]] = [pool.submit(act, file) for file in sorted(files, key=lambda one: -one.size)]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        finally:
            for future in futures:
                future.cancel()


def _read(path: Path) -> bytes | None:
    with _mount(path):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


@contextmanager
def _mount(path: Path) -> Iterator[None]:
    """Turn what a mount says into a fault."""
    try:
        yield
    except OSError as error:
        raise WorldError(
            f"the mount cannot be read ({error.strerror or error})", where=str(path),
            change="see the Mountpoint pod of this volume (kubectl -n mount-s3 get pods) and the bucket's policy; "
            "the pod tries again by itself",
        ) from None  # fmt: skip
