"""Objects of an endpoint that keeps them on disk."""

from __future__ import annotations

import os

import pytest

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]

MIB = 1 << 20
PART = os.urandom(8 * MIB)


@pytest.fixture(scope="module")
def keeping(restart):
    return restart.endpoint


@pytest.fixture(scope="module")
def s3(keeping):
    return keeping.client("s3")


@pytest.fixture
def upload(s3, bucket):
    def act(key, *contents):
        request = {
            "Bucket": bucket,
            "Key": key,
            "UploadId": s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"],
        }
        parts = [
            {
                "PartNumber": number,
                "ETag": s3.upload_part(**request, PartNumber=number, Body=content)["ETag"],
            }
            for number, content in enumerate(contents, 1)
        ]
        s3.complete_multipart_upload(**request, MultipartUpload={"Parts": parts})

    return act


def test_an_object_of_parts_is_read_whole_and_by_range(s3, bucket, upload):
    upload("k", PART, PART[::-1], b"end")
    content = PART + PART[::-1] + b"end"
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == content
    assert (
        s3.get_object(Bucket=bucket, Key="k", Range="bytes=8388600-8388620")["Body"].read()
        == content[8388600:8388621]
    )


def test_an_object_outlives_a_restart_with_all_that_was_said_of_it(s3):
    head = s3.head_object(Bucket="kept", Key="a/b", ChecksumMode="ENABLED")
    assert s3.get_object(Bucket="kept", Key="a/b")["Body"].read() == b"x"
    assert (head["Metadata"], "ChecksumSHA256" in head) == ({"sha256": "abc"}, True)
