"""The meaning of a reply: events, text, tokens, or one error word.

Invariant: parsing begins after the end of the request and reads only stored bytes, so the same
reply always gives the same answer; nothing a server sends raises. The record keeps all that arrived
before a fault.

An answer is complete only by a finish reason of `tandem.bench.records.finish_reason`, or by [DONE].
An answer that ends by [DONE] alone is complete, but suspect (`end_without_reason`): a server that
dies may send it too. An error in any form (an event named `error`, an object with `error` inside or
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
from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from tandem.bench.load.answer_parser import AnswerParser
from tandem.bench.load.completion_request import CompletionRequest
from tandem.bench.load.delta import ChoiceOutput
from tandem.bench.load.event import (
    DONE,
    EventError,
    count_or_none,
    decode_event,
    encode_raw,
    format_bytes,
)
from tandem.bench.load.reply import (
    ServerReply,
    describe_foreign_body,
    describe_refusal,
    split_events,
)
from tandem.bench.load.sse import EventSplitter
from tandem.bench.records.record import JSON_NULL, SCHEMA, RequestRecord, split_chunks

OK = 200
# more tokens than factor * max_tokens + extra is endless
ENDLESS_FACTOR = 2
ENDLESS_EXTRA = 64


def parse_answer(
    reply: ServerReply, request: CompletionRequest, models: Collection[str] = ()
) -> RequestRecord:
    """Return the record of `reply`, without its place in a run; never raises for a server's bytes.

    Args:
        reply: a complete reply.
        request: the request of the reply.
        models: names the server may give its model, `ProbeResult.models`; empty: any.
    """
    record = _draft_record(reply, request)
    if reply.status != OK:
        return msgspec.structs.replace(
            record,
            error=reply.error or f"status_{reply.status}",
            error_detail=reply.error_detail or describe_refusal(reply),
        )

    parser = _parse_events(reply, models)
    output = _count_output(parser)
    word, detail = _find_fault(parser, reply, request)
    details = parser.usage.get("prompt_tokens_details")
    cached_tokens = details.get("cached_tokens") if isinstance(details, dict) else None
    texts = _join_texts(parser.outputs)
    shown_texts = {name: reply.access.mask_text(text) for name, text in texts.items()}
    # ids and log-probabilities repeat a secret in pieces, even if one event has all of its text
    repeats_secret = reply.repeats_secret or shown_texts != texts
    return msgspec.structs.replace(
        record,
        **split_chunks(parser.list_chunks()),
        prompt_tokens=count_or_none(parser.usage.get("prompt_tokens")),
        cached_tokens=count_or_none(cached_tokens),
        completion_tokens=output.tokens,
        counted_by=output.counted_by,
        text=shown_texts["text"],
        reasoning=shown_texts["reasoning"] or None,
        tool_calls=shown_texts["tool_calls"] or None,
        unknown_parts=tuple(sorted(parser.unknown_parts)),
        token_ids=tuple(parser.ids) if parser.has_all_ids and not repeats_secret else None,
        logprobs=JSON_NULL if repeats_secret else _join_logprobs(parser.logprobs),
        model=parser.model,
        finish_reason=parser.finish_reason,
        error=word,
        error_detail=detail if word else output.contradiction,
    )


def _draft_record(reply: ServerReply, request: CompletionRequest) -> RequestRecord:
    """Return a record without the answer."""
    return RequestRecord(
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


def has_tokens(reply: ServerReply) -> bool:
    """Return whether the bytes so far hold an event with tokens.

    The first token's time-out calls this once the time is up, so nothing is parsed while reads come
    in.
    """
    return any(chunk.bears_tokens for chunk in _parse_events(reply).list_chunks())


def has_running_usage(reply: ServerReply) -> bool:
    """Return whether every event with text has a running usage."""
    return _parse_events(reply).has_running_usage


def _parse_events(reply: ServerReply, models: Collection[str] = ()) -> AnswerParser:
    parser = AnswerParser(models)
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

    has_nothing = not (parser.chunks or parser.is_done or parser.fault)
    if splitter.foreign_line is not None and has_nothing:
        parser.fault = describe_foreign_body(reply)
    elif parser.is_lost:
        words = format_bytes(parser.stray_text)
        description = f"no finish_reason ends the answer, and the server says {words}"
        parser.fault = EventError("api_error", description)
    elif parser.skipped_event and not parser.chunks:
        description = f"an event has no choices: {format_bytes(parser.skipped_event)}"
        parser.fail(EventError("no_choices", description))
    return parser


class _OutputCount(NamedTuple):
    """Output tokens, what they were counted by, and what contradicts them."""

    tokens: int | None
    counted_by: Literal["usage", "token_ids"] | None
    contradiction: str | None = None


def _count_output(parser: AnswerParser) -> _OutputCount:
    total = parser.usage_tokens
    id_count = len(parser.ids)
    contradiction = None
    if parser.has_all_ids and total != id_count:
        if total is not None:
            contradiction = (
                f"usage says {total} output tokens, the stream held {id_count} token ids"
            )
        return _OutputCount(id_count, "token_ids", contradiction)
    running = parser.running_total
    if running and total not in {running, running + 1}:
        contradiction = f"usage counted up to {running} tokens and says {total} at the end"
    return _OutputCount(total, None if total is None else "usage", contradiction)


def _join_texts(outputs: Sequence[ChoiceOutput]) -> dict[str, str]:
    """Return the texts of all events as one of each kind."""
    return {
        "text": "".join(output.text for output in outputs),
        "reasoning": "".join(output.reasoning for output in outputs),
        "tool_calls": "".join(output.tool_calls for output in outputs),
    }


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
    parser: AnswerParser, reply: ServerReply, request: CompletionRequest
) -> tuple[str | None, str | None]:
    """Return the error word and its detail; None if nothing is wrong."""
    if reply.error == "interrupted":
        return reply.error, reply.error_detail
    tokens = parser.least_tokens
    if tokens > ENDLESS_FACTOR * request.max_tokens + ENDLESS_EXTRA:
        detail = f"at least {tokens} tokens came, where {request.max_tokens} were allowed"
        return "endless", f"{detail}: the server ignores max_tokens"
    is_whole_on_wire = reply.error in {None, "closed"}
    if not is_whole_on_wire and not parser.is_done:
        return reply.error, reply.error_detail
    if parser.fault is not None:
        return parser.fault.word, parser.fault.detail
    if parser.is_done or (parser.finish_reason and not parser.writes_after_end):
        return None, None

    end = "a finish_reason or [DONE]"
    if parser.finish_reason:
        end = "[DONE], and text came after its finish_reason"
    description = f"the stream ended after {len(parser.chunks)} events, before {end}"
    return "closed", f"{description}: {reply.error_detail}" if reply.error_detail else description
