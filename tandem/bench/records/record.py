"""One record per request: its chunks, their times, and the server's counts.

Invariant: a record is written completely, in one write, before its worker sends the next request;
an unknown value is null, never a guess; a file of another schema is refused, never read in part.
Times are seconds of a monotonic clock.

A file has one JSON object a line; the chunks of a stream are three arrays of one length, so a
decoder reads them as numbers. A change of a line's form raises SCHEMA; a new key whose absence
means "not known" is none. Readers skip keys that they do not know.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec

from tandem.bench.records.json_file import DECODE_ERRORS, append_line, open_lines, require_schema
from tandem.errors import ExternalError, InputError, SchemaError, convert_os_errors

SCHEMA = 2
# read at once: enough to make numpy fast, and few enough records in memory as objects
BLOCK_BYTES = 1 << 21
JSON_NULL = msgspec.Raw(b"null")

# Kinds of an SSE data event: `role` a delta without content or tokens; `text`; `reasoning`; `tool`
# the name or the arguments of a tool or function; `empty` a choice with tokens (or an unknown
# number) but none of these; `end` a finish_reason and no output; `usage` no choice.
ChunkKind = Literal["role", "text", "reasoning", "empty", "end", "usage", "tool"]
# Parts of a search for the knee whose requests are in no figure: the pilot's turns, and the warm-up
# at the start of each turn.
TurnPart = Literal["pilot", "pilot_warm_up", "warm_up"]

# what the model wrote
OUTPUT_KINDS: frozenset[ChunkKind] = frozenset({"text", "reasoning", "tool"})

# every word of `RequestRecord.error` except `status_<code>`
ERROR_WORDS = frozenset(
    {
        "connect",
        "connect_timeout",
        "first_token_timeout",
        "gap_timeout",
        "whole_timeout",
        "not_sse",
        "not_json",
        "no_choices",
        "closed",
        "decode",
        "wrong_model",
        "api_error",
        "endless",
        "interrupted",
        "certificate",
    }
)

# a number of tokens: exact in a float64; negative numbers are kept, because they show that a
# server's count fell
TokenCount = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]

# a number that counts from 0, such as a round's: 16 million are more than any run has, and few
# enough for a mask
SmallNumber = Annotated[int, msgspec.Meta(ge=0, le=2**24)]

# a time: at most three centuries, so every sum of times is finite
Seconds = Annotated[float, msgspec.Meta(ge=-1e10, le=1e10)]


class Chunk(NamedTuple):
    """One SSE data event.

    Args:
        at_s: seconds after the record's start_s; the time of the read that completed the event.
        kind: of the event.
        tokens: tokens of the event, by running usage or token ids; None if the server does not
            report them.
    """

    at_s: float
    kind: ChunkKind
    tokens: int | None = None

    @property
    def bears_tokens(self) -> bool:
        """Whether the chunk has output: by the server's count if any, else by its kind."""
        if self.kind == "usage":
            return False
        return self.kind in OUTPUT_KINDS if self.tokens is None else self.tokens >= 1


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request. Every field is written; an unknown value is null.

    Args:
        schema: version of this form.
        request_id: sent as X-Request-Id; unique in its file.
        generator: program that measured the request.
        arm: the NAME given to the server.
        class_: class of the prompt; "class" in the file.
        suite, prompt_id: name of the prompt's suite, and the prompt's id there.
        round: round of the schedule, from 0.
        repeat: repeat of the same prompt inside the round, from 0.
        part: of a search for the knee that is in no figure; None for a request that is.
        slot: index of this arm's turn inside the round (ABBA: 0 to 3).
        concurrency: requests in flight; None in an open loop.
        rate_per_s: requests started each second; None in a closed loop.
        worker: number of the concurrent worker.
        due_s: open loop: planned start, on start_s's clock.
        start_s: start of the request, absolute on the monotonic clock.
        headers_s: seconds from start_s to the response's headers; None if no headers came.
        end_s: seconds from start_s to the end of the stream, or to the failure.
        chunk_s, chunk_kind, chunk_tokens: every SSE data event except [DONE]; see `Chunk`.
        prompt_tokens, completion_tokens: from the server's usage or, for completion_tokens, from
            token ids.
        cached_tokens: tokens of the prompt in the server's prefix cache.
        counted_by: source of completion_tokens.
        text, reasoning: the streamed text, joined.
        tool_calls: names and arguments of tools and functions, joined; None if there are none.
        unknown_parts: names of parts of the stream that hold text and that Tandem does not know.
        max_tokens: tokens that the request allowed; None if the generator does not say.
        token_ids: ids of the output, if the server sent them.
        logprobs: the server's log-probabilities as raw JSON; `null` if it sent none.
        model: model name in the server's answer.
        status: HTTP status.
        finish_reason: the server's word.
        error: None, or one word of ERROR_WORDS or `status_<code>`.
        error_detail: the fault, for a person; without an error, a contradiction in the server's
            counts.
        attempts: number of attempts, 1 for a first attempt.
        reconnected: 1 if a reused connection died before any byte and the client sent the request
            again on a new connection; the times are those of the second sending.
        retry_after_s: seconds in the Retry-After header; null also if they are no finite number.
        placement: the server's part of a host, such as a half of its devices.
        start: current start of the server's process; any text that differs between two starts.
        content: word of the content check; None for a failed request or an unchecked answer.
    """

    schema: int
    request_id: str
    generator: Literal["tandem", "llmperf"] = "tandem"
    arm: str
    class_: str = msgspec.field(name="class")
    suite: str
    prompt_id: str
    round: SmallNumber = 0
    repeat: SmallNumber = 0
    part: TurnPart | None = None
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
    tool_calls: str | None = None
    unknown_parts: tuple[str, ...] = ()
    max_tokens: int | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: msgspec.Raw = JSON_NULL
    model: str | None = None
    status: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    error_detail: str | None = None
    attempts: SmallNumber = 1
    reconnected: SmallNumber
    retry_after_s: float | None = None
    placement: str | None = None
    start: str | None = None
    content: str | None = None

    def __post_init__(self) -> None:
        """Refuse arrays of different lengths."""
        if not len(self.chunk_s) == len(self.chunk_kind) == len(self.chunk_tokens):
            raise ValueError("chunk_s, chunk_kind and chunk_tokens differ in length")

    @property
    def output(self) -> str:
        """All that the model wrote, reasoning, text and tools marked apart, for comparison."""
        reasoning = "" if self.reasoning is None else f"{self.reasoning}\0"
        tool_calls = "" if self.tool_calls is None else f"\0{self.tool_calls}"
        return f"{reasoning}{self.text}{tool_calls}"

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The SSE data events, one by one."""
        return tuple(map(Chunk, self.chunk_s, self.chunk_kind, self.chunk_tokens))


def split_chunks(chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Return the fields that hold `chunks` in a record."""
    columns = zip(*chunks, strict=True) if chunks else ((), (), ())
    return dict(zip(("chunk_s", "chunk_kind", "chunk_tokens"), columns, strict=True))


def _warn_torn_line(sentence: str) -> None:
    sys.stderr.write(f"warning: {sentence}\n")


class RecordBlock(NamedTuple):
    """Consecutive records of a file: the first one's offset, and each line's bytes."""

    records: list[RequestRecord]
    offset: int
    sizes: list[int]


def read_blocks(
    path: Path, on_torn_line: Callable[[str], None] = _warn_torn_line
) -> Iterator[RecordBlock]:
    """Yield the records of `path` in the order of the file, some thousands at a time.

    Args:
        path: a records file.
        on_torn_line: gets a sentence about a torn last line, which is no record; the default writes
            a warning.

    Raises:
        InputError: a line is no record or has another schema, or the file cannot be read.
    """
    decoder = msgspec.json.Decoder(RequestRecord)
    line_count = offset = 0
    change = "name the folder that a run wrote, and see that its files may be read"
    with convert_os_errors("the records cannot be read", path, change), path.open("rb") as file:
        while text := file.read(BLOCK_BYTES) + file.readline():
            *lines, tail = text.split(b"\n")
            records = []
            for number, line in enumerate(lines, line_count + 1):
                records.append(_decode_line(decoder, line, f"{path}:{number}"))
            yield RecordBlock(records, offset, [len(line) + 1 for line in lines])
            line_count += len(lines)
            offset += len(text)
            if tail:
                # without the folder, so the text is the same for every folder
                place = f"{path.name}:{line_count + 1}"
                on_torn_line(
                    f"{place}: the last line is torn after {len(tail)} bytes and was skipped"
                )


def _decode_line(
    decoder: msgspec.json.Decoder[RequestRecord], line: bytes, where: str
) -> RequestRecord:
    try:
        record = decoder.decode(line)
    except DECODE_ERRORS as error:
        require_schema(line, SCHEMA, label="the record", where=where)
        change = (
            "restore the line from a copy, or remove it and run again with --resume to measure it"
            " anew"
        )
        raise InputError(f"this is no record: {error}", where=where, change=change) from error
    if record.schema != SCHEMA:
        raise SchemaError("the record", record.schema, SCHEMA, where=where)
    return record


def read_records(
    path: Path, on_torn_line: Callable[[str], None] = _warn_torn_line
) -> Iterator[RequestRecord]:
    """Yield the records of `path`; arguments and errors as for `read_blocks`."""
    for block in read_blocks(path, on_torn_line):
        yield from block.records


class RecordWriter:
    """Writer that appends records to one file; a context manager, for one process.

    Each record goes to the kernel in one write, so a process that dies loses no earlier record; a
    machine that loses power may lose records that are not yet on its disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._encoder = msgspec.json.Encoder()
        change = "choose a folder you may write to"
        with convert_os_errors("the records cannot be written", path, change, ExternalError):
            self._file = open_lines(path)

    def __enter__(self) -> Self:
        """Return the writer; its file is already open."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file; the records stay."""
        self._file.close()

    def write(self, record: RequestRecord) -> None:
        """Append `record`.

        Raises:
            ExternalError: the write failed. The file then ends with the previous record.
        """
        problem = "the records cannot be written"
        change = "make room, then run again with --resume; the records written before are kept"
        with convert_os_errors(problem, self._path, change, ExternalError):
            append_line(self._file, self._encoder.encode(record))
