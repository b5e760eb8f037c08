"""The bucket: every call of this package to S3, over boto3's low-level client.

Invariant: an object is whole or absent (S3 shows no half-written one), the object is read before a
refusal of a conditional write counts, and every error of botocore becomes a TandemError that names
the object.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from s3transfer.exceptions import RetriesExceededError
from s3transfer.manager import TransferConfig, TransferManager

from tandem.artifacts.retry import retry_call
from tandem.artifacts.store_fault import S3_ERRORS, convert_error
from tandem.aws.client_config import build_client_config
from tandem.aws.faults import error_code
from tandem.errors import ExternalError, InputError

CONCURRENCY = 8  # requests at once; each holds a few hundred kilobytes, for files of any size
# of a part; the transfer library holds up to 15 of them, for files of any size
PART_BYTES = 8 << 20
MAX_ATTEMPTS = 6  # botocore waits up to 0.5 + 1 + 2 + 4 + 8 s between them
CONNECT_TIMEOUT_S = 10
# S3 may take minutes to join thousands of parts, but sends spaces meanwhile; a silent one is dead
READ_TIMEOUT_S = 120
PAGE_ROWS = 1000  # rows of a listing at once, the most that S3 gives
DELETE_BATCH = 1000  # S3 API reference, DeleteObjects
# tries after 409 ConditionalRequestConflict: another write of the same key was under way
MAX_CONFLICTS = 8
PRECONDITION_CODES = {"PreconditionFailed", "412"}
CONFLICT_CODES = {"ConditionalRequestConflict", "OperationAborted", "409"}
MISSING_CODES = {"NoSuchKey", "404", "NotFound"}
DENIAL_CODES = {"AccessDenied", "403", "Forbidden"}


@dataclass(frozen=True, kw_only=True)
class ObjectHead:
    """Metadata of an object.

    Args:
        size: bytes.
        sha256: of the whole content, from the object's metadata; None if another program wrote the
            object.
    """

    size: int
    sha256: str | None


@dataclass(frozen=True, kw_only=True)
class ObjectContent:
    """A small object.

    Args:
        modified_at: time of the write, by S3's clock, to the second.
        read_at: time of S3's answer, by the same clock.
    """

    body: bytes
    etag: str
    modified_at: datetime
    read_at: datetime


@dataclass(frozen=True, kw_only=True)
class ObjectSummary:
    """One row of a listing; size in bytes."""

    key: str
    size: int
    modified_at: datetime


@dataclass(frozen=True, kw_only=True)
class OpenUpload:
    """An unfinished upload in parts; AWS charges for its parts until it is aborted."""

    key: str
    id: str
    initiated_at: datetime


class WriteConflictError(Exception):
    """Another write of the same key was under way; which of the two is stored is not known yet."""


class SiblingFailureError(Exception):
    """Another file failed; its error is the one to report."""


class ObjectStore:
    """One bucket.

    Args:
        bucket: its name.
        client: boto3's S3 client.
    """

    def __init__(self, bucket: str, client: Any) -> None:
        self.bucket = bucket
        self.client = client
        self.halt_event = threading.Event()  # one of several files failed: the others stop
        # the threads of small requests; a task that waits for others must not run here
        self.pool = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="s3")

    @cached_property
    def uploads(self) -> Any:
        """The transfer library for uploads, with its threads."""
        return self._create_transfers(PART_BYTES)

    @cached_property
    def downloads(self) -> Any:
        """The transfer library for downloads, with its threads.

        Every object is requested by ranges: if s3transfer 0.19.3 requests a whole one and the
        answer is cut short, the library writes the received bytes twice.
        """
        return self._create_transfers(1)

    def _create_transfers(self, threshold: int) -> Any:
        config = TransferConfig(
            multipart_threshold=threshold,
            multipart_chunksize=PART_BYTES,
            max_request_concurrency=CONCURRENCY,
        )
        return TransferManager(self.client, config)

    def finish_transfer(self, operation: str, key: str, future: Any) -> None:
        """Wait for a transfer of the library; cancel the rest if the wait is interrupted.

        Raises:
            TandemError: S3 failed, or the reader or writer of the content raised it.
        """
        try:
            with self.translate_errors(operation, key):
                future.result()
        except RetriesExceededError as error:
            raise convert_error(error.last_exception, operation, self.bucket, key) from None
        except BaseException:
            future.cancel()
            raise

    def require_not_halted(self) -> None:
        """Stop this file if another of several files has failed.

        Raises:
            SiblingFailureError: another file has failed.
        """
        if self.halt_event.is_set():
            raise SiblingFailureError

    def url(self, key: str) -> str:
        """Return the `s3://` address of a key."""
        return f"s3://{self.bucket}/{key}"

    @contextlib.contextmanager
    def translate_errors(self, operation: str, key: str) -> Iterator[None]:
        """Turn an error of botocore into a TandemError that names the operation and the object."""
        try:
            yield
        except S3_ERRORS as error:
            operation = getattr(error, "operation_name", operation)  # a transfer has several
            raise convert_error(error, operation, self.bucket, key) from None

    def head(self, key: str) -> ObjectHead | None:
        """Return the metadata of an object, None if there is none.

        Raises:
            TandemError: denied, unreachable and the like.
        """
        answer = self._call("HeadObject", self.client.head_object, key, self._is_absent)
        if answer is None:
            return None
        return ObjectHead(size=answer["ContentLength"], sha256=answer["Metadata"].get("sha256"))

    def read(self, key: str) -> ObjectContent | None:
        """Return a small object, None if there is none.

        Raises:
            TandemError: denied, unreachable and the like.
        """
        answer = self._call("GetObject", self.client.get_object, key, self._is_absent)
        if answer is None:
            return None
        with self.translate_errors("GetObject", key), contextlib.closing(answer["Body"]) as stream:
            body = stream.read()
        modified_at = answer["LastModified"].astimezone(UTC)
        read_at = read_response_time(answer)
        return ObjectContent(
            body=body, etag=answer["ETag"], modified_at=modified_at, read_at=read_at
        )

    def _call(
        self,
        operation: str,
        method: Callable[..., Any],
        key: str,
        accepts: Callable[[str, str], bool],
        **options: str,
    ) -> Any:
        """Return S3's answer about an object; None if it refuses with a code in `accepts`."""
        with self.translate_errors(operation, key):
            try:
                return method(Bucket=self.bucket, Key=key, **options)
            except ClientError as error:
                if not accepts(key, error_code(error)):
                    raise
        return None

    def _is_absent(self, key: str, code: str) -> bool:
        """Return whether an error code means a missing object, not a denied one.

        S3 answers 403 for both if the identity may list only under a prefix, because S3 then checks
        the right to list without a prefix.
        """
        return code in MISSING_CODES or (
            code in DENIAL_CODES and all(row.key != key for row in self.list(key))
        )

    def create(self, key: str, body: bytes) -> bool:
        """Write a small object unless there is one; return whether ours is there, answered or not.

        Raises:
            TandemError: denied, unreachable and the like.
        """
        return self.write_if(key, body, None) is not None

    def write_fixed(self, key: str, body: bytes) -> None:
        """Write a small object whose key names its digest; replace other bytes under that key.

        Raises:
            TandemError: denied, unreachable and the like.
        """
        if self.create(key, body):
            return
        other_object = self.read(key)
        if other_object:
            self.write_if(key, body, other_object.etag)

    def write_if(self, key: str, body: bytes, etag: str | None) -> str | None:
        """Write a small object over the one with `etag` (None: over none); return our ETag.

        The SDK repeats a write whose answer was lost, and S3 then refuses the repetition: so after
        a refusal the stored bytes are compared with ours.
        """

        def plan_wait(_error: WriteConflictError, number: int) -> float:
            if number == MAX_CONFLICTS:
                problem = (
                    f"other writes of the object were under way at each of {MAX_CONFLICTS} tries"
                )
                raise ExternalError(
                    problem, where=self.url(key), change="see who writes it; run again"
                ) from None
            return random.uniform(0, 0.05 * 2**number)  # noqa: S311 - a wait is no secret

        return retry_call(lambda: self._write_once(key, body, etag), WriteConflictError, plan_wait)

    def _write_once(self, key: str, body: bytes, etag: str | None) -> str | None:
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        digest = hashlib.sha256(body)
        with self.translate_errors("PutObject", key):
            try:
                answer = self.client.put_object(
                    Bucket=self.bucket,
                    Key=key,
                    Body=body,
                    ContentType="application/json",
                    ChecksumSHA256=base64.b64encode(digest.digest()).decode(),
                    Metadata={"sha256": digest.hexdigest()},
                    **condition,
                )
                return str(answer["ETag"])
            except ClientError as error:
                code = error_code(error)
                is_gone = bool(etag) and code in MISSING_CODES
                if not is_gone and code not in PRECONDITION_CODES | CONFLICT_CODES:
                    raise
        current = self.read(key)
        if current is not None and current.body == body:
            return current.etag
        if code in CONFLICT_CODES or (current is None and not etag):
            raise WriteConflictError
        return None

    def _list_pages(self, operation: str, prefix: str, rows: str) -> Iterator[Any]:
        sizes = {"PageSize": PAGE_ROWS}
        paginator = self.client.get_paginator(operation)
        for page in paginator.paginate(Bucket=self.bucket, Prefix=prefix, PaginationConfig=sizes):
            yield from page.get(rows, ())

    def list(self, prefix: str) -> Iterator[ObjectSummary]:
        """Yield every object whose key begins with `prefix`, in order of the keys.

        Raises:
            TandemError: the bucket is missing, denied, unreachable and the like.
        """
        with self.translate_errors("ListObjectsV2", prefix):
            for row in self._list_pages("list_objects_v2", prefix, "Contents"):
                yield ObjectSummary(
                    key=row["Key"],
                    size=row["Size"],
                    modified_at=row["LastModified"].astimezone(UTC),
                )

    def list_uploads(self, prefix: str) -> Iterator[OpenUpload]:
        """Yield the unfinished uploads below a prefix.

        Raises:
            TandemError: the uploads cannot be listed.
        """
        with self.translate_errors("ListMultipartUploads", prefix):
            for row in self._list_pages("list_multipart_uploads", prefix, "Uploads"):
                yield OpenUpload(
                    key=row["Key"],
                    id=row["UploadId"],
                    initiated_at=row["Initiated"].astimezone(UTC),
                )

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects in any order, DELETE_BATCH at most; absent ones are no error.

        Raises:
            TandemError: S3 did not delete an object; the error names that object.
        """
        objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        with self.translate_errors("DeleteObjects", keys[0]):
            answer = self.client.delete_objects(Bucket=self.bucket, Delete=objects)
        for row in answer.get("Errors", ()):
            error = ClientError({"Error": row}, "DeleteObjects")
            raise convert_error(error, "DeleteObjects", self.bucket, row["Key"])

    def delete_if(self, key: str, etag: str) -> bool:
        """Delete the object with this ETag; return whether it was there.

        Raises:
            TandemError: S3 failed.
        """
        codes = PRECONDITION_CODES | CONFLICT_CODES | MISSING_CODES
        method = self.client.delete_object
        return (
            self._call("DeleteObject", method, key, lambda _, code: code in codes, IfMatch=etag)
            is not None
        )

    def abort_upload(self, upload: OpenUpload) -> None:
        """Abort an upload; an absent one is no error.

        Raises:
            TandemError: S3 failed.
        """
        self._call(
            "AbortMultipartUpload",
            self.client.abort_multipart_upload,
            upload.key,
            lambda _, code: code == "NoSuchUpload",
            UploadId=upload.id,
        )

    def now(self) -> datetime:
        """Return S3's time, to the second; this machine's clock never decides on ages."""
        with self.translate_errors("ListObjectsV2", "artifacts/"):
            answer = self.client.list_objects_v2(Bucket=self.bucket, Prefix="artifacts/", MaxKeys=1)
        return read_response_time(answer)


def read_response_time(answer: Mapping[str, Any]) -> datetime:
    """Return the time in the answer's Date header."""
    return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).astimezone(UTC)


def open_store(bucket: str) -> ObjectStore:
    """Return the bucket, with region, credentials and endpoint from boto3's own chain of settings.

    Raises:
        InputError: the settings cannot be used (no region, an unknown profile).
    """
    try:
        config = build_client_config(
            connect_s=CONNECT_TIMEOUT_S,
            read_s=READ_TIMEOUT_S,
            attempts=int(os.environ.get("AWS_MAX_ATTEMPTS", MAX_ATTEMPTS)),
            tcp_keepalive=True,
            max_pool_connections=CONCURRENCY + 8,  # data, and its control requests
            # every body goes with its SHA-256 in a signed header, which S3 compares with the
            # received bytes
            s3={"payload_signing_enabled": False},
            request_checksum_calculation="when_required",
            # s3transfer 0.19.3 never ends a download of more than ten parts, in order, under
            # `when_required`
            response_checksum_validation="when_supported",
            user_agent_extra="tandem-artifacts",
        )
        return ObjectStore(bucket, boto3.client("s3", config=config))
    except BotoCoreError as error:
        raise convert_error(error, "Connect", bucket, "") from None
    except ValueError as error:
        raise InputError(
            f"the AWS settings cannot be used ({error})",
            where=f"s3://{bucket}/",
            change="correct AWS_ENDPOINT_URL and AWS_MAX_ATTEMPTS if they are set",
        ) from None
