# ruff: noqa: SLF001, ANN001, ANN002, ANN202 - MiniStack is untyped and has no public interface
"""S3's refusals for any object: missing KMS key, another's bucket, copy onto an existing object."""

from __future__ import annotations

from ministack.core.responses import get_account_id
from ministack.services import kms, s3

_KEY_HEADER = "x-amz-server-side-encryption-aws-kms-key-id"
_OWNER_HEADER = "x-amz-expected-bucket-owner"
_ACCOUNT_KEY_ALIAS = "alias/aws/s3"


def install(_handlers: dict) -> None:
    """Put the refusals before MiniStack's own calls."""
    resolve = s3._resolve_sse_write_headers
    dispatch = s3._dispatch
    copy = s3._copy_object

    def resolve_with_key_check(headers, bucket):
        encryption_headers, error = resolve(headers, bucket)
        return encryption_headers, error or _find_key_fault(
            (encryption_headers or {}).get(_KEY_HEADER)
        )

    def dispatch_with_owner_check(method, bucket, key, headers, *rest):
        return _find_owner_fault(bucket, headers.get(_OWNER_HEADER)) or dispatch(
            method, bucket, key, headers, *rest
        )

    def copy_with_preconditions(bucket, key, headers):
        target = s3._buckets.get(bucket, {}).get("objects", {}).get(key)
        return s3._check_put_preconditions(headers, target) or copy(bucket, key, headers)

    s3._resolve_sse_write_headers = resolve_with_key_check
    s3._dispatch = dispatch_with_owner_check
    s3._copy_object = copy_with_preconditions


def _find_key_fault(key_id):
    if not key_id or key_id.endswith(_ACCOUNT_KEY_ALIAS):
        return None
    key = kms._resolve_key(key_id)
    if key is None:
        return s3._error("KMS.NotFoundException", f"Key '{key_id}' does not exist", 400)
    if key["KeyState"] == "Disabled":
        return s3._error("KMS.DisabledException", f"{key['Arn']} is disabled.", 400)
    return None


def _find_owner_fault(bucket, expected_owner):
    owner = s3._bucket_owner_account(bucket) or get_account_id()
    return (
        s3._error("AccessDenied", "Access Denied", 403)
        if expected_owner and expected_owner != owner
        else None
    )
