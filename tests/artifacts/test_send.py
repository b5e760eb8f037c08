"""A file becomes an object: whole or not at all, whatever breaks off in between."""

from __future__ import annotations

import hashlib
import os
import threading
import time

import pytest
from doubles.fault_proxy.rules import (
    ACCESS_DENIED_FAULT,
    SLOW_DOWN_FAULT,
    AnswerLossFault,
    DelayFault,
    DropFault,
    FaultRule,
)
from stored_sets import list_files

from tandem.artifacts import files, s3_transfer
from tandem.artifacts.__main__ import TerminationSignal
from tandem.artifacts.files import LocalFiles, compute_sha256
from tandem.artifacts.s3_transfer import upload_file, upload_files
from tandem.errors import ExternalError, InputError

pytestmark = pytest.mark.endpoint
KEY = "models/o/n/r/weights.safetensors"
PART = 5 << 20  # the least that S3 takes


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("tandem.artifacts.store.PART_BYTES", PART)


class InterruptedFuture:
    """A transfer whose waiting is ended by a signal once it has begun."""

    def __init__(self, future, interrupt):
        self.future = future
        self.interrupt = interrupt

    def result(self):
        time.sleep(0.1)
        self.interrupt()

    def cancel(self):
        self.future.cancel()


def uploads(endpoint, bucket):
    return endpoint.client("s3").list_multipart_uploads(Bucket=bucket).get("Uploads", [])


def stored(endpoint, bucket, key=KEY):
    answer = endpoint.client("s3").get_object(Bucket=bucket, Key=key)
    return answer["Body"].read(), answer["Metadata"]


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, 3 * PART, 3 * PART + 7])
def test_an_object_has_the_bytes_and_the_sha256_of_its_file(store, endpoint, bucket, blob, size):
    path = blob("w", size)
    upload_file(store, path, KEY, compute_sha256(path))
    body, metadata = stored(endpoint, bucket)
    assert (body == path.read_bytes(), metadata) == (True, {"sha256": compute_sha256(path)})


def test_a_finished_object_is_never_sent_again(proxied, proxy, blob):
    path = blob("w", 2 * PART)
    upload_file(proxied, path, KEY, compute_sha256(path))
    proxy.forget()
    upload_file(proxied, path, KEY, compute_sha256(path))

    assert [one.method for one in proxy.log if one.method != "GET"] == ["HEAD"]


def test_what_a_killed_run_left_is_aborted(store, endpoint, bucket, blob, monkeypatch):
    monkeypatch.setattr("tandem.artifacts.store.PAGE_ROWS", 1)
    path = blob("w", 2 * PART)
    for _ in range(3):
        store.client.create_multipart_upload(Bucket=bucket, Key=KEY)
    upload_file(store, path, KEY, compute_sha256(path))

    assert (stored(endpoint, bucket)[0] == path.read_bytes(), uploads(endpoint, bucket)) == (
        True,
        [],
    )


@pytest.mark.parametrize("stop", [KeyboardInterrupt, TerminationSignal])
def test_a_stop_within_a_file_leaves_neither_object_nor_upload(
    proxied, proxy, endpoint, bucket, blob, stop
):
    path = blob("w", 12 * PART)
    proxy.use(FaultRule(operation="UploadPart", fault=DelayFault(delay_s=0.3)))
    future = proxied.uploads.upload(str(path), bucket, KEY)

    def interrupt():
        raise stop

    with pytest.raises(stop):
        proxied.finish_transfer("PutObject", KEY, InterruptedFuture(future, interrupt))
    proxied.uploads.shutdown()
    assert (
        list(proxied.list("")),
        uploads(endpoint, bucket),
        len(proxy.requests("UploadPart")) < 12,
    ) == ([], [], True)


def test_the_failure_of_one_file_halts_the_others(proxied, proxy, blob):
    folder = blob("large", 12 * PART).parent
    blob("small", 10)
    proxy.use(
        FaultRule(operation="PutObject", fault=ACCESS_DENIED_FAULT),
        FaultRule(operation="UploadPart", fault=DelayFault(delay_s=0.2)),
    )

    with pytest.raises(ExternalError, match="p/small: PutObject is denied"):
        upload_files(proxied, LocalFiles(folder), "p")
    assert len(proxy.requests("UploadPart")) < 12


def test_an_upload_that_was_begun_twice_by_a_lost_answer_is_aborted(
    proxied, proxy, endpoint, bucket, blob
):
    path = blob("w", 2 * PART)
    proxy.use(FaultRule(operation="CreateMultipartUpload", fault=AnswerLossFault(), times=1))
    upload_file(proxied, path, KEY, compute_sha256(path))
    assert (len(proxy.requests("CreateMultipartUpload")), uploads(endpoint, bucket)) == (2, [])


@pytest.mark.parametrize(
    "fault",
    [DropFault(), AnswerLossFault(), SLOW_DOWN_FAULT],
    ids=lambda fault: getattr(fault, "code", fault.kind),
)
@pytest.mark.parametrize(
    "operation",
    [
        "ListMultipartUploads",
        "HeadObject",
        "CreateMultipartUpload",
        "UploadPart",
        "CompleteMultipartUpload",
    ],
)
def test_a_fault_that_passes_changes_nothing(proxied, proxy, endpoint, blob, operation, fault):
    bucket = proxied.bucket
    path = blob("w", 3 * PART)
    proxy.use(FaultRule(operation=operation, fault=fault, times=1))
    upload_file(proxied, path, KEY, compute_sha256(path))

    assert stored(endpoint, bucket) == (path.read_bytes(), {"sha256": compute_sha256(path)})
    assert (uploads(endpoint, bucket), proxy.fault_counts) == ([], (1,))


@pytest.mark.parametrize("size", [1000, 3 * PART])
def test_what_is_there_is_replaced_by_the_right_content_only(store, endpoint, bucket, blob, size):
    endpoint.client("s3").put_object(Bucket=bucket, Key=KEY, Body=b"before")
    path = blob("w", size)
    with pytest.raises(InputError):
        upload_file(store, path, KEY, hashlib.sha256(b"other").hexdigest())
    before = stored(endpoint, bucket)[0]
    upload_file(store, path, KEY, compute_sha256(path))

    assert (before, stored(endpoint, bucket)[0]) == (b"before", path.read_bytes())


def test_a_file_that_shrinks_while_it_is_sent_is_told(store, blob, monkeypatch):
    path = blob("w", 3 * PART)
    sha256 = compute_sha256(path)
    read = s3_transfer._HashReader.read

    def read_and_truncate(reader, size):
        piece = read(reader, size)
        os.truncate(path, PART)
        return piece

    monkeypatch.setattr(s3_transfer._HashReader, "read", read_and_truncate)
    with pytest.raises(InputError, match="not what was announced"):
        upload_file(store, path, KEY, sha256)


def test_a_check_that_fails_ends_the_sending(store, blob):
    folder = blob("a", 7).parent

    def lost():
        raise ExternalError("lost", change="x")

    with pytest.raises(ExternalError, match="lost"):
        upload_files(store, LocalFiles(folder), "p", check=lost)
    assert list(store.list("")) == []


def test_a_file_is_sent_while_another_is_hashed(proxied, proxy, blob, monkeypatch):
    """The second hash waits for the first file's object: sending that waited for all hashes would
    wait for ever."""
    folder = blob("large", 3 * PART).parent
    blob("small", 2 * PART)
    there = threading.Event()
    hash_one = files.compute_sha256

    def watch(moment, request):
        if (
            moment == "done"
            and request.operation == "CompleteMultipartUpload"
            and request.path.endswith("/large")
        ):
            there.set()

    def slowly(path):
        if path.name == "small":
            assert there.wait(60), "nothing was sent before everything was hashed"
        return hash_one(path)

    proxy.moment_callback = watch
    monkeypatch.setattr(files, "compute_sha256", slowly)
    sent = upload_files(proxied, LocalFiles(folder), "p")

    monkeypatch.undo()
    assert sent == list_files(folder)
    assert {row.key: row.size for row in proxied.list("")} == {
        "p/large": 3 * PART,
        "p/small": 2 * PART,
    }


def test_what_is_sent_again_is_hashed_once(proxied, proxy, blob, monkeypatch):
    folder = blob("a", 10).parent
    blob("b", 20)
    hashed = []
    hash_one = files.compute_sha256

    def counted(path):
        hashed.append(path.name)
        return hash_one(path)

    monkeypatch.setattr(files, "compute_sha256", counted)
    local = LocalFiles(folder)
    proxy.use(FaultRule(operation="PutObject", path="*/a", fault=ACCESS_DENIED_FAULT))
    with pytest.raises(ExternalError):
        upload_files(proxied, local, "p")
    proxy.use()
    upload_files(proxied, local, "p")

    assert sorted(hashed) == ["a", "b"]
