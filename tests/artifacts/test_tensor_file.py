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


@pytest.mark.parametrize(
    ("keep", "added", "words"),
    [(7, b"", "cut off"), (100, b"", "cut off"), (-1, b"", "asks for"), (None, b"x", "asks for")],
)
def test_a_file_of_another_length_is_refused(shard, keep, added, words):
    shard.write_bytes(shard.read_bytes()[:keep] + added)
    with pytest.raises(InputError, match=f"{shard.name}: .*{words}"):
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
