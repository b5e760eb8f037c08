"""The meaning of a reply: events, text, tokens, or one error word.

Invariant: parsing begins after the end of the request and reads only stored bytes, so the same reply always gives the
same answer; nothing a server sends raises. The record keeps all that arrived before a fault.

Tokens of a chunk are the growth of the running `usage.completion_tokens`, if every chunk with text has one (vLLM's
`continuous_usage_stats`), else the number of its `token_ids`, else unknown. If usage and token ids contradict each
other, the ids count, because they are the output itself; `error_detail` names the contradiction.

Order of faults: a status, an interruption, too many tokens, a time-out before [DONE], another fault in the bytes, and
last `closed`. After [DONE] an answer is complete, whatever the connection does then.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from tandem.bench.completion_request import CompletionRequest
from tandem.bench.event import DONE, EventError, count_or_none, decode_event, encode_raw, read_event, read_texts
from tandem.bench.record import JSON_NULL, SCHEMA, Chunk, ChunkKind, RequestRecord, split_chunks
from tandem.bench.reply import ServerReply, describe_foreign_body, describe_refusal, split_events
from tandem.bench.sse import EventSplitter

OK = 200
ABORT_REASONS = {"abort", "error"}  # FinishReason in vllm/v1/engine/__init__.py: not a valid end of an answer
ENDLESS_FACTOR, ENDLESS_EXTRA = 2, 64  # more tokens than factor * max_tokens + extra is endless
OUTPUT_KINDS = {"text", "reasoning"}
DATE_SUFFIX = re.compile(r"-\d[\d-]*\Z")  # a dated snapshot of a name, as OpenAI answers


def parse_answer(reply: ServerReply, request: CompletionRequest, models: Collection[str] = ()) -> RequestRecord:
    """Return the record of `reply`, without its place in a run. Pure; never raises for a server's bytes.

    Args:
        reply: a complete reply.
        request: the request of the reply.
        models: names the server may give its model, `ProbeResult.models`; empty: any.
    """
    record = RequestRecord(
        schema=SCHEMA, request_id=request.request_id, arm="", class_="", suite="", prompt_id="", start_s=reply.start_s,
        headers_s=reply.headers_s, end_s=reply.end_s, status=reply.status, reconnected=reply.reconnects,
        retry_after_s=reply.retry_after_s,
    )  # fmt: skip
    if reply.status != OK:
        detail = reply.error_detail or describe_refusal(reply)
        return msgspec.structs.replace(record, error=reply.error or f"status_{reply.status}", error_detail=detail)
    parser = _parse_events(reply, models)
    chunks = tuple(parser.build_chunks())
    usage, contradiction = parser.usage, None
    total, id_count = count_or_none(usage.get("completion_tokens")), len(parser.ids)
    counted_by: Literal["usage", "token_ids"] | None = None if total is None else "usage"
    if parser.has_all_ids and total != id_count:
        if total is not None:
            contradiction = f"usage says {total} output tokens, the stream held {id_count} token ids"
        total, counted_by = id_count, "token_ids"
    elif parser.running_tokens not in {0, total}:
        contradiction = f"usage counted up to {parser.running_tokens} tokens and says {total} at the end"
    least_tokens = sum(chunk.bears_tokens for chunk in chunks) if total is None else total
    word, detail = _find_fault(parser, reply, request, least_tokens)
    details = usage.get("prompt_tokens_details")
    return msgspec.structs.replace(
        record, **split_chunks(chunks), prompt_tokens=count_or_none(usage.get("prompt_tokens")),
        cached_tokens=count_or_none(details.get("cached_tokens")) if isinstance(details, dict) else None,
        completion_tokens=total, counted_by=counted_by, text="".join(parser.texts),
        reasoning="".join(parser.thoughts) or None, token_ids=tuple(parser.ids) if parser.has_all_ids else None,
        logprobs=_join_logprobs(parser.logprobs), model=parser.model, finish_reason=parser.finish_reason, error=word,
        error_detail=detail if word else contradiction,
    )  # fmt: skip


def has_tokens(reply: ServerReply) -> bool:
    """Return whether the bytes so far hold an event with tokens.

    The first token's time-out calls this once the time is up, so nothing is parsed while reads come in.
    """
    return any(chunk.bears_tokens for chunk in _parse_events(reply).build_chunks())


def has_running_usage(reply: ServerReply) -> bool:
    """Return whether every event with text has a running usage."""
    return _parse_events(reply).has_running_usage


def _parse_events(reply: ServerReply, models: Collection[str] = ()) -> _AnswerParser:
    parser, splitter = _AnswerParser(models), EventSplitter()
    for at_s, event in split_events(reply, splitter):
        parser.add_event(at_s, event)
    tail = splitter.end()
    if tail is not None:
        with contextlib.suppress(EventError):  # a cut tail is no event
            if tail.strip() != DONE:
                decode_event(tail)
            parser.add_event(reply.since_start_s(reply.reads[-1][0]), tail)
    if splitter.foreign_line is not None and not (parser.events or parser.is_done or parser.fault):
        parser.fault = describe_foreign_body(reply)
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
    ids: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    finish_reason: str | None = None
    is_done: bool = False
    fault: EventError | None = None

    def add_event(self, at_s: float, event: bytes) -> None:
        """Add one event; skip a bad event and keep the first fault."""
        if event.strip() == DONE:
            self.is_done = True
            return
        try:
            message, choice = read_event(event)
            self._check_model(message.get("model"))
        except EventError as error:
            self.fault = self.fault or error
            return
        usage = message["usage"] if isinstance(message.get("usage"), dict) else {}
        self.usage |= {key: value for key, value in usage.items() if value is not None}
        if choice is None:
            self.events.append(_StreamEvent(at_s, "usage"))
            return
        text, thought, finish = read_texts(choice)
        delta, ids = choice.get("delta"), choice.get("token_ids")
        is_role = isinstance(delta, dict) and delta.get("role")
        kinds: dict[ChunkKind, Any] = {"text": text, "reasoning": thought, "end": finish, "role": is_role}
        kind = next((name for name, value in kinds.items() if value), None)
        if not isinstance(ids, list) or any(count_or_none(token_id) is None for token_id in ids):
            ids = None
        running_tokens = count_or_none(usage.get("completion_tokens"))
        self.events.append(_StreamEvent(at_s, kind, running_tokens, None if ids is None else len(ids)))
        self.ids += ids or ()
        self.texts.append(text)
        self.thoughts.append(thought)
        self.finish_reason = finish or self.finish_reason
        self.logprobs += [choice["logprobs"]] if choice.get("logprobs") else []
        if finish in ABORT_REASONS:
            detail = f"the server broke the answer off with finish_reason {finish}"
            self.fault = self.fault or EventError("api_error", detail)

    def _check_model(self, name: Any) -> None:
        if self.model is not None or not isinstance(name, str) or not name:
            return
        self.model = name
        suffixes = [name.removeprefix(model) for model in self.models if name.startswith(model)]
        if self.models and not any(suffix == "" or DATE_SUFFIX.fullmatch(suffix) for suffix in suffixes):
            names = " or ".join(sorted(self.models))
            self.fault = self.fault or EventError("wrong_model", f"the server answers as {name}, not as {names}")

    @property
    def has_all_ids(self) -> bool:
        """Whether every event with output has its token ids."""
        return bool(self.ids) and all(event.id_count is not None for event in self.events if event.kind in OUTPUT_KINDS)

    @property
    def has_running_usage(self) -> bool:
        """Whether the server counts in every chunk: each chunk with text has a count, and no count falls."""
        counts = [event.running_tokens for event in self.events if event.running_tokens is not None]
        lacks_count = any(event.running_tokens is None for event in self.events if event.kind in OUTPUT_KINDS)
        return bool(counts) and not lacks_count and counts[-1] > 0 and counts == sorted(counts)

    @property
    def running_tokens(self) -> int:
        """The highest running count, 0 without one."""
        return max((event.running_tokens or 0 for event in self.events), default=0)

    def build_chunks(self) -> Iterator[Chunk]:
        """Yield each event with its tokens, None if unknown; an event without kind and tokens is a `role`."""
        has_ids = self.has_all_ids
        counts_running = self.has_running_usage and not (has_ids and self.running_tokens != len(self.ids))
        previous = 0
        for event in self.events:
            tokens = event.id_count if has_ids else None
            if counts_running:
                tokens = None if event.running_tokens is None else event.running_tokens - previous
                previous = event.running_tokens or previous
            kind: ChunkKind = event.kind or ("role" if tokens == 0 else "empty")
            yield Chunk(event.at_s, "empty" if kind == "role" and tokens else kind, tokens)


def _join_logprobs(logprobs: list[Any]) -> msgspec.Raw:
    """Return the log-probabilities of all chunks as one: chat's entries in a list, completions' columns joined."""
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
    if parser.is_done or parser.finish_reason:
        return None, None
    description = f"the stream ended after {len(parser.events)} events, before a finish_reason or [DONE]"
    return "closed", f"{description}: {reply.error_detail}" if reply.error_detail else description
