"""The results of a run in S3: raw records, one object a round, the other files, and the copy of the journal.

Invariant: every object goes with its SHA-256, nothing is deleted, and a copy of the journal replaces exactly the one
that this process saw last, so that two copies of a folder cannot both go on.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from tandem.publish.batch import Slice
from tandem.publish.fault import BOTO_ERRORS, Asked, PublishError, error_code, fault_of
from tandem.publish.journal import Line, parse

JOURNALS = "published"
PART = 8 << 20  # bytes of a part of a large object, boto3's own
AT_ONCE = 2  # parts at once: a bench that still measures has the network and the processor to itself, nearly
_UNMET = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}
_BLOCK = 1 << 20


class Results:
    """What a run has below its prefix.

    Args:
        s3: boto3's client.
        bucket: of the environment.
        prefix: results/<experiment>/<run id>/
    """

    def __init__(self, s3: Any, bucket: str, prefix: str) -> None:
        self._s3, self.bucket, self.prefix = s3, bucket, prefix
        self._etags: dict[str, str] = {}
        self._transfer = TransferConfig(multipart_threshold=PART, multipart_chunksize=PART, max_concurrency=AT_ONCE)

    def url(self, name: str) -> str:
        """Return the `s3://` address of an object of the run."""
        return f"s3://{self.bucket}/{self.prefix}{name}"

    @contextlib.contextmanager
    def _asking(self, operation: str, name: str) -> Iterator[None]:
        try:
            yield
        except PublishError:
            raise
        except BOTO_ERRORS as error:
            raise fault_of(error, Asked(operation=operation, where=self.url(name))) from None
        except Exception as error:  # boto3's transfer wraps what it met
            met = error.__cause__ or error.__context__
            if isinstance(met, BOTO_ERRORS):
                raise fault_of(met, Asked(operation=operation, where=self.url(name))) from None
            raise

    def keep(self, name: str, file: BinaryIO) -> None:
        """Store a file, in parts where it is large; S3 holds what arrived against its SHA-256.

        Raises:
            PublishError: denied, unreachable and the like.
        """
        with self._asking("PutObject", name):
            self._s3.upload_fileobj(
                file, self.bucket, self.prefix + name, Config=self._transfer,
                ExtraArgs={"ChecksumAlgorithm": "SHA256", "ContentType": "application/json"},
            )  # fmt: skip

    def journals(self) -> dict[int, int]:
        """Return the rounds whose journal has a copy there, and its bytes.

        Raises:
            PublishError: denied, unreachable and the like.
        """
        start = f"{self.prefix}{JOURNALS}/round-"
        with self._asking("ListObjectsV2", f"{JOURNALS}/"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=start)
            found = {row["Key"].removeprefix(start): row["Size"] for page in pages for row in page.get("Contents", ())}
        return {int(name[:-6]): size for name, size in found.items() if re.fullmatch(r"\d{5,}\.jsonl", name)}

    def journal(self, number: int) -> list[Line]:
        """Return the lines of a copy.

        Raises:
            PublishError: denied, unreachable, or it is no journal.
        """
        name = _journal(number)
        raw, self._etags[name] = self._read(name)
        return list(parse(raw, self.url(name)))

    def _read(self, name: str) -> tuple[bytes, str]:
        with self._asking("GetObject", name):
            answer = self._s3.get_object(Bucket=self.bucket, Key=self.prefix + name)
            with contextlib.closing(answer["Body"]) as body:
                return body.read(), answer["ETag"]

    def mirror(self, number: int, lines: Sequence[Line]) -> None:
        """Write the copy of one round's journal in the place of the one last seen.

        Raises:
            PublishError: somebody else wrote it meanwhile, or S3 failed.
        """
        name = _journal(number)
        body = b"".join(line.encode() for line in lines)
        seen = self._etags.get(name)
        condition = {"IfMatch": seen} if seen else {"IfNoneMatch": "*"}
        with self._asking("PutObject", name):
            try:
                answer = self._s3.put_object(
                    Bucket=self.bucket, Key=self.prefix + name, Body=body, ChecksumAlgorithm="SHA256",
                    ContentType="application/json", **condition,
                )  # fmt: skip
            except ClientError as error:
                if error_code(error) not in _UNMET:
                    raise
                there, etag = self._read(name)
                if there != body:  # ours, where an answer was lost and the SDK asked again
                    raise PublishError(
                        "another copy of this run's folder is being published", where=self.url(name),
                        change="wait for its end, then run `tandem bench publish` again: it takes over what was sent",
                    ) from None  # fmt: skip
                self._etags[name] = etag
                return
        self._etags[name] = answer["ETag"]


def _journal(number: int) -> str:
    return f"{JOURNALS}/round-{number:05d}.jsonl"


@contextlib.contextmanager
def joined(slices: Sequence[Slice]) -> Iterator[tuple[BinaryIO, str]]:
    """Give ranges of files as one file, and its SHA-256.

    Raises:
        PublishError: a file cannot be read, or is shorter than it was.
    """
    digest = hashlib.sha256()
    with tempfile.TemporaryFile() as file:
        for block in _blocks(slices):
            digest.update(block)
            file.write(block)
        file.seek(0)
        yield file, digest.hexdigest()


def _blocks(slices: Sequence[Slice]) -> Iterator[bytes]:
    for one in slices:
        with opened(one.path) as file:
            file.seek(one.first)
            left = one.end - one.first
            while left:
                block = file.read(min(left, _BLOCK))
                if not block:
                    raise PublishError(f"the file ends before byte {one.end}", where=str(one.path),
                                       change="see who else writes to it, then publish again")  # fmt: skip
                left -= len(block)
                yield block


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file of the run.

    Raises:
        PublishError: it cannot be read.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise PublishError(f"the file cannot be read: {error.strerror or error}", where=str(path),
                           change="see that it is there and may be read, then publish again") from error  # fmt: skip
    with file:
        yield file
