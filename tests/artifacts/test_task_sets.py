"""Task sets: the same files give the same archive, and no other bytes than the declared ones are
unpacked."""

from __future__ import annotations

import hashlib

import pytest

from tandem.artifacts.task_sets import MAX_SET_BYTES, fetch_task_set, store_task_set
from tandem.declarations.names import task_set_key
from tandem.errors import InputError

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]


@pytest.fixture
def letters(tmp_path):
    """The folder of a task."""
    folder = tmp_path / "letters"
    (folder / "data").mkdir(parents=True)
    (folder / "items.jsonl").write_text('{"item": "a", "prompt": "b", "answer": "c"}\n')
    (folder / "data/rest.txt").write_text("rest")
    return folder


def test_digest_names_the_archive(store, letters):
    sha256, key = store_task_set(store, letters)
    assert (key, hashlib.sha256(store.read(key).body).hexdigest()) == (
        f"tasks/letters/{sha256}.zip",
        sha256,
    )


def test_same_files_are_stored_once(store, letters):
    assert store_task_set(store, letters) == store_task_set(store, letters)
    assert len(list(store.list("tasks/"))) == 1


def test_damaged_set_is_stored_again(store, letters):
    _, key = store_task_set(store, letters)
    archive = store.read(key).body
    store.client.put_object(Bucket=store.bucket, Key=key, Body=b"other bytes")
    store_task_set(store, letters)
    assert store.read(key).body == archive


@pytest.fixture
def fetch(bucket, aws, command, tmp_path):  # noqa: ARG001 - aws leads to the endpoint
    """Run `fetch-tasks`; return its exit code and its last line."""

    def act(*words):
        code, lines = command(
            "fetch-tasks", "--bucket", bucket, "--folder", tmp_path / "sets", *words
        )
        return code, lines[-1] if lines else None

    return act


def test_set_is_unpacked_under_its_name(store, letters, fetch, tmp_path):
    sha256, _ = store_task_set(store, letters)
    assert fetch("--task-set", f"letters={sha256}")[0] == 0
    assert (tmp_path / "sets/letters/data/rest.txt").read_text() == "rest"


def test_other_bytes_are_refused(store, letters, fetch, tmp_path):
    sha256, key = store_task_set(store, letters)
    store.client.put_object(Bucket=store.bucket, Key=key, Body=b"other bytes")
    code, line = fetch("--task-set", f"letters={sha256}")
    assert code == 2
    assert not (tmp_path / "sets/letters").exists()
    assert (
        line["event"]
        == f"the task set letters has the SHA-256 {hashlib.sha256(b'other bytes').hexdigest()}"
    )


def test_set_that_is_no_archive_is_refused(store, tmp_path):
    sha256 = hashlib.sha256(b"no archive").hexdigest()
    store.create(task_set_key("letters", sha256), b"no archive")
    with pytest.raises(InputError, match="the task set letters is no zip archive"):
        fetch_task_set(store, "letters", sha256, tmp_path / "sets")


def test_absent_set_is_refused(store, tmp_path):
    with pytest.raises(InputError, match="the bucket has no task set letters of this digest"):
        fetch_task_set(store, "letters", "0" * 64, tmp_path / "sets")


def test_folder_without_the_name_of_a_task_is_refused(store, letters):
    folder = letters.rename(letters.parent / "Letters of mine")
    with pytest.raises(InputError, match="'Letters of mine' is no name of a task"):
        store_task_set(store, folder)


def test_large_set_is_refused(store, letters):
    with (letters / "items.jsonl").open("wb") as file:
        file.truncate(MAX_SET_BYTES + 1)
    with pytest.raises(InputError, match="a set has at most"):
        store_task_set(store, letters)
