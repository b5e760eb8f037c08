"""The content check: does an answer hold what a prompt of its class asks for, or what a broken server sends?

Invariant: one of six words for every answer, from its text, its finish reason and the prompt's hints alone, so that
the same record always gets the same word. Linear in the text and under a millisecond for 600 tokens: it runs after
every request, while other streams are being timed.

A speed means nothing when the text is none: acceptance is highest in a loop and lowest in gibberish. The check knows
what breaks in practice, not what is true or well written; docs/suites.md states its limits. The thresholds are
Tandem's own; the tests hold each against texts on both of its sides.

Of a refusal only the answer's own beginning counts: one that is quoted, told of later, or that the prompt asked for,
is content.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from tandem.bench.suites import garbage, loops
from tandem.bench.suites.prompt import Prompt

ContentWord = Literal["ok", "empty", "truncated", "refusal", "loop", "garbage"]
"""What an answer is.

ok: content. empty: nothing but white space. truncated: ended by max_tokens, or inside a JSON value, before the answer
was whole. refusal: a short answer that begins by declining. loop: ends in the same words over and over, where
repetition was not asked for. garbage: no text that anybody would write (broken characters, symbols, scripts mixed
inside words); or asked for JSON, and no JSON.
"""

MAX_REFUSAL_CHARACTERS = 700  # what goes on for longer has answered after all
BEGINNING_CHARACTERS = 240
_TASKS = (
    r"(?:help(?!\s+\w+ing\b)|assist|comply|provide|fulfil|fulfill|answer|continue|create|generate|produce|write|"
    r"complete|discuss|engage|support|share|do (?:that|this)|repeat|translate|summari[sz]e|access|process|respond)"
)
_CANNOT = (
    r"(?:can\s?not|can['\u2019]t|could not|am (?:not able|unable) to|['\u2019]m (?:not able|unable) to|won['\u2019]t|"
    r"will not|(?:must |have to )?decline to)"
)
# the languages in which the suites' models refuse most; a sorry alone is none, it needs the declined task
REFUSALS = re.compile(
    r"(?:(?:(?:i['\u2019]m|i am)\s+(?:(?:very|really|so)\s+)?(?:sorry|afraid)|sorry|(?:my )?apologies|i apologi[sz]e|"
    r"unfortunately|as an? (?:\w+ )?(?:ai|language model)|i (?:understand|appreciate))[^.!?\"\u201c]{0,60}?\b)?"
    rf"i\s?{_CANNOT}\s+(?:\w+\s+){{0,3}}?{_TASKS}\b"
    r"|(?:很|非常)?(?:抱歉|对不起|不好意思)[^。]{0,12}我?(?:无法|不能)"
    r"|申し訳(?:ありません|ございません)[^。]{0,40}(?:できません|致しかねます|いたしかねます)"
    r"|es tut mir leid,? aber ich (?:kann|darf)[^.]{0,80}\bnicht\b"
    r"|je suis désolée?,? mais je ne peux pas"
    r"|lo siento,? (?:pero )?no puedo (?:ayudar|continuar|proporcionar|responder|crear|generar)",
    re.IGNORECASE,
)
REFUSAL_TOPICS = re.compile(r"apolog|declin|refus|sorry|turn(?:s|ed|ing)? down", re.IGNORECASE)


def check_content(prompt: Prompt, text: str, finish_reason: str | None, *, reasoning: str | None = None) -> ContentWord:
    """Return the word for one answer; the first that holds of garbage, loop, refusal, truncated.

    Args:
        prompt: what was asked; its `check` says what is right here and wrong elsewhere.
        text: the answer as the stream gave it.
        finish_reason: as the server gave it; "length" means that max_tokens ended the answer.
        reasoning: what the server sent apart as thinking. It is not judged, but where it took all the tokens the
            answer is truncated and not empty.
    """
    answer, thought, is_cut = text, reasoning, finish_reason == "length"
    if text.lstrip().startswith("<think>"):  # of a server without a reasoning parser
        thought, _, answer = text.lstrip().removeprefix("<think>").partition("</think>")
    if not answer.strip():
        return "truncated" if is_cut and (thought or reasoning) else "empty"
    is_machine_text = bool(prompt.check & {"json", "code"})
    if garbage.is_garbage(answer, allows_symbols=is_machine_text):
        return "garbage"
    if "repeats" not in prompt.check and loops.is_loop(answer, is_cut=is_cut, allows_like_lines=is_machine_text):
        return "loop"
    is_short = len(answer.strip()) <= MAX_REFUSAL_CHARACTERS
    is_refusal = is_short and REFUSALS.match(answer.strip()[:BEGINNING_CHARACTERS])
    if is_refusal and not REFUSAL_TOPICS.search(prompt.as_text()):
        return "refusal"
    if is_cut and "to-limit" not in prompt.check:
        return "truncated"
    return _check_json(answer) if "json" in prompt.check and not is_cut else "ok"


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)  # NaN and Infinity are not JSON


def _check_json(answer: str) -> ContentWord:
    """Return ok when a JSON object or array stands in the answer, bare, fenced or between words."""
    text = answer.rstrip().removesuffix("```").rstrip()
    for start in sorted(place for place in (text.find("{"), text.find("[")) if place >= 0):
        try:
            _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            if error.pos >= len(text) or error.msg.startswith("Unterminated"):
                return "truncated"  # a value that only lacks its end is the answer; a bracket in a sentence is none
        except (ValueError, RecursionError):
            continue
        else:
            return "ok"
    return "garbage"
