"""The fault proxy in front of the local endpoint, seen through boto3."""

from __future__ import annotations

import base64
import http.client
import os
import uuid
import zlib

import pytest
from doubles.fault_proxy.proxy import FaultProxy
from doubles.fault_proxy.rules import THROTTLING_FAULT, FaultRule

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]

MIB = 1 << 20


@pytest.fixture(scope="module")
def proxy(endpoint):
    with FaultProxy(endpoint.url) as running:
        yield running


@pytest.fixture
def s3(endpoint, proxy):
    """One try a call."""
    proxy.use()
    proxy.forget()
    return endpoint.client("s3", proxy.url)


@pytest.fixture
def bucket(endpoint):
    name = f"faults-{uuid.uuid4().hex[:8]}"
    endpoint.client("s3").create_bucket(
        Bucket=name, CreateBucketConfiguration={"LocationConstraint": "us-east-2"}
    )
    return name


def test_a_stream_in_chunks_of_aws_arrives_decoded(endpoint, proxy, s3, bucket):
    """As the AWS CLI sends a body whose checksum comes behind it."""
    content = os.urandom(MIB)
    trailer = b"x-amz-checksum-crc32:" + base64.b64encode(zlib.crc32(content).to_bytes(4, "big"))
    stream = b"%x\r\n%b\r\n0\r\n%b\r\n\r\n" % (len(content), content, trailer)
    connection = http.client.HTTPConnection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
    connection.request(
        "PUT",
        f"/{bucket}/k",
        stream,
        {
            "Authorization": (
                f"AWS4-HMAC-SHA256 Credential={endpoint.account}/20261121/us-east-2/s3/aws4_request"
            ),
            "Content-Encoding": "aws-chunked",
            "X-Amz-Decoded-Content-Length": str(len(content)),
            "X-Amz-Trailer": "x-amz-checksum-crc32",
            "X-Amz-Content-Sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        },
    )
    status = connection.getresponse().status
    connection.close()

    assert (status, s3.get_object(Bucket=bucket, Key="k")["Body"].read() == content) == (200, True)


@pytest.mark.parametrize("service", ["secretsmanager", "sts", "ec2", "eks"])
def test_an_sdk_reads_the_error_in_every_protocol(endpoint, proxy, service, refusal):
    calls = {
        "secretsmanager": "list_secrets",
        "sts": "get_caller_identity",
        "ec2": "describe_vpcs",
        "eks": "list_clusters",
    }
    proxy.use(FaultRule(fault=THROTTLING_FAULT))
    assert (
        refusal(getattr(endpoint.client(service, proxy.url), calls[service]))
        == "ThrottlingException"
    )
