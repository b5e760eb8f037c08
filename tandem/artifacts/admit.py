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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.inspect_nxdi import CONFIG, config_differences, read_config
from tandem.artifacts.job_env import (
    ModelReference,
    parse_model_references,
    read_artifact_key,
    read_compile_command,
)
from tandem.artifacts.local_disk import (
    OPEN_FILE_MODE,
    create_open_folder,
    has_content,
    read_file_size,
    require_disk_space,
    run_in_threads,
    translate_disk_errors,
)
from tandem.artifacts.manifest import MANIFEST_NAME, Manifest, ManifestFile, parse_manifest
from tandem.errors import ExternalError, StaleError
from tandem.spec.artifact_key import ArtifactKey, compare_key_fields

CURRENT_NAME = "current"  # what every runtime is told (tandem.spec.names.ARTIFACT_FOLDER)
INCOMING_NAME = ".incoming"  # a copy on its way
ADMISSION_MARK = ".admitted"  # beside `current`: the manifest that it was copied by
COPY_THREADS = 4
READ_BYTES = 4 << 20  # bytes; so a copy takes THREADS times this in memory, whatever the sizes
MAX_NAMES = 5  # files that a message names; the rest is counted


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
        InputError: a variable is malformed, or a manifest cannot be read by this release.
        StaleError: artifact or model is missing, differs from what is asked, or is not whole.
        ExternalError: a mount cannot be read, or the local disk is full.
    """
    key, models = read_artifact_key(), parse_model_references(options.model)
    manifest = _read_artifact_manifest(options.stored, key)
    source = options.stored / manifest.folder
    _require_fields(manifest, key, options.stored / MANIFEST_NAME)
    _require_files(source, manifest, read_compile_command())
    if key.nxdi is not None:
        _require_config(source, key, accepted_faults=_read_accepted_faults(manifest))
    for model in models:
        _require_model(options.models, model)
    _warn_if_writable(options.stored)
    for sentence in manifest.made.get("unproven") or ():
        log_event("unproven", level="warning", artifact=key.name, sentence=sentence)
    if options.copy:
        _copy_artifact(source, options.artifact, manifest)
    else:
        _link_artifact(source, options.artifact)
    log_event("admitted", artifact=key.name, files=len(manifest.files), bytes=manifest.size, copied=options.copy,
        made=manifest.made)  # fmt: skip
    return 0


def _read_artifact_manifest(stored_folder: Path, key: ArtifactKey) -> Manifest:
    body = _read_if_present(stored_folder / MANIFEST_NAME)
    if body is None:
        raise StaleError(
            f"the artifact {key.name} is missing: it has no manifest", where=str(stored_folder / MANIFEST_NAME),
            change=f"compile it, then delete this pod: {read_compile_command()}",
        )  # fmt: skip
    return parse_manifest(body, str(stored_folder / MANIFEST_NAME))


def _require_fields(manifest: Manifest, key: ArtifactKey, where: Path) -> None:
    """Name every field in which artifact and Deployment differ, one a line."""
    field_differences = compare_key_fields(manifest.fields, key.as_fields())
    if manifest.kind != "artifact":
        field_differences = {"kind": (manifest.kind, "artifact"), **field_differences}
    _refuse_faults(
        [
            f"{field}: artifact {artifact_value}, deployment {deployment_value}"
            for field, (artifact_value, deployment_value) in field_differences.items()
        ],
        str(where),
    )


def _read_accepted_faults(manifest: Manifest) -> frozenset[str]:
    """Return what a person took the artifact in in spite of (tandem/artifacts/rejection.py)."""
    accepted_faults = manifest.made.get("accepted")
    return frozenset(str(fault) for fault in accepted_faults) if isinstance(accepted_faults, list) else frozenset()


def _require_config(source: Path, key: ArtifactKey, *, accepted_faults: frozenset[str]) -> None:
    """Hold the runtime's own record of its settings against the key: the manifest's fields are what was asked for."""
    with _translate_mount_errors(source / CONFIG):
        config = read_config(source)
    faults = [config] if isinstance(config, str) else list(config_differences(config, key))
    for line in faults:
        if line in accepted_faults:
            log_event(line, level="warning", where=str(source / CONFIG), accepted=True)
    _refuse_faults([line for line in faults if line not in accepted_faults], str(source / CONFIG))


def _refuse_faults(faults: Sequence[str], where: str) -> None:
    if not faults:
        return
    for line in faults:
        log_event(line, level="error", where=where)
    raise StaleError(
        f"the artifact is not the one this Deployment asks for: {'; '.join(faults)}", where=where,
        change=f"deploy what was compiled, or compile what is deployed: {read_compile_command()}",
    )  # fmt: skip


def _require_files(folder: Path, manifest: Manifest, command: str) -> None:
    """Refuse a set with a file that is missing or has another size."""

    def check_file(file: ManifestFile) -> str:
        path = folder / file.path
        with _translate_mount_errors(path):
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                return f"{file.path} is missing"
        return "" if size == file.size else f"{file.path} has {size} bytes instead of {file.size}"

    with ThreadPoolExecutor(COPY_THREADS) as pool:
        problems = [problem for problem in pool.map(check_file, manifest.files) if problem]
    if problems:
        rest_note = f" and {len(problems) - MAX_NAMES} more" if len(problems) > MAX_NAMES else ""
        raise StaleError(
            f"{manifest.name} is not whole: {'; '.join(problems[:MAX_NAMES])}{rest_note}", where=str(folder),
            change=f"remove its {MANIFEST_NAME} from the bucket, then make it again: {command}",
        )  # fmt: skip


def _require_model(models: Path, model: ModelReference) -> None:
    folder = models / model.path
    body = _read_if_present(folder / MANIFEST_NAME)
    if body is None:
        raise StaleError(
            f"the model {model.name} is not staged: it has no manifest", where=str(folder / MANIFEST_NAME),
            change=f"stage it, then delete this pod: {model.command}",
        )  # fmt: skip
    manifest = parse_manifest(body, str(folder / MANIFEST_NAME))
    if (manifest.kind, manifest.name) != ("model", model.name):
        raise StaleError(
            f"the manifest is of the {manifest.kind} {manifest.name}, not of the model {model.name}",
            where=str(folder / MANIFEST_NAME), change=f"remove it and stage the model again: {model.command}",
        )  # fmt: skip
    _require_files(folder / manifest.folder, manifest, model.command)


def _warn_if_writable(stored_folder: Path) -> None:
    if os.access(stored_folder, os.W_OK):
        log_event(
            "the stored artifact is mounted writable", level="warning", where=str(stored_folder),
            change="mount it with readOnly: a server that misses a file would compile into the store of all others",
        )  # fmt: skip


def _link_artifact(source: Path, artifact: Path) -> None:
    """Point `current` at the mount, in one step."""
    current, new_link = artifact / CURRENT_NAME, artifact / f".{CURRENT_NAME}.new"
    with translate_disk_errors(new_link):
        new_link.unlink(missing_ok=True)
        new_link.symlink_to(source)
        if current.is_dir() and not current.is_symlink():
            shutil.rmtree(current)  # a copy by an earlier rendering
        new_link.replace(current)


def _copy_artifact(source: Path, artifact: Path, manifest: Manifest) -> None:
    """Copy to local disk and name it `current` when the last file is whole."""
    current, incoming, mark_path = artifact / CURRENT_NAME, artifact / INCOMING_NAME, artifact / ADMISSION_MARK
    manifest_digest = hashlib.sha256(manifest.to_bytes()).hexdigest()
    is_same_manifest = not current.is_symlink() and mark_path.exists() and mark_path.read_text() == manifest_digest
    if is_same_manifest and all(read_file_size(current / file.path) == file.size for file in manifest.files):
        log_event("copied already", folder=str(current))
        return
    with translate_disk_errors(current):
        mark_path.unlink(missing_ok=True)
        if current.is_symlink():
            current.unlink()
        elif current.exists():  # cut off after its naming, or of another manifest: what is whole of it is kept
            shutil.rmtree(incoming, ignore_errors=True)
            current.rename(incoming)
        _remove_foreign_files(incoming, manifest)
        create_open_folder(incoming)
    missing_files = [file for file in manifest.files if not has_content(incoming / file.path, file)]
    require_disk_space(artifact, sum(file.size for file in missing_files), "the copy of the artifact")
    missing_files.sort(key=lambda file: -file.size)  # so that none is left alone at the end
    run_in_threads(COPY_THREADS, lambda file: _copy_file(source / file.path, incoming / file.path, file), missing_files)
    with translate_disk_errors(current):
        incoming.rename(current)
        mark_path.write_text(manifest_digest)


def _remove_foreign_files(incoming: Path, manifest: Manifest) -> None:
    """Remove what no file of the manifest is: parts of files that were cut off, files of another artifact."""
    manifest_paths = {incoming / file.path for file in manifest.files}
    for path in [path for path in incoming.rglob("*") if path.is_symlink() or not path.is_dir()]:
        if path not in manifest_paths:
            path.unlink()


def _copy_file(source: Path, target: Path, file: ManifestFile) -> None:
    """Copy one file and give it its name when its content is what the manifest says."""
    partial_path = target.with_name(f".{target.name}.copying")
    digest, size = hashlib.sha256(), 0
    with translate_disk_errors(target):
        create_open_folder(target.parent)
        with _open_descriptor(source) as reader, partial_path.open("wb") as writer:
            while piece := _read_piece(reader, source):
                digest.update(piece)
                size += len(piece)
                writer.write(piece)
        if (size, digest.hexdigest()) != (file.size, file.sha256):
            partial_path.unlink()
            raise StaleError(
                f"its content is not what the manifest says ({size} bytes, SHA-256 {digest.hexdigest()} instead of "
                f"{file.size} bytes, {file.sha256})",
                where=str(source),
                change=f"remove {MANIFEST_NAME} from the artifact's prefix, then compile it again: "
                f"{read_compile_command()}",
            )
        partial_path.chmod(OPEN_FILE_MODE)
        partial_path.replace(target)
    log_event("copied", file=file.path, bytes=size)


@contextmanager
def _open_descriptor(path: Path) -> Iterator[int]:
    with _translate_mount_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_piece(descriptor: int, path: Path) -> bytes:
    with _translate_mount_errors(path):
        return os.read(descriptor, READ_BYTES)


def _read_if_present(path: Path) -> bytes | None:
    with _translate_mount_errors(path):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


@contextmanager
def _translate_mount_errors(path: Path) -> Iterator[None]:
    """Turn what a mount says into a fault."""
    try:
        yield
    except OSError as error:
        raise ExternalError(
            f"the mount cannot be read ({error.strerror or error})", where=str(path),
            change="see the Mountpoint pod of this volume (kubectl -n mount-s3 get pods) and the bucket's policy; "
            "the pod tries again by itself",
        ) from None  # fmt: skip
