"""A file becomes an object: whole or not at all, no finished part twice, whatever breaks off in between."""

from __future__ import annotations

import hashlib
import os
import threading

import pytest
from doubles.fault_proxy.rules import (
    ACCESS_DENIED_FAULT,
    SLOW_DOWN_FAULT,
    AnswerLossFault,
    DelayFault,
    DropFault,
    FaultRule,
    StatusFault,
)

from tandem.artifacts import files
from tandem.artifacts.files import LocalFiles, compute_sha256, hash_files, list_files
from tandem.artifacts.parts import MIB
from tandem.artifacts.s3_upload import hash_and_upload, upload_file, upload_files
from tandem.artifacts.store import ObjectStore, SiblingFailureError, open_store
from tandem.errors import ExternalError, InputError

pytestmark = pytest.mark.endpoint
KEY = "models/o/n/r/weights.safetensors"
PART = 5 * MIB  # the least that S3 takes


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("tandem.artifacts.parts.MIN_PART_BYTES", PART)


def uploads(endpoint, bucket):
    return endpoint.client("s3").list_multipart_uploads(Bucket=bucket).get("Uploads", [])


def stored(endpoint, bucket, key=KEY):
    answer = endpoint.client("s3").get_object(Bucket=bucket, Key=key)
    return answer["Body"].read(), answer["Metadata"]


def sent_parts(proxy):
    return sorted(int(one.query["partNumber"]) for one in proxy.requests("UploadPart") if one.done)


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


def test_a_finished_part_is_never_sent_again(proxied, proxy, blob):
    path = blob("w", 4 * PART)
    proxy.use(FaultRule(operation="UploadPart", query={"partNumber": "3"}, fault=DropFault()))
    with pytest.raises(ExternalError):
        upload_file(proxied, path, KEY, compute_sha256(path))
    proxy.use()
    upload_file(proxied, path, KEY, compute_sha256(path))

    assert sent_parts(proxy) == [1, 2, 3, 4]


def test_a_resumed_object_is_the_same(proxied, proxy, endpoint, bucket, blob):
    path = blob("w", 4 * PART)
    proxy.use(FaultRule(operation="UploadPart", query={"partNumber": "2"}, fault=DropFault()))
    with pytest.raises(ExternalError):
        upload_file(proxied, path, KEY, compute_sha256(path))
    proxy.use()
    upload_file(proxied, path, KEY, compute_sha256(path))

    assert stored(endpoint, bucket) == (path.read_bytes(), {"sha256": compute_sha256(path)})


def begun(store, path, *, parts=1, size=PART, sha256="0" * 64):
    """Begin an upload as a run does that is then killed."""
    s3, bucket = store.client, store.bucket
    upload = s3.create_multipart_upload(Bucket=bucket, Key=KEY, ChecksumAlgorithm="SHA256",
                                        Metadata={"sha256": sha256})["UploadId"]  # fmt: skip
    for number in range(parts):
        body = path.read_bytes()[number * size : (number + 1) * size]
        s3.upload_part(Bucket=bucket, Key=KEY, UploadId=upload, PartNumber=number + 1, Body=body,
                       ChecksumAlgorithm="SHA256")  # fmt: skip
    return upload


def test_an_upload_of_other_bytes_is_aborted(store, endpoint, bucket, blob):
    begun(store, blob("other", 2 * PART, seed=1))
    path = blob("w", 2 * PART)
    upload_file(store, path, KEY, compute_sha256(path))

    assert (stored(endpoint, bucket)[0] == path.read_bytes(), uploads(endpoint, bucket)) == (True, [])


def test_an_upload_whose_second_part_alone_differs_is_aborted(store, endpoint, bucket, blob):
    path = blob("w", 3 * PART)
    other = blob("other", 3 * PART)
    with other.open("r+b") as file:
        file.seek(PART + 9)
        file.write(b"spoilt")
    begun(store, other, parts=2)
    upload_file(store, path, KEY, compute_sha256(path))

    assert (stored(endpoint, bucket)[0] == path.read_bytes(), uploads(endpoint, bucket)) == (True, [])


def test_an_upload_cut_otherwise_is_aborted(store, endpoint, bucket, blob):
    path = blob("w", 3 * PART)
    begun(store, path, size=PART + MIB)
    upload_file(store, path, KEY, compute_sha256(path))

    assert (stored(endpoint, bucket)[0] == path.read_bytes(), uploads(endpoint, bucket)) == (True, [])


def test_an_upload_that_announced_another_content_does_not_lend_its_metadata(store, endpoint, bucket, blob):
    path = blob("w", 3 * PART)
    begun(store, path, parts=2, sha256="f" * 64)
    upload_file(store, path, KEY, compute_sha256(path))

    assert stored(endpoint, bucket) == (path.read_bytes(), {"sha256": compute_sha256(path)})


def test_of_several_uploads_the_fullest_is_taken_up_and_none_is_left(proxied, proxy, endpoint, bucket, blob):
    path = blob("w", 4 * PART)
    for parts in (1, 3, 0):
        begun(proxied, path, parts=parts, sha256=compute_sha256(path))
    proxy.forget()
    upload_file(proxied, path, KEY, compute_sha256(path))

    assert (sent_parts(proxy), uploads(endpoint, bucket)) == ([4], [])


def test_uploads_and_parts_are_found_on_every_page(proxied, proxy, endpoint, bucket, blob, monkeypatch):
    monkeypatch.setattr("tandem.artifacts.store.PAGE_ROWS", 1)
    path = blob("w", 4 * PART)
    for parts in (1, 3, 2):
        begun(proxied, path, parts=parts, sha256=compute_sha256(path))
    proxy.forget()
    upload_file(proxied, path, KEY, compute_sha256(path))

    assert (sent_parts(proxy), uploads(endpoint, bucket)) == ([4], [])


def test_the_failure_of_one_file_halts_the_others(proxied, proxy, blob):
    folder = blob("large", 12 * PART).parent
    blob("small", 10)
    proxy.use(
        FaultRule(operation="PutObject", fault=ACCESS_DENIED_FAULT),
        FaultRule(operation="UploadPart", fault=DelayFault(delay_s=0.2)),
    )

    with pytest.raises(ExternalError, match="p/small: S3 denies PutObject"):
        upload_files(proxied, folder, "p", list_files(folder))
    assert len(proxy.requests("UploadPart")) < 12


def test_parts_that_wait_for_a_thread_are_not_sent_once_the_work_halts(proxied, proxy, blob):
    narrow = ObjectStore(proxied.bucket, proxied.client, 2)
    path = blob("w", 4 * PART)
    proxy.use(FaultRule(operation="UploadPart", fault=DelayFault(delay_s=0.5)))
    proxy.moment_callback = lambda *seen: (
        narrow.halt_event.set() if (seen[0], seen[1].operation) == ("done", "UploadPart") else None
    )

    with pytest.raises(SiblingFailureError):
        upload_file(narrow, path, KEY, compute_sha256(path))
    assert len(proxy.requests("UploadPart")) <= 2


def test_an_upload_that_was_begun_twice_by_a_lost_answer_is_aborted(proxied, proxy, endpoint, bucket, blob):
    path = blob("w", 2 * PART)
    proxy.use(FaultRule(operation="CreateMultipartUpload", fault=AnswerLossFault(), times=1))
    upload_file(proxied, path, KEY, compute_sha256(path))

    assert (len(proxy.requests("CreateMultipartUpload")), uploads(endpoint, bucket)) == (2, [])


def test_an_upload_of_a_key_that_only_begins_alike_is_left_alone(store, endpoint, bucket, blob):
    path = blob("w", 2 * PART)
    endpoint.client("s3").create_multipart_upload(Bucket=bucket, Key=f"{KEY}.other")
    upload_file(store, path, KEY, compute_sha256(path))

    assert [upload["Key"] for upload in uploads(endpoint, bucket)] == [f"{KEY}.other"]


@pytest.mark.parametrize(
    "fault",
    [DropFault(), AnswerLossFault(), SLOW_DOWN_FAULT],
    ids=lambda fault: getattr(fault, "code", fault.kind),
)
@pytest.mark.parametrize(
    "operation",
    ["ListMultipartUploads", "HeadObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"],
)
def test_a_fault_that_passes_changes_nothing(proxied, proxy, endpoint, blob, operation, fault):
    bucket = proxied.bucket
    path = blob("w", 3 * PART)
    proxy.use(FaultRule(operation=operation, fault=fault, times=1))
    upload_file(proxied, path, KEY, compute_sha256(path))

    assert stored(endpoint, bucket) == (path.read_bytes(), {"sha256": compute_sha256(path)})
    assert (uploads(endpoint, bucket), proxy.fault_counts) == ([], (1,))


def test_a_small_file_survives_a_lost_answer(proxied, proxy, endpoint, bucket, blob):
    path = blob("w", 1000)
    proxy.use(FaultRule(operation="PutObject", fault=AnswerLossFault(), times=1))
    upload_file(proxied, path, KEY, compute_sha256(path))

    assert stored(endpoint, bucket)[0] == path.read_bytes()


def test_parts_that_are_lost_before_the_end_are_sent_again(proxied, proxy, endpoint, bucket, blob):
    """An upload is aborted by somebody else when all its parts are there."""
    path = blob("w", 3 * PART)

    def abort(moment, request):
        if moment == "asked" and request.operation == "CompleteMultipartUpload" and not aborted:
            aborted.append(request.query["uploadId"])
            endpoint.client("s3").abort_multipart_upload(Bucket=bucket, Key=KEY, UploadId=request.query["uploadId"])

    aborted = []
    proxy.moment_callback = abort
    upload_file(proxied, path, KEY, compute_sha256(path))

    assert (stored(endpoint, bucket)[0] == path.read_bytes(), len(aborted)) == (True, 1)


def test_a_single_part_that_s3_says_it_lost_leads_to_another_look(proxied, proxy, endpoint, bucket, blob):
    path = blob("w", 3 * PART)
    proxy.use(
        FaultRule(operation="CompleteMultipartUpload", fault=StatusFault(status=400, code="InvalidPart"), times=1)
    )
    upload_file(proxied, path, KEY, compute_sha256(path))

    assert (stored(endpoint, bucket)[0] == path.read_bytes(), sent_parts(proxy)) == (True, [1, 2, 3])


def test_an_upload_that_is_always_broken_off_ends_with_what_to_do(proxied, proxy, blob):
    path = blob("w", 2 * PART)
    proxy.use(FaultRule(operation="CompleteMultipartUpload", fault=StatusFault(status=404, code="NoSuchUpload")))

    with pytest.raises(ExternalError, match="broken off by somebody else 5 times"):
        upload_file(proxied, path, KEY, compute_sha256(path))


def test_two_writers_of_one_key_at_once_both_end_with_the_whole_object(store, endpoint, bucket, blob):
    path = blob("w", 4 * PART)
    sha256, faults = compute_sha256(path), []

    def write(writer):
        try:
            upload_file(writer, path, KEY, sha256)
        except Exception as fault:  # noqa: BLE001 - the test says which
            faults.append(fault)

    threads = [threading.Thread(target=write, args=[writer]) for writer in (store, open_store(bucket))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (faults, stored(endpoint, bucket)) == ([], (path.read_bytes(), {"sha256": sha256}))
    assert uploads(endpoint, bucket) == []


@pytest.mark.parametrize("size", [1000, 3 * PART])
def test_a_file_of_another_content_than_announced_is_not_stored(store, blob, size):
    path = blob("w", size)

    with pytest.raises(InputError, match=f"{path}: its content is not what was announced"):
        upload_file(store, path, KEY, hashlib.sha256(b"other").hexdigest())

    assert list(store.list("")) == []


@pytest.mark.parametrize("size", [1000, 3 * PART])
def test_what_is_there_is_replaced_by_the_right_content_only(store, endpoint, bucket, blob, size):
    endpoint.client("s3").put_object(Bucket=bucket, Key=KEY, Body=b"before")
    path = blob("w", size)
    with pytest.raises(InputError):
        upload_file(store, path, KEY, hashlib.sha256(b"other").hexdigest())
    before = stored(endpoint, bucket)[0]
    upload_file(store, path, KEY, compute_sha256(path))

    assert (before, stored(endpoint, bucket)[0]) == (b"before", path.read_bytes())


def test_a_file_that_shrinks_while_it_is_sent_is_told(proxied, proxy, blob):
    path = blob("w", 3 * PART)
    sha256 = compute_sha256(path)
    proxy.moment_callback = lambda moment, request: (
        os.truncate(path, PART) if (moment, request.operation) == ("asked", "CreateMultipartUpload") else None
    )

    with pytest.raises(InputError, match="it was changed"):
        upload_file(proxied, path, KEY, sha256)


def test_an_unreadable_file_is_told(store, tmp_path):
    with pytest.raises(InputError, match="nowhere: the file cannot be read"):
        upload_file(store, tmp_path / "nowhere", KEY, "0" * 64)


def test_a_file_that_s3_cannot_hold_is_refused(store, tmp_path):
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, (5 << 40) + 1)

    with pytest.raises(InputError, match="cut it into shards"):
        upload_file(store, path, KEY, "0" * 64)


def test_every_file_of_a_folder_is_sent_below_its_prefix(store, blob):
    paths = [blob("config.json", 10), blob("sub/a", 2 * PART), blob("sub/deep/b", 3)]
    folder = paths[0].parent
    upload_files(store, folder, "models/o/n/r", list_files(folder))

    assert {row.key: row.size for row in store.list("")} == {
        "models/o/n/r/config.json": 10,
        "models/o/n/r/sub/a": 2 * PART,
        "models/o/n/r/sub/deep/b": 3,
    }


def test_a_second_run_over_a_folder_sends_nothing(proxied, proxy, blob):
    folder = blob("a", 2 * PART).parent
    blob("b", 7)
    upload_files(proxied, folder, "p", list_files(folder))
    proxy.forget()
    upload_files(proxied, folder, "p", list_files(folder))

    assert {one.method for one in proxy.log} <= {"GET", "HEAD"}


@pytest.mark.parametrize("size", [1000, 3 * PART])
def test_what_was_hashed_already_is_held_against_the_bytes_by_s3(store, blob, size):
    path = blob("w", size)
    hashed = hash_files(path.parent)
    with path.open("r+b") as file:
        file.seek(size - 5)
        file.write(b"later")

    with pytest.raises(InputError, match="its content is not what was announced"):
        upload_files(store, path.parent, "p", hashed)
    assert list(store.list("")) == []


def test_what_was_hashed_already_is_sent_and_taken_up_again(proxied, proxy, blob):
    path = blob("w", 4 * PART)
    hashed = hash_files(path.parent)
    proxy.use(FaultRule(operation="UploadPart", query={"partNumber": "3"}, fault=DropFault()))
    with pytest.raises(ExternalError):
        upload_files(proxied, path.parent, "p", hashed)
    proxy.use()
    upload_files(proxied, path.parent, "p", hashed)

    assert (sent_parts(proxy), proxied.head("p/w").sha256) == ([1, 2, 3, 4], compute_sha256(path))


def test_a_file_that_has_grown_since_it_was_hashed_is_told(store, blob):
    path = blob("w", 3 * PART)
    hashed = hash_files(path.parent)
    with path.open("ab") as file:
        file.write(b"x")

    with pytest.raises(InputError, match="its content is not what was announced"):
        upload_files(store, path.parent, "p", hashed)


def test_a_check_that_fails_ends_the_sending(store, blob):
    folder = blob("a", 7).parent

    def lost():
        raise ExternalError("lost", change="x")

    with pytest.raises(ExternalError, match="lost"):
        upload_files(store, folder, "p", list_files(folder), check=lost)
    assert list(store.list("")) == []


def test_a_file_is_sent_while_another_is_hashed(proxied, proxy, blob, monkeypatch):
    """The second hash waits for the first file's object: sending that waited for all hashes would wait for ever."""
    folder = blob("large", 3 * PART).parent
    blob("small", 2 * PART)
    there, hash_one = threading.Event(), files._hash_file

    def watch(moment, request):
        if moment == "done" and request.operation == "CompleteMultipartUpload" and request.path.endswith("/large"):
            there.set()

    def slowly(path, name, going):
        if name == "small":
            assert there.wait(60), "nothing was sent before everything was hashed"
        return hash_one(path, name, going)

    proxy.moment_callback = watch
    monkeypatch.setattr("os.cpu_count", lambda: 4)  # so that the two may be hashed in any order
    monkeypatch.setattr(files, "_hash_file", slowly)
    sent = hash_and_upload(proxied, LocalFiles(folder), "p")

    assert tuple(one.file for one in sent) == list_files(folder)
    assert {row.key: row.size for row in proxied.list("")} == {"p/large": 3 * PART, "p/small": 2 * PART}


def test_what_is_sent_again_is_hashed_once(proxied, proxy, blob, monkeypatch):
    folder = blob("a", 10).parent
    blob("b", 20)
    hashed, hash_one = [], files._hash_file

    def counted(path, name, going):
        hashed.append(name)
        return hash_one(path, name, going)

    monkeypatch.setattr(files, "_hash_file", counted)
    local = LocalFiles(folder)
    proxy.use(FaultRule(operation="PutObject", path="*/a", fault=ACCESS_DENIED_FAULT))
    with pytest.raises(ExternalError):
        hash_and_upload(proxied, local, "p")
    proxy.use()
    hash_and_upload(proxied, local, "p")

    assert sorted(hashed) == ["a", "b"]


def test_a_check_that_fails_ends_the_hashing(store, blob):
    folder = blob("a", 7).parent

    def lost():
        raise ExternalError("lost", change="x")

    with pytest.raises(ExternalError, match="lost"):
        hash_and_upload(store, LocalFiles(folder), "p", check=lost)
    assert list(store.list("")) == []
