"""How much local disk is asked for: never less than what is known to be written, never by
variant."""

from __future__ import annotations

import pytest
from committed import EXPERIMENTS, experiment, known

from tandem.declarations.disk import artifact_gib, largest_pair, models_gib, stage_gib

GIB = 2**30
QWEN = "Qwen/Qwen3-32B"
DRAFT = "Qwen/Qwen3-1.7B"
HEAD = "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3"


def test_a_snapshot_is_rounded_up_and_has_room():
    assert models_gib([known().models[QWEN]]) == 64  # 65,524,246,528 bytes are 61.02 GiB


def test_a_model_of_unknown_size_is_asked_room_for():
    assert known().models[HEAD].bytes.value is None
    assert models_gib([known().models[HEAD]]) == 10


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_artifact_has_room_for_kv_heads_of_every_rank(name):
    """Key and value projections of 8 heads are held once per rank (NxDI
    modules/attention/gqa.py)."""
    declaration = experiment(name)
    pair = largest_pair(declaration, known())
    degree = declaration.serving.tensor_parallel_size
    copies_bytes = sum(
        2 * model.layers.value * model.hidden_size.value * (model.head_dim.value or 0) * degree * 2
        for model in pair
    )
    embeddings = sum(2 * model.vocabulary.value * model.hidden_size.value * 2 for model in pair)

    assert (
        artifact_gib(pair) * GIB
        > sum(model.bytes.value or 0 for model in pair) + copies_bytes + embeddings
    )


@pytest.mark.parametrize(("model", "gib"), [(QWEN, 12), (DRAFT, 6), ("Qwen/Qwen3-0.6B", 4)])
def test_staging_holds_a_file_at_a_time(model, gib):
    assert stage_gib(known().models[model]) == gib
