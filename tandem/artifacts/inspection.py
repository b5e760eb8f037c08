"""Comparison of a local artifact with its key, before the artifact is stored, imported or served.

Invariant: an NxD Inference artifact that passes has a configuration with every setting of the key,
a whole graph file, and one whole weight file per rank; a compiler's cache that passes has a
finished graph and no unfinished one. Every difference is named by its field; unproven facts are
listed in sentences, never left out.

The configuration is the runtime's neuron_config.json: the target's settings below `neuron_config`,
the draft's below `fused_spec_config.draft_config.neuron_config`, the model's configuration next to
them (aws-neuron/neuronx-distributed-inference tag v0.6.10598 models/config.py,
InferenceConfig.to_json_string).
"""

from __future__ import annotations

import json
import re
import statistics
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tandem.artifacts.driver.folders import find_graphs
from tandem.artifacts.manifest import shorten_list
from tandem.artifacts.tensor_file import read_tensor_file
from tandem.declarations.artifact_key import ArtifactKey
from tandem.declarations.names import MODELS_MOUNT
from tandem.errors import StaleError, TandemError

MAX_FAULTS = 12  # faults that a message names; the rest is counted
ENTRY_PATTERN = re.compile(r"MODULE_.*|[0-9a-f]{32,}")
NATIVE_NOTE = (
    "that a second server starts from this cache root"
    " without compiling is shown only by one that has"
)
CONFIG = "neuron_config.json"
GRAPH = "model.pt"
WEIGHTS = "weights"
SIZE_TOLERANCE = 0.25  # of the median: ranks of one model have the same tensors except for padding
TEMPORARY_PATTERNS = (
    "*.tmp",
    "*.part",
    "*.partial",
    "*.new",
    "tmp*",
    ".tmp*",
    "*.incomplete",
    "core.*",
)
DRAFT = "fused_spec_config.draft_config.neuron_config"
FUSED_MODES = frozenset({"fused", "eagle"})
ABSENT = "(absent)"
# errors of zipfile and its decompressors for bytes that are no archive
ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)
# values of `tuning` settings that the experiment leaves to the runtime (NeuronConfig.__init__)
TUNING_DEFAULTS: dict[str, object] = {
    "fused_qkv": False,
    "sequence_parallel_enabled": False,
    "qkv_kernel_enabled": False,
    "attn_kernel_enabled": None,
    "mlp_kernel_enabled": False,
    "cc_pipeline_tiling_factor": 2,
    "context_encoding_buckets": None,
    "token_generation_buckets": None,
}


def require_valid_artifact(folder: Path, key: ArtifactKey) -> tuple[str, ...]:
    """Refuse an artifact that is not whole, or not the key's; return its unproven facts.

    Raises:
        StaleError: the artifact has faults; each is named, one a line.
    """
    faults, notes = inspect_artifact(folder, key)
    if faults:
        raise StaleError(
            format_faults(faults),
            where=str(folder),
            change="nothing was stored; compile it again with this key's own arguments",
        )
    return notes


def inspect_artifact(
    folder: Path, key: ArtifactKey, *, cache: Path | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return an artifact's faults and its unproven facts, in sentences.

    Args:
        folder: of the artifact.
        key: of the artifact.
        cache: of the artifact's compiler, if the cache still exists.
    """
    if key.nxdi is None:
        return tuple(_find_cache_faults(folder)), (NATIVE_NOTE,)
    faults = []
    config = read_config(folder)
    if isinstance(config, str):
        faults.append(config)
        config = {}
    else:
        faults += config_differences(config, key)
    faults += _find_graph_faults(folder / GRAPH)
    faults += _find_weight_faults(folder / WEIGHTS, key.tensor_parallel_size)
    faults += _find_remains(folder)
    # a half graph is no fault of the artifact: the compiler may have built the graph again under
    # another name
    graphs = find_graphs(cache) if cache is not None else ()
    faults += [f"{graph.folder}: {graph.reason}" for graph in graphs if graph.state == "failed"]

    notes = []
    for path, field, model in _list_models(key):
        source = _read_model_folder(config, path)
        if not source.startswith(f"{MODELS_MOUNT}/"):  # a path without a revision
            notes.append(
                f"that the {field} is {model} is said by whoever brought it;"
                f" the artifact names {source or 'none'}"
            )
    return tuple(faults), tuple(notes)


def _find_remains(folder: Path) -> Iterator[str]:
    """Yield the files that a program left half-written."""
    for path in sorted(folder.rglob("*")):
        if any(path.match(pattern) for pattern in TEMPORARY_PATTERNS):
            yield f"{path}: a temporary file, as of a program that was ended while it wrote"
        elif path.is_file() and not path.stat().st_size and path.name not in (CONFIG, GRAPH):
            yield f"{path}: it is empty"


def format_faults(faults: Sequence[str]) -> str:
    """Return the faults as one message, one a line."""
    lines = shorten_list(faults, MAX_FAULTS, "\n")
    return f"the artifact is not what its key asks for, or not whole:\n{lines}\n"


def _find_cache_faults(folder: Path) -> Iterator[str]:
    """Yield one sentence per fault of a native artifact: a vLLM cache root on local disk.

    A folder without an entry's name, e.g. a library's folder for its next file, holds no graph.
    """
    graphs = list(find_graphs(folder))
    for graph in graphs:
        if graph.state != "finished" and ENTRY_PATTERN.fullmatch(graph.folder.name):
            yield f"{graph.folder}: a {graph.state} graph: {graph.reason}"
    if all(graph.state != "finished" for graph in graphs):
        yield f"{folder}: it holds no finished graph"


def build_expected_settings(key: ArtifactKey) -> dict[str, tuple[str, object]]:
    """Return path in the configuration -> (field of the key, value) of settings that must agree.

    Args:
        key: of an NxD Inference artifact. Settings that follow from the mode have the field `mode`.
    """
    common = _build_common_settings(key)
    is_eagle = key.mode == "eagle"
    target = {
        **common,
        "speculation_length": ("num_speculative_tokens", key.num_speculative_tokens),
        "enable_fused_speculation": ("mode", key.mode in FUSED_MODES),
        "enable_eagle_speculation": ("mode", is_eagle),
        "tp_degree": ("tensor_parallel_size", key.tensor_parallel_size),
        "is_medusa": ("mode", False),
    }
    draft = {
        **common,
        "speculation_length": ("mode", key.num_speculative_tokens if is_eagle else 0),
        "enable_fused_speculation": ("mode", False),
        "is_eagle_draft": ("mode", is_eagle),
        "tp_degree": ("draft_tensor_parallel_size", key.draft_tensor_parallel_size),
    }
    settings = {f"neuron_config.{name}": pair for name, pair in target.items()}
    return settings | {
        f"{DRAFT}.{name}": pair for name, pair in draft.items() if key.draft is not None
    }


def _build_common_settings(key: ArtifactKey) -> dict[str, tuple[str, object]]:
    """Return the settings of target and draft, with those that the server's loader always sets."""
    tuning = {**dict.fromkeys(TUNING_DEFAULTS), **key.as_fields()["tuning"]}
    settings = {
        name: (f"tuning.{name}", TUNING_DEFAULTS.get(name) if value in (None, []) else value)
        for name, value in tuning.items()
    }
    for name, value in key.neuron_config.items():
        if not name.startswith("enable_"):  # settings of speculation, which follow from the mode
            settings[name] = (f"neuron_config.{name}", value)
    for name, value in key.sampling.items():
        settings[f"on_device_sampling_config.{name}"] = (f"sampling.{name}", value)
    return {
        **settings,
        "batch_size": ("max_num_seqs", key.max_num_seqs),
        "tkg_batch_size": ("max_num_seqs", key.max_num_seqs),
        "max_batch_size": ("max_num_seqs", key.max_num_seqs),
        "ctx_batch_size": ("the server's loader", 1),
        "seq_len": ("max_model_len", key.max_model_len),
        "max_context_length": ("max_model_len", key.max_model_len),
        "max_length": ("max_model_len", key.max_model_len),
        "torch_dtype": ("dtype", key.dtype),
        "logical_nc_config": ("logical_neuron_core", key.logical_neuron_core),
        "async_mode": ("async_mode", key.async_mode),
        "quantized": ("quantization", key.quantization is not None),
        "kv_cache_quant": ("kv_cache_quantization", key.kv_cache_quantization is not None),
        "is_prefix_caching": ("prefix_caching", key.prefix_caching),
        "is_continuous_batching": ("the server's loader", True),
        "enable_bucketing": ("the server's loader", True),
        "padding_side": ("the server's loader", "right"),
    }


def config_differences(config: Mapping[str, Any], key: ArtifactKey) -> Iterator[str]:
    """Yield one sentence per field in which a configuration differs from the key."""
    mode = _read_speculation_mode(config)
    if mode != key.mode:
        yield f"mode: artifact {mode}, deployment {key.mode} ({CONFIG})"
    has_draft = isinstance(config.get("fused_spec_config"), Mapping)
    if has_draft != bool(key.draft):
        draft = "one" if has_draft else "none"
        yield f"draft: artifact {draft}, deployment {key.draft or 'none'} ({CONFIG})"

    paths_by_sentence: dict[str, list[str]] = {}
    for path, (field, expected) in build_expected_settings(key).items():
        if field == "mode" and mode != key.mode:
            continue
        if path.startswith(DRAFT) and not has_draft:
            continue
        actual = _read_config_value(config, path)
        # in Python 1 equals true
        if (actual, isinstance(actual, bool)) != (expected, isinstance(expected, bool)):
            sentence = f"{field}: artifact {_spell(actual)}, deployment {_spell(expected)}"
            paths_by_sentence.setdefault(sentence, []).append(path)
    for sentence, paths in paths_by_sentence.items():
        yield f"{sentence} ({CONFIG} {shorten_list(paths, 1)})"

    for path, field, model in _list_models(key):
        folder = _read_model_folder(config, path)
        own_folder = f"{MODELS_MOUNT}/{model.replace('@', '/')}"
        is_ours = folder.startswith(f"{MODELS_MOUNT}/")
        if is_ours and folder.rstrip("/") != own_folder:
            yield f"{field}: artifact {folder}, deployment {model} ({CONFIG} {path})"


def _spell(value: object) -> str:
    """Return a setting as text: a string as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _read_speculation_mode(config: Mapping[str, Any]) -> str:
    """Return a configuration's speculation mode, in the key's words."""
    flags = {
        "medusa": "is_medusa",
        "eagle": "enable_eagle_speculation",
        "fused": "enable_fused_speculation",
    }
    for mode, flag in flags.items():
        if _read_config_value(config, f"neuron_config.{flag}") is True:
            return mode
    length = _read_config_value(config, "neuron_config.speculation_length")
    return "none" if length in (0, ABSENT) else "vanilla"


def _list_models(key: ArtifactKey) -> Iterator[tuple[str, str, str]]:
    """Yield path in the configuration, field of the key, and model, of target and draft."""
    yield "_name_or_path", "target", key.target
    if key.draft:
        yield "fused_spec_config.draft_model_path", "draft", key.draft


def _read_model_folder(config: Mapping[str, Any], path: str) -> str:
    """Return the folder of a model that a configuration names; empty where it names none."""
    folder = _read_config_value(config, path)
    return "" if folder in (ABSENT, None) else str(folder)


def read_config(folder: Path) -> dict[str, Any] | str:
    """Return the configuration, or the reason why it cannot be read."""
    path = folder / CONFIG
    try:
        # it has Infinity, which Python's JSON reads
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return f"{path}: it is missing"
    except (OSError, ValueError, RecursionError) as error:
        return f"{path}: it cannot be read ({error})"
    if isinstance(config, dict):
        return config
    return f"{path}: it is not a mapping"


def _find_graph_faults(path: Path) -> Iterator[str]:
    """Yield the faults of the traced graph: torch.jit writes a zip whose directory comes last."""
    if not path.is_file():
        yield f"{path}: it is missing"
        return
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            damaged_member = archive.testzip()
    except ZIP_ERRORS as error:
        yield f"{path}: cut off or damaged ({error})"
        return
    if damaged_member:
        yield f"{path}: {damaged_member} in it is damaged"
    if not any(name.endswith("/data.pkl") for name in names):
        yield f"{path}: it holds no TorchScript program (no data.pkl)"


def _find_weight_faults(folder: Path, ranks: int) -> Iterator[str]:
    names = [f"tp{rank}_sharded_checkpoint.safetensors" for rank in range(ranks)]
    present = {path.name for path in folder.glob("*") if path.is_file()}
    missing = [name for name in names if name not in present]
    if missing:
        count_text = f"{len(missing)} of {ranks} ranks have no weights"
        yield f"{folder / missing[0]}: it is missing ({count_text})"
    for name in sorted(present - set(names)):
        yield f"{folder / name}: no rank of {ranks} has this name"

    sizes = {}
    for name in names:
        path = folder / name
        if name not in present:
            continue
        try:
            read_tensor_file(path)
            sizes[path] = path.stat().st_size
        except TandemError as error:
            yield f"{path}: {error.problem}"
    if not sizes:
        return
    median_bytes = statistics.median(sizes.values())
    for path, size in sizes.items():
        if abs(size - median_bytes) > SIZE_TOLERANCE * median_bytes:
            yield f"{path}: {size} bytes, the ranks' median is {median_bytes:.0f}"


def _read_config_value(config: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path; a null on the way counts as absent."""
    value = config
    for step in path.split("."):
        if not isinstance(value, Mapping) or step not in value:
            return ABSENT
        value = value[step]
    return value
