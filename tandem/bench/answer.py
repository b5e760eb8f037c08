"""The meaning of a reply: events, text, tokens, or the one word for what was wrong with it.

Invariant: read after the request has ended, from stored bytes alone, so that the same reply always gives the same
answer; nothing a server sends raises. What arrived before a fault is kept.

Tokens of a chunk are the growth of the running `usage.completion_tokens`, where every chunk with text has one
(vLLM's `continuous_usage_stats`), else the number of its `token_ids`, else unknown. Where usage and token ids
contradict each other, the ids count: they are the output itself; the contradiction stands in `error_detail`.

Which fault is told: a time-out, an interruption or a status first; then what the bytes say; then `closed`. After
[DONE] an answer is whole, whatever the connection does then.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from tandem.bench.body import no_stream_error, refusal_message, seconds_since_start, split_events
from tandem.bench.completion_request import CompletionRequest
from tandem.bench.event import (
    DONE,
    EventError,
    check_message,
    choice_kind,
    count_or_none,
    decode_event,
    encode_raw,
    first_choice,
    has_output,
    list_or_empty,
    read_texts,
    string_or_empty,
)
from tandem.bench.record import JSON_NULL, Chunk, ChunkKind
from tandem.bench.reply import ServerReply
from tandem.bench.sse import EventSplitter

OK = 200
ABORT_REASONS = {"abort", "error"}  # FinishReason in vllm/v1/engine/__init__.py: no end that an answer may have
ENDLESS_FACTOR, ENDLESS_EXTRA = 2, 64  # more tokens than this many times what was asked, and some, is endless
DATE_SUFFIX = re.compile(r"-\d[\d-]*\Z")  # a name's dated snapshot, as OpenAI answers


class ServerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a reply held; the fields are the record's of the same name, and go into it by `msgspec.structs.asdict`."""

    chunks: tuple[Chunk, ...] = ()
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    counted_by: Literal["usage", "token_ids"] | None = None
    text: str = ""
    reasoning: str | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: msgspec.Raw = JSON_NULL
    model: str | None = None
    finish_reason: str | None = None
    error: str | None = None
    error_detail: str | None = None


def parse_answer(reply: ServerReply, request: CompletionRequest, models: Collection[str] = ()) -> ServerAnswer:
    """Return what `reply` holds. Pure; never raises for what a server sent.

    Args:
        reply: a reply that has ended.
        request: what was asked.
        models: names the server may give its model, `Found.models` of the probe; empty: any.
    """
    if reply.status != OK:
        return ServerAnswer(
            error=reply.error or f"status_{reply.status}", error_detail=reply.error_detail or refusal_message(reply)
        )
    parser = _AnswerParser(models)
    _parse_events(parser, reply)
    return _build_answer(parser, reply, request)


def has_output_event(reply: ServerReply) -> bool:
    """Return whether what has come so far holds an event with output; reads no further than the first.

    For the first token's time-out: it looks once the time is up, so that nothing is parsed while reads come in.
    """
    try:
        return any(has_output(event) for _, event in split_events(reply, EventSplitter()) if event.strip() != DONE)
    except EventError:  # a content coding that cannot be undone
        return False


def has_running_usage(reply: ServerReply) -> bool:
    """Return whether the server put a running usage into every event with text."""
    parser = _AnswerParser(())
    _parse_events(parser, reply)
    return _has_consistent_usage(parser)


def _parse_events(parser: _AnswerParser, reply: ServerReply) -> None:
    splitter = EventSplitter()
    has_events = False
    try:
        for at_s, event in split_events(reply, splitter):
            has_events = True
            parser.add_event(at_s, event)
        tail = splitter.end()
        if tail is not None and _is_complete_event(tail):
            has_events = True
            parser.add_event(seconds_since_start(reply, reply.reads[-1][0]), tail)
    except EventError as error:  # the content coding broke: no later byte has a meaning
        parser.record_fault(error)
    if not has_events and parser.fault is None and splitter.foreign_line is not None:
        parser.fault = no_stream_error(reply)


def _is_complete_event(tail: bytes) -> bool:
    if tail.strip() == DONE:
        return True
    try:
        decode_event(tail)
    except EventError:
        return False
    return True


@dataclass(slots=True)
class _StreamEvent:
    """One event, before it is known whether the server counts in every one."""

    at_s: float
    kind: ChunkKind | None  # None: a choice without text, end or role
    running_tokens: int | None = None  # usage.completion_tokens that stood beside a choice
    id_count: int | None = None


@dataclass(slots=True)
class _AnswerParser:
    models: Collection[str]
    events: list[_StreamEvent] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    finish_reason: str | None = None
    is_done: bool = False
    fault: EventError | None = None

    def record_fault(self, error: EventError) -> None:
        self.fault = self.fault or error

    def add_event(self, at_s: float, event: bytes) -> None:
        """Take one event; a bad one is blamed and passed over."""
        if event.strip() == DONE:
            self.is_done = True
            return
        try:
            message = decode_event(event)
            check_message(message)
            self._check_model(message)
            choice = first_choice(message)
        except EventError as error:
            self.record_fault(error)
            return
        usage = message.get("usage")
        if isinstance(usage, dict):
            self.usage |= {key: value for key, value in usage.items() if value is not None}
        if choice is None:
            self.events.append(_StreamEvent(at_s, "usage"))
        else:
            self._add_choice(at_s, choice, usage if isinstance(usage, dict) else {})

    def _add_choice(self, at_s: float, choice: dict[str, Any], usage: dict[str, Any]) -> None:
        text, reasoning = read_texts(choice)
        finish = string_or_empty(choice.get("finish_reason"))
        stream_event = _StreamEvent(
            at_s, choice_kind(choice, text, reasoning, finish), count_or_none(usage.get("completion_tokens"))
        )
        self.events.append(stream_event)
        if text:
            self.text.append(text)
        if reasoning:
            self.reasoning.append(reasoning)
        self.finish_reason = finish or self.finish_reason
        if finish in ABORT_REASONS:
            self.record_fault(EventError("api_error", f"the server broke the answer off with finish_reason {finish}"))
        ids = choice.get("token_ids")
        if isinstance(ids, list) and all(count_or_none(token_id) is not None for token_id in ids):
            stream_event.id_count = len(ids)
            self.ids += ids
        if choice.get("logprobs"):
            self.logprobs.append(choice["logprobs"])

    def _check_model(self, message: dict[str, Any]) -> None:
        name = string_or_empty(message.get("model"))
        if self.model is None and name:
            self.model = name
            suffixes = [name.removeprefix(model) for model in self.models if name.startswith(model)]
            if self.models and not any(suffix == "" or DATE_SUFFIX.fullmatch(suffix) for suffix in suffixes):
                names = " or ".join(sorted(self.models))
                self.record_fault(EventError("wrong_model", f"the server answers as {name}, not as {names}"))


def _build_answer(parser: _AnswerParser, reply: ServerReply, request: CompletionRequest) -> ServerAnswer:
    counts = _count_event_tokens(parser)
    chunks = tuple(Chunk(p.at_s, _resolve_kind(p, n), n) for p, n in zip(parser.events, counts, strict=True))
    total, counted_by, contradiction = _resolve_token_total(parser)
    least_tokens = sum(chunk.bears_tokens for chunk in chunks) if total is None else total
    word, detail = _find_fault(parser, reply, request, least_tokens)
    details = parser.usage.get("prompt_tokens_details")
    return ServerAnswer(
        chunks=chunks,
        prompt_tokens=count_or_none(parser.usage.get("prompt_tokens")),
        cached_tokens=count_or_none(details.get("cached_tokens")) if isinstance(details, dict) else None,
        completion_tokens=total,
        counted_by=counted_by,
        text="".join(parser.text),
        reasoning="".join(parser.reasoning) or None,
        token_ids=tuple(parser.ids) if _has_all_token_ids(parser) else None,
        logprobs=_join_logprobs(parser.logprobs),
        model=parser.model,
        finish_reason=parser.finish_reason,
        error=word,
        error_detail=detail if word else contradiction,
    )


def _select_output_events(parser: _AnswerParser) -> list[_StreamEvent]:
    return [event for event in parser.events if event.kind in {"text", "reasoning"}]


def _has_all_token_ids(parser: _AnswerParser) -> bool:
    return bool(parser.ids) and all(event.id_count is not None for event in _select_output_events(parser))


def _has_consistent_usage(parser: _AnswerParser) -> bool:
    """Return whether the server counts in every chunk: each with text has a count, and no count falls."""
    counts = [event.running_tokens for event in parser.events if event.running_tokens is not None]
    has_all_counts = all(event.running_tokens is not None for event in _select_output_events(parser))
    return bool(counts) and has_all_counts and counts[-1] > 0 and counts == sorted(counts)


def _max_running_tokens(parser: _AnswerParser) -> int:
    return max((event.running_tokens or 0 for event in parser.events), default=0)


def _count_event_tokens(parser: _AnswerParser) -> list[int | None]:
    """Return the tokens of each event, None where the server does not say."""
    has_ids = _has_all_token_ids(parser)
    if not _has_consistent_usage(parser) or (has_ids and _max_running_tokens(parser) != len(parser.ids)):
        return [event.id_count if has_ids else None for event in parser.events]
    tokens: list[int | None] = []
    previous = 0
    for event in parser.events:
        tokens.append(None if event.running_tokens is None else event.running_tokens - previous)
        previous = previous if event.running_tokens is None else event.running_tokens
    return tokens


def _resolve_kind(event: _StreamEvent, tokens: int | None) -> ChunkKind:
    """Return an event's kind now that its tokens are known: without any it is as good as a role."""
    if event.kind is not None:
        return "empty" if event.kind == "role" and tokens else event.kind
    return "role" if tokens == 0 else "empty"


def _resolve_token_total(parser: _AnswerParser) -> tuple[int | None, Literal["usage", "token_ids"] | None, str | None]:
    """Return the output's tokens, who counted them, and a contradiction in what the server says."""
    usage_tokens = count_or_none(parser.usage.get("completion_tokens"))
    if _has_all_token_ids(parser):
        id_count = len(parser.ids)
        if usage_tokens is None or id_count != usage_tokens:
            contradiction = (
                None
                if usage_tokens is None
                else f"usage says {usage_tokens} output tokens, the stream held {id_count} token ids"
            )
            return id_count, "token_ids", contradiction
    running = _max_running_tokens(parser)
    contradiction = (
        f"usage counted up to {running} tokens and says {usage_tokens} at the end"
        if running not in {0, usage_tokens}
        else None
    )
    return usage_tokens, None if usage_tokens is None else "usage", contradiction


def _join_logprobs(logprobs: list[Any]) -> msgspec.Raw:
    """Return the log-probabilities of all chunks as one: chat's entries in a list, completions' columns joined."""
    if not logprobs or not all(isinstance(item, dict) for item in logprobs):
        return JSON_NULL
    if any("content" in item for item in logprobs):
        return encode_raw([entry for item in logprobs for entry in list_or_empty(item.get("content"))])
    columns: dict[str, list[Any]] = {}
    for item in logprobs:
        for name, values in item.items():
            columns.setdefault(name, []).extend(list_or_empty(values))
    return encode_raw(columns)


def _find_fault(
    parser: _AnswerParser, reply: ServerReply, request: CompletionRequest, tokens: int
) -> tuple[str | None, str | None]:
    """Return the word and the detail of what is wrong; None for nothing."""
    if reply.error == "interrupted":
        return reply.error, reply.error_detail
    if tokens > ENDLESS_FACTOR * request.max_tokens + ENDLESS_EXTRA:
        return "endless", f"{request.max_tokens} tokens were asked for, and at least {tokens} came"
    if reply.error not in {None, "closed"} and not parser.is_done:
        return reply.error, reply.error_detail
    if parser.fault is not None:
        return parser.fault.word, parser.fault.detail
    if parser.is_done or (parser.finish_reason and reply.error in {None, "closed"}):
        return None, None
    description = f"the stream ended after {len(parser.events)} events, before a finish_reason or [DONE]"
    return "closed", f"{description}: {reply.error_detail}" if reply.error_detail else description
