"""A file becomes an object: whole or not at all, whatever breaks off in between."""

from __future__ import annotations

import hashlib
import os
from unittest.mock import Mock

import pytest
from doubles.fault_proxy.rules import (
    ACCESS_DENIED_FAULT,
    SLOW_DOWN_FAULT,
    AnswerLossFault,
    DelayFault,
    DropFault,
    FaultRule,
)

from tandem.artifacts import files, s3_transfer
from tandem.artifacts.files import LocalFiles, compute_sha256
from tandem.artifacts.s3_transfer import upload_file, upload_files
from tandem.errors import ExternalError, InputError

pytestmark = pytest.mark.endpoint
KEY = "models/o/n/r/weights.safetensors"
PART = 5 << 20  # the least that S3 takes


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("tandem.artifacts.store.PART_BYTES", PART)


def uploads(endpoint, bucket):
    return endpoint.client("s3").list_multipart_uploads(Bucket=bucket).get("Uploads", [])


def stored(endpoint, bucket):
    answer = endpoint.client("s3").get_object(Bucket=bucket, Key=KEY)
    return answer["Body"].read(), answer["Metadata"]


def upload(store, path):
    """Upload a file that has the content that is announced."""
    upload_file(store, path, KEY, compute_sha256(path))


@pytest.mark.parametrize("size", [0, PART, PART + 1, 3 * PART + 7])
def test_object_has_the_bytes_and_the_sha256_of_its_file(store, endpoint, bucket, blob, size):
    path = blob("w", size)
    upload(store, path)
    body, metadata = stored(endpoint, bucket)
    assert body == path.read_bytes()
    assert metadata == {"sha256": compute_sha256(path)}


def test_a_finished_object_is_never_sent_again(proxy_store, proxy, blob):
    path = blob("w", 2 * PART)
    upload(proxy_store, path)
    proxy.forget()
    upload(proxy_store, path)

    assert [request.method for request in proxy.log if request.method != "GET"] == ["HEAD"]


def test_what_a_killed_run_left_is_aborted(store, endpoint, bucket, blob, monkeypatch):
    monkeypatch.setattr("tandem.artifacts.store.PAGE_ROWS", 1)
    path = blob("w", 2 * PART)
    for _ in range(3):
        store.client.create_multipart_upload(Bucket=bucket, Key=KEY)
    upload(store, path)

    assert stored(endpoint, bucket)[0] == path.read_bytes()
    assert uploads(endpoint, bucket) == []


def test_interruption_within_a_file_leaves_no_upload(proxy_store, proxy, endpoint, bucket, blob):
    path = blob("w", 12 * PART)
    proxy.use(FaultRule(operation="UploadPart", fault=DelayFault(delay_s=0.3)))
    future = proxy_store.uploads.upload(str(path), bucket, KEY)
    transfer = Mock(cancel=future.cancel, result=Mock(side_effect=KeyboardInterrupt))

    with pytest.raises(KeyboardInterrupt):
        proxy_store.finish_transfer("PutObject", KEY, transfer)
    proxy_store.uploads.shutdown()

    assert list(proxy_store.list("")) == []
    assert uploads(endpoint, bucket) == []
    assert len(proxy.requests("UploadPart")) < 12


def test_the_failure_of_one_file_halts_the_others(proxy_store, proxy, blob):
    folder = blob("large", 12 * PART).parent
    blob("small", 10)
    proxy.use(
        FaultRule(operation="PutObject", fault=ACCESS_DENIED_FAULT),
        FaultRule(operation="UploadPart", fault=DelayFault(delay_s=0.2)),
    )

    with pytest.raises(ExternalError, match="p/small: PutObject is denied"):
        upload_files(proxy_store, LocalFiles(folder), "p")
    assert len(proxy.requests("UploadPart")) < 12


@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        ("ListMultipartUploads", DropFault()),
        ("HeadObject", SLOW_DOWN_FAULT),
        ("CreateMultipartUpload", DropFault()),
        ("UploadPart", SLOW_DOWN_FAULT),
        ("CompleteMultipartUpload", AnswerLossFault()),
    ],
)
def test_a_fault_that_passes_changes_nothing(proxy_store, proxy, endpoint, blob, operation, fault):
    bucket = proxy_store.bucket
    path = blob("w", 3 * PART)
    proxy.use(FaultRule(operation=operation, fault=fault, times=1))
    upload(proxy_store, path)

    assert stored(endpoint, bucket) == (path.read_bytes(), {"sha256": compute_sha256(path)})
    assert (uploads(endpoint, bucket), proxy.fault_counts) == ([], (1,))


@pytest.mark.parametrize("size", [1000, 3 * PART])
def test_what_is_there_is_replaced_by_the_right_content_only(store, endpoint, bucket, blob, size):
    endpoint.client("s3").put_object(Bucket=bucket, Key=KEY, Body=b"before")
    path = blob("w", size)
    with pytest.raises(InputError):
        upload_file(store, path, KEY, hashlib.sha256(b"other").hexdigest())
    before = stored(endpoint, bucket)[0]
    upload(store, path)

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


def test_what_is_sent_again_is_hashed_once(proxy_store, proxy, blob, monkeypatch):
    folder = blob("a", 10).parent
    blob("b", 20)
    names = []
    hash_one = files.compute_sha256

    def counted(path):
        names.append(path.name)
        return hash_one(path)

    monkeypatch.setattr(files, "compute_sha256", counted)
    local = LocalFiles(folder)
    proxy.use(FaultRule(operation="PutObject", path="*/a", fault=ACCESS_DENIED_FAULT))
    with pytest.raises(ExternalError):
        upload_files(proxy_store, local, "p")
    proxy.use()
    upload_files(proxy_store, local, "p")

    assert sorted(names) == ["a", "b"]
