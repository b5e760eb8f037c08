"""Which files of a snapshot are staged, and which snapshots are refused."""

from __future__ import annotations

import json

import pytest

from tandem.artifacts.manifest import MANIFEST_NAME
from tandem.artifacts.snapshot import (
    FILE_READERS,
    SnapshotEntry,
    check_config,
    choose_files,
    find_exclusion_reason,
    require_config,
    select_tensor_files,
)
from tandem.errors import InputError

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def index(*files):
    return json.dumps({"weight_map": {f"tensor.{number}": file for number, file in enumerate(files)}}).encode()


def test_a_server_s_files_and_the_shards_of_the_index_are_chosen():
    names = [*FILE_READERS, *SHARDS, "README.md", "consolidated.safetensors"]
    entries = {name: SnapshotEntry(path=name, size=1) for name in names}

    files, left_out = choose_files(entries, select_tensor_files(names, index(*SHARDS), "here"))

    assert [entry.path for entry in files] == sorted([*FILE_READERS, *SHARDS])
    assert left_out == {
        "README.md": "a text for people", "consolidated.safetensors": "tensors that the index does not name",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("pytorch_model.bin", "a pickle"),
        ("training_args.pt", "a pickle"),
        ("model.onnx", "weights of another runtime"),
        ("tiny.Q4.gguf", "weights of another runtime"),
        ("original/tokenizer.model", "in a subfolder"),
        ("README.md", "a text"),
        ("LICENSE", "a text"),
        ("logo.png", "an image"),
        ("modeling_tiny.py", "code"),
        (".gitattributes", "of the repository"),
        ("eval_results.json", "nothing that a server reads"),
    ],
)
def test_what_is_left_out_has_a_reason(name, why):
    assert find_exclusion_reason(name).startswith(why)


def test_one_tensor_file_needs_no_index():
    assert select_tensor_files(["model.safetensors", "config.json"], None, "here") == ("model.safetensors",)


def test_several_tensor_files_that_nothing_orders_are_refused():
    with pytest.raises(InputError, match=r"has 2 tensor files .* and no model\.safetensors\.index\.json"):
        select_tensor_files(SHARDS, None, "here")


def test_a_snapshot_without_safetensors_names_the_pickle_it_has():
    with pytest.raises(InputError, match=r"no safetensors, only pytorch_model\.bin"):
        select_tensor_files(["config.json", "pytorch_model.bin"], None, "here")


def test_an_index_that_names_a_shard_that_is_not_there_names_it():
    with pytest.raises(InputError, match=rf"the index names {SHARDS[1]}, which is not in the snapshot"):
        select_tensor_files(SHARDS[:1], index(*SHARDS), "here")


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'{"weight_map": {}}', index("../up.safetensors"), index("a.bin"), index("a\\b.safetensors"),
     json.dumps({"weight_map": {"a": 1}}).encode()],
)  # fmt: skip
def test_a_malformed_index_is_refused(body):
    with pytest.raises(InputError, match=r"model\.safetensors\.index\.json"):
        select_tensor_files(SHARDS, body, "here")


def test_a_snapshot_without_config_is_refused():
    with pytest.raises(InputError, match=r"no config\.json"):
        require_config(SHARDS, "here")


def test_a_snapshot_with_a_file_of_the_store_s_own_name_is_refused():
    with pytest.raises(InputError, match=MANIFEST_NAME):
        require_config(["config.json", MANIFEST_NAME], "here")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe"])
def test_a_config_that_is_no_json_object_is_refused(body):
    with pytest.raises(InputError, match="the configuration is"):
        check_config(body, "here")
