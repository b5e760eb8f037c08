"""What one request will be answered, all of it, before its first token: the twin knows its text in advance.

Invariant: of two servers with the same classes the same request gets the same text, whatever their law, their times
or their faults; it depends on the prompt and, above temperature 0, on the request's seed.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tandem.twin.server.ask import Ask
from tandem.twin.server.knobs import DEFAULT_CLASS, ClassKnobs, Knobs
from tandem.twin.server.prose import prose
from tandem.twin.server.tokens import END_ID, THINK_ID, THOUGHT_ID, pieces, token_id

Part = Literal["think", "content"]
OPENED, CLOSED = "<think>\n", "\n</think>\n\n"
END = "<|im_end|>"
_JSON = ('{"answer": "', '"}')


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer.

    Args:
        piece: its own text. shown: what of it is streamed: nothing of the end, and no stop string.
        part: where it is shown.
    """

    id: int
    piece: str
    shown: str
    part: Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """An answer.

    Args:
        tokens: all that is generated, the end token too. reasoning_tokens: how many of them are thought.
        finish_reason: stop or length. stop_reason: the stop string that ended it.
    """

    class_: str
    tokens: tuple[Token, ...]
    reasoning_tokens: int
    finish_reason: Literal["stop", "length"]
    stop_reason: str | None


def class_of(prompt: str, knobs: Knobs) -> str:
    """Return the first class of which the prompt contains a text."""
    for name, class_ in knobs.classes.items():
        if any(text in prompt for text in class_.contains):
            return name
    return DEFAULT_CLASS


def write_script(ask: Ask, knobs: Knobs, room: int) -> Script:
    """Write the answer to a request.

    Args:
        room: most tokens that the model's length and the request leave to it.
    """
    class_ = class_of(ask.text, knobs)
    key = f"{ask.text}\n{ask.seed or 0}" if ask.temperature else ask.text
    thought = list(_thought(key, knobs, class_)) if ask.thinking else []
    end = () if ask.ignore_eos else (Token(END_ID, END, "", "content"),)
    said = itertools.chain(_said(key, knobs.classes[class_], endless=ask.ignore_eos), end)
    tokens = tuple(itertools.islice(itertools.chain(thought, said), room))
    ended = bool(tokens) and tokens[-1].id == END_ID
    script = Script(
        class_=class_, tokens=tokens, reasoning_tokens=min(len(thought), len(tokens)),
        finish_reason="stop" if ended else "length", stop_reason=None,
    )  # fmt: skip
    return _stopped(script, ask.stop)


def _thought(key: str, knobs: Knobs, class_: str) -> Iterator[Token]:
    parsed = knobs.reasoning_parser
    yield Token(THINK_ID, OPENED, "" if parsed else OPENED, "think" if parsed else "content")
    for piece in itertools.islice(prose(f"thought\n{key}"), knobs.classes[class_].reasoning_tokens):
        yield Token(token_id(piece), piece, piece, "think" if parsed else "content")
    yield Token(THOUGHT_ID, CLOSED, "" if parsed else CLOSED, "think" if parsed else "content")


def _said(key: str, class_: ClassKnobs, *, endless: bool) -> Iterator[Token]:
    """Yield the tokens of an answer without its end token; an endless one never closes."""
    length = _length(key, class_) - 1
    opening, closing = (pieces(part) for part in (_JSON if class_.form == "json" else ("", "")))
    words = prose(key, paragraphs=class_.form == "prose")
    if not endless:
        words = itertools.chain(itertools.islice(words, max(0, length - len(opening) - len(closing))), closing)
    for piece in itertools.islice(itertools.chain(opening, words), None if endless else length):
        yield Token(token_id(piece), piece, piece, "content")


def _length(key: str, class_: ClassKnobs) -> int:
    """Return the tokens of an answer that ends by itself, its end token among them."""
    if not class_.output_spread:
        return class_.output_tokens
    drawn = int.from_bytes(hashlib.sha256(key.encode(errors="replace")).digest()[:8]) % (2 * class_.output_spread + 1)
    return max(1, class_.output_tokens - class_.output_spread + drawn)


def _stopped(script: Script, stops: tuple[str, ...]) -> Script:
    """Cut the content before the first stop string; the token that completes it is the last."""
    text, ends = "", []
    for token in script.tokens:
        text += token.shown if token.part == "content" else ""
        ends.append(len(text))
    found = min(((at, stop) for stop in stops if (at := text.find(stop)) >= 0), default=None)
    if found is None:
        return script
    at, stop = found
    kept, start = [], 0
    for token, end in zip(script.tokens, ends, strict=True):
        kept.append(token if token.part == "think" else replace(token, shown=text[start : min(end, max(start, at))]))
        start = end
        if end >= at + len(stop):
            break
    return replace(
        script, tokens=tuple(kept), reasoning_tokens=min(script.reasoning_tokens, len(kept)),
        finish_reason="stop", stop_reason=stop,
    )  # fmt: skip
