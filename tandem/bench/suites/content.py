"""The content check: it finds answers that are no content, e.g. those of a broken server.

Invariant: every answer gets one of six words, only from its text, its reasoning, its finish reason
and its prompt, so the same record always gets the same word. The check is linear in the text and
takes under a millisecond for 600 tokens: it runs after every request, during the timing of other
streams.

A speed without real text means nothing: acceptance is highest in a loop and lowest in gibberish.
The check finds faults that occur in practice, not false or bad text; docs/records.md states its
limits. The thresholds are Tandem's own; tests check each threshold with texts on both sides.

A refusal counts only at the beginning of an answer: a quoted, later or requested refusal is
content.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from tandem.bench.records.finish_reason import is_limit_end
from tandem.bench.suites import garbage, loops
from tandem.bench.suites.prompt import Prompt

ContentWord = Literal["ok", "empty", "truncated", "refusal", "loop", "garbage"]
"""Word of the content check for an answer.

ok: content. empty: only white space. truncated: max_tokens ended the answer, or a JSON value is
incomplete. refusal: a short answer that begins by declining. loop: the answer ends in repeated
words, and the prompt requests no repetition. garbage: no real text (broken characters, symbols,
scripts mixed inside words), or no JSON although the prompt requests JSON.
"""

MAX_REFUSAL_CHARACTERS = 700  # a longer answer is no refusal
BEGINNING_CHARACTERS = 240
_TASKS = (
    r"(?:help(?!\s+\w+ing\b)|assist|comply|provide|fulfil|fulfill|answer|continue|create|generate|produce|write|"
    r"complete|discuss|engage|support|share|do"
    r" (?:that|this)|repeat|translate|summari[sz]e|access|process|respond)"
)
_CANNOT = (
    r"(?:can\s?not|can['\u2019]t|could not|am (?:not able|unable) to|['\u2019]m (?:not able|unable)"
    r" to|won['\u2019]t|"
    r"will not|(?:must |have to )?decline to)"
)
# the most frequent languages of the suites' models for a refusal; a "sorry" needs a declined task
# to be a refusal
REFUSALS = re.compile(
    r"(?:(?:(?:i['\u2019]m|i am)\s+(?:(?:very|really|so)\s+)?(?:sorry|afraid)|sorry|(?:my"
    r" )?apologies|i apologi[sz]e|"
    r"unfortunately|as an? (?:\w+ )?(?:ai|language model)|i"
    r" (?:understand|appreciate))[^.!?\"\u201c]{0,60}?\b)?"
    rf"i\s?{_CANNOT}\s+(?:\w+\s+){{0,3}}?{_TASKS}\b"
    r"|(?:很|非常)?(?:抱歉|对不起|不好意思)[^。]{0,12}我?(?:无法|不能)"
    r"|申し訳(?:ありません|ございません)[^。]{0,40}(?:できません|致しかねます|いたしかねます)"
    r"|es tut mir leid,? aber ich (?:kann|darf)[^.]{0,80}\bnicht\b"
    r"|je suis désolée?,? mais je ne peux pas"
    r"|lo siento,? (?:pero )?no puedo (?:ayudar|continuar|proporcionar|responder|crear|generar)",
    re.IGNORECASE,
)
REFUSAL_TOPICS = re.compile(r"apolog|declin|refus|sorry|turn(?:s|ed|ing)? down", re.IGNORECASE)


def check_content(
    prompt: Prompt,
    text: str,
    finish_reason: str | None,
    *,
    reasoning: str | None = None,
    tool_calls: str | None = None,
) -> ContentWord:
    """Return the first that holds: empty, garbage, loop, refusal, truncated; else the JSON check's.

    Args:
        prompt: of the answer; its `check` names the exceptions for this prompt.
        text: the streamed answer.
        finish_reason: of the server; it says whether max_tokens ended the answer.
        reasoning: the server's separate reasoning text. It is not checked, but if it used all
            tokens, the answer is truncated and not empty.
        tool_calls: names and arguments of tools; they are the answer if there is no text.
    """
    answer = text
    thought = reasoning
    is_cut = is_limit_end(finish_reason)
    if text.lstrip().startswith("<think>"):  # of a server without a reasoning parser
        thought, _, answer = text.lstrip().removeprefix("<think>").partition("</think>")
    is_call = bool(tool_calls) and not answer.strip()
    if is_call:
        answer = tool_calls or ""
    if not answer.strip():
        return "truncated" if is_cut and (thought or reasoning) else "empty"
    is_machine_text = is_call or bool(prompt.check & {"json", "code"})
    if garbage.is_garbage(answer, allows_symbols=is_machine_text):
        return "garbage"
    if "repeats" not in prompt.check and loops.is_loop(
        answer, is_cut=is_cut, allows_like_lines=is_machine_text
    ):
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
    """Return ok if the answer has a JSON object or array, else truncated or garbage."""
    text = answer.rstrip().removesuffix("```").rstrip()
    for start in sorted(place for place in (text.find("{"), text.find("[")) if place >= 0):
        try:
            _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            if error.pos >= len(text) or error.msg.startswith("Unterminated"):
                # a value without its end is the answer; a bracket in a sentence is not
                return "truncated"
        except (ValueError, RecursionError):
            continue
        else:
            return "ok"
    return "garbage"
