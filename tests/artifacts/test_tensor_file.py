"""A safetensors file is told whole from its header, against files that the safetensors library's
form gives."""

from __future__ import annotations

import json

import pytest

from rehearsal.checkpoint import RandomCheckpoint
from tandem.artifacts.tensor_file import read_tensor_file
from tandem.errors import InputError


@pytest.fixture
def shard(tmp_path):
    RandomCheckpoint().write(tmp_path)
    return tmp_path / "model-00001-of-00004.safetensors"


def test_a_whole_file_names_its_tensors(shard):
    weight_map = json.loads((shard.parent / "model.safetensors.index.json").read_text())[
        "weight_map"
    ]
    assert read_tensor_file(shard) == {
        tensor for tensor, file in weight_map.items() if file == shard.name
    }


@pytest.mark.parametrize("keep", [7, 100, -1], ids=lambda keep: f"{keep} bytes")
def test_a_file_that_was_cut_off_is_refused(shard, keep):
    shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(InputError, match=shard.name):
        read_tensor_file(shard)


def test_a_file_that_is_too_long_is_refused(shard):
    shard.write_bytes(shard.read_bytes() + b"x")
    with pytest.raises(InputError, match="its header asks for"):
        read_tensor_file(shard)


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b'{"a": 1}',
        b'{"a": {"data_offsets": [4, 0]}}',
        b'{"a": {"data_offsets": ["x", 0]}}',
    ],
)
def test_a_header_of_another_form_is_refused(tmp_path, header):
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(InputError, match="no safetensors header"):
        read_tensor_file(tmp_path / "a.safetensors")
