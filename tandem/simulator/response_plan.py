"""The plan of an answer: its length and its tokens, known before the first one.

Invariant: two servers with the same classes plan the same text for the same request, with any law
or times; the text depends on the prompt and, above temperature 0, on the request's seed.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from tandem.simulator.generation_request import GenerationRequest
from tandem.simulator.settings import DEFAULT_CLASS, PromptClassSettings, SimulatorSettings
from tandem.simulator.text_generator import (
    END_ID,
    END_THINK_ID,
    THINK_ID,
    generate_text,
    split_pieces,
    token_id,
)

ResponsePart = Literal["think", "content"]
THINK_START = "<think>\n"
THINK_END = "\n</think>\n\n"
END_TEXT = "<|im_end|>"
_JSON_FRAME = ('{"answer": "', '"}')


class ResponseToken(NamedTuple):
    """One token of an answer.

    Args:
        piece: text of the token.
        visible_text: its streamed part: none of the end token, and no stop string.
        part: field in which the text is streamed.
    """

    id: int
    piece: str
    visible_text: str
    part: ResponsePart


@dataclass(frozen=True, kw_only=True)
class ResponsePlan:
    """An answer.

    Args:
        count: generated tokens, the end token included.
        reasoning_tokens: those of the thought among them.
        begin: yields the tokens from the first on, one by one, so that a long answer delays no
            other request.
        finish_reason: stop or length.
        stop_reason: the stop string that ended the answer; None for none.
    """

    class_: str
    count: int
    reasoning_tokens: int
    begin: Callable[[], Iterator[ResponseToken]]
    finish_reason: Literal["stop", "length"]
    stop_reason: str | None = None

    @property
    def tokens(self) -> tuple[ResponseToken, ...]:
        """Return all tokens of the answer."""
        return tuple(itertools.islice(self.begin(), self.count))


def classify_prompt(prompt: str, settings: SimulatorSettings) -> str:
    """Return the first class with a text that the prompt contains, else the default class."""
    for name, class_ in settings.classes.items():
        if any(text in prompt for text in class_.contains):
            return name
    return DEFAULT_CLASS


def plan_response(
    generation_request: GenerationRequest, settings: SimulatorSettings, max_tokens: int
) -> ResponsePlan:
    """Return the plan of the answer to a request.

    Args:
        max_tokens: most tokens, by the model's length and the request.
    """
    class_ = classify_prompt(generation_request.text, settings)
    class_settings = settings.classes[class_]
    key = generation_request.text
    if generation_request.temperature:
        key += f"\n{generation_request.seed or 0}"
    thought_tokens = class_settings.reasoning_tokens + 2 if generation_request.thinking else 0
    total_tokens = max_tokens
    if not generation_request.ignore_eos:
        total_tokens = thought_tokens + _answer_length(key, class_settings)

    def begin() -> Iterator[ResponseToken]:
        if generation_request.thinking:
            yield from _thought_tokens(key, class_settings, uses_parser=settings.reasoning_parser)
        yield from _answer_tokens(key, class_settings, is_endless=generation_request.ignore_eos)
        yield ResponseToken(END_ID, END_TEXT, "", "content")

    plan = ResponsePlan(
        class_=class_,
        count=min(max_tokens, total_tokens),
        reasoning_tokens=min(max_tokens, thought_tokens),
        begin=begin,
        finish_reason=(
            "length" if generation_request.ignore_eos or total_tokens > max_tokens else "stop"
        ),
    )
    if not generation_request.stop:
        return plan
    return _cut_at_stop(plan, generation_request.stop)


def _thought_tokens(
    key: str, class_: PromptClassSettings, *, uses_parser: bool
) -> Iterator[ResponseToken]:
    """Yield the tokens of a thought with its marks, which a parser hides."""
    part: ResponsePart = "think" if uses_parser else "content"
    yield ResponseToken(THINK_ID, THINK_START, "" if uses_parser else THINK_START, part)
    for piece in itertools.islice(generate_text(f"thought\n{key}"), class_.reasoning_tokens):
        yield ResponseToken(token_id(piece), piece, piece, part)
    yield ResponseToken(END_THINK_ID, THINK_END, "" if uses_parser else THINK_END, part)


def _answer_tokens(
    key: str, class_: PromptClassSettings, *, is_endless: bool
) -> Iterator[ResponseToken]:
    """Yield the tokens of an answer without its end token; an endless one never closes."""
    answer = _add_numbers(key, class_)
    if answer:
        pieces = split_pieces(answer)
        for piece in pieces:
            yield ResponseToken(token_id(piece), piece, piece, "content")
        return
    length = _answer_length(key, class_) - 1
    opening, closing = (
        split_pieces(part) for part in (_JSON_FRAME if class_.form == "json" else ("", ""))
    )
    words = generate_text(key, paragraphs=class_.form == "prose")
    if not is_endless:
        words = itertools.chain(
            itertools.islice(words, max(0, length - len(opening) - len(closing))), closing
        )
    for piece in itertools.islice(itertools.chain(opening, words), None if is_endless else length):
        yield ResponseToken(token_id(piece), piece, piece, "content")


def _add_numbers(key: str, class_: PromptClassSettings) -> str:
    """Return a prompt's sum, wrong in about one of `wrong_every` prompts; empty if none asked."""
    numbers = re.search(r"(\d{1,9}) \+ (\d{1,9})", key)
    if numbers is None or class_.form != "sum":
        return ""
    is_wrong = class_.wrong_every and _digest_key(key) % class_.wrong_every == 0
    return str(int(numbers[1]) + int(numbers[2]) + bool(is_wrong))


def _digest_key(key: str) -> int:
    return int.from_bytes(hashlib.sha256(key.encode(errors="replace")).digest()[:8])


def _answer_length(key: str, class_: PromptClassSettings) -> int:
    """Return the number of tokens of an answer that ends by itself, its end token included."""
    answer = _add_numbers(key, class_)
    if answer:
        return len(split_pieces(answer)) + 1
    if not class_.output_spread:
        return class_.output_tokens
    offset = _digest_key(key) % (2 * class_.output_spread + 1)
    return max(1, class_.output_tokens - class_.output_spread + offset)


def _cut_at_stop(plan: ResponsePlan, stops: Iterable[str]) -> ResponsePlan:
    """Cut the content before the first stop string; the last token completes this string."""
    tokens = plan.tokens
    text = "".join(token.visible_text for token in tokens if token.part == "content")
    matches = [(text.find(stop), stop) for stop in stops if stop in text]
    if not matches:
        return plan

    match_index, stop = min(matches)
    plan_tokens = []
    start = 0
    for token in tokens:
        if token.part == "content":
            end = start + len(token.visible_text)
            visible_text = text[start : min(end, max(start, match_index))]
            token = token._replace(visible_text=visible_text)  # noqa: PLW2901 - cut at the stop
            start = end
        plan_tokens.append(token)
        if start >= match_index + len(stop):
            break
    return replace(
        plan,
        count=len(plan_tokens),
        begin=lambda: iter(plan_tokens),
        reasoning_tokens=min(plan.reasoning_tokens, len(plan_tokens)),
        finish_reason="stop",
        stop_reason=stop,
    )
