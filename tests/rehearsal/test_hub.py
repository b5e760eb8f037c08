"""The local hub through the hub's own client."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import httpx
import pytest
from doubles.fault_proxy.rules import AnswerCutFault, FaultRule, StatusFault
from doubles.hub.connection import HubAccess
from doubles.hub.server import LocalHub
from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

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
        path = hf_hub_download(MODEL, name, revision=revision, endpoint=hub.url, local_dir=tmp_path / "here",
                               **{"token": False, **more})  # fmt: skip
        with open(path, "rb") as file:  # noqa: PTH123 - the client says a text
            return file.read()

    return act


def git(content):
    """What git itself calls the blob."""
    done = subprocess.run(["git", "hash-object", "--stdin"], input=content, capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_a_model_is_told_with_its_commit(api):
    assert (api.model_info(MODEL).sha, api.model_info(MODEL, revision=COMMIT).sha) == (COMMIT, COMMIT)


def test_files_are_told_with_size_and_checksum(api):
    files = {file.rfilename: file for file in api.model_info(MODEL, files_metadata=True).siblings}

    shard = files["model-00001-of-00001.safetensors"]
    assert sorted(files) == ["config.json", "model-00001-of-00001.safetensors", "sub/a file.txt"]
    assert (shard.size, shard.lfs.size, shard.lfs.sha256) == (
        len(SHARD), len(SHARD), hashlib.sha256(SHARD).hexdigest()
    )  # fmt: skip
    assert (files["config.json"].size, files["config.json"].lfs) == (len(CONFIG), None)


def test_a_large_file_is_called_as_git_calls_its_pointer(api):
    files = {file.rfilename: file for file in api.model_info(MODEL, files_metadata=True).siblings}
    large = files["model-00001-of-00001.safetensors"]
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{large.lfs.sha256}\nsize {large.size}\n"
    assert (large.blob_id, large.lfs.pointer_size) == (git(pointer.encode()), len(pointer))


def test_without_being_asked_files_are_told_by_name_only(api):
    assert {file.size for file in api.model_info(MODEL).siblings} == {None}


@pytest.mark.parametrize(
    ("name", "content"),
    [("model-00001-of-00001.safetensors", SHARD), ("config.json", CONFIG), ("sub/a file.txt", b"x")],
    ids=["shard", "config", "below"],  # the shard's bytes differ from process to process
)
def test_a_file_arrives_whole(download, name, content):
    assert download(name) == content


def test_a_large_file_comes_by_way_of_a_redirect(hub, download):
    download()
    head, get = hub.log
    assert (head.method, head.status, head.path.split("/")[3]) == ("HEAD", 302, "resolve")
    assert (get.method, get.path) == ("GET", f"/cdn/{MODEL}/{COMMIT}/model-00001-of-00001.safetensors")


def test_the_head_of_a_file_tells_commit_size_and_checksum(hub):
    head = httpx.head(f"{hub.url}/{MODEL}/resolve/main/model-00001-of-00001.safetensors")
    assert (head.headers["X-Repo-Commit"], head.headers["X-Linked-Size"]) == (COMMIT, str(len(SHARD)))
    assert head.headers["X-Linked-Etag"] == f'"{hashlib.sha256(SHARD).hexdigest()}"'


@pytest.mark.parametrize(
    ("asked", "said"), [("bytes=5-9", CONFIG[5:10]), ("bytes=5-", CONFIG[5:]), ("bytes=5-999", CONFIG[5:])]
)
def test_a_range_of_a_file_is_served(hub, asked, said):
    answer = httpx.get(f"{hub.url}/{MODEL}/resolve/main/config.json", headers={"Range": asked})
    assert (answer.status_code, answer.content) == (206, said)
    assert answer.headers["Content-Range"] == f"bytes 5-{4 + len(said)}/{len(CONFIG)}"


def test_a_branch_moves_with_its_content(folder, api):
    at = folder / MODEL / "main"
    at.mkdir()
    (at / "config.json").write_bytes(b"{}")
    before = api.model_info(MODEL).sha
    (at / "config.json").write_bytes(b"{ }")

    assert api.model_info(MODEL).sha != before


def test_rejects_a_revision_that_is_not_there(api, download):
    with pytest.raises(RevisionNotFoundError):
        api.model_info(MODEL, revision="f" * 40)
    with pytest.raises(RevisionNotFoundError):
        download(revision="f" * 40)


@pytest.fixture
def guarded(folder):
    access = HubAccess(
        tokens=frozenset({"hf_good"}),
        unauthorized_tokens=frozenset({"hf_stranger"}),
        gated_repositories=frozenset({MODEL}),
    )
    with LocalHub(folder, access=access) as running:
        yield running


def fetch(hub, folder, token):
    return hf_hub_download(MODEL, "config.json", endpoint=hub.url, local_dir=folder / "here", token=token)


@pytest.mark.parametrize(("token", "status"), [(False, 401), ("hf_stranger", 403)])
def test_a_gated_file_is_refused_to_others(guarded, tmp_path, token, status):
    with pytest.raises(GatedRepoError) as refused:
        fetch(guarded, tmp_path, token)
    assert refused.value.response.status_code == status


def test_a_gated_file_is_open_to_its_token(guarded, tmp_path):
    assert fetch(guarded, tmp_path, "hf_good").endswith("config.json")


def test_the_token_does_not_follow_the_redirect(guarded, tmp_path):
    hf_hub_download(MODEL, "model-00001-of-00001.safetensors", endpoint=guarded.url, local_dir=tmp_path / "here",
                    token="hf_good")  # noqa: S106  # of this hub  # fmt: skip
    assert ["authorization" in request.headers for request in guarded.log] == [True, False]


def test_a_token_that_the_hub_does_not_know_is_refused(guarded, tmp_path):
    with pytest.raises(HfHubHTTPError) as refused:
        fetch(guarded, tmp_path, "hf_unknown")
    assert refused.value.response.status_code == 401
    assert "Invalid credentials" in refused.value.response.headers["X-Error-Message"]


@pytest.mark.parametrize("token", [False, "hf_stranger"])
def test_a_private_model_is_not_there_for_others(folder, token):
    access = HubAccess(
        tokens=frozenset({"hf_good"}),
        unauthorized_tokens=frozenset({"hf_stranger"}),
        private_repositories=frozenset({MODEL}),
    )
    with LocalHub(folder, access=access) as hub, pytest.raises(RepositoryNotFoundError):
        HfApi(endpoint=hub.url, token=token).model_info(MODEL)


def test_a_hub_that_is_down_refuses_and_comes_back_on_its_port(hub, api, download):
    hub.stop()
    with pytest.raises(httpx.ConnectError):
        api.model_info(MODEL)
    hub.start()

    assert download() == SHARD


def test_a_hub_can_answer_that_it_is_unavailable(hub, api):
    hub.use(FaultRule(fault=StatusFault(status=503, code="Unavailable")))
    with pytest.raises(HfHubHTTPError) as refused:
        api.model_info(MODEL)
    assert refused.value.response.status_code == 503


def test_a_download_cut_in_the_middle_goes_on_where_it_was(hub, download, monkeypatch):
    """The client keeps whole chunks only, of 10 MB unless told otherwise."""
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1 << 18)
    hub.use(FaultRule(path="/cdn/*", fault=AnswerCutFault(after=1 << 20), times=1))
    content = download()

    first, second = (one for one in hub.log if one.path.startswith("/cdn/"))
    assert content == SHARD
    assert (first.answer_bytes, second.headers["range"], second.answer_bytes) == (
        1 << 20, f"bytes={1 << 20}-", len(SHARD) - (1 << 20)
    )  # fmt: skip


def test_a_client_in_another_process_is_led_to_it(hub, tmp_path):
    script = f"from huggingface_hub import hf_hub_download; print(hf_hub_download('{MODEL}', 'config.json'))"
    kept = {name: os.environ[name] for name in ("PATH",)}

    done = subprocess.run(
        [sys.executable, "-c", script], env={**kept, **hub.client_environment(tmp_path / "home")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.startswith(str(tmp_path / "home"))


@pytest.mark.parametrize(
    "path", ["/nothing", f"/{MODEL}/resolve/main/../../secret", f"/{MODEL}/resolve/../config.json"]
)
def test_rejects_an_address_that_leads_nowhere(hub, path):
    answer = httpx.request("GET", httpx.URL(hub.url).copy_with(raw_path=path.encode()))
    assert answer.status_code == 404
