"""Uploads, conditions and refusals of S3 on the local endpoint, seen through boto3.

What the additions bring and what MiniStack has by itself stand together: programs rely on both.
"""

from __future__ import annotations

import base64
import hashlib
import os
import uuid
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]

LEAST = 5 * 1024 * 1024
LARGE = os.urandom(LEAST)
SMALL = b"the end"


def sha256(content):
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


@pytest.fixture(scope="module")
def s3(endpoint):
    return endpoint.client("s3")


@pytest.fixture
def key():
    return f"some/{uuid.uuid4().hex}"


@pytest.fixture
def begin(s3, bucket):
    """An upload in parts, each with its checksum."""

    def act(key, *contents, **more):
        upload = {
            "Bucket": bucket,
            "Key": key,
            "UploadId": s3.create_multipart_upload(
                Bucket=bucket, Key=key, ChecksumAlgorithm="SHA256", **more
            )["UploadId"],
        }
        parts = []
        for number, content in enumerate(contents, 1):
            said = s3.upload_part(
                **upload, PartNumber=number, Body=content, ChecksumSHA256=sha256(content)
            )
            parts.append(
                {
                    "PartNumber": number,
                    "ETag": said["ETag"],
                    "ChecksumSHA256": said["ChecksumSHA256"],
                }
            )
        return SimpleNamespace(upload=upload, parts=parts)

    return act


@pytest.fixture
def complete(s3):
    def act(begun, parts=None, **more):
        return s3.complete_multipart_upload(
            **begun.upload,
            MultipartUpload={"Parts": begun.parts if parts is None else parts},
            **more,
        )

    return act


def test_a_put_that_may_not_overwrite_does_so_once(s3, bucket, key, refusal):
    s3.put_object(Bucket=bucket, Key=key, Body=b"first", IfNoneMatch="*")
    assert (
        refusal(s3.put_object, Bucket=bucket, Key=key, Body=b"second", IfNoneMatch="*")
        == "PreconditionFailed"
    )
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"first"


def test_a_put_over_what_was_read_overwrites_that_only(s3, bucket, key, refusal):
    read = s3.put_object(Bucket=bucket, Key=key, Body=b"first")["ETag"]
    s3.put_object(Bucket=bucket, Key=key, Body=b"second", IfMatch=read)
    assert (
        refusal(s3.put_object, Bucket=bucket, Key=key, Body=b"third", IfMatch=read)
        == "PreconditionFailed"
    )


def test_the_completion_of_an_upload_may_not_overwrite(s3, bucket, key, begin, complete):
    s3.put_object(Bucket=bucket, Key=key, Body=b"first")
    begun = begin(key, SMALL)

    with pytest.raises(ClientError) as refused:
        complete(begun, IfNoneMatch="*")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    assert s3.list_parts(**begun.upload)["Parts"]


def test_the_completion_of_an_upload_overwrites_only_what_was_read(
    s3, bucket, key, begin, complete
):
    etag = s3.put_object(Bucket=bucket, Key=key, Body=b"first")["ETag"]
    with pytest.raises(ClientError):
        complete(begin(key, SMALL), IfMatch='"other"')
    complete(begin(key, SMALL), IfMatch=etag)

    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == SMALL


def test_a_part_that_is_not_what_its_checksum_says_is_refused(s3, key, begin, refusal):
    begun = begin(key)
    code = refusal(
        s3.upload_part, **begun.upload, PartNumber=1, Body=SMALL, ChecksumSHA256=sha256(b"other")
    )
    assert (code, s3.list_parts(**begun.upload).get("Parts")) == ("BadDigest", None)


def test_an_object_that_is_not_what_its_checksum_says_is_refused(s3, bucket, key, refusal):
    assert (
        refusal(s3.put_object, Bucket=bucket, Key=key, Body=SMALL, ChecksumSHA256=sha256(b"other"))
        == "BadDigest"
    )


def test_a_part_needs_the_checksum_that_its_upload_was_begun_with(s3, key, begin, refusal):
    assert (
        refusal(
            s3.upload_part, **begin(key).upload, PartNumber=1, Body=SMALL, ChecksumAlgorithm="CRC32"
        )
        == "InvalidRequest"
    )


def test_the_completion_needs_the_checksum_of_every_part(key, begin, complete, refusal):
    begun = begin(key, LARGE, SMALL)
    without = [begun.parts[0], {name: begun.parts[1][name] for name in ("PartNumber", "ETag")}]
    assert refusal(complete, begun=begun, parts=without) == "InvalidRequest"


def test_a_part_that_is_not_the_last_has_a_least_size(key, begin, complete, refusal):
    assert refusal(complete, begun=begin(key, LARGE[1:], SMALL)) == "EntityTooSmall"


def test_a_part_that_was_never_sent_is_missed(key, begin, complete, refusal):
    begun = begin(key, LARGE)
    assert (
        refusal(complete, begun=begun, parts=[*begun.parts, {**begun.parts[0], "PartNumber": 2}])
        == "InvalidPart"
    )


def test_a_whole_object_has_the_checksum_of_its_parts(s3, bucket, key, begin, complete):
    said = complete(begin(key, LARGE, SMALL))
    digests = b"".join(hashlib.sha256(content).digest() for content in (LARGE, SMALL))
    head = s3.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    got = s3.get_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")

    assert {said["ChecksumSHA256"], head["ChecksumSHA256"], got["ChecksumSHA256"]} == {
        f"{sha256(digests)}-2"
    }
    assert head["ChecksumType"] == "COMPOSITE"
    assert got["Body"].read() == LARGE + SMALL


def test_a_put_answers_the_checksum_and_a_head_tells_it_to_who_asks(s3, bucket, key):
    said = s3.put_object(Bucket=bucket, Key=key, Body=SMALL, ChecksumAlgorithm="SHA256")
    asked = s3.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    assert {said["ChecksumSHA256"], asked["ChecksumSHA256"]} == {sha256(SMALL)}
    assert "ChecksumSHA256" not in s3.head_object(Bucket=bucket, Key=key)


@pytest.mark.parametrize(
    "act", ["upload_part", "list_parts", "complete_multipart_upload", "abort_multipart_upload"]
)
def test_an_upload_that_is_not_there_is_none(s3, bucket, key, refusal, act):
    more = {
        "upload_part": {"PartNumber": 1, "Body": b"x"},
        "complete_multipart_upload": {
            "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": "e"}]}
        },
    }.get(act, {})

    assert (
        refusal(getattr(s3, act), Bucket=bucket, Key=key, UploadId="none", **more) == "NoSuchUpload"
    )


def test_an_object_that_changed_since_it_was_seen_is_not_read(s3, bucket, key, refusal):
    etag = s3.put_object(Bucket=bucket, Key=key, Body=b"a")["ETag"]
    s3.put_object(Bucket=bucket, Key=key, Body=b"b")
    assert refusal(s3.get_object, Bucket=bucket, Key=key, IfMatch=etag) == "PreconditionFailed"


@pytest.mark.parametrize("begins", ["put_object", "create_multipart_upload"])
def test_a_key_of_kms_that_is_not_there_encrypts_nothing(s3, bucket, key, refusal, begins):
    said = "arn:aws:kms:us-east-2:222233334444:key/00000000-0000-0000-0000-000000000000"
    encrypted = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": said}
    assert (
        refusal(getattr(s3, begins), Bucket=bucket, Key=key, **encrypted) == "KMS.NotFoundException"
    )


def test_a_disabled_key_of_kms_encrypts_nothing(endpoint, s3, bucket, key, refusal):
    made = endpoint.client("kms").create_key()["KeyMetadata"]["Arn"]
    s3.put_object(
        Bucket=bucket, Key=key, Body=b"x", ServerSideEncryption="aws:kms", SSEKMSKeyId=made
    )
    endpoint.client("kms").disable_key(KeyId=made)

    assert (
        refusal(
            s3.put_object, Bucket=bucket, Key=key, ServerSideEncryption="aws:kms", SSEKMSKeyId=made
        )
        == "KMS.DisabledException"
    )


def test_a_bucket_whose_own_key_is_gone_takes_no_object(s3, key, refusal):
    name = f"encrypted-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
    default = {
        "SSEAlgorithm": "aws:kms",
        "KMSMasterKeyID": "arn:aws:kms:us-east-2:222233334444:key/none",
    }
    s3.put_bucket_encryption(
        Bucket=name,
        ServerSideEncryptionConfiguration={
            "Rules": [{"ApplyServerSideEncryptionByDefault": default}]
        },
    )

    assert refusal(s3.put_object, Bucket=name, Key=key, Body=b"x") == "KMS.NotFoundException"


def test_the_bucket_of_another_owner_is_refused_to_who_names_one(s3, bucket, key, refusal):
    named = {"Bucket": bucket, "Key": key, "Body": b"x"}
    assert refusal(s3.put_object, **named, ExpectedBucketOwner="111122223333") == "AccessDenied"
    assert s3.put_object(**named, ExpectedBucketOwner="222233334444")["ETag"]
