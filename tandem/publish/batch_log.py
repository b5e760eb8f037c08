"""Log the batches that CloudWatch took: one JSON line for each in the run's folder, written right after the request.

Invariant: a logged batch is not sent again. A line that a kill cut short does not count, so its batch is sent again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal

from tandem.errors import ExternalError

SENT_FILE = "published.jsonl"
BatchState = Literal["sent", "refused", "skipped"]
# `unsettled` was written by versions that published exactly once; their `intent` is no end of a batch
_END_STATES = {"sent", "refused", "skipped", "unsettled"}


class BatchLog:
    """The batches of a run that need no sending any more, by round and digest.

    Args:
        folder: of the run.
        environment: a folder may be published to several.

    Raises:
        ExternalError: the file cannot be read and written.
    """

    def __init__(self, folder: Path, environment: str) -> None:
        self._path, self._environment = folder / SENT_FILE, environment
        self._batches: set[tuple[int, str]] = set()
        with self._open() as file:
            file.seek(0)
            content = file.read()
            if content and not content.endswith(b"\n"):
                file.write(b"\n")
        self.read_lines(content)

    @contextlib.contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        try:
            with self._path.open("a+b") as file:
                yield file
        except OSError as error:
            raise ExternalError(
                f"what was sent cannot be written down: {error.strerror or error}", where=str(self._path),
                change="make room, or give this user the right to write there; without it figures count twice",
            ) from error  # fmt: skip

    def read_lines(self, content: bytes) -> None:
        """Read the lines of this log, or of a journal that an earlier version stored in S3."""
        for line in content.splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # a line that was cut short
                entry = json.loads(line)
                if entry["environment"] == self._environment and entry["state"] in _END_STATES:
                    self._batches.add((entry["round"], entry["digest"]))

    def __contains__(self, batch: tuple[int, str]) -> bool:
        """Tell whether a batch, as round and digest, is logged."""
        return batch in self._batches

    def add(self, round_number: int, digest: str, state: BatchState) -> None:
        """Log a batch.

        Args:
            round_number: of the batch.
            digest: of the batch.
            state: `sent`: CloudWatch took it; `refused`: it never will; `skipped`: the batch is too old.

        Raises:
            ExternalError: the disk took no more.
        """
        line = {
            "environment": self._environment, "round": round_number, "digest": digest, "state": state,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }  # fmt: skip
        with self._open() as file:
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._batches.add((round_number, digest))
