"""A stand-in's model folder, read as the real programs do: configuration, index, every shard.

Invariant: a folder that is accepted has every tensor that its index names, in files that are whole.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.artifacts.tensor_file import read_tensor_file
from tandem.errors import TandemError

# aws-neuron/neuronx-distributed-inference v0.6.10598 models/qwen3/modeling_qwen3.py and
# models/llama/modeling_llama.py, get_required_attributes, without those that transformers itself
# fills in
REQUIRED_FIELDS = (
    "hidden_size",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "vocab_size",
    "max_position_embeddings",
    "rope_theta",
    "rms_norm_eps",
    "hidden_act",
)


class ModelFolderError(Exception):
    """The folder is no model that the program can load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """A model on disk.

    Args:
        path: as it was given.
        config: the content of config.json.
        identity: of configuration and index, so that another model makes another artifact.
    """

    path: str
    config: dict[str, Any]
    identity: str


def read_model(path: str) -> ModelFolder:
    """Read a model's folder.

    Raises:
        ModelFolderError: something is missing or cut off.
    """
    folder = Path(path)
    try:
        config_text = (folder / "config.json").read_text()
        config = json.loads(config_text)
    except (OSError, ValueError) as error:
        raise ModelFolderError(
            f"OSError: {path} does not appear to have a file named config.json: {error}"
        ) from None
    absent_fields = [name for name in REQUIRED_FIELDS if name not in config]
    if absent_fields:
        raise ModelFolderError(f"AssertionError: Config must define {absent_fields}")
    index = folder / "model.safetensors.index.json"
    weights = (
        json.loads(index.read_text())["weight_map"] if index.exists() else {"": "model.safetensors"}
    )
    for name in sorted(set(weights.values())):
        try:
            tensor_names = read_tensor_file(folder / name)
        except (TandemError, OSError) as error:
            raise ModelFolderError(
                f"safetensors_rust.SafetensorError: {folder / name}: {error}"
            ) from None
        absent_tensors = {
            tensor for tensor, file in weights.items() if tensor and file == name
        } - tensor_names
        if absent_tensors:
            raise ModelFolderError(f"KeyError: {min(absent_tensors)} is not in {folder / name}")
    identity = hashlib.sha256(
        (config_text + json.dumps(weights, sort_keys=True)).encode()
    ).hexdigest()
    return ModelFolder(path=path, config=config, identity=identity)
