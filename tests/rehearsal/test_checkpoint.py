"""Written checkpoints, read back with the package that real ones are read with."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from doubles.checkpoint import MIB, RandomCheckpoint
from safetensors import deserialize


def tensors(path):
    return dict(deserialize(path.read_bytes()))


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_every_tensor_is_read_back_with_its_shape_and_type(tmp_path):
    checkpoint = RandomCheckpoint()
    checkpoint.write(tmp_path)
    read = {name: (tuple(said["shape"]), said["dtype"])
            for path in tmp_path.glob("*.safetensors") for name, said in tensors(path).items()}  # fmt: skip

    assert read == {name: (shape, "BF16") for name, shape in checkpoint.tensors().items()}


def test_the_index_tells_where_each_tensor_is(tmp_path):
    RandomCheckpoint().write(tmp_path)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    found = {name: path.name for path in tmp_path.glob("*.safetensors") for name in tensors(path)}

    assert index["weight_map"] == found
    assert len(set(found.values())) == 4


@pytest.mark.parametrize(
    ("embeddings", "tied", "stored"), [("untied", False, True), ("tied", True, False), ("tied-stored", True, True)]
)
def test_embeddings_can_be_tied_and_stored(tmp_path, embeddings, tied, stored):
    checkpoint = RandomCheckpoint(embeddings=embeddings)
    checkpoint.write(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["tie_word_embeddings"], "lm_head.weight" in checkpoint.tensors()) == (tied, stored)


@pytest.mark.parametrize(("family", "norms"), [("qwen3", True), ("llama", False)])
def test_a_family_has_its_own_tensors_and_type(tmp_path, family, norms):
    checkpoint = RandomCheckpoint(family=family)
    checkpoint.write(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["model_type"], "model.layers.0.self_attn.q_norm.weight" in checkpoint.tensors()) == (family, norms)


def test_the_configuration_fits_the_tensors(tmp_path):
    checkpoint = RandomCheckpoint(layers=3)
    checkpoint.write(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())

    assert checkpoint.tensors()["model.embed_tokens.weight"] == (config["vocab_size"], config["hidden_size"])
    assert "model.layers.2.mlp.up_proj.weight" in checkpoint.tensors()
    assert config["num_hidden_layers"] == 3


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    RandomCheckpoint(seed=1).write(tmp_path / "a")
    RandomCheckpoint(seed=1).write(tmp_path / "b")
    assert digests(tmp_path / "a") == digests(tmp_path / "b")


def test_another_seed_gives_other_weights_and_the_same_settings(tmp_path):
    RandomCheckpoint(seed=1).write(tmp_path / "a")
    RandomCheckpoint(seed=2).write(tmp_path / "b")
    first, second = digests(tmp_path / "a"), digests(tmp_path / "b")

    assert {name for name in first if first[name] != second[name]} == {
        name for name in first if name.endswith(".safetensors")
    }


def test_weights_do_not_depend_on_how_they_are_cut(tmp_path):
    RandomCheckpoint(shard_bytes=MIB).write(tmp_path / "one")
    RandomCheckpoint().write(tmp_path / "many")
    whole = tensors(tmp_path / "one" / "model.safetensors")

    for path in (tmp_path / "many").glob("*.safetensors"):
        for name, said in tensors(path).items():
            assert said["data"] == whole[name]["data"], name


def test_a_tokenizer_knows_every_byte_and_fits_the_vocabulary(tmp_path):
    checkpoint = RandomCheckpoint()
    checkpoint.write(tmp_path)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())

    ids = {*tokenizer["model"]["vocab"].values(), *(token["id"] for token in tokenizer["added_tokens"])}
    assert ids == set(range(259))
    assert max(ids) < checkpoint.vocabulary


def test_the_usual_files_are_there(tmp_path):
    written = RandomCheckpoint(shard_bytes=MIB).write(tmp_path)
    assert [path.name for path in written] == [
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip


@pytest.mark.parametrize("size", [MIB, 30 * MIB, 500 * MIB, 4096 * MIB])
@pytest.mark.parametrize("embeddings", ["untied", "tied"])
def test_a_size_is_met_within_a_tenth(size, embeddings):
    checkpoint = RandomCheckpoint.from_size(size, shards=4, embeddings=embeddings)
    assert abs(checkpoint.size - size) < size / 10
    assert len(checkpoint.shards()) == 4


def test_a_large_one_is_written_in_little_memory(tmp_path):
    script = (
        "import resource, sys; from pathlib import Path; from doubles.checkpoint import RandomCheckpoint, MIB\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "RandomCheckpoint.from_size(96 * MIB, shards=1).write(Path(sys.argv[1]))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    root = Path(__file__).parents[1]

    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True,
                          cwd=root)  # fmt: skip

    assert int(done.stdout) < 16 * 1024  # KiB
