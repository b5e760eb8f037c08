"""Every request that boto3 makes is known by its operation."""

from __future__ import annotations

import contextlib
from urllib.parse import parse_qsl, unquote, urlsplit

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from doubles.fault_proxy.aws_operation import find_operation, find_service

UPLOAD = {"Bucket": "b", "Key": "k/é x", "UploadId": "u"}
S3 = {
    "GetObject": {"Bucket": "b", "Key": "k/é x", "Range": "bytes=0-1"},
    "HeadObject": {"Bucket": "b", "Key": "k"},
    "PutObject": {"Bucket": "b", "Key": "k", "Body": b"x", "IfNoneMatch": "*"},
    "DeleteObject": {"Bucket": "b", "Key": "k"},
    "DeleteObjects": {"Bucket": "b", "Delete": {"Objects": [{"Key": "k"}]}},
    "CopyObject": {"Bucket": "b", "Key": "k", "CopySource": "b/other"},
    "CreateMultipartUpload": {"Bucket": "b", "Key": "k"},
    "UploadPart": {**UPLOAD, "PartNumber": 1, "Body": b"x"},
    "UploadPartCopy": {**UPLOAD, "PartNumber": 1, "CopySource": "b/other"},
    "ListParts": UPLOAD,
    "CompleteMultipartUpload": {**UPLOAD, "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": "e"}]}},
    "AbortMultipartUpload": UPLOAD,
    "ListMultipartUploads": {"Bucket": "b", "Prefix": "p"},
    "ListObjectsV2": {"Bucket": "b"},
    "ListBuckets": {},
    "HeadBucket": {"Bucket": "b"},
    "CreateBucket": {"Bucket": "b"},
    "GetBucketLocation": {"Bucket": "b"},
    "GetBucketLifecycleConfiguration": {"Bucket": "b"},
    "GetObjectTagging": {"Bucket": "b", "Key": "k"},
    "GetObjectAttributes": {"Bucket": "b", "Key": "k", "ObjectAttributes": ["Checksum"]},
}
OTHERS = [
    ("secretsmanager", "secretsmanager", "GetSecretValue", {"SecretId": "s"}),
    ("sts", "sts", "GetCallerIdentity", {}),
    ("ec2", "ec2", "DescribeVpcs", {}),
    ("eks", "eks", "UpdateNodegroupConfig", {"clusterName": "c", "nodegroupName": "n"}),
    ("cloudwatch", "monitoring", "ListMetrics", {}),
    ("codebuild", "codebuild", "StartBuild", {"projectName": "p"}),
]


def sent(service, operation, arguments):
    """What boto3 would send: service and operation as the proxy reads them."""
    client = boto3.client(
        service, region_name="us-east-2", endpoint_url="http://127.0.0.1:1", aws_access_key_id="AK",
        aws_secret_access_key="x",  # noqa: S106  # any will do
        config=Config(s3={"addressing_style": "path"}),
    )  # fmt: skip
    seen = []

    def take(request, **_):
        seen.append(request)
        return AWSResponse(request.url, 200, {}, None)

    client.meta.events.register("before-send.*.*", take)
    name = client.meta.service_model.operation_model(operation).name
    method = next(own for own, api in client.meta.method_to_api_mapping.items() if api == name)
    with contextlib.suppress(AttributeError, TypeError, ValueError):  # there is no answer to read
        getattr(client, method)(**arguments)
    (request,) = seen
    address = urlsplit(request.url)
    query = dict(parse_qsl(address.query, keep_blank_values=True))
    headers = {key.lower(): value.decode() if isinstance(value, bytes) else value
               for key, value in request.headers.items()}  # fmt: skip
    form = request.body.encode() if isinstance(request.body, str) else request.body or b""
    is_form = headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
    fields = dict(parse_qsl(form.decode())) if is_form else {}
    signed_for = find_service(headers, query)
    told = find_operation(signed_for, request.method, unquote(address.path), {**query, **fields}, headers)
    return signed_for, told


@pytest.mark.parametrize("operation", S3)
def test_an_operation_of_s3_is_known(operation):
    assert sent("s3", operation, S3[operation]) == ("s3", operation)


@pytest.mark.parametrize(("service", "signing_name", "operation", "arguments"), OTHERS)
def test_an_operation_of_another_protocol_is_known(service, signing_name, operation, arguments):
    assert sent(service, operation, arguments) == (signing_name, operation)


def test_a_presigned_address_names_its_service():
    assert find_service({}, {"X-Amz-Credential": "AK/20261121/us-east-2/s3/aws4_request"}) == "s3"


def test_a_request_of_no_known_service_has_no_operation():
    assert find_operation("nosuchservice", "GET", "/", {}, {}) == ""
