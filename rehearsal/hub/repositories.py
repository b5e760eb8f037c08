"""A folder of repositories as the hub sees it: commits, git blobs, large files with checksums.

The layout is `<organisation>/<name>/<revision>/<files>`. A revision named by 40 hexadecimal digits
is a commit; any other name is a branch, whose commit is the digest of its content.

Invariant: a checksum is of the bytes that are there now; a changed file has another one at the next
request.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}")
MAIN_BRANCH = "main"
# What the hub's default .gitattributes stores as a large file, and its limit for all others. The
# hub lists more suffixes; these are the ones that a checkpoint of a language model has.
LARGE_SUFFIXES = {
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".h5",
    ".onnx",
    ".msgpack",
    ".model",
    ".gguf",
}
LARGE_BYTES = 10 * 1024 * 1024
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class HubBlob:
    """One file of a commit.

    Args:
        name: its path in the repository.
        path: on this machine.
        size: bytes.
        oid: git's own name of what git stores: of the file, or of the pointer to a large one.
        sha256: of a large file; None where git stores the file itself.
        pointer_size: bytes of the pointer of a large file.
    """

    name: str
    path: Path
    size: int
    oid: str
    sha256: str | None
    pointer_size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class HubRevision:
    """One commit of a repository: its folder and its files by name."""

    commit: str
    files: Mapping[str, HubBlob]


@dataclass(kw_only=True, slots=True)
class HubRepositories:
    """The folder.

    Args:
        folder: with a folder for each organisation.
    """

    folder: Path
    _digests: dict[tuple[Path, int, int], HubBlob] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return every repository's id, sorted."""
        return sorted(
            f"{path.parent.name}/{path.name}" for path in self.folder.glob("*/*") if path.is_dir()
        )

    def revision(self, repository: str, revision_name: str) -> HubRevision | None:
        """Return the commit of a folder's or a commit's name, or of `main`; None if there is none.

        The only commit of a repository is its `main` too.
        """
        folders = (self.folder / repository).iterdir()
        revisions = {path.name: self._revision(path) for path in folders if path.is_dir()}
        commits = {revision.commit: revision for revision in revisions.values()}
        if revision_name == MAIN_BRANCH and len(commits) == 1:
            return next(iter(commits.values()))
        return revisions.get(revision_name) or commits.get(revision_name)

    def _revision(self, folder: Path) -> HubRevision:
        files = {blob.name: blob for blob in self._blobs(folder)}
        listing = "".join(f"{blob.oid} {name}\n" for name, blob in files.items())
        commit = (
            folder.name
            if _COMMIT.fullmatch(folder.name)
            else hashlib.sha1(listing.encode()).hexdigest()  # noqa: S324 - git's own
        )
        return HubRevision(commit=commit, files=files)

    def _blobs(self, folder: Path) -> Iterator[HubBlob]:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            stat = path.stat()
            key = (path, stat.st_size, stat.st_mtime_ns)
            if key not in self._digests:
                self._digests[key] = _read_blob(
                    path, path.relative_to(folder).as_posix(), stat.st_size
                )
            yield self._digests[key]


def _read_blob(path: Path, name: str, size: int) -> HubBlob:
    if path.suffix not in LARGE_SUFFIXES and size < LARGE_BYTES:
        return HubBlob(
            name=name,
            path=path,
            size=size,
            oid=_git_oid(path.read_bytes()),
            sha256=None,
            pointer_size=0,
        )
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            digest.update(piece)
    # The pointer as https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md gives it.
    pointer = (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest.hexdigest()}\nsize"
        f" {size}\n".encode()
    )
    return HubBlob(
        name=name,
        path=path,
        size=size,
        oid=_git_oid(pointer),
        sha256=digest.hexdigest(),
        pointer_size=len(pointer),
    )


def _git_oid(content: bytes) -> str:
    """Return git's name of a blob."""
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()  # noqa: S324 - git's own
