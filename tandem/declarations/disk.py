"""How much disk staging, compiling, serving and a system node take, as far as known beforehand.

Invariant: an estimate never depends on the variant, so that the pods of two variants ask for the
same.
"""

from __future__ import annotations

from collections.abc import Iterable

from tandem.declarations.catalogue import Catalogue
from tandem.declarations.experiment import Experiment
from tandem.declarations.model import ModelConfig

GIB = 2**30
# AL2023 and the add-ons' images take under 20; logs and emptyDirs take the rest
SYSTEM_NODE_ROOT_GIB = 50
# Next to the tensors, per snapshot: tokenizer and configuration, blocks that are begun, whatever a
# file system holds back for open files. A volume above its limit makes the kubelet evict the pod,
# with hours of compiling on its disk.
SNAPSHOT_ROOM_GIB = 2
# of a model whose size no source tells: the heads among the data files, all below 4 GB
UNKNOWN_GIB = 8
# Sharded weights hold KV heads, embeddings and padding once per rank: 8 heads at 32 ranks make 65.5
# GB 69.7 GB, and a 1.7B model at 32 ranks one and a half times its size. Twice is above both; the
# graphs are the rest.
ARTIFACT_FACTOR = 2
GRAPHS_GIB = 16
WORK_GIB = 64  # the compiler's work folder and cache; no source gives a figure
# The hub's files: the library that writes them cuts at 5 GB by default (huggingface/transformers
# modeling_utils.py, max_shard_size, 4.x). Twice that, and room for small files, is what staging
# holds at once at most.
LARGEST_FILE_GIB = 10
STAGE_ROOM_GIB = 2


def models_gib(models: Iterable[ModelConfig]) -> int:
    """Return what the snapshots of `models` take at most, in whole GiB."""
    return sum(_model_gib(model) + SNAPSHOT_ROOM_GIB for model in models)


def artifact_gib(models: Iterable[ModelConfig]) -> int:
    """Return the most that an artifact of `models` takes, in whole GiB."""
    return ARTIFACT_FACTOR * sum(map(_model_gib, models)) + GRAPHS_GIB


def compile_gib(models: Iterable[ModelConfig]) -> int:
    """Return what compiling `models` holds at once: snapshots, artifact, compiler's own files."""
    model_list = list(models)
    return models_gib(model_list) + artifact_gib(model_list) + WORK_GIB


def stage_gib(model: ModelConfig) -> int:
    """Return what staging holds of one snapshot at once: one file, and spare room."""
    return min(_model_gib(model), LARGEST_FILE_GIB) + STAGE_ROOM_GIB


def largest_pair(experiment: Experiment, catalogue: Catalogue) -> tuple[ModelConfig, ...]:
    """Return the target and the largest draft of all variants: the largest artifact's models."""
    target, *drafts = (catalogue.models[name] for name in experiment.all_models())
    drafts.sort(key=lambda model: (_model_gib(model), model.id))
    return target, *drafts[-1:]


def _model_gib(model: ModelConfig) -> int:
    size = model.bytes.value
    return UNKNOWN_GIB if size is None else -(-size // GIB)
