"""Store a run's results in S3, below the run's prefix: raw records by round, other files, markers.

Invariant: S3 checks every object against its SHA-256; nothing is deleted.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from boto3.s3.transfer import TransferConfig

from tandem.errors import ExternalError
from tandem.publish.clients import translate_errors

# two parts at once: a bench that still measures has the network and the processor to itself, nearly
TRANSFER = TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=8 << 20, max_concurrency=2)
EXTRA_ARGS = {"ChecksumAlgorithm": "SHA256", "ContentType": "application/json"}
BLOCK_BYTES = 1 << 20


class ResultStore:
    """The objects of a run; each method raises a TandemError where S3 denies, fails or is out of reach.

    Args:
        s3: boto3's client.
        bucket: of the environment.
        prefix: results/<experiment>/<run id>/
    """

    def __init__(self, s3: Any, bucket: str, prefix: str) -> None:
        self._s3, self._bucket, self._prefix = s3, bucket, prefix

    def _translate_errors(self, operation: str, name: str = "") -> contextlib.AbstractContextManager[None]:
        return translate_errors(operation, f"s3://{self._bucket}/{self._prefix}{name}")

    def list_sizes(self) -> dict[str, int]:
        """Return the bytes of every object, by its name below the prefix."""
        with self._translate_errors("ListObjectsV2"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
            return {
                row["Key"].removeprefix(self._prefix): row["Size"] for page in pages for row in page.get("Contents", ())
            }

    def read(self, name: str) -> bytes:
        """Return an object."""
        with self._translate_errors("GetObject", name):
            content: bytes = self._s3.get_object(Bucket=self._bucket, Key=self._prefix + name)["Body"].read()
            return content

    def store(self, name: str, file: BinaryIO) -> None:
        """Store a file, a large one in parts."""
        with self._translate_errors("PutObject", name):
            self._s3.upload_fileobj(file, self._bucket, self._prefix + name, Config=TRANSFER, ExtraArgs=EXTRA_ARGS)

    def store_ranges(self, name: str, path: Path, ranges: Sequence[tuple[int, int]]) -> None:
        """Store ranges of a file's bytes as one object; an unreadable file is a TandemError too."""
        with tempfile.TemporaryFile() as joined_file:
            try:
                with path.open("rb") as file:
                    for first, end in ranges:
                        file.seek(first)
                        for position in range(first, end, BLOCK_BYTES):
                            joined_file.write(file.read(min(end - position, BLOCK_BYTES)))
            except OSError as error:
                raise ExternalError(
                    f"the file cannot be read: {error.strerror or error}", where=str(path),
                    change="see that it is there and may be read, then publish again",
                ) from error  # fmt: skip
            joined_file.seek(0)
            self.store(name, joined_file)
