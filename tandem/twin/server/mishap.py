"""Which fault meets which request, and how it shows.

Invariant: the same seed and the same order of acceptance meet the same requests; a request meets one fault at most,
the first of the knobs that takes it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

from tandem.twin.server.ask import RefusedError
from tandem.twin.server.knobs import FaultKnobs, Knobs
from tandem.twin.server.script import Script, Token
from tandem.twin.server.tokens import token_id

ENDLESS_TOKENS = 1000  # of an endless stream, for each of the knob's `tokens`
_NOISE = ("\ufffd", "@@", "}{", "0x", "\u0442\u0442", ";;", "!!", "\u3042")
OTHER_MODEL = "another-model"
HTML = "<html><head><title>Sign in</title></head><body><h1>Please sign in</h1></body></html>\n"
_ERRORS = {
    "status_500": (500, "InternalServerError", "EngineCore encountered an issue. See stack trace for the root cause."),
    "status_503": (503, "Service Unavailable", "the twin was told to be busy"),
    "status_429": (429, "Too Many Requests", "the twin was told to limit the rate"),
}


def mishap(knobs: Knobs, number: int, class_: str) -> FaultKnobs | None:
    """Return what goes wrong with one request; None for nothing.

    Args:
        number: of acceptance, from 1.
    """
    for index, fault in enumerate(knobs.faults):
        drawn = random.Random(f"{knobs.seed}/{index}/{number}").random()  # noqa: S311 - repeatable, not secret
        if (not fault.classes or class_ in fault.classes) and (number in fault.requests or drawn < fault.rate):
            return fault
    return None


def refusal(fault: FaultKnobs) -> RefusedError | None:
    """Return the error that a fault answers with; None where the request is answered."""
    if fault.kind not in _ERRORS:
        return None
    status, kind, message = _ERRORS[fault.kind]
    after_s = fault.retry_after_s if fault.kind == "status_429" else None
    return RefusedError(message, status=status, kind=kind, retry_after_s=after_s)


def garbled(script: Script) -> Script:
    """Return as many tokens of the kind that a broken model says; the last is the same."""

    def begin() -> Iterator[Token]:
        for index, token in enumerate(script.begin()):
            yield token if index == script.count - 1 else _garble(index, token)

    return replace(script, begin=begin)


def _garble(index: int, token: Token) -> Token:
    piece = _NOISE[index * index % len(_NOISE)]
    return Token(token_id(piece), piece, piece if token.shown else "", token.part)


def endless(script: Script, fault: FaultKnobs) -> Script:
    """Return an answer that goes on as if nobody had asked for an end."""
    shown = [token for token in script.tokens if token.shown] or list(script.tokens)
    return replace(script, count=ENDLESS_TOKENS * fault.tokens, begin=lambda: itertools.cycle(shown))
