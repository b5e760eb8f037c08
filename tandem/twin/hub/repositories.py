"""A folder of repositories as the hub sees them: commits, git blobs and large files with their checksums.

The layout is `<organisation>/<name>/<revision>/<files>`. A revision named by 40 hexadecimal digits is a commit; any
other name is a branch, whose commit is the digest of what it holds.

Invariant: a checksum is of the bytes that lie there now; a changed file has another one at the next question.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}")
MAIN = "main"
# What the hub's default .gitattributes stores as a large file, and its limit for all others. The hub lists more
# suffixes; these are the ones that a checkpoint of a language model has.
LARGE_SUFFIXES = {".safetensors", ".bin", ".pt", ".pth", ".h5", ".onnx", ".msgpack", ".model", ".gguf"}
LARGE_BYTES = 10 * 1024 * 1024
_PIECE = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Blob:
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

    @property
    def etag(self) -> str:
        """What the hub calls the file's content by."""
        return self.sha256 or self.oid


@dataclass(frozen=True, kw_only=True, slots=True)
class Revision:
    """One commit of a repository: where it lies and its files by name."""

    commit: str
    files: Mapping[str, Blob]


@dataclass(kw_only=True, slots=True)
class Repositories:
    """The folder.

    Args:
        folder: with a folder for each organisation.
    """

    folder: Path
    _digests: dict[tuple[Path, int, int], Blob] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Every repository's id, sorted."""
        return sorted(f"{path.parent.name}/{path.name}" for path in self.folder.glob("*/*") if path.is_dir())

    def branches(self, repository: str) -> dict[str, str]:
        """The branches with their commits; `main` is the only commit where no folder is called so."""
        folders = [path for path in self._at(repository).iterdir() if path.is_dir()]
        found = {path.name: self._revision(path).commit for path in folders if not _COMMIT.fullmatch(path.name)}
        commits = [path.name for path in folders if _COMMIT.fullmatch(path.name)]
        return {MAIN: commits[0], **found} if len(commits) == 1 else found

    def revision(self, repository: str, said: str) -> Revision | None:
        """The commit that a branch or a commit's name means; None where there is none."""
        folder = self._at(repository) / said
        if re.fullmatch(r"[\w.-]+", said) and folder.is_dir():
            return self._revision(folder)
        branches = self.branches(repository)
        if said in branches and branches[said] != said:
            return self.revision(repository, branches[said])
        named = [branch for branch, commit in branches.items() if commit == said]
        return self._revision(self._at(repository) / named[0]) if named else None

    def _at(self, repository: str) -> Path:
        return self.folder / repository

    def _revision(self, folder: Path) -> Revision:
        files = {blob.name: blob for blob in self._blobs(folder)}
        listed = "".join(f"{blob.oid} {name}\n" for name, blob in files.items())
        commit = folder.name if _COMMIT.fullmatch(folder.name) else hashlib.sha1(listed.encode()).hexdigest()  # noqa: S324 - git's own
        return Revision(commit=commit, files=files)

    def _blobs(self, folder: Path) -> Iterator[Blob]:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            stat = path.stat()
            key = (path, stat.st_size, stat.st_mtime_ns)
            if key not in self._digests:
                self._digests[key] = _blob(path, path.relative_to(folder).as_posix(), stat.st_size)
            yield self._digests[key]


def _blob(path: Path, name: str, size: int) -> Blob:
    if path.suffix not in LARGE_SUFFIXES and size < LARGE_BYTES:
        return Blob(name=name, path=path, size=size, oid=_oid(path.read_bytes()), sha256=None, pointer_size=0)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    # The pointer as https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md gives it.
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest.hexdigest()}\nsize {size}\n".encode()
    return Blob(
        name=name, path=path, size=size, oid=_oid(pointer), sha256=digest.hexdigest(), pointer_size=len(pointer)
    )


def _oid(content: bytes) -> str:
    """Git's name of a blob."""
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()  # noqa: S324 - git's own
