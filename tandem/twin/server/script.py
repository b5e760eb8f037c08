"""What one request will be answered: how long, and which tokens, known before its first one.

Invariant: of two servers with the same classes the same request gets the same text, whatever their law, their times
or their faults; it depends on the prompt and, above temperature 0, on the request's seed.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from tandem.twin.server.ask import Ask
from tandem.twin.server.knobs import DEFAULT_CLASS, ClassKnobs, Knobs
from tandem.twin.server.prose import prose
from tandem.twin.server.tokens import END_ID, THINK_ID, THOUGHT_ID, pieces, token_id

Part = Literal["think", "content"]
OPENED, CLOSED = "<think>\n", "\n</think>\n\n"
END = "<|im_end|>"
_JSON = ('{"answer": "', '"}')


class Token(NamedTuple):
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
        count: tokens that are generated, the end token too. reasoning_tokens: how many of them are thought.
        begin: begins it anew, token by token, so that a long answer holds nobody up when it is asked for.
        finish_reason: stop or length. stop_reason: the stop string that ended it.
    """

    class_: str
    count: int
    reasoning_tokens: int
    begin: Callable[[], Iterator[Token]]
    finish_reason: Literal["stop", "length"]
    stop_reason: str | None = None

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Return the whole of it."""
        return tuple(itertools.islice(self.begin(), self.count))


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
    chosen = knobs.classes[class_]
    key = f"{ask.text}\n{ask.seed or 0}" if ask.temperature else ask.text
    thought = chosen.reasoning_tokens + 2 if ask.thinking else 0
    whole = room if ask.ignore_eos else thought + _length(key, chosen)

    def begin() -> Iterator[Token]:
        if ask.thinking:
            yield from _thought(key, chosen, parsed=knobs.reasoning_parser)
        yield from _said(key, chosen, endless=ask.ignore_eos)
        yield Token(END_ID, END, "", "content")

    script = Script(
        class_=class_, count=min(room, whole), reasoning_tokens=min(room, thought), begin=begin,
        finish_reason="length" if ask.ignore_eos or whole > room else "stop",
    )  # fmt: skip
    return _stopped(script, ask.stop) if ask.stop else script


def _thought(key: str, class_: ClassKnobs, *, parsed: bool) -> Iterator[Token]:
    """Yield a thought with its marks, which a parser swallows."""
    part: Part = "think" if parsed else "content"
    yield Token(THINK_ID, OPENED, "" if parsed else OPENED, part)
    for piece in itertools.islice(prose(f"thought\n{key}"), class_.reasoning_tokens):
        yield Token(token_id(piece), piece, piece, part)
    yield Token(THOUGHT_ID, CLOSED, "" if parsed else CLOSED, part)


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
    tokens = script.tokens
    ends = tuple(itertools.accumulate(len(token.shown) if token.part == "content" else 0 for token in tokens))
    text = "".join(token.shown for token in tokens if token.part == "content")
    found = min(((at, stop) for stop in stops if (at := text.find(stop)) >= 0), default=None)
    if found is None:
        return script
    at, stop = found
    kept, start = [], 0
    for token, end in zip(tokens, ends, strict=True):
        shown = token.shown if token.part == "think" else text[start : min(end, max(start, at))]
        kept.append(token._replace(shown=shown))
        start = end
        if end >= at + len(stop):
            break
    return replace(
        script, count=len(kept), begin=lambda: iter(kept), reasoning_tokens=min(script.reasoning_tokens, len(kept)),
        finish_reason="stop", stop_reason=stop,
    )  # fmt: skip
