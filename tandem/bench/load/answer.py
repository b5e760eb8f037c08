"""The meaning of a reply: events, text, tokens, or one error word.

Invariant: parsing begins after the end of the request and reads only stored bytes, so the same
reply always gives the same answer; nothing a server sends raises. The record keeps all that arrived
before a fault.

An answer is complete only by a finish reason of `tandem.bench.load.finish_reason`, or by [DONE]. An
answer that ends by [DONE] alone is complete, but suspect (`end_without_reason`): a server that dies
may send it too. An error in any form (an event named `error`, an object with `error` inside or
outside the events, an error of the choice) and any other finish reason are `api_error`, with the
server's own words. Comments and events that are no part of an answer, such as pings, change
nothing.

Tokens of a chunk are the growth of the running `usage.completion_tokens`, if every chunk with text
has one (vLLM's `continuous_usage_stats`), else the number of its `token_ids`, else unknown. A usage
that stands at 0, or does not grow from the first output to the last, is no running count: some
servers put an empty one into each chunk (LocalAI, issue 1744), or leave reasoning out. If usage and
token ids contradict each other, the ids count, because they are the output itself; `error_detail`
names the contradiction. One token more at the end than the running count is none: SGLang counts the
stop token, and sends no text and no usage with it (sglang, serving_chat.py, finish_reason_chunk).

Order of faults: a status, an interruption, too many tokens, a time-out before [DONE], another fault
in the bytes, and last `closed`. After [DONE] the connection may do what it likes, and after a
finish reason and [DONE] the server too. A finish reason before further output ends nothing: some
servers write `stop` into each chunk (litellm, issue 2195), so such an answer needs [DONE].
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from tandem.bench.load.completion_request import CompletionRequest
from tandem.bench.load.delta import ChoiceOutput, read_output
from tandem.bench.load.event import (
    DONE,
    EventError,
    count_or_none,
    decode_event,
    describe_error,
    describe_error_event,
    encode_raw,
    find_error,
    format_bytes,
    read_event,
)
from tandem.bench.load.finish_reason import is_good_end, read_finish_reason
from tandem.bench.load.reply import (
    ServerReply,
    describe_foreign_body,
    describe_refusal,
    split_events,
)
from tandem.bench.load.sse import EventSplitter, ServerEvent
from tandem.bench.records.record import (
    JSON_NULL,
    OUTPUT_KINDS,
    SCHEMA,
    Chunk,
    ChunkKind,
    RequestRecord,
    split_chunks,
)

OK = 200
# more tokens than factor * max_tokens + extra is endless
ENDLESS_FACTOR = 2
ENDLESS_EXTRA = 64
# outside of the events that are read as JSON, so that a long page takes no time
MAX_STRAY_LINES = 64
# names of parts that a record keeps, and characters of one
MAX_UNKNOWN_PARTS = 8
MAX_PART_NAME = 80
# an unknown field of an event stream, which the standard ignores
FIELD_LINE = re.compile(rb"[\w-]{1,40}(:|\Z)")
DATE_SUFFIX = re.compile(r"-\d[\d-]*\Z")  # a dated snapshot of a name, as OpenAI answers


def parse_answer(
    reply: ServerReply, request: CompletionRequest, models: Collection[str] = ()
) -> RequestRecord:
    """Return the record of `reply`, without its place in a run; never raises for a server's bytes.

    Args:
        reply: a complete reply.
        request: the request of the reply.
        models: names the server may give its model, `ProbeResult.models`; empty: any.
    """
    record = RequestRecord(
        schema=SCHEMA,
        request_id=request.request_id,
        arm="",
        class_="",
        suite="",
        prompt_id="",
        start_s=reply.start_s,
        headers_s=reply.headers_s,
        end_s=reply.end_s,
        status=reply.status,
        reconnected=reply.reconnects,
        retry_after_s=reply.retry_after_s,
        max_tokens=request.max_tokens,
    )
    if reply.status != OK:
        detail = reply.error_detail or describe_refusal(reply)
        return msgspec.structs.replace(
            record, error=reply.error or f"status_{reply.status}", error_detail=detail
        )
    parser = _parse_events(reply, models)
    chunks = tuple(parser.build_chunks())
    usage = parser.usage
    contradiction = None
    total = _count_output(usage, has_reasoning=parser.writes_reasoning)
    id_count = len(parser.ids)
    counted_by: Literal["usage", "token_ids"] | None = None if total is None else "usage"
    if parser.has_all_ids and total != id_count:
        if total is not None:
            contradiction = (
                f"usage says {total} output tokens, the stream held {id_count} token ids"
            )
        total = id_count
        counted_by = "token_ids"
    elif parser.running_tokens and total not in {parser.running_tokens, parser.running_tokens + 1}:
        contradiction = (
            f"usage counted up to {parser.running_tokens} tokens and says {total} at the end"
        )
    # what the stream shows, not what the server claims: a count above max_tokens is refused as a
    # count
    least_tokens = id_count if parser.has_all_ids else sum(chunk.bears_tokens for chunk in chunks)
    word, detail = _find_fault(parser, reply, request, least_tokens)
    details = usage.get("prompt_tokens_details")
    return msgspec.structs.replace(
        record,
        **split_chunks(chunks),
        prompt_tokens=count_or_none(usage.get("prompt_tokens")),
        cached_tokens=(
            count_or_none(details.get("cached_tokens")) if isinstance(details, dict) else None
        ),
        completion_tokens=total,
        counted_by=counted_by,
        text="".join(parser.texts),
        reasoning="".join(parser.thoughts) or None,
        tool_calls="".join(parser.calls) or None,
        unknown_parts=tuple(sorted(parser.unknown_parts)),
        token_ids=tuple(parser.ids) if parser.has_all_ids else None,
        logprobs=_join_logprobs(parser.logprobs),
        model=parser.model,
        finish_reason=parser.finish_reason,
        error=word,
        error_detail=detail if word else contradiction,
    )


def has_tokens(reply: ServerReply) -> bool:
    """Return whether the bytes so far hold an event with tokens.

    The first token's time-out calls this once the time is up, so nothing is parsed while reads come
    in.
    """
    return any(chunk.bears_tokens for chunk in _parse_events(reply).build_chunks())


def has_running_usage(reply: ServerReply) -> bool:
    """Return whether every event with text has a running usage."""
    return _parse_events(reply).has_running_usage


def _parse_events(reply: ServerReply, models: Collection[str] = ()) -> _AnswerParser:
    parser = _AnswerParser(models)
    splitter = EventSplitter()
    for at_s, event in split_events(reply, splitter):
        parser.add_event(at_s, event)
    end_s = reply.since_start_s(reply.reads[-1][0]) if reply.reads else 0.0
    for event in splitter.end():
        is_readable = event.is_error or not event.is_framed or event.data.strip() == DONE
        with contextlib.suppress(EventError):  # a cut tail is no event
            if not is_readable:
                decode_event(event.data)
            parser.add_event(end_s, event)
    if splitter.foreign_line is not None and not (parser.events or parser.is_done or parser.fault):
        parser.fault = describe_foreign_body(reply)
    if parser.is_lost:
        description = (
            "no finish_reason ends the answer, and the server says"
            f" {format_bytes(parser.stray_text)}"
        )
        parser.fault = EventError("api_error", description)
    if parser.skipped_event and not parser.events:
        description = f"an event has no choices: {format_bytes(parser.skipped_event)}"
        parser.fault = parser.fault or EventError("no_choices", description)
    return parser


class _StreamEvent(NamedTuple):
    """One event; whether the server counts tokens in every event is not known yet."""

    at_s: float
    kind: ChunkKind | None  # None: a choice without text, end or role
    running_tokens: int | None = None  # usage.completion_tokens next to a choice
    id_count: int | None = None


@dataclass(slots=True)
class _AnswerParser:
    models: Collection[str]
    events: list[_StreamEvent] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    unknown_parts: set[str] = field(default_factory=set)
    ids: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    choice_index: Any = None  # of the answer's choice: of the first that came
    finish_reason: str | None = None
    writes_deltas: bool = False  # whether output came in a delta
    writes_reasoning: bool = False  # whether reasoning came
    writes_after_end: bool = False  # whether output came after a finish reason
    is_done: bool = False
    fault: EventError | None = None
    skipped_event: bytes = b""  # the first event that is no part of an answer
    stray_text: bytes = b""  # the first text outside of the events, or in an event without choices

    def add_event(self, at_s: float, event: ServerEvent) -> None:
        """Add one event, but nothing after a whole answer; skip a bad one, keep the first fault."""
        if not self.is_whole:
            self._take_event(at_s, event)

    def _take_event(self, at_s: float, event: ServerEvent) -> None:
        if not event.is_framed:
            self._read_unframed(event.data)
            return
        if event.is_error:
            self._fail(describe_error_event(event.data))
            return
        if event.data.strip() == DONE:
            self.is_done = True
            return
        try:
            message = read_event(event.data)
            self._check_model(message.fields.get("model"))
        except EventError as error:
            self.fault = self.fault or error
            return
        if not message.is_part:
            self._skip_event(event.data, message.fields)
            return
        usage = message.fields["usage"] if isinstance(message.fields.get("usage"), dict) else {}
        self.usage |= {key: value for key, value in usage.items() if value is not None}
        if not message.choices:
            self.events.append(_StreamEvent(at_s, "usage"))
            return
        kind, ids = self._read_choices(message.choices)
        running_tokens = _count_output(usage, has_reasoning=self.writes_reasoning)
        self.events.append(
            _StreamEvent(at_s, kind, running_tokens, None if ids is None else len(ids))
        )
        self.ids += ids or ()

    def _read_choices(
        self, choices: tuple[dict[str, Any], ...]
    ) -> tuple[ChunkKind | None, list[int] | None]:
        """Read an event's choices; return its kind and token ids, None if it has none.

        One choice is asked for. Another one that a server adds is no part of the answer, and named.
        """
        written = ChoiceOutput()
        ids: list[int] | None = []
        finish: str | None = None
        is_role = False
        if self.choice_index is None:
            self.choice_index = choices[0].get("index") or 0
        for choice in choices:
            self._check_end(choice)
            delta = choice.get("delta")
            output = read_output(choice, repeats_message=self.writes_deltas)
            self.writes_deltas |= isinstance(delta, dict) and bool(output)
            self._name_parts(output.unknown_parts)
            if (choice.get("index") or 0) != self.choice_index:
                self._name_parts(["a second choice"] if output else [])
                continue
            written.text += output.text
            written.reasoning += output.reasoning
            written.tool_calls += output.tool_calls
            finish = read_finish_reason(choice.get("finish_reason")) or finish
            is_role |= isinstance(delta, dict) and bool(delta.get("role"))
            choice_ids = _read_token_ids(choice)
            ids = None if ids is None or choice_ids is None else ids + choice_ids
            self.logprobs += [choice["logprobs"]] if choice.get("logprobs") else []
        self.texts.append(written.text)
        self.thoughts.append(written.reasoning)
        self.writes_reasoning |= bool(written.reasoning)
        self.calls.append(written.tool_calls)
        self.writes_after_end |= self.finish_reason is not None and bool(written)
        self.finish_reason = finish or self.finish_reason
        kinds: dict[ChunkKind, Any] = {
            "text": written.text,
            "reasoning": written.reasoning,
            "tool": written.tool_calls,
            "end": finish,
            "role": is_role,
        }
        return next((name for name, value in kinds.items() if value), None), ids

    def _check_end(self, choice: dict[str, Any]) -> None:
        """Keep a fault if the choice reports an error, or ends as no complete answer does."""
        reason = choice.get("finish_reason")
        if not reason and not choice.get("error"):
            return
        word = read_finish_reason(reason)
        error = find_error({"error": choice.get("error")})
        if error is None and isinstance(reason, dict):
            error = reason.get("message")
        words = "" if error is None else describe_error(error)
        if word is not None and not is_good_end(word):
            self._fail(
                "the server broke the answer off with finish_reason"
                f" {word[:80]}{words and f': {words}'}"
            )
        elif words:
            self._fail(words)

    def _read_unframed(self, lines: bytes) -> None:
        """Read what stands outside of the events: an error in JSON is one, other text may be."""
        is_json = False
        first_lines = [
            line for line in lines.splitlines()[:MAX_STRAY_LINES] if line[:1] in {b"{", b"["}
        ]
        for block in (lines, *first_lines):
            with contextlib.suppress(EventError):
                error = find_error(decode_event(block))
                is_json = True
                if error is not None:
                    self._fail(describe_error(error))
        if is_json:
            return
        stray_lines = [line for line in lines.splitlines() if not FIELD_LINE.match(line)]
        self.stray_text = self.stray_text or b"".join(stray_lines[:1])

    def _skip_event(self, data: bytes, fields: dict[str, Any]) -> None:
        """Skip an event that is no part of an answer, such as a ping; name it if it holds text."""
        self.skipped_event = self.skipped_event or data
        output = read_output({"delta": fields})
        if output or output.unknown_parts:
            type_text = f" of type {fields['type']}" if fields.get("type") else ""
            self._name_parts([f"an event{type_text} without choices"])
            self.stray_text = self.stray_text or data

    def _name_parts(self, names: Iterable[str]) -> None:
        """Keep the names of unknown parts, a few: a server chooses them."""
        for name in names:
            if len(self.unknown_parts) < MAX_UNKNOWN_PARTS:
                self.unknown_parts.add(name[:MAX_PART_NAME])

    def _fail(self, detail: str) -> None:
        self.fault = self.fault or EventError("api_error", detail)

    @property
    def is_whole(self) -> bool:
        """Whether a finish reason and [DONE] have ended the answer."""
        return self.is_done and self.finish_reason is not None

    @property
    def is_lost(self) -> bool:
        """Whether text that is no answer explains an answer that no finish reason ends."""
        return bool(
            self.stray_text and self.events and self.fault is None and self.finish_reason is None
        )

    def _check_model(self, name: Any) -> None:
        if self.model is not None or not isinstance(name, str) or not name:
            return
        self.model = name
        suffixes = [name.removeprefix(model) for model in self.models if name.startswith(model)]
        if self.models and not any(
            suffix == "" or DATE_SUFFIX.fullmatch(suffix) for suffix in suffixes
        ):
            names = " or ".join(sorted(self.models))
            self.fault = self.fault or EventError(
                "wrong_model", f"the server answers as {name}, not as {names}"
            )

    @property
    def has_all_ids(self) -> bool:
        """Whether every event with output has its token ids."""
        return bool(self.ids) and all(
            event.id_count is not None for event in self.events if event.kind in OUTPUT_KINDS
        )

    @property
    def has_running_usage(self) -> bool:
        """Whether the server counts in every chunk with output, from above 0, never falling."""
        counts = [event.running_tokens for event in self.events if event.running_tokens is not None]
        output_counts = [
            event.running_tokens for event in self.events if event.kind in OUTPUT_KINDS
        ]
        if not counts or counts[-1] == 0 or counts != sorted(counts):
            return False
        has_each = all(output_counts)  # neither None nor 0
        return has_each and (len(output_counts) <= 1 or output_counts[0] != output_counts[-1])

    @property
    def running_tokens(self) -> int:
        """The highest running count, 0 without one."""
        return max((event.running_tokens or 0 for event in self.events), default=0)

    def build_chunks(self) -> Iterator[Chunk]:
        """Yield each event with its tokens (None: unknown); one without either is a role."""
        has_ids = self.has_all_ids
        counts_running = self.has_running_usage and not (
            has_ids and self.running_tokens != len(self.ids)
        )
        previous = 0
        for event in self.events:
            tokens = event.id_count if has_ids else None
            if counts_running:
                tokens = None if event.running_tokens is None else event.running_tokens - previous
                previous = event.running_tokens or previous
            kind: ChunkKind = event.kind or ("role" if tokens == 0 else "empty")
            yield Chunk(event.at_s, "empty" if kind == "role" and tokens else kind, tokens)


def _count_output(usage: dict[str, Any], *, has_reasoning: bool) -> int | None:
    """Return the output tokens of a usage; None if it has no count.

    xAI counts reasoning beside `completion_tokens`, and only its total includes both (inspect_ai,
    issue 5528).

    Args:
        usage: of an event.
        has_reasoning: whether reasoning came in the stream. Tokens that never came are no part of
            its times.
    """
    count = count_or_none(usage.get("completion_tokens"))
    details = usage.get("completion_tokens_details")
    reasoning = (
        count_or_none(details.get("reasoning_tokens")) if isinstance(details, dict) else None
    )
    prompt = count_or_none(usage.get("prompt_tokens"))
    if not has_reasoning or count is None or reasoning is None or prompt is None:
        return count
    is_beside = usage.get("total_tokens") == prompt + count + reasoning
    return count + reasoning if is_beside else count


def _read_token_ids(choice: dict[str, Any]) -> list[int] | None:
    """Return the token ids of a choice; None if it has none, or some are no ids."""
    ids = choice.get("token_ids")
    if not isinstance(ids, list):
        return None
    return None if any(count_or_none(token_id) is None for token_id in ids) else list(map(int, ids))


def _join_logprobs(logprobs: list[Any]) -> msgspec.Raw:
    """Return the log-probabilities of all chunks as one list or set of columns."""
    if not logprobs or not all(isinstance(item, dict) for item in logprobs):
        return JSON_NULL
    columns: dict[str, list[Any]] = {}
    for item in logprobs:
        for name, values in item.items():
            columns.setdefault(name, []).extend(values if isinstance(values, list) else ())
    return encode_raw(columns.get("content", columns))


def _find_fault(
    parser: _AnswerParser, reply: ServerReply, request: CompletionRequest, tokens: int
) -> tuple[str | None, str | None]:
    """Return the error word and its detail; None if nothing is wrong."""
    if reply.error == "interrupted":
        return reply.error, reply.error_detail
    if tokens > ENDLESS_FACTOR * request.max_tokens + ENDLESS_EXTRA:
        return "endless", f"{request.max_tokens} tokens were asked for, and at least {tokens} came"
    is_whole_on_wire = reply.error in {None, "closed"}
    if not is_whole_on_wire and not parser.is_done:
        return reply.error, reply.error_detail
    if parser.fault is not None:
        return parser.fault.word, parser.fault.detail
    if parser.is_done or (parser.finish_reason and not parser.writes_after_end):
        return None, None
    end = (
        "[DONE], and text came after its finish_reason"
        if parser.finish_reason
        else "a finish_reason or [DONE]"
    )
    description = f"the stream ended after {len(parser.events)} events, before {end}"
    return "closed", f"{description}: {reply.error_detail}" if reply.error_detail else description
