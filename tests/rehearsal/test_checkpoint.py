"""Written checkpoints, read back with the package that real ones are read with."""

from __future__ import annotations

import hashlib

import pytest
from safetensors import deserialize

from rehearsal.checkpoint import MIB, RandomCheckpoint


def tensors(path):
    return dict(deserialize(path.read_bytes()))


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_every_tensor_is_read_back_with_its_shape_and_type(tmp_path):
    checkpoint = RandomCheckpoint()
    checkpoint.write(tmp_path)
    read = {
        name: (tuple(tensor["shape"]), tensor["dtype"])
        for path in tmp_path.glob("*.safetensors")
        for name, tensor in tensors(path).items()
    }

    assert read == {name: (shape, "BF16") for name, shape in checkpoint.tensors().items()}


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    RandomCheckpoint(seed=1).write(tmp_path / "a")
    RandomCheckpoint(seed=1).write(tmp_path / "b")
    assert digests(tmp_path / "a") == digests(tmp_path / "b")


@pytest.mark.parametrize("size", [MIB, 500 * MIB, 4096 * MIB])
def test_a_size_is_met_within_a_tenth(size):
    checkpoint = RandomCheckpoint.from_size(size, shards=4)
    assert abs(checkpoint.size - size) < size / 10
    assert len(checkpoint.shards()) == 4
