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

from tandem.bench.body import events, no_stream, said, since_s
from tandem.bench.event import (
    DONE,
    EventError,
    as_list,
    choice_of,
    count,
    decoded,
    has_output,
    kind_of,
    raw,
    refuse,
    string,
    texts,
)
from tandem.bench.record import NULL, Chunk, Kind
from tandem.bench.reply import Reply
from tandem.bench.sse import Splitter
from tandem.bench.wire import Ask

OK = 200
BROKEN_OFF = {"abort", "error"}  # FinishReason in vllm/v1/engine/__init__.py: no end that an answer may have
ENDLESS_FACTOR, ENDLESS_MORE = 2, 64  # more tokens than this many times what was asked, and some, is endless
DATED = re.compile(r"-\d[\d-]*\Z")  # a name's dated snapshot, as OpenAI answers


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a reply held; the fields are the record's of the same name, and go into it by `msgspec.structs.asdict`."""

    chunks: tuple[Chunk, ...] = ()
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    counted_by: Literal["usage", "token_ids"] | None = None
    text: str = ""
    reasoning: str | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: msgspec.Raw = NULL
    model: str | None = None
    finish_reason: str | None = None
    error: str | None = None
    error_detail: str | None = None


def read(reply: Reply, ask: Ask, models: Collection[str] = ()) -> Answer:
    """Return what `reply` holds. Pure; never raises for what a server sent.

    Args:
        reply: a reply that has ended.
        ask: what was asked.
        models: names the server may give its model, `Found.models` of the probe; empty: any.
    """
    if reply.status != OK:
        return Answer(error=reply.error or f"status_{reply.status}", error_detail=reply.error_detail or said(reply))
    reading = _Reading(models)
    _fill(reading, reply)
    return _answer(reading, reply, ask)


def bears_tokens(reply: Reply) -> bool:
    """Return whether what has come so far holds an event with output; reads no further than the first.

    For the first token's time-out: it looks once the time is up, so that nothing is parsed while reads come in.
    """
    try:
        return any(has_output(event) for _, event in events(reply, Splitter()) if event.strip() != DONE)
    except EventError:  # a content coding that cannot be undone
        return False


def counts_as_it_goes(reply: Reply) -> bool:
    """Return whether the server put a running usage into every event with text."""
    reading = _Reading(())
    _fill(reading, reply)
    return _runs(reading)


def _fill(reading: _Reading, reply: Reply) -> None:
    splitter = Splitter()
    seen = False
    try:
        for at_s, event in events(reply, splitter):
            seen = True
            reading.take(at_s, event)
        left = splitter.end()
        if left is not None and _is_whole(left):
            seen = True
            reading.take(since_s(reply, reply.reads[-1][0]), left)
    except EventError as bad:  # the content coding broke: no later byte has a meaning
        reading.blame(bad)
    if not seen and reading.fault is None and splitter.strange is not None:
        reading.fault = no_stream(reply)


def _is_whole(left: bytes) -> bool:
    if left.strip() == DONE:
        return True
    try:
        decoded(left)
    except EventError:
        return False
    return True


@dataclass(slots=True)
class _Part:
    """One event, before it is known whether the server counts in every one."""

    at_s: float
    kind: Kind | None  # None: a choice without text, end or role
    running: int | None = None  # usage.completion_tokens that stood beside a choice
    ids: int | None = None


@dataclass(slots=True)
class _Reading:
    models: Collection[str]
    parts: list[_Part] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    finish_reason: str | None = None
    done: bool = False
    fault: EventError | None = None

    def blame(self, bad: EventError) -> None:
        self.fault = self.fault or bad

    def take(self, at_s: float, event: bytes) -> None:
        """Take one event; a bad one is blamed and passed over."""
        if event.strip() == DONE:
            self.done = True
            return
        try:
            message = decoded(event)
            refuse(message)
            self._name(message)
            choice = choice_of(message)
        except EventError as bad:
            self.blame(bad)
            return
        usage = message.get("usage")
        if isinstance(usage, dict):
            self.usage |= {key: value for key, value in usage.items() if value is not None}
        if choice is None:
            self.parts.append(_Part(at_s, "usage"))
        else:
            self._take_choice(at_s, choice, usage if isinstance(usage, dict) else {})

    def _take_choice(self, at_s: float, choice: dict[str, Any], usage: dict[str, Any]) -> None:
        text, reasoning = texts(choice)
        finish = string(choice.get("finish_reason"))
        part = _Part(at_s, kind_of(choice, text, reasoning, finish), count(usage.get("completion_tokens")))
        self.parts.append(part)
        if text:
            self.text.append(text)
        if reasoning:
            self.reasoning.append(reasoning)
        self.finish_reason = finish or self.finish_reason
        if finish in BROKEN_OFF:
            self.blame(EventError("api_error", f"the server broke the answer off with finish_reason {finish}"))
        ids = choice.get("token_ids")
        if isinstance(ids, list) and all(count(one) is not None for one in ids):
            part.ids = len(ids)
            self.ids += ids
        if choice.get("logprobs"):
            self.logprobs.append(choice["logprobs"])

    def _name(self, message: dict[str, Any]) -> None:
        name = string(message.get("model"))
        if self.model is None and name:
            self.model = name
            if self.models and name not in self.models and not any(_is_dated(name, one) for one in self.models):
                self.blame(EventError("wrong_model", f"the server answers as {name}, not as {_listed(self.models)}"))


def _is_dated(name: str, asked: str) -> bool:
    return name.startswith(asked) and DATED.fullmatch(name[len(asked) :]) is not None


def _listed(names: Collection[str]) -> str:
    return " or ".join(sorted(names))


def _answer(reading: _Reading, reply: Reply, ask: Ask) -> Answer:
    counts = _tokens(reading)
    chunks = tuple(Chunk(p.at_s, _settled(p, n), n) for p, n in zip(reading.parts, counts, strict=True))
    total, counted_by, doubt = _total(reading)
    word, detail = _fault(reading, reply, ask, total if total is not None else _bearing(chunks))
    details = reading.usage.get("prompt_tokens_details")
    return Answer(
        chunks=chunks,
        prompt_tokens=count(reading.usage.get("prompt_tokens")),
        cached_tokens=count(details.get("cached_tokens")) if isinstance(details, dict) else None,
        completion_tokens=total,
        counted_by=counted_by,
        text="".join(reading.text),
        reasoning="".join(reading.reasoning) or None,
        token_ids=tuple(reading.ids) if _has_all_ids(reading) else None,
        logprobs=_joined(reading.logprobs),
        model=reading.model,
        finish_reason=reading.finish_reason,
        error=word,
        error_detail=detail if word else doubt,
    )


def _texted(reading: _Reading) -> list[_Part]:
    return [part for part in reading.parts if part.kind in {"text", "reasoning"}]


def _has_all_ids(reading: _Reading) -> bool:
    return bool(reading.ids) and all(part.ids is not None for part in _texted(reading))


def _runs(reading: _Reading) -> bool:
    """Return whether the server counts in every chunk: each with text has a count, and no count falls."""
    counts = [part.running for part in reading.parts if part.running is not None]
    every = all(part.running is not None for part in _texted(reading))
    return bool(counts) and every and counts[-1] > 0 and counts == sorted(counts)


def _highest(reading: _Reading) -> int:
    return max((part.running or 0 for part in reading.parts), default=0)


def _tokens(reading: _Reading) -> list[int | None]:
    """Return the tokens of each event, None where the server does not say."""
    known = _has_all_ids(reading)
    if not _runs(reading) or (known and _highest(reading) != len(reading.ids)):
        return [part.ids if known else None for part in reading.parts]
    tokens: list[int | None] = []
    before = 0
    for part in reading.parts:
        tokens.append(None if part.running is None else part.running - before)
        before = before if part.running is None else part.running
    return tokens


def _settled(part: _Part, tokens: int | None) -> Kind:
    """Return an event's kind now that its tokens are known: without any it is as good as a role."""
    if part.kind is not None:
        return "empty" if part.kind == "role" and tokens else part.kind
    return "role" if tokens == 0 else "empty"


def _bearing(chunks: tuple[Chunk, ...]) -> int:
    return sum(chunk.bears_tokens for chunk in chunks)


def _total(reading: _Reading) -> tuple[int | None, Literal["usage", "token_ids"] | None, str | None]:
    """Return the output's tokens, who counted them, and a contradiction in what the server says."""
    said = count(reading.usage.get("completion_tokens"))
    if _has_all_ids(reading):
        held = len(reading.ids)
        if said is None or held != said:
            doubt = None if said is None else f"usage says {said} output tokens, the stream held {held} token ids"
            return held, "token_ids", doubt
    running = _highest(reading)
    doubt = f"usage counted up to {running} tokens and says {said} at the end" if running not in {0, said} else None
    return said, None if said is None else "usage", doubt


def _joined(logprobs: list[Any]) -> msgspec.Raw:
    """Return the log-probabilities of all chunks as one: chat's entries in a list, completions' columns joined."""
    if not logprobs or not all(isinstance(one, dict) for one in logprobs):
        return NULL
    if any("content" in one for one in logprobs):
        return raw([entry for one in logprobs for entry in as_list(one.get("content"))])
    columns: dict[str, list[Any]] = {}
    for one in logprobs:
        for name, values in one.items():
            columns.setdefault(name, []).extend(as_list(values))
    return raw(columns)


def _fault(reading: _Reading, reply: Reply, ask: Ask, tokens: int) -> tuple[str | None, str | None]:
    """Return the word and the detail of what is wrong; None for nothing."""
    if reply.error == "interrupted":
        return reply.error, reply.error_detail
    if tokens > ENDLESS_FACTOR * ask.max_tokens + ENDLESS_MORE:
        return "endless", f"{ask.max_tokens} tokens were asked for, and at least {tokens} came"
    if reply.error not in {None, "closed"} and not reading.done:
        return reply.error, reply.error_detail
    if reading.fault is not None:
        return reading.fault.word, reading.fault.detail
    if reading.done or (reading.finish_reason and reply.error in {None, "closed"}):
        return None, None
    came = f"the stream ended after {len(reading.parts)} events, before a finish_reason or [DONE]"
    return "closed", f"{came}: {reply.error_detail}" if reply.error_detail else came
