"""`stage`, from a hub over real HTTP or a folder, into a bucket of the local endpoint."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from doubles.fault_proxy.rules import FaultRule, SlowAnswerFault, StatusFault
from doubles.hub.server import LocalHub
from staging_inputs import COMMIT, EXTRAS, MODEL, OTHER, snapshot
from stored_sets import put_lease

from tandem.artifacts.hub import SECRET_NAME_VARIABLE
from tandem.artifacts.manifest import LEASE_NAME, MANIFEST_NAME, parse_manifest

pytestmark = pytest.mark.endpoint
PREFIX = f"models/{MODEL}/{COMMIT}"
SHARDS = [f"model-0000{number}-of-00004.safetensors" for number in range(1, 5)]
STAGED = sorted(
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
def published(repositories):
    """The model's one commit on the hub."""
    return snapshot(repositories / MODEL / COMMIT)


@pytest.fixture
def hub(repositories, published, monkeypatch):  # noqa: ARG001
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
def held(endpoint, bucket):
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
def test_a_staged_model_is_the_hub_s_bytes_below_its_commit(stage, held, published):
    done = stage()

    objects = held()
    assert (done.code, done.last["event"]) == (0, "staged")
    assert sorted(objects) == sorted(f"{PREFIX}/{name}" for name in [*STAGED, MANIFEST_NAME])
    assert all(objects[f"{PREFIX}/{name}"] == (published / name).read_bytes() for name in STAGED)


@pytest.mark.usefixtures("hub")
def test_the_manifest_lists_every_file_and_what_was_left_out_with_the_reason(
    stage, held, published
):
    stage()

    manifest = manifest_in(held())
    expected = {
        name: hashlib.sha256((published / name).read_bytes()).hexdigest() for name in STAGED
    }
    assert {file.path: file.sha256 for file in manifest.files} == expected
    assert manifest.fields == {"id": MODEL, "revision": COMMIT, "commit": COMMIT}
    assert sorted(manifest.made["left_out"]) == sorted(EXTRAS)
    assert manifest.made["left_out"]["pytorch_model.bin"].startswith("a pickle")


def test_two_runs_of_two_holders_write_the_same_manifest(stage, hub, held, remove, monkeypatch):
    monkeypatch.setenv("TANDEM_HOLDER", "stage-a")
    stage()
    first = held()
    remove(f"{PREFIX}/{MANIFEST_NAME}")
    monkeypatch.setenv("TANDEM_HOLDER", "stage-b")
    hub.forget()
    stage()

    assert held() == first


def test_a_present_model_loads_neither_the_hub_nor_its_library(stage, hub, module, bucket):
    stage()
    hub.stop()

    done = module(
        "stage",
        "--bucket",
        bucket,
        "--model",
        MODEL,
        "--revision",
        COMMIT,
        PYTHONPROFILEIMPORTTIME="1",
    )

    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert (done.returncode, "tandem.artifacts.s3_transfer" in loaded) == (0, True)
    assert not loaded & {"huggingface_hub", "httpx", "tandem.artifacts.hub"}


def test_objects_that_are_whole_are_not_downloaded_again(stage, hub, remove):
    stage()
    for name in (MANIFEST_NAME, SHARDS[1]):
        remove(f"{PREFIX}/{name}")
    hub.forget()

    assert stage().code == 0

    fetched = {one.path.rpartition("/")[2] for one in hub.log if "/resolve/" in one.path}
    assert fetched.isdisjoint({SHARDS[0], *SHARDS[2:]})
    assert SHARDS[1] in fetched


def test_an_object_of_other_bytes_is_replaced_by_the_hub_s(stage, hub, held, put, published):
    for name in ("config.json", SHARDS[0]):
        put(f"{PREFIX}/{name}", b"half")

    assert (stage().code, hub.count_file_bytes(SHARDS[0]) > 0) == (0, True)

    objects = held()
    assert all(objects[f"{PREFIX}/{name}"] == (published / name).read_bytes() for name in STAGED)


def test_local_disk_never_holds_more_than_the_largest_file_and_the_small_ones(
    store, repositories, tmp_path, hub, module
):
    folder = snapshot(
        repositories / "acme/big" / OTHER,
        extras=False,
        hidden_size=256,
        vocabulary=8000,
        intermediate_size=1024,
        layers=4,
        shard_bytes=3_000_000,
    )
    tensors = [path.stat().st_size for path in folder.glob("*.safetensors")]
    small = sum(path.stat().st_size for path in folder.iterdir() if path.suffix != ".safetensors")
    peaks: list[int] = []
    done = threading.Event()

    def watch():
        while not done.is_set():
            peaks.append(bytes_below(tmp_path / "work"))
            time.sleep(0.0005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        ended = module(
            "stage",
            "--bucket",
            store.bucket,
            "--model",
            "acme/big",
            "--revision",
            OTHER,
            "--work",
            str(tmp_path / "work"),
            HF_ENDPOINT=hub.url,
        )
    finally:
        done.set()
        watcher.join()

    assert ended.returncode == 0, ended.stdout
    assert len(tensors) > 4
    assert 0 < max(peaks) <= max(tensors) + small
    assert not list((tmp_path / "work").rglob("*.*"))


def bytes_below(folder):
    """The bytes of all files; one that is deleted meanwhile counts nothing."""
    total = 0
    for top, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(top) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


@pytest.mark.usefixtures("hub")
def test_a_name_that_moves_has_a_prefix_of_its_own_and_its_manifest_says_the_commit(stage, held):
    done = stage(revision="main")
    manifest = manifest_in(held(), f"models/{MODEL}/main")
    assert manifest.fields == {"id": MODEL, "revision": "main", "commit": COMMIT}
    assert "staged" in done.events


@pytest.fixture
def moving(repositories, published):
    """A model whose main moves to other weights at the call; the new commit."""
    first = repositories / "acme/moving" / "main"
    shutil.copytree(published, first)

    def move():
        shutil.rmtree(first)
        snapshot(first, extras=False, seed=7)
        return "moved"

    return move


@pytest.mark.usefixtures("hub")
def test_a_name_that_moved_keeps_the_commit_that_was_staged(stage, moving, held):
    stage(model="acme/moving", revision="main")
    before = held()
    moving()

    again = stage(model="acme/moving", revision="main")

    assert (again.code, again.events, held()) == (0, ["present"], before)


@pytest.mark.usefixtures("hub")
def test_files_of_two_commits_never_mix_below_a_name_that_moves(stage, moving, held, remove):
    stage(model="acme/moving", revision="main")
    # as if the run had been killed there
    for name in (MANIFEST_NAME, "generation_config.json", SHARDS[0]):
        remove(f"models/acme/moving/main/{name}")
    before = held()
    moving()

    done = stage(model="acme/moving", revision="main")

    assert (done.code, held()) == (1, before)
    assert "must not mix" in done.last["event"]
    assert "aws s3 rm --recursive" in done.last["change"]


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", ["model-00009-of-00009.safetensors", "folder/x"])
def test_an_object_that_is_not_of_the_snapshot_stops_the_run_and_is_named(
    stage, held, put, bucket, name
):
    put(f"{PREFIX}/{name}", b"stray")
    done = stage()
    assert (done.code, done.last["where"]) == (1, f"s3://{bucket}/{PREFIX}/{name}")
    assert list(held()) == [f"{PREFIX}/{name}"]


@pytest.mark.usefixtures("hub")
def test_a_manifest_of_something_else_is_not_taken_for_the_model(stage, endpoint, bucket):
    stage()
    s3 = endpoint.client("s3")
    key = f"{PREFIX}/{MANIFEST_NAME}"
    body = (
        s3.get_object(Bucket=bucket, Key=key)["Body"].read().replace(MODEL.encode(), b"acme/else")
    )
    s3.put_object(Bucket=bucket, Key=key, Body=body)

    done = stage()

    assert (done.code, done.last["event"]) == (
        1,
        (
            f"under the name {MODEL}@{COMMIT} lies something else: id: artifact acme/else,"
            f" deployment {MODEL}"
        ),
    )


# What is refused on the hub: what to do to the published snapshot -> what is said.
def drop(*names):
    def act(folder):
        for path in folder.iterdir():
            if any(path.match(name) for name in names):
                path.unlink()

    return act


def no_config(folder):
    (folder / "config.json").write_text("<html>")


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    "case",
    [
        (drop("config.json"), "no config.json"),
        (no_config, "the configuration is cut off or no JSON"),
        (drop("*.safetensors", "*.safetensors.index.json"), "has 0 safetensors files"),
        (drop(SHARDS[2]), f"the index names {SHARDS[2]}"),
        (drop("model.safetensors.index.json"), "no model.safetensors.index.json"),
    ],
    ids=["no config", "bad config", "pickles only", "missing shard", "no index"],
)
@pytest.mark.parametrize("source", ["hub", "folder"])
def test_a_snapshot_that_cannot_be_served_is_refused_and_nothing_is_stored(
    stage, held, published, case, source
):
    spoil, said = case
    spoil(published)

    done = stage(*([] if source == "hub" else ["--from", str(published)]))

    assert (done.code, held()) == (2, {})
    assert said in done.last["where"] + done.last["event"]


@pytest.mark.parametrize(
    ("model", "revision"),
    [
        ("tiny", COMMIT),
        ("a/b/c", COMMIT),
        ("../up", COMMIT),
        ("acme/..", COMMIT),
        (MODEL, "refs/pr/1"),
        (MODEL, ".."),
        (MODEL, ""),
    ],
)
def test_a_name_that_leaves_its_prefix_is_refused(stage, held, model, revision):
    done = stage(model=model, revision=revision)
    assert (done.code, held()) == (2, {})


def test_a_hub_that_goes_down_in_the_middle_leaves_no_manifest_and_the_next_run_goes_on(
    stage, hub, held
):
    hub.use(FaultRule(path=f"*/{SHARDS[2]}", fault=StatusFault(status=503, code="x")))
    down = stage()
    between = held()
    hub.use()
    hub.forget()
    up = stage()

    assert (down.code, down.last["exit_code"], up.code) == (3, 3, 0)
    assert f"{PREFIX}/{MANIFEST_NAME}" not in between
    assert hub.count_file_bytes(SHARDS[0]) == 0


@pytest.mark.usefixtures("hub", "proxied")
def test_no_manifest_is_seen_before_its_last_file(stage, proxy):
    stage()
    written = [
        one.path for one in proxy.log if one.method == "PUT" and not one.path.endswith(LEASE_NAME)
    ]
    assert written[-1].endswith(MANIFEST_NAME)
    assert len(written) == len(set(written)) == len(STAGED) + 1


def test_two_runs_at_once_fetch_each_file_once_and_both_end_well(hub, store, module, tmp_path):
    hub.use(FaultRule(path="/cdn/*", fault=SlowAnswerFault(bytes_per_s=200_000)))

    def one(name):
        return module(
            "stage",
            "--bucket",
            store.bucket,
            "--model",
            MODEL,
            "--revision",
            COMMIT,
            "--work",
            str(tmp_path / name),
            HF_ENDPOINT=hub.url,
            TANDEM_HOLDER=name,
        )

    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(one, ("first", "second")))

    assert [done.returncode for done in ended] == [0, 0]
    assert sorted(json.loads(done.stdout.splitlines()[-1])["event"] for done in ended) == [
        "present",
        "staged",
    ]
    assert sum(one.path.startswith("/cdn/") for one in hub.log) == len(SHARDS)


@pytest.mark.usefixtures("hub")
def test_a_run_that_may_not_wait_names_who_holds_the_lease(stage, held, store):
    put_lease(store, PREFIX, held=True, holder="stage-else")

    done = stage("--wait-s", "0")

    assert (done.code, held()) == (3, {})
    assert "held by stage-else" in done.last["event"]


def test_a_run_whose_lease_was_taken_over_stops_in_the_middle_of_a_file(stage, hub, store, held):
    hub.use(FaultRule(path="/cdn/*", fault=SlowAnswerFault(bytes_per_s=20_000)))

    def take_over():
        while not any(one.path.startswith("/cdn/") for one in hub.log):
            time.sleep(0.005)
        put_lease(store, PREFIX, held=True, holder="stage-else")

    thief = threading.Thread(target=take_over)
    thief.start()
    done = stage("--lease-s", "0.6")
    thief.join()

    assert done.code == 3
    assert done.last["event"].startswith("the lease was lost")
    assert not any(name.endswith(".safetensors") for name in held())


def test_a_lease_that_a_dead_run_of_the_same_holder_left_on_a_present_model_is_let_go(
    stage, hub, store, monkeypatch
):
    monkeypatch.setenv("TANDEM_HOLDER", "stage-a")
    stage()
    hub.stop()
    put_lease(store, PREFIX, held=True, holder="stage-a")

    stage()

    lease = store.read(f"{PREFIX}/{LEASE_NAME}")
    assert lease is not None
    assert json.loads(lease.body)["state"] == "released"


@pytest.mark.usefixtures("hub")
def test_the_mark_of_an_empty_folder_is_no_file_of_another_snapshot(stage, put):
    put(f"{PREFIX}/", b"")
    assert stage().code == 0


def test_a_copy_is_staged_without_any_hub(stage, held, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody is there
    copy = snapshot(tmp_path / "copy")

    done = stage("--from", str(copy))

    objects = held()
    manifest = manifest_in(held())
    assert (done.code, sorted(path.name for path in copy.iterdir() if path.is_file())) == (
        0,
        sorted([*STAGED, *(name for name in EXTRAS if "/" not in name)]),
    )
    assert all(objects[f"{PREFIX}/{name}"] == (copy / name).read_bytes() for name in STAGED)
    assert "no checksum of a hub" in manifest.made["checked"]
    assert manifest.made["left_out"]["original/consolidated.safetensors"].startswith(
        "in a subfolder"
    )


def test_a_copy_that_differs_from_what_is_stored_is_refused_before_a_byte_is_written(
    stage, held, put, tmp_path
):
    copy = snapshot(tmp_path / "copy")
    put(f"{PREFIX}/{SHARDS[3]}", b"another")
    done = stage("--from", str(copy))
    assert (done.code, list(held())) == (1, [f"{PREFIX}/{SHARDS[3]}"])


def test_a_copy_with_one_shard_cut_off_is_refused_before_a_byte_is_stored(stage, held, tmp_path):
    copy = snapshot(tmp_path / "copy")
    (copy / SHARDS[3]).write_bytes((copy / SHARDS[3]).read_bytes()[:-3])

    done = stage("--from", str(copy))

    assert (done.code, held()) == (2, {})
    assert SHARDS[3] in done.last["where"]
