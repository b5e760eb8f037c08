"""What NxD Inference compiled, held against the key it was compiled for.

Invariant: an artifact that passes has a configuration that says the key's every setting, a whole graph file, and
one whole weight file per rank; every difference is named, in the field's own words.

The configuration is the runtime's own neuron_config.json: the target's settings below `build_neuron_config`, the
draft's
below `fused_spec_config.draft_config.neuron_config`, the model's own configuration beside them
(aws-neuron/neuronx-distributed-inference tag v0.6.10598 models/config.py, InferenceConfig.to_json_string).
"""

from __future__ import annotations

import json
import statistics
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tandem.artifacts.tensor_file import read_tensor_file
from tandem.errors import TandemError
from tandem.spec.artifact_key import ArtifactKey
from tandem.spec.names import MODELS_MOUNT

CONFIG = "neuron_config.json"
GRAPH = "model.pt"
WEIGHTS = "weights"
SIZE_TOLERANCE = 0.25  # of the median: ranks of one model have the same tensors but for padding
TEMPORARY_PATTERNS = ("*.tmp", "*.part", "*.partial", "*.new", "tmp*", ".tmp*", "*.incomplete", "core.*")
DRAFT = "fused_spec_config.draft_config.neuron_config"
FUSED_MODES = frozenset({"fused", "eagle"})
ABSENT = "(absent)"

# what zipfile and its decompressors say of bytes that are no archive of theirs
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError, ValueError)

# what the settings of `tuning` are where the experiment leaves them to the runtime (NeuronConfig.__init__)
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


def build_expected_settings(key: ArtifactKey) -> dict[str, tuple[str, object]]:
    """Return path in the configuration -> (field of the key, value) of all that must agree.

    Args:
        key: of an NxD Inference artifact. The field `mode` names settings that follow from it.
    """
    is_speculative = key.mode in FUSED_MODES
    target = {
        **_build_common_settings(key),
        "speculation_length": ("num_speculative_tokens", key.num_speculative_tokens),
        "enable_fused_speculation": ("mode", is_speculative),
        "enable_eagle_speculation": ("mode", key.mode == "eagle"),
        "tp_degree": ("tensor_parallel_size", key.tensor_parallel_size),
        "is_medusa": ("mode", False),
    }
    settings = {f"neuron_config.{name}": pair for name, pair in target.items()}
    if key.draft is None:
        return settings
    draft = {
        **_build_common_settings(key),
        "speculation_length": ("mode", key.num_speculative_tokens if key.mode == "eagle" else 0),
        "enable_fused_speculation": ("mode", False),
        "is_eagle_draft": ("mode", key.mode == "eagle"),
        "tp_degree": ("draft_tensor_parallel_size", key.draft_tensor_parallel_size),
    }
    return {**settings, **{f"{DRAFT}.{name}": pair for name, pair in draft.items()}}


def _build_common_settings(key: ArtifactKey) -> dict[str, tuple[str, object]]:
    """Return what target and draft have in common, with what the loader of the server always sets."""
    tuning_fields = key.as_fields()["tuning"]
    tuning_settings = {
        name: (f"tuning.{name}", TUNING_DEFAULTS.get(name) if value in (None, []) else value)
        for name, value in {**dict.fromkeys(TUNING_DEFAULTS), **tuning_fields}.items()
    }
    neuron_settings = {
        name: (f"neuron_config.{name}", value)
        for name, value in key.neuron_config.items()
        if not name.startswith("enable_")  # speculation's own, which follow from the mode
    }
    sampling = {
        f"on_device_sampling_config.{name}": (f"sampling.{name}", value) for name, value in key.sampling.items()
    }
    return {
        **tuning_settings,
        **neuron_settings,
        **sampling,
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
    """Yield one sentence per field of the key in which a configuration is not what it asks for."""
    mode, has_draft = _read_speculation_mode(config), isinstance(config.get("fused_spec_config"), Mapping)
    if mode != key.mode:
        yield f"mode: artifact {mode}, deployment {key.mode} ({CONFIG})"
    if has_draft != bool(key.draft):
        yield f"draft: artifact {'one' if has_draft else 'none'}, deployment {key.draft or 'none'} ({CONFIG})"
    mismatches: dict[tuple[str, str, str], list[str]] = {}
    for path, (field, expected_value) in build_expected_settings(key).items():
        actual_value = _read_config_value(config, path)
        follows_mode = (field == "mode" and mode != key.mode) or (path.startswith(DRAFT) and not has_draft)
        if not follows_mode and (
            actual_value != expected_value or isinstance(expected_value, bool) != isinstance(actual_value, bool)
        ):
            mismatches.setdefault((field, _format_value(actual_value), _format_value(expected_value)), []).append(path)
    for (field, actual_text, expected_text), paths in mismatches.items():
        rest_note = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield f"{field}: artifact {actual_text}, deployment {expected_text} ({CONFIG} {paths[0]}{rest_note})"
    for path, (field, model_path, expected_text) in _model_paths(config, key).items():
        if (
            model_path.startswith(f"{MODELS_MOUNT}/")
            and model_path.rstrip("/") != f"{MODELS_MOUNT}/{expected_text.replace('@', '/')}"
        ):
            yield f"{field}: artifact {model_path}, deployment {expected_text} ({CONFIG} {path})"


def _read_speculation_mode(config: Mapping[str, Any]) -> str:
    """Return the speculation mode that a configuration has, in the key's words."""
    if _read_config_value(config, "neuron_config.is_medusa") is True:
        return "medusa"
    if _read_config_value(config, "neuron_config.enable_eagle_speculation") is True:
        return "eagle"
    if _read_config_value(config, "neuron_config.enable_fused_speculation") is True:
        return "fused"
    return "vanilla" if _read_config_value(config, "neuron_config.speculation_length") not in (0, ABSENT) else "none"


def config_notes(config: Mapping[str, Any], key: ArtifactKey) -> Iterator[str]:
    """Yield what a configuration leaves open, in sentences: a model named by a path that says no revision."""
    for field, model_path, model_name in _model_paths(config, key).values():
        if not model_path.startswith(f"{MODELS_MOUNT}/"):
            yield (
                f"that the {field} is {model_name} is said by whoever brought it; the artifact names "
                f"{model_path or 'none'}"
            )


def _model_paths(config: Mapping[str, Any], key: ArtifactKey) -> dict[str, tuple[str, str, str]]:
    """Return path in the configuration -> (field of the key, the model's path there, what the key asks for)."""
    key_models = {"_name_or_path": ("target", key.target), "fused_spec_config.draft_model_path": ("draft", key.draft)}
    config_values = {path: _read_config_value(config, path) for path in key_models}
    return {
        path: (field, "" if config_values[path] in (ABSENT, None) else str(config_values[path]), model)
        for path, (field, model) in key_models.items()
        if model
    }


def read_config(folder: Path) -> dict[str, Any] | str:
    """Return the configuration, or why it cannot be read."""
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))  # holds Infinity, which Python's JSON reads
    except FileNotFoundError:
        return f"{path}: it is missing"
    except (OSError, ValueError, RecursionError) as error:
        return f"{path}: it cannot be read ({error})"
    return config if isinstance(config, dict) else f"{path}: it is no mapping"


def inspect_nxdi(folder: Path, key: ArtifactKey) -> Iterator[str]:
    """Yield one sentence per fault of an artifact on local disk.

    Args:
        folder: the compiled model's.
        key: what it was compiled for.
    """
    config = read_config(folder)
    if isinstance(config, str):
        yield config
    else:
        yield from config_differences(config, key)
    yield from _graph_faults(folder / GRAPH)
    yield from _weight_faults(folder / WEIGHTS, key.tensor_parallel_size)
    for path in sorted(folder.rglob("*")):
        if any(path.match(pattern) for pattern in TEMPORARY_PATTERNS):
            yield f"{path}: a temporary file, as of a program that was ended while it wrote"
        elif path.is_file() and not path.stat().st_size and path.name not in (CONFIG, GRAPH):
            yield f"{path}: it is empty"


def _graph_faults(path: Path) -> Iterator[str]:
    """Yield what is wrong with the traced graph: torch.jit writes a zip whose directory comes last."""
    if not path.is_file():
        yield f"{path}: it is missing"
        return
    try:
        with zipfile.ZipFile(path) as archive:
            member_names = archive.namelist()
            damaged_member = archive.testzip()
    except ZIP_ERRORS as error:
        yield f"{path}: cut off or damaged ({error})"
        return
    if damaged_member:
        yield f"{path}: {damaged_member} in it is damaged"
    if not any(name.endswith("/data.pkl") for name in member_names):
        yield f"{path}: it holds no TorchScript program (no data.pkl)"


def _weight_faults(folder: Path, ranks: int) -> Iterator[str]:
    file_names = [f"tp{rank}_sharded_checkpoint.safetensors" for rank in range(ranks)]
    paths_by_name = {path.name: path for path in sorted(folder.glob("*")) if path.is_file()}
    missing_names = [name for name in file_names if name not in paths_by_name]
    if missing_names:
        yield f"{folder / missing_names[0]}: it is missing ({len(missing_names)} of {ranks} ranks have no weights)"
    for name in sorted(set(paths_by_name) - set(file_names)):
        yield f"{paths_by_name[name]}: no rank of {ranks} has this name"
    sizes: dict[Path, int] = {}
    for name in file_names:
        if name in paths_by_name:
            try:
                sizes[paths_by_name[name]] = read_tensor_file(paths_by_name[name]).size
            except TandemError as error:
                yield f"{paths_by_name[name]}: {error.problem}"
    median_bytes = statistics.median(sizes.values()) if sizes else 0
    for path, size in sizes.items():
        if abs(size - median_bytes) > SIZE_TOLERANCE * median_bytes:
            yield f"{path}: {size} bytes, the ranks' median is {median_bytes:.0f}"


def _read_config_value(config: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path; a null on the way is one that is not there."""
    node: Any = config
    for step in path.split("."):
        if not isinstance(node, Mapping) or step not in node:
            return ABSENT
        node = node[step]
    return node


def _format_value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
