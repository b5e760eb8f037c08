"""Which files of a snapshot are staged, and which snapshots are refused."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tandem.artifacts.snapshot import (
    SERVER_FILES,
    SnapshotEntry,
    choose_files,
    find_exclusion_reason,
    select_tensor_files,
)
from tandem.errors import InputError

INDEX = "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def index(*files):
    return json.dumps(
        {"weight_map": {f"tensor.{number}": file for number, file in enumerate(files)}}
    ).encode()


def choose(folder, **bodies):
    """What is chosen of a snapshot with these files, beside a configuration and an index of both
    shards."""
    files = (
        dict.fromkeys([*SERVER_FILES, *SHARDS], b"x")
        | {"config.json": b"{}", INDEX: index(*SHARDS)}
        | bodies
    )
    for name, body in files.items():
        (folder / name).write_bytes(body)
    entries = {name: SnapshotEntry(path=name, size=1) for name in files}
    return choose_files(
        SimpleNamespace(
            entries=entries, where="here", receive=lambda entry: (folder / entry.path, "")
        )
    )


def test_servers_files_and_the_indexs_shards_are_chosen(tmp_path):
    files, left_out = choose(tmp_path, **{"README.md": b"x", "consolidated.safetensors": b"x"})

    assert [entry.path for entry in files] == sorted([*SERVER_FILES, *SHARDS])
    assert left_out == {
        "README.md": "nothing that a server reads",
        "consolidated.safetensors": "tensors that the index does not name",
    }


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("pytorch_model.bin", "a pickle"),
        ("training_args.pt", "a pickle"),
        ("original/tokenizer.model", "in a subfolder"),
        ("eval_results.json", "nothing that a server reads"),
    ],
)
def test_what_is_left_out_has_a_reason(name, why):
    assert find_exclusion_reason(name).startswith(why)


def test_one_tensor_file_needs_no_index():
    assert select_tensor_files(["model.safetensors", "config.json"], None, "here") == (
        "model.safetensors",
    )


def test_several_tensor_files_that_nothing_orders_are_refused():
    with pytest.raises(
        InputError, match=r"has 2 safetensors files and no model\.safetensors\.index\.json"
    ):
        select_tensor_files(SHARDS, None, "here")


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"weight_map": {}}',
        index("../up.safetensors"),
        index("a.bin"),
        json.dumps({"weight_map": {"a": 1}}).encode(),
    ],
)
def test_a_malformed_index_is_refused(body):
    with pytest.raises(InputError, match=r"model\.safetensors\.index\.json"):
        select_tensor_files(SHARDS, body, "here")


@pytest.mark.parametrize("body", [b"{", b"[]"])
def test_a_config_that_is_no_json_object_is_refused(tmp_path, body):
    with pytest.raises(InputError, match="the configuration is"):
        choose(tmp_path, **{"config.json": body})
