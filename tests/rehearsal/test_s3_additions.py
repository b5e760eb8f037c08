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
            answer = s3.upload_part(
                **upload, PartNumber=number, Body=content, ChecksumSHA256=sha256(content)
            )
            parts.append(
                {
                    "PartNumber": number,
                    "ETag": answer["ETag"],
                    "ChecksumSHA256": answer["ChecksumSHA256"],
                }
            )
        return SimpleNamespace(upload=upload, parts=parts)

    return act


@pytest.fixture
def complete(s3):
    def act(target, parts=None, **more):
        return s3.complete_multipart_upload(
            **target.upload,
            MultipartUpload={"Parts": target.parts if parts is None else parts},
            **more,
        )

    return act


def test_a_part_needs_the_checksum_that_its_upload_was_begun_with(s3, key, begin, refusal):
    assert (
        refusal(
            s3.upload_part, **begin(key).upload, PartNumber=1, Body=SMALL, ChecksumAlgorithm="CRC32"
        )
        == "InvalidRequest"
    )


def test_the_completion_needs_the_checksum_of_every_part(key, begin, complete, refusal):
    upload = begin(key, LARGE, SMALL)
    without = [upload.parts[0], {name: upload.parts[1][name] for name in ("PartNumber", "ETag")}]
    assert refusal(complete, target=upload, parts=without) == "InvalidRequest"


def test_a_part_that_is_not_the_last_has_a_least_size(key, begin, complete, refusal):
    assert refusal(complete, target=begin(key, LARGE[1:], SMALL)) == "EntityTooSmall"


def test_a_whole_object_has_the_checksum_of_its_parts(s3, bucket, key, begin, complete):
    answer = complete(begin(key, LARGE, SMALL))
    digests = b"".join(hashlib.sha256(content).digest() for content in (LARGE, SMALL))
    head = s3.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    got = s3.get_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")

    assert {answer["ChecksumSHA256"], head["ChecksumSHA256"], got["ChecksumSHA256"]} == {
        f"{sha256(digests)}-2"
    }
    assert head["ChecksumType"] == "COMPOSITE"
    assert got["Body"].read() == LARGE + SMALL


def test_a_key_of_kms_that_is_not_there_encrypts_nothing(s3, bucket, key, refusal):
    key_arn = "arn:aws:kms:us-east-2:222233334444:key/00000000-0000-0000-0000-000000000000"
    encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key_arn}
    assert (
        refusal(s3.create_multipart_upload, Bucket=bucket, Key=key, **encryption)
        == "KMS.NotFoundException"
    )


def test_the_bucket_of_another_owner_is_refused_to_who_names_one(s3, bucket, key, refusal):
    request = {"Bucket": bucket, "Key": key, "Body": b"x"}
    assert refusal(s3.put_object, **request, ExpectedBucketOwner="111122223333") == "AccessDenied"
    assert s3.put_object(**request, ExpectedBucketOwner="222233334444")["ETag"]
