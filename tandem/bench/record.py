"""One record per request: what arrived, when, and what the server said of it.

Invariant: a record is written whole, in one write, before its worker asks again; what is unknown is null, never a
guess; a file of another schema is refused, never half understood. Times are seconds of a monotonic clock.

Schema 2. A file holds one JSON object a line; the chunks of a stream are three arrays of one length, so that a decoder
reads them as numbers. (Schema 1 had one array for each chunk: `tandem bench convert` rewrites it.) A change that an
older reader would misread raises SCHEMA; a new field with a default does not, because readers pass over keys they do
not know.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec

from tandem.bench.json_file import DECODE_ERRORS, append_line, open_lines
from tandem.errors import ExternalError, InputError, convert_os_errors
from tandem.shell_command import quote_command

SCHEMA = 2
BLOCK_BYTES = 1 << 21  # read at once: enough for numpy to pay, and no more than these records are held as objects
JSON_NULL = msgspec.Raw(b"null")

# What an SSE data event was: `role` a delta without content or tokens; `text`; `reasoning`; `empty` a choice that
# carried tokens but no text; `end` a finish_reason and no text; `usage` no choice at all.
ChunkKind = Literal["role", "text", "reasoning", "empty", "end", "usage"]

# every word of `RequestRecord.error`, next to `status_<code>`
ERROR_WORDS = frozenset({
    "connect", "connect_timeout", "first_token_timeout", "gap_timeout", "whole_timeout", "not_sse", "not_json",
    "no_choices", "closed", "decode", "wrong_model", "api_error", "endless", "interrupted", "certificate",
})  # fmt: skip

# a number of tokens: whole in a float64 too; a negative one is kept, because it shows that a server's count fell
TokenCount = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]

# a number that counts from 0, such as a round's: 16 million are more than any run has, and few enough to mark each
SmallNumber = Annotated[int, msgspec.Meta(ge=0, le=2**24)]

# a time: three centuries, so that no sum of times can leave the finite numbers
Seconds = Annotated[float, msgspec.Meta(ge=-1e10, le=1e10)]


class Chunk(NamedTuple):
    """One SSE data event, as it arrived.

    Args:
        at_s: seconds after the record's start_s; the time of the read that completed the event.
        kind: what it was.
        tokens: tokens it carried, by running usage or token ids; None where the server does not say.
    """

    at_s: float
    kind: ChunkKind
    tokens: int | None = None

    @property
    def bears_tokens(self) -> bool:
        """Whether it carried output: by count where the server counts, else by its kind; a usage chunk never does."""
        if self.kind == "usage":
            return False
        return self.kind in {"text", "reasoning"} if self.tokens is None else self.tokens >= 1


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request. Every field is written, null where it is not known.

    Args:
        schema: version of this form.
        request_id: sent as X-Request-Id; unique in its file.
        generator: which program measured it.
        arm: the NAME given to the server.
        class_: class of the prompt; "class" in the file.
        suite, prompt_id: name of the suite the prompt is from, and its id there.
        round: round of the schedule, from 0.
        repeat: which repeat of the same prompt inside the round, from 0.
        slot: place of this arm's turn inside the round (ABBA: 0 to 3).
        concurrency: requests held in flight; None in an open loop.
        rate_per_s: requests started each second; None in a closed loop.
        worker: which of the concurrent workers asked.
        due_s: open loop: when it should have started, on start_s's clock.
        start_s: when the request was begun, absolute on the monotonic clock.
        headers_s: seconds from start_s to the response's headers; None when none came.
        end_s: seconds from start_s to the end of the stream, or to the failure.
        chunk_s, chunk_kind, chunk_tokens: every SSE data event but [DONE]; see `Chunk`.
        prompt_tokens, completion_tokens: the server's usage.
        cached_tokens: tokens of the prompt that the server had in its prefix cache.
        counted_by: where completion_tokens and the chunks' tokens come from.
        text, reasoning: what was streamed, joined.
        token_ids: ids of the output, where the server gave them.
        logprobs: the server's log-probabilities as raw JSON; `null` where it gave none.
        model: the model the server named.
        status: HTTP status.
        finish_reason: the server's word.
        error: None, or one word of ERROR_WORDS or `status_<code>`.
        error_detail: what was seen, for a person; without an error, what the server's usage contradicts.
        attempts: how often it was asked, 1 when the first attempt stands.
        reconnected: 1 where a reused connection died before any byte and a fresh one was asked; the times are those of
            the second asking.
        retry_after_s: what a Retry-After header asked for; null too where that is no finite number.
        placement: which part of a host the server ran on, such as a half of its devices.
        start: which start of the server's process answered; anything that differs between two starts.
        content: the content check's word; None for a failed request or where nothing was checked.
    """

    schema: int = SCHEMA
    request_id: str
    generator: Literal["tandem", "llmperf"] = "tandem"
    arm: str
    class_: str = msgspec.field(name="class")
    suite: str
    prompt_id: str
    round: SmallNumber = 0
    repeat: SmallNumber = 0
    slot: SmallNumber = 0
    concurrency: SmallNumber | None = None
    rate_per_s: float | None = None
    worker: int = 0
    due_s: Seconds | None = None
    start_s: Seconds
    headers_s: Seconds | None = None
    end_s: Seconds
    chunk_s: tuple[Seconds, ...] = ()
    chunk_kind: tuple[ChunkKind, ...] = ()
    chunk_tokens: tuple[TokenCount | None, ...] = ()
    prompt_tokens: TokenCount | None = None
    cached_tokens: TokenCount | None = None
    completion_tokens: TokenCount | None = None
    counted_by: Literal["usage", "token_ids"] | None = None
    text: str = ""
    reasoning: str | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: msgspec.Raw = JSON_NULL
    model: str | None = None
    status: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    error_detail: str | None = None
    attempts: SmallNumber = 1
    reconnected: SmallNumber = 0
    retry_after_s: float | None = None
    placement: str | None = None
    start: str | None = None
    content: str | None = None

    def __post_init__(self) -> None:
        """Refuse arrays that do not belong together."""
        if not len(self.chunk_s) == len(self.chunk_kind) == len(self.chunk_tokens):
            raise ValueError("chunk_s, chunk_kind and chunk_tokens differ in length")

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The SSE data events, one by one."""
        return tuple(map(Chunk, self.chunk_s, self.chunk_kind, self.chunk_tokens))


def split_chunks(chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Return the fields that hold `chunks` in a record."""
    columns = zip(*chunks, strict=True) if chunks else ((), (), ())
    return dict(zip(("chunk_s", "chunk_kind", "chunk_tokens"), columns, strict=True))


class _SchemaHeader(msgspec.Struct):
    schema: int = 0


def _warn_torn_line(sentence: str) -> None:
    sys.stderr.write(f"warning: {sentence}\n")


class RecordBlock(NamedTuple):
    """Records that stand behind each other in a file: where the first begins, and the bytes of each line."""

    records: list[RequestRecord]
    offset: int
    sizes: list[int]


def read_blocks(path: Path, on_torn_line: Callable[[str], None] = _warn_torn_line) -> Iterator[RecordBlock]:
    """Yield the records of `path` in the order they were written, some thousands at a time.

    Args:
        path: a records file.
        on_torn_line: takes a sentence on a last line without its end, which is no record; by default it is a warning.

    Raises:
        InputError: a line that is no record, another schema, a file that cannot be read.
    """
    decoder = msgspec.json.Decoder(RequestRecord)
    line_count = offset = 0
    change = "name the folder that a run wrote, and see that its files may be read"
    with convert_os_errors("the records cannot be read", path, change), path.open("rb") as file:
        while text := file.read(BLOCK_BYTES) + file.readline():
            *lines, tail = text.split(b"\n")
            records = []
            for number, line in enumerate(lines, line_count + 1):
                try:
                    records.append(decoder.decode(line))
                except DECODE_ERRORS as error:
                    raise _bad_line_error(line, path, number, error) from error
                if records[-1].schema != SCHEMA:
                    raise _bad_line_error(line, path, number, None)
            yield RecordBlock(records, offset, [len(line) + 1 for line in lines])
            line_count += len(lines)
            offset += len(text)
            if tail:
                place = f"{path.name}:{line_count + 1}"  # alike wherever the folder lies
                on_torn_line(f"{place}: the last line is torn after {len(tail)} bytes and was skipped")


def read_records(path: Path, on_torn_line: Callable[[str], None] = _warn_torn_line) -> Iterator[RequestRecord]:
    """Yield the records of `path`; arguments and errors as of `read_blocks`."""
    for block in read_blocks(path, on_torn_line):
        yield from block.records


def _bad_line_error(line: bytes, path: Path, number: int, error: Exception | None) -> InputError:
    """Return the fault of a whole line that is no record of this schema."""
    try:
        schema = msgspec.json.decode(line, type=_SchemaHeader).schema
    except DECODE_ERRORS:
        schema = SCHEMA
    problem = f"the record has schema {schema}, and this Tandem reads schema {SCHEMA}"
    change = "restore the line from a copy, or remove it and run again with --resume to measure it anew"
    if schema > SCHEMA:
        change = "read it with the Tandem that wrote it, named in manifest.json, or a newer one"
    elif schema == SCHEMA - 1:
        change = f"convert the run: {quote_command('tandem', 'bench', 'convert', str(path.parent))}"
    elif error:
        problem = f"this is no record: {error}"
    return InputError(problem, where=f"{path}:{number}", change=change)


class RecordWriter:
    """Appends records to one file; a context manager, for one process.

    Each record goes to the kernel in one write, so a process that dies loses none of those before; a machine that
    loses power may lose what its disk had not yet taken.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record_count = 0
        self._encoder = msgspec.json.Encoder()
        try:
            self._file = open_lines(path)
        except OSError as error:
            raise self._write_error(error) from error

    def __enter__(self) -> Self:
        """Return itself, open since it was made."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file; what was written stays."""
        self._file.close()

    def write(self, record: RequestRecord) -> None:
        """Append `record`.

        Raises:
            ExternalError: the disk took no more. The file then ends with the record before.
        """
        try:
            append_line(self._file, self._encoder.encode(record))
        except OSError as error:
            raise self._write_error(error) from error
        self.record_count += 1

    def _write_error(self, error: OSError) -> ExternalError:
        problem, change = f"the file cannot be written: {error.strerror or error}", "choose a folder you may write to"
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            problem, change = "the disk is full", "make room, then run again with --resume"
        problem += f"; the {self.record_count} records written before are kept"
        return ExternalError(problem, where=str(self.path), change=change)
