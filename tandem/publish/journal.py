"""What was sent: a file in the run's folder, one JSON object a line, and its copy beside the records in S3.

Invariant: a line is on the disk, and in S3, before what it announces is done; a line that was cut short was followed by
nothing. One process at a time publishes a folder (a lock on the file), and one copy of it (each write to S3 replaces
exactly what this process last saw there).

State of a batch: `intent` it may have been sent; `sent` CloudWatch took it; `unsent` certainly not, and it may be sent;
`refused` CloudWatch takes no such class; `skipped` too old; `unsettled` nobody can tell any more, never sent again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Literal, Self

from tandem.publish.fault import PublishError, RefusedError

FILE = "published.jsonl"
State = Literal["intent", "sent", "unsent", "refused", "skipped", "unsettled", "stored"]
SETTLED = frozenset({"sent", "refused", "skipped", "unsettled"})
_STATES = {"intent", "unsent", "stored", *SETTLED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line.

    Args:
        environment, experiment, run: under which it is published.
        round: number of the round.
        batch, of: number of the batch and how many the round has; -1 of 0 for the round's raw records in S3.
        digest: SHA-256 of what the batch, or the records, hold.
        state: of the batch from then on; `stored` for records.
        at: when, UTC.
        why: of what was refused.
    """

    environment: str
    experiment: str
    run: str
    round: int
    batch: int
    of: int
    digest: str
    state: State
    at: str
    why: str | None = None

    @property
    def at_s(self) -> float:
        """When, in seconds since 1970."""
        return datetime.fromisoformat(self.at).timestamp()

    def encode(self) -> bytes:
        """Return it as it stands in the file."""
        return json.dumps(asdict(self), separators=(",", ":")).encode() + b"\n"


def utc(at_s: float) -> str:
    """Return a time as lines have it."""
    return datetime.fromtimestamp(at_s, tz=UTC).isoformat(timespec="milliseconds")


def parse(raw: bytes, where: str) -> Iterator[Line]:
    """Yield the lines of a file; one at its end that was cut short is none.

    Raises:
        RefusedError: a line is not what it must be.
    """
    whole, _, _ = raw.rpartition(b"\n")
    for number, text in enumerate(whole.splitlines(), 1):
        try:
            line = Line(**json.loads(text))
            if line.state not in _STATES or line.at_s < 0:
                raise ValueError(line.state)  # noqa: TRY301 - one way out for all that a line may be
        except (TypeError, ValueError) as error:
            raise RefusedError(
                f"this is no line of the journal ({error})", where=f"{where}:{number}",
                change="restore the file from its copy in S3; without it nobody knows what was sent",
            ) from None  # fmt: skip
        yield line


class Journal:
    """The journal of a folder, held by this process until it is closed.

    Args:
        folder: of the run.
        environment, experiment, run: the part of it that is looked at; a folder may be published to several.
    """

    def __init__(self, folder: Path, environment: str, experiment: str, run: str) -> None:
        self.path, self._key = folder / FILE, (environment, experiment, run)
        self._file = self._open()
        self._lines: dict[int, list[Line]] = {}
        self._last: dict[int, dict[int, Line]] = {}
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> FileIO:
        try:
            file = self.path.open("a+b", buffering=0)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise PublishError(
                "another process is publishing this folder", where=str(self.path),
                change="wait for its end; a run with --publish publishes by itself",
            ) from error  # fmt: skip
        held = os.open(self.path.parent, os.O_RDONLY)  # so that the file itself outlives a power cut
        os.fsync(held)
        os.close(held)
        return file

    def _read(self) -> None:
        self._file.seek(0)
        raw = self._file.read()
        self._file.truncate(raw.rfind(b"\n") + 1)
        for line in parse(raw, str(self.path)):
            self._take(line)

    def _take(self, line: Line) -> None:
        if (line.environment, line.experiment, line.run) == self._key:
            self._lines.setdefault(line.round, []).append(line)
            self._last.setdefault(line.round, {})[line.batch] = line

    def append(self, lines: Sequence[Line]) -> None:
        """Write lines; they are on the disk when this returns.

        Raises:
            PublishError: the disk took no more.
        """
        text, before = b"".join(line.encode() for line in lines), self.path.stat().st_size
        try:
            if self._file.write(text) != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301 - the system says it so
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(before)
            raise self._unwritable(error) from error
        for line in lines:
            self._take(line)

    def _unwritable(self, error: OSError) -> PublishError:
        return PublishError(
            f"the journal cannot be written: {error.strerror or error}", where=str(self.path),
            change="make room, or give this user the right to write there; without it a round could be sent twice",
        )  # fmt: skip

    def merge(self, theirs: Iterable[Line]) -> None:
        """Take over what another copy of the folder did since: its end of a batch, or its later intent."""
        news = []
        for line in theirs:
            ours = self.last(line.round, line.batch)
            if ours is None or (ours.state not in SETTLED and (line.state in SETTLED or line.at_s > ours.at_s)):
                news.append(line)
        for line in news:  # one by one: a later line of theirs may be older news than an earlier one
            ours = self.last(line.round, line.batch)
            if ours is None or ours.state not in SETTLED:
                self.append([line])

    def lines(self, number: int) -> tuple[Line, ...]:
        """Return all lines of a round."""
        return tuple(self._lines.get(number, ()))

    def last(self, number: int, batch: int) -> Line | None:
        """Return the newest line of a batch."""
        return self._last.get(number, {}).get(batch)

    def batches(self, number: int) -> tuple[Line, ...]:
        """Return the newest line of each batch of a round."""
        return tuple(line for batch, line in sorted(self._last.get(number, {}).items()) if batch >= 0)

    def in_doubt(self) -> tuple[Line, ...]:
        """Return the newest line of each batch that may have been sent."""
        return tuple(line for number in self.rounds() for line in self.batches(number) if line.state == "intent")

    def settled(self, number: int) -> bool:
        """Return whether nothing of a round is left to be sent."""
        lines = self.batches(number)
        return bool(lines) and len(lines) == lines[0].of and all(line.state in SETTLED for line in lines)

    def stored(self, number: int) -> bool:
        """Return whether a round is settled, and its records are in S3."""
        return self.settled(number) and self.last(number, -1) is not None

    def rounds(self) -> tuple[int, ...]:
        """Return the rounds that it knows."""
        return tuple(sorted(self._lines))

    def close(self) -> None:
        """Let another process publish."""
        self._file.close()

    def __enter__(self) -> Self:
        """Hold it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let it go."""
        self.close()
