"""`stage`, from a hub over real HTTP or a folder, into a bucket of the local endpoint."""

from __future__ import annotations

import hashlib
import json
import shutil
from types import SimpleNamespace

import pytest
from doubles.hub.server import LocalHub
from staging_inputs import COMMIT, EXTRAS, MODEL, snapshot
from stored_sets import put_lease

from tandem.artifacts.hub_secret import SECRET_NAME_VARIABLE
from tandem.artifacts.manifest import LEASE_NAME, MANIFEST_NAME, parse_manifest

pytestmark = pytest.mark.endpoint
PREFIX = f"models/{MODEL}/{COMMIT}"
SHARDS = [f"model-0000{number}-of-00004.safetensors" for number in range(1, 5)]
FILES = sorted(
    [
        "config.json",
        "generation_config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
        *SHARDS,
    ]
)


@pytest.fixture
def repositories(tmp_path):
    return tmp_path / "hub"


@pytest.fixture
def source_folder(repositories):
    """The model's one commit on the hub."""
    return snapshot(repositories / MODEL / COMMIT)


@pytest.fixture
def hub(repositories, source_folder, monkeypatch):  # noqa: ARG001
    monkeypatch.setattr("tandem.artifacts.hub.FIRST_WAIT_S", 0.01)
    monkeypatch.delenv(SECRET_NAME_VARIABLE, raising=False)
    with LocalHub(repositories) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


@pytest.fixture
def stage(store, tmp_path, command):
    """Run the command in this process; its code, its log lines."""

    def run(*more, revision=COMMIT, model=MODEL):
        code, lines = command(
            "stage",
            "--bucket",
            store.bucket,
            "--model",
            model,
            "--revision",
            revision,
            "--work",
            tmp_path / "work",
            *more,
        )
        return SimpleNamespace(
            code=code, lines=lines, last=lines[-1], events=[line["event"] for line in lines]
        )

    return run


@pytest.fixture
def read_objects(endpoint, bucket):
    """Every object of the test's bucket but leases, by key."""
    s3 = endpoint.client("s3")

    def read():
        keys = [row["Key"] for row in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
        return {
            key: s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            for key in keys
            if not key.endswith(LEASE_NAME)
        }

    return read


@pytest.fixture
def put(endpoint, bucket):
    """Write an object as another program would."""
    return lambda key, body: endpoint.client("s3").put_object(Bucket=bucket, Key=key, Body=body)


@pytest.fixture
def remove(endpoint, bucket):
    """Delete an object as an operator would."""
    return lambda key: endpoint.client("s3").delete_object(Bucket=bucket, Key=key)


def manifest_in(objects, prefix=PREFIX):
    return parse_manifest(objects[f"{prefix}/{MANIFEST_NAME}"], prefix)


@pytest.mark.usefixtures("hub")
def test_staged_model_is_the_hub_s_bytes_below_its_commit(stage, read_objects, source_folder):
    done = stage()

    objects = read_objects()
    assert (done.code, done.last["event"]) == (0, "staged")
    assert sorted(objects) == sorted(f"{PREFIX}/{name}" for name in [*FILES, MANIFEST_NAME])
    assert all(objects[f"{PREFIX}/{name}"] == (source_folder / name).read_bytes() for name in FILES)


@pytest.mark.usefixtures("hub")
def test_manifest_lists_files_and_reasons_for_the_rest(stage, read_objects, source_folder):
    stage()

    manifest = manifest_in(read_objects())
    expected = {
        name: hashlib.sha256((source_folder / name).read_bytes()).hexdigest() for name in FILES
    }
    assert {file.path: file.sha256 for file in manifest.files} == expected
    assert manifest.fields == {"id": MODEL, "revision": COMMIT, "commit": COMMIT}
    assert sorted(manifest.made["left_out"]) == sorted(EXTRAS)
    assert manifest.made["left_out"]["pytorch_model.bin"].startswith("a pickle")


def test_objects_that_are_whole_are_not_downloaded_again(stage, hub, remove):
    stage()
    for name in (MANIFEST_NAME, SHARDS[1]):
        remove(f"{PREFIX}/{name}")
    hub.forget()

    assert stage().code == 0

    names = {request.path.rpartition("/")[2] for request in hub.log if "/resolve/" in request.path}
    assert names.isdisjoint({SHARDS[0], *SHARDS[2:]})
    assert SHARDS[1] in names


@pytest.mark.usefixtures("hub")
def test_branch_has_its_prefix_and_a_commit_in_its_manifest(stage, read_objects):
    done = stage(revision="main")
    manifest = manifest_in(read_objects(), f"models/{MODEL}/main")
    assert manifest.fields == {"id": MODEL, "revision": "main", "commit": COMMIT}
    assert "staged" in done.events


@pytest.fixture
def moving(repositories, source_folder):
    """A model whose main moves to other weights at the call; the new commit."""
    first = repositories / "acme/moving" / "main"
    shutil.copytree(source_folder, first)

    def move():
        shutil.rmtree(first)
        snapshot(first, extras=False, seed=7)
        return "moved"

    return move


@pytest.mark.usefixtures("hub")
def test_a_name_that_moved_keeps_the_commit_that_was_staged(stage, moving, read_objects):
    stage(model="acme/moving", revision="main")
    before = read_objects()
    moving()

    again = stage(model="acme/moving", revision="main")

    assert (again.code, again.events, read_objects()) == (0, ["present"], before)


@pytest.mark.usefixtures("hub")
def test_files_of_two_commits_never_mix_below_a_branch(stage, moving, read_objects, remove):
    stage(model="acme/moving", revision="main")
    # as if the run had been killed there
    for name in (MANIFEST_NAME, "generation_config.json", SHARDS[0]):
        remove(f"models/acme/moving/main/{name}")
    before = read_objects()
    moving()

    done = stage(model="acme/moving", revision="main")

    assert (done.code, read_objects()) == (1, before)
    assert "must not mix" in done.last["event"]
    assert "aws s3 rm --recursive" in done.last["change"]


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", ["model-00009-of-00009.safetensors", "folder/x"])
def test_foreign_object_stops_the_run_by_name(stage, read_objects, put, bucket, name):
    put(f"{PREFIX}/{name}", b"stray")
    done = stage()
    assert (done.code, done.last["where"]) == (1, f"s3://{bucket}/{PREFIX}/{name}")
    assert list(read_objects()) == [f"{PREFIX}/{name}"]


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("source", ["hub", "folder"])
def test_snapshot_without_a_shard_is_refused_unstored(stage, read_objects, source_folder, source):
    (source_folder / SHARDS[2]).unlink()

    done = stage(*([] if source == "hub" else ["--from", str(source_folder)]))

    assert (done.code, read_objects()) == (2, {})
    assert f"the index names {SHARDS[2]}" in done.last["event"]


def test_own_old_lease_on_a_present_model_is_released(stage, hub, store, monkeypatch):
    monkeypatch.setenv("TANDEM_HOLDER", "stage-a")
    stage()
    hub.stop()
    put_lease(store, PREFIX, is_held=True, holder="stage-a")

    stage()

    lease = store.read(f"{PREFIX}/{LEASE_NAME}")
    assert lease is not None
    assert json.loads(lease.body)["state"] == "released"


def test_a_copy_is_staged_without_any_hub(stage, read_objects, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody is there
    copy = snapshot(tmp_path / "copy")

    done = stage("--from", str(copy))

    objects = read_objects()
    assert done.code == 0
    assert all(objects[f"{PREFIX}/{name}"] == (copy / name).read_bytes() for name in FILES)
    assert "no checksum of a hub" in manifest_in(objects).made["checked"]


def test_copy_that_differs_from_the_stored_one_is_refused(stage, read_objects, put, tmp_path):
    copy = snapshot(tmp_path / "copy")
    put(f"{PREFIX}/{SHARDS[3]}", b"another")
    done = stage("--from", str(copy))
    assert (done.code, list(read_objects())) == (1, [f"{PREFIX}/{SHARDS[3]}"])


@pytest.mark.usefixtures("hub")
def test_manifest_of_something_else_is_not_taken_for_the_model(stage, read_objects, put):
    stage()
    key = f"{PREFIX}/{MANIFEST_NAME}"
    put(key, read_objects()[key].replace(MODEL.encode(), b"acme/else"))

    done = stage()

    assert done.code == 1
    assert f"id: artifact acme/else, deployment {MODEL}" in done.last["event"]


@pytest.mark.usefixtures("hub")
def test_mark_of_an_empty_folder_is_no_file(stage, put):
    put(f"{PREFIX}/", b"")
    assert stage().code == 0
