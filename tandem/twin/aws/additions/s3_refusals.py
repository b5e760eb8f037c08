# ruff: noqa: SLF001, ANN001, ANN002, ANN202 - MiniStack is untyped and has no public interface
"""What S3 refuses of any object: a key of KMS that is not there, another owner's bucket, a copy onto what exists."""

from __future__ import annotations

from ministack.core.responses import get_account_id
from ministack.services import kms, s3

NEEDS = {
    s3: ("_bucket_owner_account", "_buckets", "_check_put_preconditions", "_copy_object", "_dispatch", "_error",
         "_resolve_sse_write_headers"),
    kms: ("_resolve_key",),
}  # fmt: skip

_KEY = "x-amz-server-side-encryption-aws-kms-key-id"
_OWNER = "x-amz-expected-bucket-owner"
_OF_THE_ACCOUNT = "alias/aws/s3"


def install(_handlers: dict) -> None:
    """Put the refusals before MiniStack's own calls."""
    resolve, dispatch, copy = s3._resolve_sse_write_headers, s3._dispatch, s3._copy_object

    def resolved(headers, bucket):
        kept, error = resolve(headers, bucket)
        return kept, error or _no_such_key((kept or {}).get(_KEY))

    def dispatched(method, bucket, key, headers, *rest):
        return _other_owner(bucket, headers.get(_OWNER)) or dispatch(method, bucket, key, headers, *rest)

    def copied(bucket, key, headers):
        there = s3._buckets.get(bucket, {}).get("objects", {}).get(key)
        return s3._check_put_preconditions(headers, there) or copy(bucket, key, headers)

    s3._resolve_sse_write_headers = resolved
    s3._dispatch = dispatched
    s3._copy_object = copied


def _no_such_key(said):
    if not said or said.endswith(_OF_THE_ACCOUNT):
        return None
    found = kms._resolve_key(said)
    if found is None:
        return s3._error("KMS.NotFoundException", f"Key '{said}' does not exist", 400)
    if found["KeyState"] == "Disabled":
        return s3._error("KMS.DisabledException", f"{found['Arn']} is disabled.", 400)
    return None


def _other_owner(bucket, expected):
    owner = s3._bucket_owner_account(bucket) or get_account_id()
    return s3._error("AccessDenied", "Access Denied", 403) if expected and expected != owner else None
