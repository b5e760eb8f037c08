"""`admit`: compare the stored artifact with the rendered Deployment, then make it local.

Invariant: a server finds its artifact under `current` only if every field of the key agrees and
every file has its size and, if copied, its SHA-256; a cut-off copy is never found there. No
network, no AWS: `admit` only reads mounts.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

from tandem.artifacts import files as local_files
from tandem.artifacts import manifest as sets
from tandem.artifacts.driver.folders import read_file_size
from tandem.artifacts.driver.log import log_event
from tandem.artifacts.inspection import CONFIG, config_differences, read_config
from tandem.artifacts.job_env import parse_model_references, read_artifact_key, read_compile_command
from tandem.declarations.artifact_key import ArtifactKey
from tandem.errors import ExternalError, StaleError, convert_os_errors

CURRENT_NAME = "current"  # every runtime gets this path (tandem.declarations.names.ARTIFACT_FOLDER)
INCOMING_NAME = ".incoming"  # an unfinished copy, plus the digest of its manifest
ADMISSION_MARK = ".admitted"  # next to `current`: digest of the copy's manifest
COPY_THREADS = 4
# bytes; so a copy takes COPY_THREADS times this in memory, for files of any size
READ_BYTES = 4 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `admit`."""
    parser.add_argument("--stored", type=Path, required=True, help="mount of the stored artifact")
    parser.add_argument("--models", type=Path, required=True, help="mount of the staged models")
    parser.add_argument(
        "--model", action="append", required=True, help="organisation/name@revision; repeatable"
    )
    parser.add_argument(
        "--artifact", type=Path, required=True, help="local folder: `current` in it is the artifact"
    )
    parser.add_argument(
        "--copy", action="store_true", help="copy to local disk; left out: a link to the mount"
    )


def run(options: argparse.Namespace) -> int:
    """Admit the server or raise the reason; return the exit code.

    Raises:
        InputError: a variable is malformed, or a manifest cannot be read by this release.
        StaleError: artifact or model is missing, differs from the Deployment, or is not whole.
        ExternalError: a mount cannot be read, or the local disk is full.
    """
    key = read_artifact_key()
    models = parse_model_references(options.model)
    command = read_compile_command()
    change = f"end the lease of these nodes with `tandem stop --end`, then compile it: {command}"
    manifest = _read_manifest(options.stored, f"the artifact {key.name} is missing", change)
    source = options.stored / manifest.folder
    _refuse_faults(sets.describe_mismatch(manifest, key), options.stored / sets.MANIFEST_NAME)
    _require_files(source, manifest, command)
    if key.nxdi is not None:
        _require_config(source, key, manifest)
    for model in models:
        where = options.models / model.path
        change = f"stage it: {model.command}; this pod tries again within 5 minutes"
        model_manifest = _read_manifest(where, f"the model {model.name} is not staged", change)
        sets.require_target(model_manifest, model, str(where / sets.MANIFEST_NAME))
        _require_files(where / model_manifest.folder, model_manifest, model.command)
    for sentence in manifest.made.get("unproven") or ():
        log_event("unproven", level="warning", artifact=key.name, sentence=sentence)
    if os.access(options.stored, os.W_OK):
        change = (
            "mount it with readOnly: a server that misses a"
            " file would compile into the store of all others"
        )
        log_event(
            "the stored artifact is mounted writable",
            level="warning",
            where=str(options.stored),
            change=change,
        )
    make_local = _copy_artifact if options.copy else _link_artifact
    make_local(source, options.artifact, manifest)
    log_event(
        "admitted",
        artifact=key.name,
        files=len(manifest.files),
        bytes=manifest.size,
        copied=options.copy,
        made=manifest.made,
    )
    return 0


def _read_manifest(folder: Path, problem: str, change: str) -> sets.Manifest:
    path = folder / sets.MANIFEST_NAME
    with _translate_mount_errors(path):
        try:
            body = path.read_bytes()
        except FileNotFoundError:
            raise StaleError(
                f"{problem}: it has no manifest", where=str(path), change=change
            ) from None
    return sets.parse_manifest(body, str(path))


def _require_config(source: Path, key: ArtifactKey, manifest: sets.Manifest) -> None:
    """Compare the runtime's record of its settings with the key: the manifest has only requests.

    A fault that a person accepted at import (tandem/artifacts/artifact_import.py) is a warning.
    """
    with _translate_mount_errors(source / CONFIG):
        config = read_config(source)
    lines = [config] if isinstance(config, str) else list(config_differences(config, key))
    accepted_lines = manifest.made.get(sets.ACCEPTED_FIELD) or ()
    faults = []
    for line in lines:
        if line in accepted_lines:
            log_event(line, level="warning", where=str(source / CONFIG), accepted=True)
        else:
            faults.append(line)
    _refuse_faults(faults, source / CONFIG)


def _refuse_faults(lines: Sequence[str], where: Path) -> None:
    """Log every fault, one a line, and raise StaleError if there is any."""
    for line in lines:
        log_event(line, level="error", where=str(where))
    if lines:
        problem = f"the stored artifact does not match this Deployment: {'; '.join(lines)}"
        raise StaleError(
            problem,
            where=str(where),
            change=(
                f"deploy what was compiled, or compile what is deployed: {read_compile_command()}"
            ),
        )


def _require_files(folder: Path, manifest: sets.Manifest, command: str) -> None:
    """Refuse a set with a file that is missing or has another size."""

    def check_file(file: sets.ManifestFile) -> str:
        with _translate_mount_errors(folder / file.path):
            try:
                size = (folder / file.path).stat().st_size
            except FileNotFoundError:
                return f"{file.path} is missing"
        if size == file.size:
            return ""
        return f"{file.path} has {size} bytes instead of {file.size}"

    with ThreadPoolExecutor(COPY_THREADS) as pool:
        problems = list(filter(None, pool.map(check_file, manifest.files)))
    if problems:
        problem = f"{manifest.name} is not whole: {sets.shorten_list(problems, sets.MAX_NAMES)}"
        raise StaleError(
            problem,
            where=str(folder),
            change=f"remove {sets.MANIFEST_NAME}, then make it again: {command}",
        )


def _link_artifact(source: Path, artifact: Path, _manifest: sets.Manifest) -> None:
    """Point `current` at the mount, in one step."""
    current = artifact / CURRENT_NAME
    new_link = artifact / f".{CURRENT_NAME}.new"
    with local_files.translate_disk_errors(new_link):
        new_link.unlink(missing_ok=True)
        new_link.symlink_to(source)
        new_link.replace(current)


def _copy_artifact(source: Path, artifact: Path, manifest: sets.Manifest) -> None:
    """Copy to local disk and name the copy `current` when the last file is whole."""
    current = artifact / CURRENT_NAME
    mark_path = artifact / ADMISSION_MARK
    files = manifest.files
    digest = hashlib.sha256(manifest.to_bytes()).hexdigest()
    # whole files of a cut-off copy of this manifest stay
    incoming = artifact / f"{INCOMING_NAME}-{digest}"
    is_same_manifest = mark_path.exists() and mark_path.read_text() == digest
    if is_same_manifest and all(read_file_size(current / file.path) == file.size for file in files):
        log_event("copied already", folder=str(current))
        return
    with local_files.translate_disk_errors(current):
        mark_path.unlink(missing_ok=True)
        if current.exists():
            shutil.rmtree(current)
        local_files.create_open_folder(incoming)
    missing = [file for file in files if not local_files.has_content(incoming / file.path, file)]
    local_files.require_disk_space(
        artifact, sum(file.size for file in missing), "the copy of the artifact"
    )
    missing.sort(key=lambda file: -file.size)  # largest first, so that none runs alone at the end
    local_files.run_in_threads(
        COPY_THREADS, lambda file: _copy_file(source, incoming, file), missing
    )
    with local_files.translate_disk_errors(current):
        incoming.rename(current)
        mark_path.write_text(digest)


def _copy_file(source_folder: Path, target_folder: Path, file: sets.ManifestFile) -> None:
    """Copy one file and give the copy its name if its content matches the manifest."""
    source = source_folder / file.path
    target = target_folder / file.path
    partial_path = target.with_name(f".{target.name}.copying")
    digest = hashlib.sha256()
    with local_files.translate_disk_errors(target):
        local_files.create_open_folder(target.parent)
        with partial_path.open("wb") as writer:
            for piece in _read_pieces(source):
                digest.update(piece)
                writer.write(piece)
        if digest.hexdigest() != file.sha256:
            partial_path.unlink()
            problem = (
                f"its content has SHA-256 {digest.hexdigest()}, the manifest says {file.sha256}"
            )
            raise StaleError(
                problem,
                where=str(source),
                change=(
                    f"remove the artifact's {sets.MANIFEST_NAME}, then compile it:"
                    f" {read_compile_command()}"
                ),
            )
        partial_path.chmod(local_files.OPEN_FILE_MODE)
        partial_path.replace(target)
    log_event("copied", file=file.path, bytes=file.size)


def _read_pieces(path: Path) -> Iterator[bytes]:
    """Yield a mounted file piece by piece; errors of the caller stay unchanged."""
    with _translate_mount_errors(path), path.open("rb", buffering=0) as file:
        while piece := file.read(READ_BYTES):
            yield piece


def _translate_mount_errors(path: Path) -> AbstractContextManager[None]:
    """Turn a mount's error into a fault."""
    change = (
        "see this volume's Mountpoint pod (kubectl -n mount-s3 get pods) and the bucket's policy"
    )
    return convert_os_errors(
        "the mount cannot be read", path, f"{change}; the pod tries again by itself", ExternalError
    )
