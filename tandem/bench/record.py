"""One record per request: what arrived, when, and what the server said of it.

Invariant: a record is written whole, in one write, before its worker asks again; what is unknown is null, never a
guess; a file of a newer schema is refused, never half understood. Times are seconds of a monotonic clock.

Schema 1. A file holds one JSON object a line. A change that an older reader would misread raises SCHEMA; a new
field with a default does not, because readers pass over keys they do not know.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, BinaryIO, Literal, Self

import msgspec

from tandem.bench.fault import BenchError, WorldError

SCHEMA = 1
NULL = msgspec.Raw(b"null")
NONE = msgspec.Raw(b"[]")

Kind = Literal["role", "text", "reasoning", "empty", "end", "usage"]
"""What an SSE data event was: `role` a delta without content or tokens; `text`; `reasoning`; `empty` a choice that
carried tokens but no text; `end` a finish_reason and no text; `usage` no choice at all."""

ERRORS = frozenset({
    "connect", "connect_timeout", "first_token_timeout", "gap_timeout", "whole_timeout", "not_sse", "not_json",
    "no_choices", "closed", "decode", "wrong_model", "api_error", "endless", "interrupted", "certificate",
})  # fmt: skip
"""Every word of `Record.error`, beside `status_<code>`."""


Count = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""A number of tokens: whole in a float64 too. A negative one is kept, because it shows that a server's count fell."""

Number = Annotated[int, msgspec.Meta(ge=0, le=2**24)]
"""A number that counts from 0, such as a round's: 16 million are more than any run has, and few enough to mark each."""

Seconds = Annotated[float, msgspec.Meta(ge=-1e10, le=1e10)]
"""A time: three centuries, so that no sum of times can leave the finite numbers."""


class Chunk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One SSE data event, as it arrived.

    Args:
        at_s: seconds after the record's start_s; the time of the read that completed the event.
        kind: what it was.
        tokens: tokens it carried, by running usage or token ids; None where the server does not say.
    """

    at_s: Seconds
    kind: Kind
    tokens: Count | None = None

    @property
    def bears_tokens(self) -> bool:
        """Whether it carried output: by count where the server counts, else by its kind; a usage chunk never does."""
        if self.kind == "usage":
            return False
        return self.kind in {"text", "reasoning"} if self.tokens is None else self.tokens >= 1


class Measured(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The part of a record that figures are made from; a summary decodes no more than this.

    Args:
        schema: version of this form.
        request_id: sent as X-Request-Id; unique in its file.
        generator: which program measured it.
        arm: the NAME given to the server.
        class_: class of the prompt; "class" in the file.
        round: round of the schedule, from 0.
        slot: place of this arm's turn inside the round (ABBA: 0 to 3).
        concurrency: requests held in flight; None in an open loop.
        rate_per_s: requests started each second; None in a closed loop.
        due_s: open loop: when it should have started, on start_s's clock.
        start_s: when the request was begun, absolute on the monotonic clock.
        headers_s: seconds from start_s to the response's headers; None when none came.
        end_s: seconds from start_s to the end of the stream, or to the failure.
        chunks: every SSE data event but [DONE].
        prompt_tokens, completion_tokens: the server's usage.
        counted_by: where completion_tokens and the chunks' tokens come from.
        error: None, or one word of ERRORS or `status_<code>`.
        error_detail: what was seen, for a person; without an error, what the server's usage contradicts.
        attempts: how often it was asked, 1 when the first attempt stands.
        reconnected: 1 where a reused connection died before any byte and a fresh one was asked; the times are those of
            the second asking.
        content: the content check's word; None for a failed request or where nothing was checked.
    """

    schema: int = SCHEMA
    request_id: str
    generator: Literal["tandem", "llmperf"] = "tandem"
    arm: str
    class_: str = msgspec.field(name="class")
    round: Number = 0
    slot: Number = 0
    concurrency: Number | None = None
    rate_per_s: float | None = None
    due_s: Seconds | None = None
    start_s: Seconds
    headers_s: Seconds | None = None
    end_s: Seconds
    chunks: tuple[Chunk, ...] = ()
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    counted_by: Literal["usage", "token_ids"] | None = None
    error: str | None = None
    error_detail: str | None = None
    attempts: Number = 1
    reconnected: Number = 0
    content: str | None = None


class Unparsed(Measured, frozen=True, kw_only=True, gc=False):
    """What `Measured` is, with its chunks left as the JSON they are, valid and otherwise unchecked."""

    chunks: msgspec.Raw = NONE  # type: ignore[assignment]  # the same field of the file, a step earlier


class Record(Measured, frozen=True, kw_only=True, gc=False):
    """One request. Every field is written, null where it is not known.

    Args:
        suite: name of the suite the prompt is from.
        prompt_id: id of the prompt inside its suite.
        repeat: which repeat of the same prompt inside the round, from 0.
        worker: which of the concurrent workers asked.
        cached_tokens: tokens of the prompt that the server had in its prefix cache.
        text, reasoning: what was streamed, joined.
        token_ids: ids of the output, where the server gave them.
        logprobs: the server's log-probabilities as raw JSON; `null` where it gave none.
        model: the model the server named.
        status: HTTP status.
        finish_reason: the server's word.
        retry_after_s: what a Retry-After header asked for; null too where that is no finite number.
        placement: which part of a host the server ran on, such as a half of its devices.
        start: which start of the server's process answered; anything that differs between two starts.
    """

    suite: str
    prompt_id: str
    repeat: Number = 0
    worker: int = 0
    cached_tokens: Count | None = None
    text: str = ""
    reasoning: str | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: msgspec.Raw = NULL
    model: str | None = None
    status: int | None = None
    finish_reason: str | None = None
    retry_after_s: float | None = None
    placement: str | None = None
    start: str | None = None


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises of bytes that are not the JSON asked for; the last one of JSON that is nested without end."""


class _Head(msgspec.Struct):
    schema: int = 0


@dataclass(frozen=True)
class Torn:
    """A last line that was cut: by a crash, a full disk, or a copy that ended early."""

    path: Path
    line: int
    size: int

    def __str__(self) -> str:
        """Name file, line and bytes."""
        return f"{self.path}:{self.line}: the last line is torn after {self.size} bytes and was skipped"


def _to_stderr(torn: Torn) -> None:
    sys.stderr.write(f"warning: {torn}\n")


def read_records(path: Path, tell: Callable[[Torn], None] = _to_stderr) -> Iterator[Record]:
    """Yield the records of `path` in the order they were written.

    Args:
        path: a records file.
        tell: takes a torn last line; by default it is named on standard error.

    Raises:
        BenchError: a line that is no record, a schema this version does not know, a file that cannot be read.
    """
    decoder = msgspec.json.Decoder(Record)
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                record = _record(decoder, line, path, number, tell)
                if record is not None:
                    yield record
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> BenchError:
    return BenchError(
        f"the records cannot be read: {error.strerror or error}",
        where=str(path),
        change="name the folder that a run wrote, and see that its files may be read",
    )


def _record(
    decoder: msgspec.json.Decoder[Record], line: bytes, path: Path, number: int, tell: Callable[[Torn], None]
) -> Record | None:
    if is_torn(line):
        tell(Torn(path, number, len(line)))
        return None
    try:
        record = decoder.decode(line)
    except UNREADABLE as error:
        raise bad_line(line, path, number, error) from error
    if record.schema != SCHEMA:
        raise bad_line(line, path, number, None)
    return record


def is_torn(line: bytes) -> bool:
    """Return whether a line was cut: only the last one can lack its end, and without it no writer has finished it."""
    return not line.endswith(b"\n")


def bad_line(line: bytes, path: Path, number: int, error: Exception | None) -> BenchError:
    """Return the fault of a whole line that is no record of this schema."""
    where = f"{path}:{number}"
    try:
        schema = msgspec.json.decode(line, type=_Head).schema
    except UNREADABLE:
        schema = SCHEMA
    if schema > SCHEMA:
        return BenchError(
            f"the record has schema {schema}, and this Tandem knows up to {SCHEMA}",
            where=where,
            change="read it with the Tandem that wrote it, named in manifest.json, or a newer one",
        )
    return BenchError(
        f"this is no record: {error}" if error else f"the record has schema {schema}, and the first one was {SCHEMA}",
        where=where,
        change="restore the line from a copy, or remove it and run again with --resume to measure it anew",
    )


class Writer:
    """Appends records to one file; a context manager, for one process.

    Each record goes to the kernel in one write, so a process that dies loses none of those before; a machine that
    loses power may lose what its disk had not yet taken. A torn last line of an earlier run is moved to
    `<name>.torn` when the file is opened, so that what follows starts on a line of its own.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        self._failure: WorldError | None = None
        self._encoder = msgspec.json.Encoder()
        try:
            _set_torn_aside(path)
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise self._fault(error) from error

    def __enter__(self) -> Self:
        """Return itself, open since it was made."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file; what was written stays."""
        self._file.close()

    def write(self, record: Record) -> None:
        """Append `record`.

        Raises:
            BenchError: a time that is not a finite number, which JSON cannot hold.
            WorldError: the disk took no more. The file then ends with the record before and takes no other, though a
                shorter one might fit.
        """
        if self._failure is not None:
            raise self._failure
        _refuse_non_finite(record, self.path)
        line = self._encoder.encode(record) + b"\n"
        end = self._file.seek(0, os.SEEK_END)
        try:
            _write_all(self._file, line)
        except OSError as error:
            with contextlib.suppress(OSError):  # half a line would stand in the middle once there is room again
                self._file.truncate(end)
            self._failure = self._fault(error)
            raise self._failure from error
        self.written += 1

    def _fault(self, error: OSError) -> WorldError:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        said = "the disk is full" if full else f"the file cannot be written: {error.strerror or error}"
        return WorldError(
            f"{said}; the {self.written} records written before are kept",
            where=str(self.path),
            change="make room, then run again with --resume" if full else "choose a folder that may be written to",
        )


def _set_torn_aside(path: Path) -> None:
    if not path.exists() or not path.stat().st_size:
        return
    with path.open("r+b") as file:
        start = _start_of_last_line(file)
        tail = file.read()
        if is_torn(tail):
            with path.with_name(f"{path.name}.torn").open("ab") as aside:
                aside.write(tail + b"\n")
            file.truncate(start)


def _start_of_last_line(file: BinaryIO, step: int = 1 << 16) -> int:
    """Leave `file` at the start of its last line and return that place."""
    at = file.seek(0, os.SEEK_END) - 1  # the last byte may be the line's own end
    while at > 0:
        begin = max(0, at - step)
        file.seek(begin)
        found = file.read(at - begin).rfind(b"\n")
        if found >= 0:
            return file.seek(begin + found + 1)
        at = begin
    return file.seek(0)


def _write_all(file: BinaryIO, line: bytes) -> None:
    left = memoryview(line)
    while left:
        left = left[file.write(left) :]  # a nearly full disk takes a part and says so only the next time


def _refuse_non_finite(record: Record, path: Path) -> None:
    times = (record.start_s, record.end_s, record.headers_s, record.due_s, record.rate_per_s)
    named = [value for value in times if value is not None]
    if not all(math.isfinite(value) for value in (*named, *(chunk.at_s for chunk in record.chunks))):
        raise BenchError(
            f"a time of request {record.request_id} is not a finite number",
            where=str(path),
            change="report it with the program that made the record: no clock gives such a time",
        )
