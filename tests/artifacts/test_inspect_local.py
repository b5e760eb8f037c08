"""An artifact on local disk: whole and the key's, or refused by naming field and file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made import key_of, native_artifact, native_key, nxdi_artifact

from tandem.artifacts.inspection import (
    TUNING_DEFAULTS,
    build_expected_settings,
    inspect_artifact,
    require_valid_artifact,
)

RANKS = [f"weights/tp{rank}_sharded_checkpoint.safetensors" for rank in (0, 1)]


@pytest.fixture(autouse=True)
def _no_lnc(monkeypatch, tmp_path):
    monkeypatch.delenv("NEURON_LOGICAL_NC_CONFIG", raising=False)
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "cache"))
    monkeypatch.setenv("BASE_COMPILE_WORK_DIR", str(tmp_path / "work"))


@pytest.fixture
def folder(tmp_path):
    return nxdi_artifact(tmp_path / "current")


def refusal(folder, key, cache=None):
    faults, _ = inspect_artifact(folder, key, cache=cache)
    assert faults
    return "\n".join(faults)


@pytest.mark.parametrize("mode", ["none", "fused"])
@pytest.mark.parametrize(
    "tuning",
    [
        {},
        {"fused_qkv": True, "context_encoding_buckets": (256, 1024)},
        {"attn_kernel_enabled": False},
    ],
)
def test_what_the_key_asks_for_passes(tmp_path, mode, tuning):
    folder = nxdi_artifact(tmp_path / "current", mode, tuning)
    assert inspect_artifact(folder, key_of(mode, tuning), cache=tmp_path / "cache") == ((), ())


CHANGES: dict[str, Any] = {
    "num_speculative_tokens": 15,
    "tensor_parallel_size": 4,
    "draft_tensor_parallel_size": 1,
    "max_num_seqs": 8,
    "max_model_len": 2048,
    "dtype": "float16",
    "logical_neuron_core": 1,
    "async_mode": True,
    "mode": "eagle",
    "quantization": "int8",
    "kv_cache_quantization": "fp8",
    "prefix_caching": True,
    "target": "Qwen/Qwen3-32B@" + "0" * 40,
    "draft": "Qwen/Qwen3-0.6B@" + "0" * 40,
}


@pytest.mark.parametrize("field", CHANGES)
def test_a_field_that_differs_is_named_with_both_values(folder, field):
    message = refusal(folder, replace(key_of(), **{field: CHANGES[field]}))
    assert f"{field}: artifact " in message
    assert "neuron_config.json" in message


TUNINGS: dict[str, Any] = {
    "fused_qkv": True,
    "sequence_parallel_enabled": True,
    "qkv_kernel_enabled": True,
    "attn_kernel_enabled": True,
    "mlp_kernel_enabled": True,
    "cc_pipeline_tiling_factor": 1,
    "context_encoding_buckets": [512, 1024],
    "token_generation_buckets": [1024],
}


@pytest.mark.parametrize("field", TUNING_DEFAULTS)
def test_a_tuning_that_differs_is_named_of_target_and_draft(folder, field):
    key = key_of()
    message = refusal(folder, replace(key, tuning={**key.tuning, field: TUNINGS[field]}))
    assert f"tuning.{field}: artifact " in message
    assert f"(neuron_config.json neuron_config.{field} and 1 more)" in message


def test_settings_that_only_the_servers_loader_gives_are_held_too(tmp_path):
    folder = nxdi_artifact(tmp_path / "current", ctx_batch_size=4)
    message = refusal(folder, key_of())
    assert (
        "the server's loader: artifact 4, deployment 1 (neuron_config.json"
        " neuron_config.ctx_batch_size" in message
    )


def test_number_in_the_place_of_a_truth_is_no_agreement(folder):
    plain = json.loads((folder / "neuron_config.json").read_text())
    plain["neuron_config"]["enable_bucketing"] = 1
    (folder / "neuron_config.json").write_text(json.dumps(plain))
    assert "enable_bucketing" in refusal(folder, key_of())


def test_every_field_that_a_compile_reads_is_compared():
    key = key_of()
    fields = {field.partition(".")[0] for field, _ in build_expected_settings(key).values()}
    elsewhere = {"target", "draft"}  # by the models' paths
    of_the_image = {
        "runtime",
        "image_repository",
        "image_tag",
        "image_digest",
        "sdk",
        "neuronx_cc",
        "nxdi",
        "plugin",
        "platform_target",
        "environment",
    }

    assert set(key.as_fields()) - fields - elsewhere == of_the_image


def test_a_model_from_another_place_is_said_to_be_unproven(folder):
    plain = json.loads((folder / "neuron_config.json").read_text())
    plain["_name_or_path"] = "/opt/elsewhere/Qwen3-32B"
    (folder / "neuron_config.json").write_text(json.dumps(plain))

    (note,) = require_valid_artifact(folder, key_of())

    assert note.startswith("that the target is Qwen/Qwen3-32B@")
    assert note.endswith("the artifact names /opt/elsewhere/Qwen3-32B")


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    # the first byte of its content
    content[content.index(b"model/data.pkl") + len(b"model/data.pkl")] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "no-config": ("neuron_config.json", Path.unlink, "neuron_config.json: it is missing"),
    "half-config": ("neuron_config.json", halve, "neuron_config.json: it cannot be read"),
    "no-graph": ("model.pt", Path.unlink, "model.pt: it is missing"),
    "empty-graph": ("model.pt", lambda path: path.write_bytes(b""), "model.pt: cut off or damaged"),
    "flipped-graph": ("model.pt", flip, "model.pt: model/data.pkl in it is damaged"),
    "no-rank": (
        RANKS[1],
        Path.unlink,
        "tp1_sharded_checkpoint.safetensors: it is missing (1 of 2 ranks",
    ),
    "half-rank": (RANKS[0], cut, "tp0_sharded_checkpoint.safetensors: cut off or damaged"),
    "empty-rank": (
        RANKS[1],
        lambda path: path.write_bytes(b""),
        "tp1_sharded_checkpoint.safetensors: no safetensors",
    ),
    "rank-too-many": (
        "weights/tp2_sharded_checkpoint.safetensors",
        lambda path: path.write_bytes(b"x"),
        "no rank of 2",
    ),
    "temporary": (
        "weights/tmpabc",
        lambda path: path.write_bytes(b"x"),
        "weights/tmpabc: a temporary file",
    ),
    "empty": ("tokenizer.json", Path.touch, "tokenizer.json: it is empty"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_not_whole_is_refused_by_the_files_name(folder, damage):
    name, act, message = DAMAGES[damage]
    act(folder / name)
    assert message in refusal(folder, key_of())


def test_a_rank_of_another_size_is_refused(folder):
    other_folder = nxdi_artifact(folder.parent / "other/current", "fused")
    header = b'{"a":{"dtype":"U8","shape":[4096],"data_offsets":[0,4096]}}'
    tensor = bytes(4096)
    (other_folder / RANKS[1]).write_bytes(len(header).to_bytes(8, "little") + header + tensor)
    assert "bytes, the ranks' median is" in refusal(other_folder, key_of())


def test_a_failed_graph_in_the_compilers_cache_is_refused(folder, tmp_path):
    folder = next((tmp_path / "cache").rglob("MODULE_*"))
    (folder / "model.done").unlink()
    (folder / "model.log").write_text("Failed compilation")
    assert f"{folder}: the compiler marked it as failed" in refusal(
        folder, key_of(), tmp_path / "cache"
    )


def test_a_native_cache_root_passes_and_says_what_is_unproven(tmp_path):
    (note,) = require_valid_artifact(native_artifact(tmp_path / "current"), native_key())
    assert "without compiling" in note


@pytest.mark.parametrize(
    ("name", "act", "message"),
    [
        (".compilation_complete", Path.unlink, "a half graph: no .compilation_complete"),
        (
            "graph_{key}.neff",
            Path.unlink,
            "a half graph: .compilation_complete without a graph's .neff",
        ),
        ("graph_{key}.neff", cut, "a half graph: its .neff is to have 36 bytes, and has 35"),
    ],
)
def test_a_native_graph_that_is_not_finished_is_refused(tmp_path, name, act, message):
    folder = native_artifact(tmp_path / "current")
    key = "1".zfill(32)
    act(folder / "neuron/compile_cache" / key / name.format(key=key))
    assert message in refusal(folder, native_key())


def test_a_native_cache_root_without_a_graph_is_refused(tmp_path):
    (tmp_path / "current").mkdir()
    assert "it holds no finished graph" in refusal(tmp_path / "current", native_key())


def test_cache_folder_without_an_entry_is_no_half_graph(tmp_path):
    folder = native_artifact(tmp_path / "current")
    (folder / "neuron/compile_cache/.staging").mkdir()
    assert require_valid_artifact(folder, native_key())
