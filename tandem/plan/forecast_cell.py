"""A cell of a forecast: what is printed and drawn of one draft and window at one load.

Invariant: it imports nothing of what is declared, so that a page can draw it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastCell:
    """One draft and window at one load.

    Args:
        draft: the model that drafts.
        window: num_speculative_tokens.
        concurrency: sequences decoded at once.
        tokens: mean of a step.
        speed_up, low, high: of the time per token, and its range by the range of the draft's share; beyond the
            positions that a server counted, the low end takes no later token for accepted.
        break_even: acceptance below which speculation is slower; None where even full acceptance is.
    """

    draft: str
    window: int
    concurrency: int
    tokens: float
    speed_up: float
    low: float
    high: float
    break_even: float | None
