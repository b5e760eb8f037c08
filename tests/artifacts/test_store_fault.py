"""Whatever S3 or the way to it refuses is said in words that name the object and what to do."""

from __future__ import annotations

import pytest
from botocore import exceptions as boto
from urllib3.exceptions import SSLError as BrokenTlsError

from tandem.artifacts.files import LocalFiles
from tandem.artifacts.s3_transfer import download_files, upload_files
from tandem.artifacts.store_fault import ACTIONS, convert_error
from tandem.errors import ExternalError, InputError

USER = "User: arn:aws:sts::111122223333:assumed-role/r/s is not authorized to perform: "


def answered(code, message="said", status=400, operation="PutObject"):
    error = boto.ClientError(
        {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"HTTPStatusCode": status},
        },
        operation,
    )
    return convert_error(error, operation, "some-bucket", "models/o/n/r/f")


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("NoSuchBucket", InputError, r"bucket does not exist .*deploy"),
        ("InvalidBucketName", InputError, r"bucket does not exist .*correct"),
        ("SlowDown", ExternalError, r"failed at every try .*wait a minute"),
        ("RequestTimeTooSkewed", ExternalError, r"clock differs .*set the clock"),
        ("ExpiredToken", ExternalError, r"expired .*Pod Identity"),
        ("InvalidAccessKeyId", ExternalError, r"does not accept these credentials"),
        ("PermanentRedirect", InputError, r"another region .*AWS_REGION"),
        ("NoSuchKey", ExternalError, r"no such object"),
        ("SomethingNew", ExternalError, r"PutObject was refused \(SomethingNew: said\)"),
    ],
)
def test_a_code_of_the_service_has_its_words(code, kind, words):
    fault = answered(code)
    assert type(fault) is kind
    with pytest.raises(kind, match=rf"^s3://some-bucket/models/o/n/r/f: .*{words}"):
        raise fault


def test_denied_assume_role_is_a_fault_of_credentials():
    fault = answered(
        "AccessDenied", f"{USER}sts:AssumeRole on resource: x", status=403, operation="AssumeRole"
    )
    assert "does not accept these credentials" in fault.problem
    assert "sts:AssumeRole" in fault.problem


@pytest.mark.parametrize(
    ("operation", "message", "action"),
    [
        ("UploadPart", "Access Denied", "s3:PutObject"),
        ("HeadObject", "Access Denied", "s3:GetObject"),
        ("ListObjectsV2", "Access Denied", "s3:ListBucket"),
        ("GetBucketVersioning", "Access Denied", "s3:GetBucketVersioning"),
        (
            "PutObject",
            USER + "kms:GenerateDataKey on resource: arn:aws:kms:x because no",
            "kms:GenerateDataKey",
        ),
    ],
)
def test_a_denial_names_the_missing_action(operation, message, action):
    assert answered("AccessDenied", message, 403, operation).change.startswith(
        f"allow {action} for this identity"
    )


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (boto.NoCredentialsError(), ExternalError, "no AWS credentials .*Pod Identity association"),
        (
            boto.EndpointConnectionError(endpoint_url="http://x"),
            ExternalError,
            "got no answer .*VPC endpoint",
        ),
        (boto.ReadTimeoutError(endpoint_url="http://x"), ExternalError, "ended within the data"),
        (BrokenTlsError("bad record mac"), ExternalError, "ended within the data"),
        (boto.ProfileNotFound(profile="p"), InputError, "AWS_PROFILE"),
        (boto.NoRegionError(), InputError, "AWS_REGION"),
        (boto.ParamValidationError(report="bad bucket"), InputError, "bad bucket"),
        (boto.UnseekableStreamError(stream_object="x"), ExternalError, "PutObject failed"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_before_any_answer_has_its_words(error, kind, words):
    fault = convert_error(error, "PutObject", "b", "k")
    assert type(fault) is kind
    with pytest.raises(kind, match=rf"^s3://b/k: .*{words}"):
        raise fault


@pytest.mark.endpoint
def test_every_operation_that_is_asked_for_has_its_action(proxy_store, proxy, blob):
    """What the whole of store, send and receive asks of S3 is known by the table of actions."""
    folder = blob("large", 17 << 20).parent
    blob("small", 10)
    proxy_store.client.create_multipart_upload(Bucket=proxy_store.bucket, Key="p/small")
    files = upload_files(proxy_store, LocalFiles(folder), "p")
    download_files(proxy_store, "p", folder.parent / "to", files)
    proxy_store.delete([row.key for row in proxy_store.list("p")])

    assert {request.operation for request in proxy.log} == set(ACTIONS)
