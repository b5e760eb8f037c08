"""The local hub through the hub's own client."""

from __future__ import annotations

import hashlib
import os

import httpx
import pytest
from doubles.hub.server import LocalHub
from huggingface_hub import HfApi, hf_hub_download

MODEL = "org/small"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SHARD = os.urandom(3 << 20)
CONFIG = b'{"model_type": "qwen3"}\n'


@pytest.fixture
def folder(tmp_path):
    at = tmp_path / "repositories" / MODEL / COMMIT
    (at / "sub").mkdir(parents=True)
    (at / "config.json").write_bytes(CONFIG)
    (at / "model-00001-of-00001.safetensors").write_bytes(SHARD)
    (at / "sub" / "a file.txt").write_bytes(b"x")
    return tmp_path / "repositories"


@pytest.fixture
def hub(folder):
    with LocalHub(folder) as running:
        yield running


@pytest.fixture
def api(hub):
    return HfApi(endpoint=hub.url, token=False)


@pytest.fixture
def download(hub, tmp_path):
    """One file into a folder of its own; its bytes."""

    def act(name="model-00001-of-00001.safetensors", revision=COMMIT, **more):
        path = hf_hub_download(
            MODEL,
            name,
            revision=revision,
            endpoint=hub.url,
            local_dir=tmp_path / "here",
            **{"token": False, **more},
        )
        with open(path, "rb") as file:  # noqa: PTH123 - the client says a text
            return file.read()

    return act


def test_files_are_told_with_size_and_checksum(api):
    files = {file.rfilename: file for file in api.model_info(MODEL, files_metadata=True).siblings}

    shard = files["model-00001-of-00001.safetensors"]
    assert sorted(files) == ["config.json", "model-00001-of-00001.safetensors", "sub/a file.txt"]
    assert (shard.size, shard.lfs.size, shard.lfs.sha256) == (
        len(SHARD),
        len(SHARD),
        hashlib.sha256(SHARD).hexdigest(),
    )
    assert (files["config.json"].size, files["config.json"].lfs) == (len(CONFIG), None)


@pytest.mark.parametrize(
    ("name", "content"),
    [("model-00001-of-00001.safetensors", SHARD), ("sub/a file.txt", b"x")],
    ids=["shard", "below"],  # the shard's bytes differ from process to process
)
def test_a_file_arrives_whole(download, name, content):
    assert download(name) == content


@pytest.mark.parametrize(
    ("asked", "said"),
    [("bytes=5-9", CONFIG[5:10]), ("bytes=5-999", CONFIG[5:])],
)
def test_a_range_of_a_file_is_served(hub, asked, said):
    answer = httpx.get(f"{hub.url}/{MODEL}/resolve/main/config.json", headers={"Range": asked})
    assert (answer.status_code, answer.content) == (206, said)
    assert answer.headers["Content-Range"] == f"bytes 5-{4 + len(said)}/{len(CONFIG)}"


@pytest.mark.parametrize(
    "path", ["/nothing", f"/{MODEL}/resolve/main/../../secret", f"/{MODEL}/resolve/../config.json"]
)
def test_rejects_an_address_that_leads_nowhere(hub, path):
    answer = httpx.request("GET", httpx.URL(hub.url).copy_with(raw_path=path.encode()))
    assert answer.status_code == 404
