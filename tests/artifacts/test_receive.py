"""An object becomes a file: named when its content is right, and not before."""

from __future__ import annotations

import hashlib
import random
import stat

import pytest
from doubles.fault_proxy.rules import (
    AnswerCorruptionFault,
    AnswerCutFault,
    DropFault,
    FaultRule,
)
from stored_sets import read_folder

from tandem.artifacts.manifest import ManifestFile
from tandem.artifacts.s3_transfer import download_files, download_object
from tandem.errors import ExternalError, StaleError

pytestmark = pytest.mark.endpoint
RANGE = 100_000
KEY = "artifacts/k/run/weights"


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
    monkeypatch.setattr("tandem.artifacts.store.PART_BYTES", RANGE)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def sha256(body):
    return hashlib.sha256(body).hexdigest()


@pytest.fixture
def put(endpoint, bucket):
    def act(size, key=KEY, seed=0, **marks):
        body = random.Random(seed).randbytes(size)  # noqa: S311 - no secret
        endpoint.client("s3").put_object(Bucket=bucket, Key=key, Body=body, Metadata=marks)
        return body

    return act


def receive(store, folder, body):
    """Download the object to the file `w`, as the file of a manifest that names this content."""
    file = ManifestFile(path="w", size=len(body), sha256=sha256(body))
    download_object(store, KEY, folder / "w", file)


@pytest.mark.parametrize("size", [0, RANGE, RANGE + 1, 5 * RANGE + 3])
def test_a_file_has_the_bytes_of_its_object(store, put, tmp_path, size):
    body = put(size)
    receive(store, tmp_path, body)
    assert (tmp_path / "w").read_bytes() == body


def test_a_file_that_is_there_is_not_received_again(proxy_store, proxy, put, tmp_path):
    body = put(3 * RANGE)
    receive(proxy_store, tmp_path, body)
    proxy.forget()
    receive(proxy_store, tmp_path, body)

    assert proxy.log == ()


def test_the_left_over_of_a_killed_run_is_no_hindrance(store, put, tmp_path):
    body = put(2 * RANGE)
    (tmp_path / ".w.receiving").write_bytes(b"x" * 9 * RANGE)
    receive(store, tmp_path, body)
    assert names(tmp_path) == ["w"]
    assert (tmp_path / "w").read_bytes() == body


@pytest.mark.parametrize(
    "fault",
    [DropFault(), AnswerCutFault(), AnswerCorruptionFault()],
    ids=["drop", "cut", "corrupt"],
)
def test_a_fault_that_passes_changes_nothing(proxy_store, proxy, put, tmp_path, fault):
    body = put(4 * RANGE)
    proxy.use(FaultRule(operation="GetObject", fault=fault, skip=1, times=1))
    receive(proxy_store, tmp_path, body)
    assert (tmp_path / "w").read_bytes() == body
    assert proxy.fault_counts == (1,)


def test_a_range_that_is_always_cut_short_is_told(proxy_store, proxy, put, tmp_path):
    body = put(RANGE)
    proxy.use(FaultRule(operation="GetObject", fault=AnswerCutFault(after=0)))

    with pytest.raises(
        ExternalError,
        match=f"s3://{proxy_store.bucket}/{KEY}: the connection ended within the data",
    ):
        receive(proxy_store, tmp_path, body)
    assert names(tmp_path) == []


def test_content_that_is_always_another_gets_no_name(store, put, tmp_path):
    put(2 * RANGE)
    with pytest.raises(StaleError, match="its content has another SHA-256"):
        receive(store, tmp_path, bytes(2 * RANGE))
    assert names(tmp_path) == []


def test_full_disk_leaves_no_file(store, put, tmp_path):
    body = put(RANGE)
    (tmp_path / ".w.receiving").symlink_to("/dev/full")  # a real ENOSPC
    with pytest.raises(ExternalError, match="the disk is full"):
        receive(store, tmp_path, body)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("size", "mark", "words"),
    [
        (7, {}, "has 7 bytes, the manifest says 6"),
        (6, {"sha256": "f" * 64}, "marked with SHA-256 f"),
        (None, {}, "the object is missing"),
    ],
)
def test_object_of_other_metadata_is_refused_before_its_download(
    proxy_store, proxy, put, tmp_path, size, mark, words
):
    if size is not None:
        put(size, **mark)

    with pytest.raises(StaleError, match=words):
        receive(proxy_store, tmp_path, b"123456")
    assert proxy.requests("GetObject") == ()


def test_files_of_a_set_have_open_modes(store, put, tmp_path):
    bodies = {name: put(10, f"p/{name}") for name in ("a", "sub/deep/b")}
    files = [
        ManifestFile(path=name, size=len(body), sha256=sha256(body))
        for name, body in bodies.items()
    ]
    folder = tmp_path / "to"
    download_files(store, "p", folder, files)

    modes = {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    assert (read_folder(folder), modes) == (bodies, {True: 0o777, False: 0o666})
