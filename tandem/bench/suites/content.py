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

Word = Literal["ok", "empty", "truncated", "refusal", "loop", "garbage"]
WORDS: dict[Word, str] = {
    "ok": "content",
    "empty": "nothing but white space",
    "truncated": "ended by max_tokens, or inside a JSON value, before the answer was whole",
    "refusal": "a short answer that begins by declining",
    "loop": "ends in the same words over and over, where repetition was not asked for",
    "garbage": "no text that anybody would write: broken characters, symbols, scripts mixed inside words; or asked "
    "for JSON, and no JSON",
}


def check_content(prompt: Prompt, text: str, finish_reason: str | None, *, reasoning: str | None = None) -> Word:
    """Return the word for one answer; the first that holds of garbage, loop, refusal, truncated.

    Args:
        prompt: what was asked; its `check` says what is right here and wrong elsewhere.
        text: the answer as the stream gave it.
        finish_reason: as the server gave it; "length" means that max_tokens ended the answer.
        reasoning: what the server sent apart as thinking. It is not judged, but where it took all the tokens the
            answer is truncated and not empty.
    """
    answer, thought = _without_thought(text)
    cut = finish_reason == "length"
    if not answer.strip():
        return "truncated" if cut and (thought or reasoning) else "empty"
    of_machines = bool(prompt.check & {"json", "code"})
    if garbage.found(answer, symbols_are_normal=of_machines):
        return "garbage"
    if "repeats" not in prompt.check and loops.found(answer, cut=cut, like_lines_are_normal=of_machines):
        return "loop"
    if refusal.found(answer, asked=prompt.as_text()):
        return "refusal"
    if cut and "to-limit" not in prompt.check:
        return "truncated"
    return _json(answer) if "json" in prompt.check and not cut else "ok"


def _without_thought(text: str) -> tuple[str, str]:
    """Split off what a server without a reasoning parser sends as `<think>...</think>` before the answer."""
    begin = text.lstrip()
    if not begin.startswith("<think>"):
        return text, ""
    thought, _, answer = begin.removeprefix("<think>").partition("</think>")
    return answer, thought


def _no_such_number(name: str) -> Any:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_no_such_number)  # NaN and Infinity are not JSON


def _json(answer: str) -> Word:
    """Return ok when a JSON object or array stands in the answer, bare, fenced or between words."""
    whole = answer.rstrip().removesuffix("```").rstrip()
    starts = sorted(place for place in (whole.find("{"), whole.find("[")) if place >= 0)
    for start in starts:
        word = _json_at(whole, start)
        if word != "garbage":  # a bracket in a sentence is none; a value that only lacks its end is the answer
            return word
    return "garbage"


def _json_at(whole: str, start: int) -> Word:
    try:
        _DECODER.raw_decode(whole, start)
    except json.JSONDecodeError as error:
        ended_inside = error.pos >= len(whole) or error.msg.startswith("Unterminated")
        return "truncated" if ended_inside else "garbage"
    except (ValueError, RecursionError):
        return "garbage"
    return "ok"
