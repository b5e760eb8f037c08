"""The content check: does an answer hold what a prompt of its class asks for, or what a broken server sends?

Invariant: one of six words for every answer, from its text, its finish reason and the prompt's hints alone, so that
the same record always gets the same word. Linear in the text and under a millisecond for 600 tokens: it runs after
every request, while other streams are being timed.

A speed means nothing when the text is none: acceptance is highest in a loop and lowest in gibberish. The check knows
what breaks in practice, not what is true or well written; docs/suites.md states its limits. The thresholds are
Tandem's own; the tests hold each against texts on both of its sides.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from tandem.bench.suites import garbage, loops, refusal
from tandem.bench.suites.prompt import Prompt

ContentWord = Literal["ok", "empty", "truncated", "refusal", "loop", "garbage"]
CONTENT_WORDS: dict[ContentWord, str] = {
    "ok": "content",
    "empty": "nothing but white space",
    "truncated": "ended by max_tokens, or inside a JSON value, before the answer was whole",
    "refusal": "a short answer that begins by declining",
    "loop": "ends in the same words over and over, where repetition was not asked for",
    "garbage": "no text that anybody would write: broken characters, symbols, scripts mixed inside words; or asked "
    "for JSON, and no JSON",
}


def check_content(prompt: Prompt, text: str, finish_reason: str | None, *, reasoning: str | None = None) -> ContentWord:
    """Return the word for one answer; the first that holds of garbage, loop, refusal, truncated.

    Args:
        prompt: what was asked; its `check` says what is right here and wrong elsewhere.
        text: the answer as the stream gave it.
        finish_reason: as the server gave it; "length" means that max_tokens ended the answer.
        reasoning: what the server sent apart as thinking. It is not judged, but where it took all the tokens the
            answer is truncated and not empty.
    """
    answer, thought = _split_thought(text)
    is_cut = finish_reason == "length"
    if not answer.strip():
        return "truncated" if is_cut and (thought or reasoning) else "empty"
    is_machine_text = bool(prompt.check & {"json", "code"})
    if garbage.is_garbage(answer, allows_symbols=is_machine_text):
        return "garbage"
    if "repeats" not in prompt.check and loops.is_loop(answer, is_cut=is_cut, allows_like_lines=is_machine_text):
        return "loop"
    if refusal.is_refusal(answer, prompt_text=prompt.as_text()):
        return "refusal"
    if is_cut and "to-limit" not in prompt.check:
        return "truncated"
    return _check_json(answer) if "json" in prompt.check and not is_cut else "ok"


def _split_thought(text: str) -> tuple[str, str]:
    """Split off what a server without a reasoning parser sends as `<think>...</think>` before the answer."""
    begin = text.lstrip()
    if not begin.startswith("<think>"):
        return text, ""
    thought, _, answer = begin.removeprefix("<think>").partition("</think>")
    return answer, thought


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)  # NaN and Infinity are not JSON


def _check_json(answer: str) -> ContentWord:
    """Return ok when a JSON object or array stands in the answer, bare, fenced or between words."""
    text = answer.rstrip().removesuffix("```").rstrip()
    starts = sorted(place for place in (text.find("{"), text.find("[")) if place >= 0)
    for start in starts:
        word = _check_json_value(text, start)
        if word != "garbage":  # a bracket in a sentence is none; a value that only lacks its end is the answer
            return word
    return "garbage"


def _check_json_value(text: str, start: int) -> ContentWord:
    try:
        _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        ended_inside = error.pos >= len(text) or error.msg.startswith("Unterminated")
        return "truncated" if ended_inside else "garbage"
    except (ValueError, RecursionError):
        return "garbage"
    return "ok"
