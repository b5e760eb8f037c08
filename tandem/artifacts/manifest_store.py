"""Stored sets: their manifests, read and written.

Invariant: a manifest is written only when every file that it names is in the bucket with its size and SHA-256,
and never over another one; so whoever finds a manifest finds the files whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from tandem.artifacts.manifest import MANIFEST_NAME, Manifest, ManifestFile, parse_manifest
from tandem.artifacts.store import ObjectStore
from tandem.errors import StaleError

MAX_NAMES = 5  # files that a message names; the rest is counted


def manifest_key(prefix: str) -> str:
    """Return the key of a set's manifest."""
    return f"{prefix}/{MANIFEST_NAME}"


def files_prefix(prefix: str, manifest: Manifest) -> str:
    """Return the prefix of a set's files, without a slash at its end."""
    return f"{prefix}/{manifest.folder}" if manifest.folder else prefix


def read_stored_manifest(store: ObjectStore, prefix: str) -> Manifest | None:
    """Return a stored set's manifest, None where there is none.

    Args:
        store: the bucket.
        prefix: of the set, `models/<org>/<name>/<revision>` or `artifacts/<key name>`.

    Raises:
        InputError: it is cut off, of a newer schema or malformed.
        TandemError: S3 failed.
    """
    key = manifest_key(prefix)
    manifest_object = store.read(key)
    return parse_manifest(manifest_object.body, store.url(key)) if manifest_object else None


def write_stored_manifest(store: ObjectStore, prefix: str, manifest: Manifest) -> bool:
    """Write a set's manifest after its last file; False where another manifest is there already.

    Args:
        store: the bucket.
        prefix: of the set.
        manifest: what to write. One with the same bytes, there already, is as good as ours.

    Raises:
        StaleError: a file that it names is missing in the bucket or differs there; nothing is written.
        TandemError: S3 failed.
    """
    wrong_files = find_wrong_files(store, prefix, manifest)
    if wrong_files:
        details = "; ".join(f"{file.path}: {problem}" for file, problem in wrong_files[:MAX_NAMES])
        rest_note = f" and {len(wrong_files) - MAX_NAMES} more" if len(wrong_files) > MAX_NAMES else ""
        raise StaleError(
            f"the set is not whole, so its manifest is not written: {details}{rest_note}", where=store.url(prefix),
            change="run the job that sends it again; files that are whole are kept",
        )  # fmt: skip
    return store.create(manifest_key(prefix), manifest.to_bytes())


def find_wrong_files(store: ObjectStore, prefix: str, manifest: Manifest) -> Sequence[tuple[ManifestFile, str]]:
    """Return the files that the bucket does not have as a manifest says, each with what is wrong."""
    files_root = files_prefix(prefix, manifest)

    def check_file(file: ManifestFile) -> str:
        head = store.head(f"{files_root}/{file.path}")
        if head is None:
            return "missing"
        if head.size != file.size:
            return f"{head.size} bytes instead of {file.size}"
        return "" if head.sha256 == file.sha256 else f"marked with SHA-256 {head.sha256} instead of {file.sha256}"

    problems = store.pool.map(check_file, manifest.files)
    return [(file, problem) for file, problem in zip(manifest.files, problems, strict=True) if problem]
