"""A cell of a forecast: what is printed and drawn of a draft and a window at one load.

Invariant: it imports nothing of what is declared, so that a page can draw it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ForecastCell:
    """A window at one load, of one draft or of several that cannot be told apart.

    Args:
        drafts: the models, any of which may draft.
        window: num_speculative_tokens.
        concurrency: sequences decoded at once.
        tokens: mean of a step.
        speed_up, low, high: of the time per token, and its range: by the range of a measured cost
            of the draft, a factor 2 wide by a published one. Beyond the positions that a server
            counted, the low end takes no later token for accepted. None where no speed-up can be
            forecast.
        break_even: acceptance below which speculation is slower; None where even full acceptance
            is, or where it is not known.
        gain_tpot_ms: the plain server's TPOT above which the low end of the range is faster; None
            where it never is, or where that is not known.
    """

    drafts: tuple[str, ...]
    window: int
    concurrency: int
    tokens: float
    speed_up: float | None = None
    low: float | None = None
    high: float | None = None
    break_even: float | None = None
    gain_tpot_ms: float | None = None

    @property
    def draft(self) -> str:
        """The drafts by their names."""
        return " or ".join(self.drafts)
