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

from tandem.artifacts.fault import RefusedError
from tandem.artifacts.manifest import LEASE_NAME, NAME

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
WHOLE = "model.safetensors"  # the one tensor file of a snapshot without an index
TENSORS = ".safetensors"

# file of a snapshot -> who reads it; all lie at its root (transformers' own names for them, as its loaders spell them)
READ = {
    CONFIG: "shapes and architecture: every runtime and the compiler",
    "generation_config.json": "default sampling and end tokens: the server",
    INDEX: "which tensor lies in which file: the loader",
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
LEFT_OUT = {
    "*/*": "in a subfolder, where no server looks",
    ".*": "of the repository, not of the model",
    f"*{TENSORS}": "tensors that the index does not name",
    "*.safetensors.index.json": "an index of tensors that are not staged",
    **dict.fromkeys(("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt"), "a pickle, which can run code when it is read"),
    "*.py": "code of the repository, which no server here runs",
    **dict.fromkeys(("*.onnx", "*.onnx_data", "*.gguf", "*.h5", "*.msgpack", "*.ot"), "weights of another runtime"),
    **dict.fromkeys(("*.md", "*.txt", "*.pdf", "LICENSE*", "NOTICE*"), "a text for people"),
    **dict.fromkeys(("*.png", "*.jpg", "*.jpeg", "*.svg", "*.gif", "*.webp"), "an image"),
    "*": "nothing that a server reads",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
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


def tensors_of(names: Collection[str], index: bytes | None, where: str) -> tuple[str, ...]:
    """Return the tensor files that a server loads.

    Args:
        names: every file of the snapshot.
        index: the content of its index; None without one.
        where: the snapshot, for the message.

    Raises:
        RefusedError: there are none, the index is malformed or names a file that is not there, or nothing says
            which of several is meant.
    """
    at_root = sorted(name for name in names if name.endswith(TENSORS) and "/" not in name)
    if index is not None:
        shards = _shards(index, f"{where}/{INDEX}")
        missing = sorted(shards - set(at_root))
        if missing:
            raise RefusedError(
                f"the index names {missing[0]}, which is not in the snapshot ({len(missing)} of {len(shards)} missing)",
                where=f"{where}/{INDEX}", change="bring the whole snapshot, or take a revision that is whole",
            )  # fmt: skip
        return tuple(sorted(shards))
    if WHOLE in at_root:
        return (WHOLE,)
    if len(at_root) == 1:
        return (at_root[0],)
    if at_root:
        raise RefusedError(
            f"the snapshot has {len(at_root)} tensor files ({', '.join(at_root[:3])}) and no {INDEX} that says "
            "which belong together", where=where, change="take a revision that has the index",
        )  # fmt: skip
    pickles = sorted(name for name in names if why_left_out(name).startswith("a pickle"))
    raise RefusedError(
        f"the snapshot has no safetensors{f', only {pickles[0]}' if pickles else ''}", where=where,
        change="take a revision with safetensors, or convert it and stage the folder by --from",
    )  # fmt: skip


def _shards(index: bytes, where: str) -> set[str]:
    """Return the files of an index."""
    return set(weight_map(index, where).values())


def weight_map(index: bytes, where: str) -> dict[str, str]:
    """Return tensor -> file of an index.

    Raises:
        RefusedError: it is no index, or names a file outside of its own folder.
    """
    change = "take a revision whose index is whole"
    try:
        plain = json.loads(index)
    except ValueError as error:
        raise RefusedError(f"the index is cut off or no JSON ({error})", where=where, change=change) from None
    found = plain.get("weight_map") if isinstance(plain, dict) else None
    if not isinstance(found, dict) or not found:
        raise RefusedError("the index has no weight_map", where=where, change=change)
    for tensor, file in found.items():
        if not isinstance(file, str) or "/" in file or "\\" in file or not file.endswith(TENSORS):
            raise RefusedError(
                f"the index puts the tensor {tensor} into {file!r}, which is no safetensors file beside it",
                where=where, change=change,
            )  # fmt: skip
    return found


def choose(entries: Mapping[str, Entry], tensors: Collection[str]) -> tuple[tuple[Entry, ...], dict[str, str]]:
    """Return the files to stage, by name, and the others with the reason.

    Args:
        entries: every file of the snapshot by its name.
        tensors: what `tensors_of` returned.
    """
    chosen = {name for name in entries if name in READ or name in tensors}
    left_out = {name: why_left_out(name) for name in sorted(set(entries) - chosen)}
    return tuple(entries[name] for name in sorted(chosen)), left_out


def why_left_out(name: str) -> str:
    """Return why a file that is not chosen stays where it is."""
    return next(why for pattern, why in LEFT_OUT.items() if fnmatchcase(name, pattern))


def require_config(names: Collection[str], where: str) -> None:
    """Refuse a snapshot without its configuration, or with a file of our own names.

    Raises:
        RefusedError: there is no config.json, or the snapshot has a manifest or a lease of its own.
    """
    if CONFIG not in names:
        raise RefusedError(
            f"the snapshot has no {CONFIG}, so nothing can serve it", where=where,
            change="name the model's own repository and revision, or the snapshot's own folder",
        )  # fmt: skip
    for name in (NAME, LEASE_NAME):
        if name in names:
            raise RefusedError(
                f"the snapshot holds a file {name}, which is the name of a file of the store", where=where,
                change="take the snapshot as its authors published it",
            )  # fmt: skip


def check_config(body: bytes, where: str) -> None:
    """Refuse a configuration that no runtime could read.

    Raises:
        RefusedError: it is no JSON object.
    """
    try:
        plain = json.loads(body)
    except ValueError as error:
        plain = None
        said = f"is cut off or no JSON ({error})"
    else:
        said = "is no JSON object"
    if not isinstance(plain, dict):
        raise RefusedError(
            f"the configuration {said}", where=where, change="take a revision whose config.json is whole"
        )
