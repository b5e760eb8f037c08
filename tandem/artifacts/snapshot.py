"""The files of a model's snapshot to stage, the check that it is whole, and one in a folder.

Invariant: the choice follows only from the names in the snapshot and the content of its index, so
the same snapshot always gives the same files in the same order; the chosen files have a
configuration and every tensor file that the index names.

A folder is an air-gapped copy: every file is in the folder itself and is no link, every tensor file
has the length of its header and the tensors of the index. Only SHA256SUMS proves the bytes, and the
manifest says whether there was such a file.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from tandem.artifacts.files import LocalFiles
from tandem.artifacts.tensor_file import read_tensor_file
from tandem.errors import InputError

if TYPE_CHECKING:
    from tandem.artifacts.hub import HubSnapshot

SnapshotSource: TypeAlias = "HubSnapshot | FolderSnapshot"
CONFIG_NAME = "config.json"
INDEX_NAME = "model.safetensors.index.json"
SINGLE_FILE_NAME = "model.safetensors"  # the one tensor file of a snapshot without an index
TENSOR_SUFFIX = ".safetensors"
SUMS_NAME = "SHA256SUMS"  # as coreutils' sha256sum writes it

# files that a server reads next to tensors; all are at the root (names as in the loaders of
# transformers)
MODEL_FILES = {
    CONFIG_NAME,
    INDEX_NAME,
    "generation_config.json",
    "quantize_config.json",
    "hf_quant_config.json",
}
TOKENIZER_TABLES = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
}
# of byte pairs, the last of word pieces
TOKENIZER_VOCABULARIES = {"vocab.json", "merges.txt", "vocab.txt"}
# sentencepiece and tiktoken
TOKENIZER_MODELS = {"tokenizer.model", "spiece.model", "tiktoken.model"}
INPUT_FILES = {
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
}
SERVER_FILES = (
    MODEL_FILES | TOKENIZER_TABLES | TOKENIZER_VOCABULARIES | TOKENIZER_MODELS | INPUT_FILES
)

# patterns of names that are left out -> reason; the first match counts
EXCLUSION_REASONS = {
    "*/*": "in a subfolder, where no server looks",
    f"*{TENSOR_SUFFIX}": "tensors that the index does not name",
    **dict.fromkeys(
        ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt"),
        "a pickle, which can run code when it is read",
    ),
    "*": "nothing that a server reads",
}


@dataclass(frozen=True, kw_only=True)
class SnapshotEntry:
    """One file in the listing of a source.

    Args:
        path: its name in the snapshot.
        size: bytes.
        sha256: of the content, if the source lists it.
        git_sha1: git's name of the blob, if the source lists it.
    """

    path: str
    size: int
    sha256: str | None = None
    git_sha1: str | None = None


def choose_files(source: SnapshotSource) -> tuple[tuple[SnapshotEntry, ...], dict[str, str]]:
    """Return the files to stage, by name, and the names of the others with the reason.

    Raises:
        InputError: the snapshot has no configuration that a runtime can read, or lacks tensor files
            of its index.
        ExternalError: the source does not return configuration or index.
    """
    entries = source.entries
    where = source.where
    if CONFIG_NAME not in entries:
        change = "name the model's own repository and revision, or the snapshot's own folder"
        raise InputError(
            f"the snapshot has no {CONFIG_NAME}, so nothing can serve it",
            where=where,
            change=change,
        )
    bodies = {
        name: source.receive(entries[name])[0].read_bytes()
        for name in (CONFIG_NAME, INDEX_NAME)
        if name in entries
    }
    try:
        dict(json.loads(bodies[CONFIG_NAME]).items())
    except (ValueError, AttributeError):
        problem = "the configuration is cut off or no JSON object"
        change = "take a revision whose config.json is whole"
        raise InputError(problem, where=f"{where}/{CONFIG_NAME}", change=change) from None
    tensors = select_tensor_files(entries, bodies.get(INDEX_NAME), where)
    chosen_names = {name for name in entries if name in SERVER_FILES or name in tensors}
    left_out = {name: find_exclusion_reason(name) for name in sorted(set(entries) - chosen_names)}
    return tuple(entries[name] for name in sorted(chosen_names)), left_out


def select_tensor_files(names: Collection[str], index: bytes | None, where: str) -> tuple[str, ...]:
    """Return the tensor files that a server loads.

    Args:
        names: every file of the snapshot.
        index: the content of its index; None without one.
        where: the snapshot, for the message.

    Raises:
        InputError: there are none, the index is malformed or names a missing file, or there are
            several and no index.
    """
    root_files = sorted(name for name in names if name.endswith(TENSOR_SUFFIX) and "/" not in name)
    if index is not None:
        shards = set(parse_weight_map(index, f"{where}/{INDEX_NAME}").values())
        if missing := sorted(shards - set(root_files)):
            problem = (
                f"the index names {missing[0]}, which is not in the snapshot"
                f" ({len(missing)} of {len(shards)} missing)"
            )
            raise InputError(
                problem, where=f"{where}/{INDEX_NAME}", change="take a revision that is whole"
            )
        return tuple(sorted(shards))
    if SINGLE_FILE_NAME in root_files:
        return (SINGLE_FILE_NAME,)
    if len(root_files) == 1:
        return tuple(root_files)
    problem = (
        f"the snapshot has {len(root_files)} safetensors files"
        f" and no {INDEX_NAME}, so nothing can serve it"
    )
    raise InputError(
        problem,
        where=where,
        change="take a revision with safetensors, or convert it and use --from",
    )


def parse_weight_map(index: bytes, where: str) -> dict[str, str]:
    """Return the mapping tensor -> file of an index.

    Raises:
        InputError: the content is no index, or names a file outside its own folder.
    """
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        weight_map: dict[str, str] = json.loads(index)["weight_map"]
        files = weight_map.values()
        if files and all(re.fullmatch(r"[^/\\]+\.safetensors", file) for file in files):
            return weight_map
    problem = (
        "the index is cut off, has no weight_map, or names something other than a safetensors file"
        " beside it"
    )
    raise InputError(problem, where=where, change="take a revision whose index is whole")


def find_exclusion_reason(name: str) -> str:
    """Return why a file is left out."""
    return next(
        reason for pattern, reason in EXCLUSION_REASONS.items() if fnmatchcase(name, pattern)
    )


@dataclass(frozen=True, kw_only=True)
class FolderSnapshot:
    """A folder with one snapshot; same methods as `hub.HubSnapshot`.

    Args:
        files: of the snapshot.
        commit: of the copy, as the caller gives it; None for a branch or tag.
        sums: SHA-256 by name from SHA256SUMS; None without one.
    """

    files: LocalFiles
    commit: str | None
    sums: Mapping[str, str] | None
    is_temporary: ClassVar[bool] = False  # the copy is the operator's

    @property
    def entries(self) -> dict[str, SnapshotEntry]:
        """Return every file by its name."""
        sizes = self.files.sizes
        return {
            name: SnapshotEntry(path=name, size=sizes[name]) for name in sizes if name != SUMS_NAME
        }

    @property
    def where(self) -> str:
        """Return the folder, for messages."""
        return str(self.files.folder)

    @property
    def provenance(self) -> dict[str, Any]:
        """Return the manifest's record of the source of the files."""
        checks = "index, lengths and configuration of the copy; no checksum of a hub"
        if self.sums is not None:
            checks += f"; {SUMS_NAME} of the copy"
        return {"from": "folder", "checked": checks}

    def check_entries(self, entries: Sequence[SnapshotEntry]) -> None:
        """Refuse a copy if one of these files is not whole, before any is stored.

        Raises:
            InputError: a file is cut off, lacks a tensor of the index, or is not in SHA256SUMS.
        """
        index_path = self.files.folder / INDEX_NAME
        weights = {}
        if INDEX_NAME in self.files.sizes:
            weights = parse_weight_map(index_path.read_bytes(), str(index_path))
        for entry in entries:
            path = self.files.folder / entry.path
            if entry.path.endswith(TENSOR_SUFFIX):
                index_tensors = {tensor for tensor, file in weights.items() if file == entry.path}
                missing = sorted(index_tensors - read_tensor_file(path))
                if missing:
                    problem = (
                        f"it lacks the tensor {missing[0]} of {INDEX_NAME} ({len(missing)} missing)"
                    )
                    raise InputError(
                        problem, where=str(path), change="copy index and tensor files again"
                    )
            if self.sums is not None and entry.path not in self.sums:
                raise InputError(
                    f"{SUMS_NAME} does not name it",
                    where=str(path),
                    change=f"add its line to {SUMS_NAME}",
                )

    def receive(
        self, entry: SnapshotEntry, check: Callable[[], None] = lambda: None
    ) -> tuple[Path, str]:
        """Hash one file in its place.

        Args:
            entry: one of `entries`.
            check: called after the hash; may raise to stop.

        Returns:
            the file, and the SHA-256 of its content.

        Raises:
            InputError: the file cannot be read, or differs from SHA256SUMS.
        """
        path = self.files.folder / entry.path
        sha256 = self.files.hash_file(entry.path).sha256
        if self.sums is not None and self.sums.get(entry.path) != sha256:
            raise InputError(
                f"it differs from {SUMS_NAME}",
                where=str(path),
                change="copy it again from its source",
            )
        check()
        return path, sha256


def open_folder(folder: Path, commit: str | None) -> FolderSnapshot:
    """List a folder.

    Args:
        folder: of the snapshot, with config.json.
        commit: of the copy, as the caller gives it; None for a branch or tag.

    Raises:
        InputError: `folder` is no folder, cannot be read, or has a link, as in the hub client's
            cache.
    """
    files = LocalFiles(folder)
    sums = None
    if SUMS_NAME in files.sizes:
        sums = _read_sums(folder / SUMS_NAME)
    return FolderSnapshot(files=files, commit=commit, sums=sums)


def _read_sums(path: Path) -> dict[str, str]:
    sums = {}
    for line_number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        match = re.fullmatch(r"(?P<sha256>[0-9a-f]{64}) [ *](?P<path>.+)", line)
        if not match:
            raise InputError(
                f"line {line_number} is not as sha256sum writes it",
                where=str(path),
                change="write it anew: cd to the folder, then sha256sum -- * > SHA256SUMS",
            )
        sums[match["path"].removeprefix("./")] = match["sha256"]
    return sums
