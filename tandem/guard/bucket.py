"""Small objects of the guard's bucket, read whole and written only over the version that was read.

Invariant: standard library and boto3 only, because a Lambda packs this file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from tandem.aws.faults import error_code
from tandem.guard.config import AwsClients, GuardConfig

SCHEMA = 1
MAX_ATTEMPTS = 4  # of a conditional write, if somebody else writes first
MAX_OBJECT_BYTES = 1 << 20  # bytes; a longer object is not ours
_NOT_FOUND_CODES = {"NoSuchKey", "404"}
_CONFLICT_CODES = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}


@dataclass(frozen=True, kw_only=True)
class BucketObject:
    """A small object of the bucket, as it was read."""

    body: bytes
    etag: str
    modified_at: datetime


def read_object(clients: AwsClients, config: GuardConfig, key: str) -> BucketObject | None:
    """Return a small object, None if there is none.

    Raises:
        CALL_ERRORS: S3 does not answer, or denies the call.
    """
    try:
        answer = clients.s3.get_object(Bucket=config.bucket, Key=config.prefix + key)
        return BucketObject(
            body=answer["Body"].read(MAX_OBJECT_BYTES),
            etag=answer["ETag"],
            modified_at=answer["LastModified"],
        )
    except ClientError as error:
        if error_code(error) in _NOT_FOUND_CODES:
            return None
        raise


def parse_document(body: bytes, schema: int) -> dict[str, Any]:
    """Return the document of an object.

    Args:
        body: of the object.
        schema: the only one that is read.

    Raises:
        ValueError, KeyError, TypeError: the body is no such document, or has another schema.
    """
    document: dict[str, Any] = json.loads(body)
    if document["schema"] != schema:
        raise ValueError(
            f"it has schema {document['schema']}; this version of Tandem reads schema {schema}"
        )
    return document


def write_object(
    clients: AwsClients, config: GuardConfig, key: str, document: Mapping[str, Any], *, etag: str
) -> str | None:
    """Write an object if unchanged since it was read; return its new ETag, or None if lost.

    Args:
        etag: of the version that was read; empty: there was none.

    Raises:
        CALL_ERRORS: S3 does not answer, or denies the call. The object may have been written.
    """
    condition = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}
    body = json.dumps({"schema": SCHEMA, **document}, indent=1).encode()
    try:
        answer = clients.s3.put_object(
            Bucket=config.bucket,
            Key=config.prefix + key,
            Body=body,
            ContentType="application/json",
            **condition,
        )
    except ClientError as error:
        if error_code(error) in _CONFLICT_CODES or (etag and error_code(error) in _NOT_FOUND_CODES):
            return None
        raise
    return str(answer["ETag"])
