"""The bucket: every call to S3 that the artifacts make, over boto3's low-level client.

Invariant: an object is whole or absent (S3 shows no half-written one), a conditional write that says no is read
back before it is believed, and whatever botocore raises leaves here as an TandemError that names the object.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tandem.artifacts.store_fault import S3_ERRORS, S3Request, convert_error, reason
from tandem.errors import ExternalError, InputError

DEFAULT_CONCURRENCY = 8  # requests at once; each holds a few hundred kilobytes, whatever the file
MAX_ATTEMPTS = 6  # botocore waits up to 0.5 + 1 + 2 + 4 + 8 s between them
CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 120  # S3 may take minutes to join thousands of parts, but sends spaces meanwhile; a silent one is dead
MAX_SMALL_BYTES = 64 << 20  # bytes; a manifest of 200,000 files is smaller
PAGE_ROWS = 1000  # rows of a listing at once, the most that S3 gives
DELETE_BATCH = 1000  # S3 API reference, DeleteObjects
MAX_CONFLICTS = 8  # tries after 409 ConditionalRequestConflict: another write of the same key was under way
BUSY_CODES = {"SlowDown", "InternalError", "ServiceUnavailable"}
MAX_BUSY_WAIT_S = 4.0  # at most before the keys are deleted once more
PRECONDITION_CODES = {"PreconditionFailed", "412"}
CONFLICT_CODES = {"ConditionalRequestConflict", "OperationAborted", "409"}
MISSING_CODES = {"NoSuchKey", "404", "NotFound"}
DENIAL_CODES = {"AccessDenied", "403", "Forbidden"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectHead:
    """What S3 knows of an object.

    Args:
        size: bytes.
        sha256: of the whole content, from the object's metadata; None where another program wrote it.
    """

    size: int
    sha256: str | None
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectContent:
    """A small object.

    Args:
        modified_at: when S3 wrote it, by S3's clock, to the second.
        read_at: when S3 answered, by the same clock.
    """

    body: bytes
    etag: str
    modified_at: datetime
    read_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSummary:
    """One row of a listing; size in bytes."""

    key: str
    size: int
    modified_at: datetime


class ObjectStore:
    """One bucket.

    Args:
        bucket: its name.
        client: boto3's S3 client.
        concurrency: requests at once.
    """

    def __init__(self, bucket: str, client: Any, concurrency: int) -> None:
        self.bucket, self.client, self.concurrency = bucket, client, concurrency
        self.halt_event = threading.Event()  # one of several files failed: the others need not go on

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        """The threads of the data: parts and ranges; nothing that waits for others may run here."""
        return ThreadPoolExecutor(self.concurrency, thread_name_prefix="s3")

    def require_not_halted(self) -> None:
        """Begin nothing more once another of several files has failed.

        Raises:
            SiblingFailureError: it has.
        """
        if self.halt_event.is_set():
            raise SiblingFailureError

    def url(self, key: str) -> str:
        """Return the `s3://` address of a key."""
        return f"s3://{self.bucket}/{key}"

    @contextlib.contextmanager
    def translate_errors(self, operation: str, key: str) -> Iterator[None]:
        """Turn what botocore raises within into an TandemError that names the operation and the object."""
        try:
            yield
        except S3_ERRORS as error:
            raise convert_error(error, S3Request(operation=operation, bucket=self.bucket, key=key)) from None

    def head(self, key: str) -> ObjectHead | None:
        """Return what S3 knows of an object, None where there is none.

        Raises:
            TandemError: denied, unreachable and the like.
        """
        with self.translate_errors("HeadObject", key):
            try:
                answer = self.client.head_object(Bucket=self.bucket, Key=key)
            except ClientError as error:
                if reason(error) in MISSING_CODES or (reason(error) in DENIAL_CODES and self._is_absent(key)):
                    return None
                raise
        return ObjectHead(size=answer["ContentLength"], sha256=answer["Metadata"].get("sha256"), etag=answer["ETag"])

    def read(self, key: str) -> ObjectContent | None:
        """Return a small object, None where there is none.

        Raises:
            InputError: it is larger than a manifest can be.
            TandemError: denied, unreachable and the like.
        """
        with self.translate_errors("GetObject", key):
            try:
                answer = self.client.get_object(Bucket=self.bucket, Key=key)
                size = int(answer["ContentLength"])
                with contextlib.closing(answer["Body"]) as stream:
                    body = stream.read() if size <= MAX_SMALL_BYTES else b""
            except ClientError as error:
                if reason(error) in MISSING_CODES or (reason(error) in DENIAL_CODES and self._is_absent(key)):
                    return None
                raise
        if size > MAX_SMALL_BYTES:
            raise InputError(
                f"the object has {size} bytes, more than {MAX_SMALL_BYTES}", where=self.url(key),
                change="this is no manifest and no lease: see who wrote it, remove it, run the job again",
            )  # fmt: skip
        modified_at = answer["LastModified"].astimezone(UTC)
        return ObjectContent(
            body=body, etag=answer["ETag"], modified_at=modified_at, read_at=read_response_time(answer) or modified_at
        )

    def _is_absent(self, key: str) -> bool:
        """Tell a missing object from a denied one.

        S3 answers 403 for both where the identity may list under a prefix only, since the right to list is judged
        without a prefix then.
        """
        return all(summary.key != key for summary in self.list(key))

    def create(self, key: str, body: bytes) -> bool:
        """Write a small object unless there is one; whether ours is there, also when the answer was lost.

        Raises:
            TandemError: denied, unreachable and the like.
        """
        return self.write_if(key, body, None) is not None

    def replace(self, key: str, body: bytes, etag: str) -> bool:
        """Write a small object in the place of the one with this ETag; whether ours is there.

        Raises:
            TandemError: denied, unreachable and the like.
        """
        return self.write_if(key, body, etag) is not None

    def write_if(self, key: str, body: bytes, etag: str | None) -> str | None:
        """Write a small object where the one with `etag` (None: no object) is there; our ETag, or None.

        A write whose answer was lost is sent again by the SDK and then meets itself: what is there is compared
        with what was to be written before a refusal is believed.
        """
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        for attempt in range(MAX_CONFLICTS):
            with self.translate_errors("PutObject", key):
                try:
                    return str(self._put_small(key, body, condition)["ETag"])
                except ClientError as error:
                    if reason(error) not in PRECONDITION_CODES | CONFLICT_CODES | (MISSING_CODES if etag else set()):
                        raise
                    refusal_code = reason(error)
            current = self.read(key)
            if current is not None and current.body == body:
                return current.etag
            if refusal_code not in CONFLICT_CODES and (current is not None or etag):
                return None
            time.sleep(random.uniform(0, 0.1 * 2**attempt))  # noqa: S311 - a wait is no secret
        raise ExternalError(
            f"other writes of the object were under way at each of {MAX_CONFLICTS} tries", where=self.url(key),
            change="see who else writes it; run again when that is done",
        )  # fmt: skip

    def _put_small(self, key: str, body: bytes, condition: Mapping[str, str]) -> Any:
        digest = hashlib.sha256(body)
        return self.client.put_object(
            Bucket=self.bucket, Key=key, Body=body, ContentType="application/json",
            ChecksumSHA256=base64.b64encode(digest.digest()).decode(), Metadata={"sha256": digest.hexdigest()},
            **condition,
        )  # fmt: skip

    def pages(self, operation: str, **parameters: Any) -> Iterator[Any]:
        """Yield every page of a listing; what botocore raises is left to the caller."""
        paging = {"PageSize": PAGE_ROWS}
        yield from self.client.get_paginator(operation).paginate(
            Bucket=self.bucket, PaginationConfig=paging, **parameters
        )

    def list(self, prefix: str) -> Iterator[ObjectSummary]:
        """Yield every object whose key begins with `prefix`, in order of the keys.

        Raises:
            TandemError: the bucket is missing, denied, unreachable and the like.
        """
        with self.translate_errors("ListObjectsV2", prefix):
            for page in self.pages("list_objects_v2", Prefix=prefix):
                for row in page.get("Contents", ()):
                    yield ObjectSummary(
                        key=row["Key"], size=row["Size"], modified_at=row["LastModified"].astimezone(UTC)
                    )

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; those that are not there are no error. Within one call there is no order.

        Raises:
            TandemError: S3 did not delete one of them; it is named.
        """
        for start in range(0, len(keys), DELETE_BATCH):
            remaining_keys = keys[start : start + DELETE_BATCH]
            for tries_left in reversed(range(MAX_ATTEMPTS)):
                remaining_keys = self._delete_batch(remaining_keys, is_last=not tries_left)
                if not remaining_keys:
                    break
                time.sleep(random.uniform(0, MAX_BUSY_WAIT_S))  # noqa: S311 - a wait is no secret

    def _delete_batch(self, keys: Sequence[str], *, is_last: bool) -> Sequence[str]:
        """Delete objects; those that S3 was too busy for, which botocore does not see within a good answer."""
        with self.translate_errors("DeleteObjects", keys[0]):
            objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
            answer = self.client.delete_objects(Bucket=self.bucket, Delete=objects)
        errors = answer.get("Errors", ())
        for row in errors:
            if is_last or row["Code"] not in BUSY_CODES:
                error = ClientError({"Error": row}, "DeleteObjects")
                raise convert_error(error, S3Request(operation="DeleteObjects", bucket=self.bucket, key=row["Key"]))
        return [row["Key"] for row in errors]

    def now(self) -> datetime:
        """Return S3's own time, to the second; ages and expiries are never judged by this machine's clock."""
        with self.translate_errors("ListObjectsV2", "artifacts/"):
            answer = self.client.list_objects_v2(Bucket=self.bucket, Prefix="artifacts/", MaxKeys=1)
        return read_response_time(answer) or datetime.now(tz=UTC)


def read_response_time(answer: Mapping[str, Any]) -> datetime | None:
    """Return the time in the answer's Date header, None without one."""
    date_text = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    return parsedate_to_datetime(date_text).astimezone(UTC) if date_text else None


def open_store(bucket: str, *, concurrency: int = DEFAULT_CONCURRENCY) -> ObjectStore:
    """Return the bucket, with region, credentials and endpoint from boto3's own chain of settings.

    Args:
        bucket: its name.
        concurrency: requests at once. Each holds a few hundred kilobytes, whatever the files' sizes.

    Raises:
        InputError: the settings cannot be used (no region, an unknown profile).
    """
    try:
        client = _create_client(concurrency)
    except (BotoCoreError, ValueError) as error:
        raise _build_settings_error(error, bucket) from None
    return ObjectStore(bucket, client, concurrency)


def _build_settings_error(error: Exception, bucket: str) -> Exception:
    if isinstance(error, BotoCoreError):
        return convert_error(error, S3Request(operation="Connect", bucket=bucket, key=""))
    return InputError(f"the AWS settings cannot be used ({error})", where=f"s3://{bucket}/",
                        change="correct AWS_ENDPOINT_URL and AWS_MAX_ATTEMPTS if they are set")  # fmt: skip


def _create_client(concurrency: int) -> Any:
    return boto3.client(
        "s3",
        config=Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            tcp_keepalive=True,
            max_pool_connections=concurrency + 8,  # data, and what controls it
            retries={"mode": "standard", "total_max_attempts": int(os.environ.get("AWS_MAX_ATTEMPTS", MAX_ATTEMPTS))},
            # every body goes with its SHA-256 in a signed header, which S3 holds against what it got
            s3={"payload_signing_enabled": False},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",  # whoever reads compares with the manifest's SHA-256
            user_agent_extra="tandem-artifacts",
        ),
    )


class SiblingFailureError(Exception):
    """Another file failed, whose error is the one to tell."""


def run_in_threads(store: ObjectStore, thread_count: int, action: Callable[[Any], None], items: Sequence[Any]) -> None:
    """Call `action` for every item in `thread_count` threads; at the first error the others halt, and it is raised.

    Args:
        store: the bucket whose `halted` the acts look at.
        thread_count: threads.
        action: called for each item.
        items: in the order in which they begin.
    """
    pool = ThreadPoolExecutor(thread_count, thread_name_prefix="file")
    futures = [pool.submit(action, item) for item in items]
    try:
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
    finally:
        store.halt_event.set()
        pool.shutdown(cancel_futures=True)
        store.halt_event.clear()
