"""Which fault meets which request, and how it shows.

Invariant: the same seed and the same order of acceptance meet the same requests; a request meets one fault at most,
the first of the knobs that takes it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tandem.twin.server.ask import RefusedError
from tandem.twin.server.knobs import FaultKnobs, Knobs
from tandem.twin.server.script import Token
from tandem.twin.server.tokens import token_id

ENDLESS_TOKENS = 1000  # of an endless stream, for each of the knob's `tokens`
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


def garbled(tokens: Sequence[Token]) -> tuple[Token, ...]:
    """Return as many tokens of the kind that a broken model says, the last where it ended."""
    noise = [_garble(index, token) for index, token in enumerate(tokens[:-1])]
    return (*noise, *tokens[-1:])


def _garble(index: int, token: Token) -> Token:
    piece = ("\ufffd", "@@", "}{", "0x", "\u0442\u0442", ";;", "!!", "\u3042")[index * index % 8]
    return Token(token_id(piece), piece, piece if token.shown else "", token.part)


def endless(tokens: Sequence[Token], fault: FaultKnobs) -> tuple[Token, ...]:
    """Return a stream that goes on as if nobody had asked for an end."""
    body = [token for token in tokens if token.shown] or list(tokens)
    count = ENDLESS_TOKENS * fault.tokens
    return tuple((body * (count // len(body) + 1))[:count])
