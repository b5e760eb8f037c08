"""Objects of an endpoint that keeps them on disk."""

from __future__ import annotations

import os
from pathlib import Path

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


def anonymous(process):
    """Bytes of memory that no file stands behind."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def test_an_object_of_parts_is_read_whole_and_by_range(s3, bucket, upload):
    upload("k", PART, PART[::-1], b"end")
    content = PART + PART[::-1] + b"end"
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == content
    assert (
        s3.get_object(Bucket=bucket, Key="k", Range="bytes=8388600-8388620")["Body"].read()
        == content[8388600:8388621]
    )


def test_neither_objects_nor_parts_nor_versions_stay_in_memory(keeping, s3, bucket, upload):
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    upload("warm", PART)
    before = anonymous(keeping.process_id)
    for number in range(2):
        upload(f"k{number}", PART, PART)
    upload_id = s3.create_multipart_upload(Bucket=bucket, Key="under-way")["UploadId"]
    for number in range(1, 5):
        s3.upload_part(
            Bucket=bucket, Key="under-way", UploadId=upload_id, PartNumber=number, Body=PART
        )

    assert anonymous(keeping.process_id) - before < 32 * MIB  # of 64 that were sent


def test_an_object_outlives_a_restart_with_all_that_was_said_of_it(s3):
    head = s3.head_object(Bucket="kept", Key="a/b", ChecksumMode="ENABLED")
    assert s3.get_object(Bucket="kept", Key="a/b")["Body"].read() == b"x"
    assert (head["Metadata"], "ChecksumSHA256" in head) == ({"sha256": "abc"}, True)
