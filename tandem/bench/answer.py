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

import json
import re
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from tandem.bench.record import NULL, Chunk, Kind
from tandem.bench.reply import NS_PER_S, Reply
from tandem.bench.sse import Splitter
from tandem.bench.wire import Ask

OK = 200
BROKEN_OFF = {"abort", "error"}  # FinishReason in vllm/v1/engine/__init__.py: no end that an answer may have
DONE = b"[DONE]"
DETAIL = 300  # characters of what a server said that a record keeps
ENDLESS_FACTOR, ENDLESS_MORE = 2, 64  # more tokens than this many times what was asked, and some, is endless
NESTED_MOST = 4  # how deep in error objects a message may stand
BIG = 2**53  # a count beyond is no count
INFLATED_MOST = 1 << 28  # bytes that a compressed body may grow to
GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
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


class _BadError(Exception):
    def __init__(self, word: str, detail: str) -> None:
        super().__init__(word)
        self.word, self.detail = word, detail[:DETAIL]


def read(reply: Reply, ask: Ask, models: Collection[str] = ()) -> Answer:
    """Return what `reply` holds. Pure; never raises for what a server sent.

    Args:
        reply: a reply that has ended.
        ask: what was asked.
        models: names the server may give its model, `Found.models` of the probe; empty: any.
    """
    if reply.status != OK:
        return Answer(error=reply.error or f"status_{reply.status}", error_detail=reply.error_detail or _said(reply))
    reading = _Reading(models)
    _fill(reading, reply)
    return _answer(reading, reply, ask)


def bears_tokens(reply: Reply) -> bool:
    """Return whether what has come so far holds an event with output; reads no further than the first.

    For the first token's time-out: it looks once the time is up, so that nothing is parsed while reads come in.
    """
    try:
        return any(_has_output(event) for _, event in _events(reply, Splitter()) if event.strip() != DONE)
    except _BadError:  # a content coding that cannot be undone
        return False


def counts_as_it_goes(reply: Reply) -> bool:
    """Return whether the server put a running usage into every event with text."""
    reading = _Reading(())
    _fill(reading, reply)
    return _runs(reading)


def _has_output(event: bytes) -> bool:
    try:
        message = _json(event)
        choice = _choice(message) if isinstance(message, dict) else None
    except _BadError:
        return False
    if choice is None:
        return False
    text, reasoning = _texts(choice)
    usage = message.get("usage")
    counted = isinstance(usage, dict) and _count(usage.get("completion_tokens"))
    return bool(text or reasoning or choice.get("token_ids") or counted)


def _fill(reading: _Reading, reply: Reply) -> None:
    splitter = Splitter()
    seen = False
    try:
        for at_s, event in _events(reply, splitter):
            seen = True
            reading.take(at_s, event)
        left = splitter.end()
        if left is not None and _is_whole(left):
            seen = True
            reading.take(_since(reply, reply.reads[-1][0]), left)
    except _BadError as bad:  # the content coding broke: no later byte has a meaning
        reading.blame(bad)
    if not seen and reading.fault is None and splitter.strange is not None:
        reading.fault = _no_stream(reply)


def _events(reply: Reply, splitter: Splitter) -> Iterator[tuple[float, bytes]]:
    for at_ns, piece in _pieces(reply):
        events = splitter.feed(piece)
        if events:
            at_s = _since(reply, at_ns)
            for event in events:
                yield at_s, event


def _since(reply: Reply, at_ns: int) -> float:
    return (at_ns - reply.start_ns) / NS_PER_S


def _pieces(reply: Reply) -> Iterator[tuple[int, bytes]]:
    """Yield time and plain bytes of each read.

    Raises:
        _BadError: a content coding that was not asked for and is not gzip or deflate, or is broken.
    """
    coding = reply.content_encoding
    if coding in {"", "identity"}:
        yield from reply.reads
        return
    if coding not in {"gzip", "x-gzip", "deflate"}:
        raise _BadError("decode", f"the body is coded as {coding}, though identity was asked for")
    inflate, size = zlib.decompressobj(GZIP_OR_ZLIB), 0
    for at_ns, piece in reply.reads:
        try:
            plain = inflate.decompress(piece, INFLATED_MOST - size)
        except zlib.error as error:
            raise _BadError("decode", f"the body's {coding} coding is broken: {error}") from error
        size += len(plain)
        if size >= INFLATED_MOST:
            raise _BadError("endless", f"the compressed body grew beyond {INFLATED_MOST} bytes")
        yield at_ns, plain


def _is_whole(left: bytes) -> bool:
    if left.strip() == DONE:
        return True
    try:
        _json(left)
    except _BadError:
        return False
    return True


def _json(event: bytes) -> Any:
    try:
        return msgspec.json.decode(event)
    except UnicodeDecodeError as error:
        raise _BadError("decode", f"an event is no UTF-8: {error.reason} in {_shown(event)}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        if _has_half_a_pair(event):
            raise _BadError("decode", f"an event holds half of a surrogate pair: {_shown(event)}") from error
        raise _BadError("not_json", f"an event is no JSON: {_shown(event)}") from error


def _has_half_a_pair(event: bytes) -> bool:
    r"""Return whether an escape like \ud800 stands alone: JSON's grammar allows it, UTF-8 cannot hold it."""
    try:
        json.dumps(json.loads(event), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _dumped(value: Any) -> str:
    return bytes(_raw(value))[:DETAIL].decode(errors="replace")


def _shown(data: bytes) -> str:
    return repr(data[:DETAIL].decode(errors="replace"))


def _choice(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the first choice; None where there is none.

    Raises:
        _BadError: there is no list of choices and no usage in its place.
    """
    choices = message.get("choices")
    if isinstance(choices, list):
        return choices[0] if choices and isinstance(choices[0], dict) else None
    if isinstance(message.get("usage"), dict):
        return None
    raise _BadError("no_choices", f"an event has no choices: {_dumped(message)}")


def _texts(choice: dict[str, Any]) -> tuple[str, str]:
    """Return text and reasoning of a choice: of chat's delta (`reasoning` is vLLM's newer name), or of completions."""
    delta = choice.get("delta") or choice.get("message")
    if not isinstance(delta, dict):
        return _string(choice.get("text")), ""
    return _string(delta.get("content")), _string(delta.get("reasoning_content")) or _string(delta.get("reasoning"))


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < BIG else None


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
    fault: _BadError | None = None

    def blame(self, bad: _BadError) -> None:
        self.fault = self.fault or bad

    def take(self, at_s: float, event: bytes) -> None:
        """Take one event; a bad one is blamed and passed over."""
        if event.strip() == DONE:
            self.done = True
            return
        try:
            message = _json(event)
            _refuse(message)
            self._name(message)
            choice = _choice(message)
        except _BadError as bad:
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
        text, reasoning = _texts(choice)
        finish = _string(choice.get("finish_reason"))
        part = _Part(at_s, _kind(choice, text, reasoning, finish), _count(usage.get("completion_tokens")))
        self.parts.append(part)
        if text:
            self.text.append(text)
        if reasoning:
            self.reasoning.append(reasoning)
        self.finish_reason = finish or self.finish_reason
        if finish in BROKEN_OFF:
            self.blame(_BadError("api_error", f"the server broke the answer off with finish_reason {finish}"))
        ids = choice.get("token_ids")
        if isinstance(ids, list) and all(_count(one) is not None for one in ids):
            part.ids = len(ids)
            self.ids += ids
        if choice.get("logprobs"):
            self.logprobs.append(choice["logprobs"])

    def _name(self, message: dict[str, Any]) -> None:
        name = _string(message.get("model"))
        if self.model is None and name:
            self.model = name
            if self.models and name not in self.models and not any(_is_dated(name, one) for one in self.models):
                self.blame(_BadError("wrong_model", f"the server answers as {name}, not as {_listed(self.models)}"))


def _is_dated(name: str, asked: str) -> bool:
    return name.startswith(asked) and DATED.fullmatch(name[len(asked) :]) is not None


def _listed(names: Collection[str]) -> str:
    return " or ".join(sorted(names))


def _refuse(message: Any) -> None:
    """Raise what a whole JSON event says of its own failure."""
    if not isinstance(message, dict):
        raise _BadError("no_choices", f"an event is JSON, but no object: {_dumped(message)}")
    error = message.get("error") or (message if message.get("object") == "error" else None)
    if error:
        raise _BadError("api_error", _message(error))


def _message(error: Any) -> str:
    """Return what an error object says, in the forms of OpenAI, vLLM and FastAPI."""
    for _ in range(NESTED_MOST):
        if not isinstance(error, dict):
            break
        error = next((error[key] for key in ("message", "error", "detail") if error.get(key)), None) or json.dumps(
            error
        )
    return error if isinstance(error, str) else _dumped(error)


def _kind(choice: dict[str, Any], text: str, reasoning: str, finish: str) -> Kind | None:
    if text:
        return "text"
    if reasoning:
        return "reasoning"
    if finish:
        return "end"
    delta = choice.get("delta")
    return "role" if isinstance(delta, dict) and delta.get("role") else None


def _no_stream(reply: Reply) -> _BadError:
    """Return what a body that is no event stream is."""
    body = b"".join(piece for _, piece in _pieces(reply)).strip()
    said = f"the answer is {reply.content_type or 'of no type'}, not text/event-stream: {_shown(body)}"
    if body[:1] not in {b"{", b"["} and "json" not in reply.content_type:
        return _BadError("not_sse", said)
    try:
        message = _json(body)
        _refuse(message)
        _choice(message)
    except _BadError as bad:
        return bad
    return _BadError("not_sse", f"the answer came whole instead of as a stream: {_shown(body)}")


def _said(reply: Reply) -> str | None:
    """Return what the body of a refusal says."""
    try:
        body = b"".join(piece for _, piece in _pieces(reply)).strip()
        if body in {b"", b"{}"}:
            return None
        return (_message(_json(body)) if body[:1] == b"{" else _plain(body))[:DETAIL]
    except _BadError:
        return _plain(b"".join(piece for _, piece in reply.reads))[:DETAIL] or None


def _plain(body: bytes) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", body.decode(errors="replace")).split())


def _answer(reading: _Reading, reply: Reply, ask: Ask) -> Answer:
    counts = _tokens(reading)
    chunks = tuple(Chunk(p.at_s, _settled(p, n), n) for p, n in zip(reading.parts, counts, strict=True))
    total, counted_by, doubt = _total(reading)
    word, detail = _fault(reading, reply, ask, total if total is not None else _bearing(chunks))
    details = reading.usage.get("prompt_tokens_details")
    return Answer(
        chunks=chunks,
        prompt_tokens=_count(reading.usage.get("prompt_tokens")),
        cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else None,
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
    said = _count(reading.usage.get("completion_tokens"))
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
        return _raw([entry for one in logprobs for entry in _list(one.get("content"))])
    columns: dict[str, list[Any]] = {}
    for one in logprobs:
        for name, values in one.items():
            columns.setdefault(name, []).extend(_list(values))
    return _raw(columns)


def _raw(value: Any) -> msgspec.Raw:
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except RecursionError:  # nested as deeply as no server means
        return NULL


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


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
