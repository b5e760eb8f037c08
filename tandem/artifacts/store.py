"""The bucket: every call to S3 that the artifacts make, over boto3's low-level client.

Invariant: an object is whole or absent (S3 shows no half-written one), a conditional write that says no is read
back before it is believed, and whatever botocore raises leaves here as an ArtifactError that names the object.
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

from tandem.artifacts.fault import RefusedError, WorldError
from tandem.artifacts.store_fault import RAISED, Asked, fault_of, reason

CONCURRENCY = 8  # requests at once; each holds a few hundred kilobytes, whatever the file
ATTEMPTS = 6  # botocore waits up to 0.5 + 1 + 2 + 4 + 8 s between them
CONNECT_S = 10
READ_S = 120  # S3 may take minutes to join thousands of parts, but sends spaces meanwhile; a silent one is dead
SMALL = 64 << 20  # bytes; a manifest of 200,000 files is smaller
PAGE = 1000  # rows of a listing at once, the most that S3 gives
DELETED_AT_ONCE = 1000  # S3 API reference, DeleteObjects
CONFLICTS = 8  # tries after 409 ConditionalRequestConflict: another write of the same key was under way
BUSY = {"SlowDown", "InternalError", "ServiceUnavailable"}
BUSY_S = 4.0  # at most before the keys are deleted once more
UNMET = {"PreconditionFailed", "412"}
CONFLICT = {"ConditionalRequestConflict", "OperationAborted", "409"}
GONE = {"NoSuchKey", "404", "NotFound"}
DENIED = {"AccessDenied", "403", "Forbidden"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What S3 knows of an object.

    Args:
        size: bytes.
        sha256: of the whole content, from the object's metadata; None where another program wrote it.
    """

    size: int
    sha256: str | None
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A small object.

    Args:
        modified: when S3 wrote it, by S3's clock, to the second.
        now: when S3 answered, by the same clock.
    """

    body: bytes
    etag: str
    modified: datetime
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One row of a listing; size in bytes."""

    key: str
    size: int
    modified: datetime


class Store:
    """One bucket.

    Args:
        bucket: its name.
        client: boto3's S3 client.
        concurrency: requests at once.
    """

    def __init__(self, bucket: str, client: Any, concurrency: int) -> None:
        self.bucket, self.client, self.concurrency = bucket, client, concurrency
        self.halted = threading.Event()  # one of several files failed: the others need not go on

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        """The threads of the data: parts and ranges; nothing that waits for others may run here."""
        return ThreadPoolExecutor(self.concurrency, thread_name_prefix="s3")

    def require_going(self) -> None:
        """Begin nothing more once another of several files has failed.

        Raises:
            HaltedError: it has.
        """
        if self.halted.is_set():
            raise HaltedError

    def url(self, key: str) -> str:
        """Return the `s3://` address of a key."""
        return f"s3://{self.bucket}/{key}"

    @contextlib.contextmanager
    def asking(self, operation: str, key: str) -> Iterator[None]:
        """Turn what botocore raises within into an ArtifactError that names the operation and the object."""
        try:
            yield
        except RAISED as error:
            raise fault_of(error, Asked(operation=operation, bucket=self.bucket, key=key)) from None

    def head(self, key: str) -> Head | None:
        """Return what S3 knows of an object, None where there is none.

        Raises:
            ArtifactError: denied, unreachable and the like.
        """
        with self.asking("HeadObject", key):
            try:
                answer = self.client.head_object(Bucket=self.bucket, Key=key)
            except ClientError as error:
                if reason(error) in GONE or (reason(error) in DENIED and self._absent(key)):
                    return None
                raise
        return Head(size=answer["ContentLength"], sha256=answer["Metadata"].get("sha256"), etag=answer["ETag"])

    def read(self, key: str) -> Stored | None:
        """Return a small object, None where there is none.

        Raises:
            RefusedError: it is larger than a manifest can be.
            ArtifactError: denied, unreachable and the like.
        """
        with self.asking("GetObject", key):
            try:
                answer = self.client.get_object(Bucket=self.bucket, Key=key)
                size = int(answer["ContentLength"])
                with contextlib.closing(answer["Body"]) as arriving:
                    body = arriving.read() if size <= SMALL else b""
            except ClientError as error:
                if reason(error) in GONE or (reason(error) in DENIED and self._absent(key)):
                    return None
                raise
        if size > SMALL:
            raise RefusedError(
                f"the object has {size} bytes, more than {SMALL}", where=self.url(key),
                change="this is no manifest and no lease: see who wrote it, remove it, run the job again",
            )  # fmt: skip
        modified = answer["LastModified"].astimezone(UTC)
        return Stored(body=body, etag=answer["ETag"], modified=modified, now=answered_at(answer) or modified)

    def _absent(self, key: str) -> bool:
        """Tell a missing object from a denied one.

        S3 answers 403 for both where the identity may list under a prefix only, since the right to list is judged
        without a prefix then.
        """
        return all(listed.key != key for listed in self.list(key))

    def create(self, key: str, body: bytes) -> bool:
        """Write a small object unless there is one; whether ours is there, also when the answer was lost.

        Raises:
            ArtifactError: denied, unreachable and the like.
        """
        return self.write_if(key, body, None) is not None

    def replace(self, key: str, body: bytes, etag: str) -> bool:
        """Write a small object in the place of the one with this ETag; whether ours is there.

        Raises:
            ArtifactError: denied, unreachable and the like.
        """
        return self.write_if(key, body, etag) is not None

    def write_if(self, key: str, body: bytes, etag: str | None) -> str | None:
        """Write a small object where the one with `etag` (None: no object) is there; our ETag, or None.

        A write whose answer was lost is sent again by the SDK and then meets itself: what is there is compared
        with what was to be written before a refusal is believed.
        """
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        for attempt in range(CONFLICTS):
            with self.asking("PutObject", key):
                try:
                    return str(self._put_small(key, body, condition)["ETag"])
                except ClientError as error:
                    if reason(error) not in UNMET | CONFLICT | (GONE if etag else set()):
                        raise
                    refused = reason(error)
            there = self.read(key)
            if there is not None and there.body == body:
                return there.etag
            if refused not in CONFLICT and (there is not None or etag):
                return None
            time.sleep(random.uniform(0, 0.1 * 2**attempt))  # noqa: S311 - a wait is no secret
        raise WorldError(
            f"other writes of the object were under way at each of {CONFLICTS} tries", where=self.url(key),
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
        paging = {"PageSize": PAGE}
        yield from self.client.get_paginator(operation).paginate(
            Bucket=self.bucket, PaginationConfig=paging, **parameters
        )

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield every object whose key begins with `prefix`, in order of the keys.

        Raises:
            ArtifactError: the bucket is missing, denied, unreachable and the like.
        """
        with self.asking("ListObjectsV2", prefix):
            for page in self.pages("list_objects_v2", Prefix=prefix):
                for row in page.get("Contents", ()):
                    yield Listed(key=row["Key"], size=row["Size"], modified=row["LastModified"].astimezone(UTC))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; those that are not there are no error. Within one call there is no order.

        Raises:
            ArtifactError: S3 did not delete one of them; it is named.
        """
        for start in range(0, len(keys), DELETED_AT_ONCE):
            left = keys[start : start + DELETED_AT_ONCE]
            for tries_left in reversed(range(ATTEMPTS)):
                left = self._deleted(left, last=not tries_left)
                if not left:
                    break
                time.sleep(random.uniform(0, BUSY_S))  # noqa: S311 - a wait is no secret

    def _deleted(self, keys: Sequence[str], *, last: bool) -> Sequence[str]:
        """Delete objects; those that S3 was too busy for, which botocore does not see within a good answer."""
        with self.asking("DeleteObjects", keys[0]):
            objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
            answer = self.client.delete_objects(Bucket=self.bucket, Delete=objects)
        failed = answer.get("Errors", ())
        for row in failed:
            if last or row["Code"] not in BUSY:
                error = ClientError({"Error": row}, "DeleteObjects")
                raise fault_of(error, Asked(operation="DeleteObjects", bucket=self.bucket, key=row["Key"]))
        return [row["Key"] for row in failed]

    def now(self) -> datetime:
        """Return S3's own time, to the second; ages and expiries are never judged by this machine's clock."""
        with self.asking("ListObjectsV2", "artifacts/"):
            answer = self.client.list_objects_v2(Bucket=self.bucket, Prefix="artifacts/", MaxKeys=1)
        return answered_at(answer) or datetime.now(tz=UTC)


def answered_at(answer: Mapping[str, Any]) -> datetime | None:
    """Return the time in the answer's Date header, None without one."""
    said = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    return parsedate_to_datetime(said).astimezone(UTC) if said else None


def open_store(bucket: str, *, concurrency: int = CONCURRENCY) -> Store:
    """Return the bucket, with region, credentials and endpoint from boto3's own chain of settings.

    Args:
        bucket: its name.
        concurrency: requests at once. Each holds a few hundred kilobytes, whatever the files' sizes.

    Raises:
        RefusedError: the settings cannot be used (no region, an unknown profile).
    """
    try:
        client = _client(concurrency)
    except (BotoCoreError, ValueError) as error:
        raise _unusable(error, bucket) from None
    return Store(bucket, client, concurrency)


def _unusable(error: Exception, bucket: str) -> Exception:
    if isinstance(error, BotoCoreError):
        return fault_of(error, Asked(operation="Connect", bucket=bucket, key=""))
    return RefusedError(f"the AWS settings cannot be used ({error})", where=f"s3://{bucket}/",
                        change="correct AWS_ENDPOINT_URL and AWS_MAX_ATTEMPTS if they are set")  # fmt: skip


def _client(concurrency: int) -> Any:
    return boto3.client(
        "s3",
        config=Config(
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
            tcp_keepalive=True,
            max_pool_connections=concurrency + 8,  # data, and what controls it
            retries={"mode": "standard", "total_max_attempts": int(os.environ.get("AWS_MAX_ATTEMPTS", ATTEMPTS))},
            # every body goes with its SHA-256 in a signed header, which S3 holds against what it got
            s3={"payload_signing_enabled": False},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",  # whoever reads compares with the manifest's SHA-256
            user_agent_extra="tandem-artifacts",
        ),
    )


class HaltedError(Exception):
    """Another file failed, whose error is the one to tell."""


def each(store: Store, count: int, act: Callable[[Any], None], items: Sequence[Any]) -> None:
    """Call `act` for every item in `count` threads; at the first error the others halt, and it is raised.

    Args:
        store: the bucket whose `halted` the acts look at.
        count: threads.
        act: called for each item.
        items: in the order in which they begin.
    """
    pool = ThreadPoolExecutor(count, thread_name_prefix="file")
    futures = [pool.submit(act, item) for item in items]
    try:
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
    finally:
        store.halted.set()
        pool.shutdown(cancel_futures=True)
        store.halted.clear()
