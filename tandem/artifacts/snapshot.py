"""What of a model's snapshot is staged, and when a snapshot is whole.

Invariant: the choice follows from the names in the snapshot and the content of its index alone, so the same
snapshot always gives the same files in the same order; what is chosen has a configuration and every tensor file
that its index names.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tandem.artifacts.manifest import LEASE_NAME, MANIFEST_NAME
from tandem.errors import InputError

CONFIG_NAME = "config.json"
INDEX_NAME = "model.safetensors.index.json"
SINGLE_FILE_NAME = "model.safetensors"  # the one tensor file of a snapshot without an index
TENSOR_SUFFIX = ".safetensors"

# file of a snapshot -> who reads it; all lie at its root (transformers' own names for them, as its loaders spell them)
FILE_READERS = {
    CONFIG_NAME: "shapes and architecture: every runtime and the compiler",
    "generation_config.json": "default sampling and end tokens: the server",
    INDEX_NAME: "which tensor lies in which file: the loader",
    "tokenizer.json": "the fast tokenizer",
    "tokenizer_config.json": "the tokenizer's class, special tokens and chat template",
    "special_tokens_map.json": "the tokenizer",
    "added_tokens.json": "the tokenizer",
    "vocab.json": "a byte-pair tokenizer's vocabulary",
    "merges.txt": "a byte-pair tokenizer's merges",
    "vocab.txt": "a word-piece tokenizer's vocabulary",
    "tokenizer.model": "a sentencepiece tokenizer",
    "spiece.model": "a sentencepiece tokenizer",
    "tiktoken.model": "a tiktoken tokenizer",
    "chat_template.jinja": "the chat template, where it is a file of its own",
    "chat_template.json": "the chat template, where it is a file of its own",
    "preprocessor_config.json": "the input processor, read at start where there is one",
    "processor_config.json": "the input processor, read at start where there is one",
    "quantize_config.json": "how the weights are quantized",
    "hf_quant_config.json": "how the weights are quantized",
}

# names that are left out -> why; the first that fits
EXCLUSION_REASONS = {
    "*/*": "in a subfolder, where no server looks",
    ".*": "of the repository, not of the model",
    f"*{TENSOR_SUFFIX}": "tensors that the index does not name",
    "*.safetensors.index.json": "an index of tensors that are not staged",
    **dict.fromkeys(("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt"), "a pickle, which can run code when it is read"),
    "*.py": "code of the repository, which no server here runs",
    **dict.fromkeys(("*.onnx", "*.onnx_data", "*.gguf", "*.h5", "*.msgpack", "*.ot"), "weights of another runtime"),
    **dict.fromkeys(("*.md", "*.txt", "*.pdf", "LICENSE*", "NOTICE*"), "a text for people"),
    **dict.fromkeys(("*.png", "*.jpg", "*.jpeg", "*.svg", "*.gif", "*.webp"), "an image"),
    "*": "nothing that a server reads",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotEntry:
    """One file as a source lists it.

    Args:
        path: its name in the snapshot.
        size: bytes.
        sha256: of the content, where the source says it before the file is read.
        git_sha1: git's name of the blob, where the source says it.
    """

    path: str
    size: int
    sha256: str | None = None
    git_sha1: str | None = None


def select_tensor_files(names: Collection[str], index: bytes | None, where: str) -> tuple[str, ...]:
    """Return the tensor files that a server loads.

    Args:
        names: every file of the snapshot.
        index: the content of its index; None without one.
        where: the snapshot, for the message.

    Raises:
        InputError: there are none, the index is malformed or names a file that is not there, or nothing says
            which of several is meant.
    """
    root_files = sorted(name for name in names if name.endswith(TENSOR_SUFFIX) and "/" not in name)
    if index is not None:
        shards = _list_index_files(index, f"{where}/{INDEX_NAME}")
        missing = sorted(shards - set(root_files))
        if missing:
            raise InputError(
                f"the index names {missing[0]}, which is not in the snapshot ({len(missing)} of {len(shards)} missing)",
                where=f"{where}/{INDEX_NAME}", change="bring the whole snapshot, or take a revision that is whole",
            )  # fmt: skip
        return tuple(sorted(shards))
    if SINGLE_FILE_NAME in root_files:
        return (SINGLE_FILE_NAME,)
    if len(root_files) == 1:
        return (root_files[0],)
    if root_files:
        raise InputError(
            f"the snapshot has {len(root_files)} tensor files ({', '.join(root_files[:3])}) and no {INDEX_NAME} "
            "that says "
            "which belong together",
            where=where,
            change="take a revision that has the index",
        )
    pickles = sorted(name for name in names if find_exclusion_reason(name).startswith("a pickle"))
    raise InputError(
        f"the snapshot has no safetensors{f', only {pickles[0]}' if pickles else ''}",
        where=where,
        change="take a revision with safetensors, or convert it and stage the folder by --from",
    )


def _list_index_files(index: bytes, where: str) -> set[str]:
    """Return the files of an index."""
    return set(parse_weight_map(index, where).values())


def parse_weight_map(index: bytes, where: str) -> dict[str, str]:
    """Return tensor -> file of an index.

    Raises:
        InputError: it is no index, or names a file outside of its own folder.
    """
    change = "take a revision whose index is whole"
    try:
        content = json.loads(index)
    except ValueError as error:
        raise InputError(f"the index is cut off or no JSON ({error})", where=where, change=change) from None
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError("the index has no weight_map", where=where, change=change)
    for tensor, file in weight_map.items():
        if not isinstance(file, str) or "/" in file or "\\" in file or not file.endswith(TENSOR_SUFFIX):
            raise InputError(
                f"the index puts the tensor {tensor} into {file!r}, which is no safetensors file beside it",
                where=where, change=change,
            )  # fmt: skip
    return weight_map


def choose_files(
    entries: Mapping[str, SnapshotEntry], tensors: Collection[str]
) -> tuple[tuple[SnapshotEntry, ...], dict[str, str]]:
    """Return the files to stage, by name, and the others with the reason.

    Args:
        entries: every file of the snapshot by its name.
        tensors: what `select_tensor_files` returned.
    """
    chosen_names = {name for name in entries if name in FILE_READERS or name in tensors}
    left_out = {name: find_exclusion_reason(name) for name in sorted(set(entries) - chosen_names)}
    return tuple(entries[name] for name in sorted(chosen_names)), left_out


def find_exclusion_reason(name: str) -> str:
    """Return why a file that is not chosen stays where it is."""
    return next(reason for pattern, reason in EXCLUSION_REASONS.items() if fnmatchcase(name, pattern))


def require_config(names: Collection[str], where: str) -> None:
    """Refuse a snapshot without its configuration, or with a file of our own names.

    Raises:
        InputError: there is no config.json, or the snapshot has a manifest or a lease of its own.
    """
    if CONFIG_NAME not in names:
        raise InputError(
            f"the snapshot has no {CONFIG_NAME}, so nothing can serve it", where=where,
            change="name the model's own repository and revision, or the snapshot's own folder",
        )  # fmt: skip
    for name in (MANIFEST_NAME, LEASE_NAME):
        if name in names:
            raise InputError(
                f"the snapshot holds a file {name}, which is the name of a file of the store", where=where,
                change="take the snapshot as its authors published it",
            )  # fmt: skip


def check_config(body: bytes, where: str) -> None:
    """Refuse a configuration that no runtime could read.

    Raises:
        InputError: it is no JSON object.
    """
    try:
        config = json.loads(body)
    except ValueError as error:
        config = None
        problem = f"is cut off or no JSON ({error})"
    else:
        problem = "is no JSON object"
    if not isinstance(config, dict):
        raise InputError(
            f"the configuration {problem}", where=where, change="take a revision whose config.json is whole"
        )
