"""Which fault meets which request, and how it shows.

Invariant: the same seed and the same order of acceptance meet the same requests; a request meets one fault at most,
the first of the knobs that takes it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

from tandem.simulator.generation_request import VllmApiError
from tandem.simulator.response_plan import ResponsePlan, ResponseToken
from tandem.simulator.settings import FaultSettings, SimulatorSettings
from tandem.simulator.text_generator import token_id

ENDLESS_TOKENS = 1000  # of an endless stream, for each of the knob's `tokens`
_GARBAGE_PIECES = ("\ufffd", "@@", "}{", "0x", "\u0442\u0442", ";;", "!!", "\u3042")
WRONG_MODEL = "another-model"
SIGN_IN_PAGE = "<html><head><title>Sign in</title></head><body><h1>Please sign in</h1></body></html>\n"
_ERRORS = {
    "status_500": (500, "InternalServerError", "EngineCore encountered an issue. See stack trace for the root cause."),
    "status_503": (503, "Service Unavailable", "the simulator was told to be busy"),
    "status_429": (429, "Too Many Requests", "the simulator was told to limit the rate"),
}


def select_fault(settings: SimulatorSettings, number: int, class_: str) -> FaultSettings | None:
    """Return what goes wrong with one request; None for nothing.

    Args:
        settings: the knobs.
        number: of acceptance, from 1.
        class_: of its prompt.
    """
    for index, fault in enumerate(settings.faults):
        random_share = random.Random(f"{settings.seed}/{index}/{number}").random()  # noqa: S311 - repeatable, not secret
        if (not fault.classes or class_ in fault.classes) and (number in fault.requests or random_share < fault.rate):
            return fault
    return None


def raise_fault_error(fault: FaultSettings) -> None:
    """Raise the error that a fault answers with, where it is one.

    Raises:
        VllmApiError: the request is not answered.
    """
    if fault.kind in _ERRORS:
        status, kind, message = _ERRORS[fault.kind]
        after_s = fault.retry_after_s if fault.kind == "status_429" else None
        raise VllmApiError(message, status=status, kind=kind, retry_after_s=after_s)


def spoil_plan(plan: ResponsePlan, fault: FaultSettings) -> ResponsePlan:
    """Return the answer as a fault spoils it: as garbage of the same length, or as if nobody had asked for an end."""
    if fault.kind == "endless":
        visible_tokens = [token for token in plan.tokens if token.visible_text] or list(plan.tokens)
        return replace(plan, count=ENDLESS_TOKENS * fault.tokens, begin=lambda: itertools.cycle(visible_tokens))
    if fault.kind != "garbage":
        return plan

    def begin() -> Iterator[ResponseToken]:
        for index, token in enumerate(plan.begin()):
            piece = _GARBAGE_PIECES[index * index % len(_GARBAGE_PIECES)]
            garbage = ResponseToken(token_id(piece), piece, piece if token.visible_text else "", token.part)
            yield token if index == plan.count - 1 else garbage  # the last is the same

    return replace(plan, begin=begin)
