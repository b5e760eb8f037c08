"""How many tokens a speculative step commits, by the runtime's law and acceptance.

Invariant: pure arithmetic on plain numbers. The law is data of the runtime
(`counters.tokens_per_step`): NxD Inference runs k draft forwards and commits at most k tokens, vLLM
and the native plugin commit at most k + 1.

Source of the closed form: Leviathan et al., "Fast Inference from Transformers via Speculative
Decoding", arXiv 2211.17192, equation 1; NxD Inference's own law: neuronx-distributed-inference
models/model_base.py, _token_gen_forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

CommitLaw = Literal["k", "k+1"]
_TOLERANCE = 1e-9


def count_drafted(law: CommitLaw, window: int) -> int:
    """Return how many drafted tokens of a step may be committed, the target's own left out."""
    return window - 1 if law == "k" else window


def expect_tokens(law: CommitLaw, acceptance: float, window: int) -> float:
    """Return the mean of tokens that a step commits, each draft accepted with the same chance.

    Args:
        law: of the runtime.
        acceptance: chance that a draft is accepted after all before it were, from 0 to 1.
        window: num_speculative_tokens, from 1.
    """
    return sum(acceptance**position for position in range(count_drafted(law, window) + 1))


def sum_positions(law: CommitLaw, position_rates: Sequence[float], window: int) -> float:
    """Return the same from shares of drafts whose token at each position was accepted.

    Args:
        law: of the runtime.
        position_rates: not conditional on the positions before, as vLLM counts; first position
            first. Positions that were not measured add nothing, so that a longer window is bounded
            from below.
        window: num_speculative_tokens, from 1.
    """
    return 1 + sum(position_rates[: count_drafted(law, window)])


def extend_positions(
    law: CommitLaw, position_rates: Sequence[float], window: int
) -> tuple[float, float]:
    """Return a step's least tokens, and those expected with the last rate at later positions.

    Args:
        law, window: as of `sum_positions`.
        position_rates: as of `sum_positions`, one at least.
    """
    previous = position_rates[-2] if len(position_rates) > 1 else 1.0
    rates = list(position_rates)
    conditional = position_rates[-1] / previous if previous else 0.0
    while len(rates) < window:
        rates.append(rates[-1] * min(conditional, 1.0))
    return sum_positions(law, position_rates, window), sum_positions(law, rates, window)


def find_acceptance(law: CommitLaw, tokens: float, window: int) -> float | None:
    """Return the acceptance at which a step commits so many tokens on average, or None.

    Args:
        law: of the runtime.
        tokens: mean of a step, from 1.
        window: num_speculative_tokens, from 1.
    """
    if not 1 - _TOLERANCE <= tokens <= count_drafted(law, window) + 1 + _TOLERANCE:
        return None
    low = 0.0
    high = 1.0
    while high - low > _TOLERANCE:
        middle = (low + high) / 2
        low, high = (middle, high) if expect_tokens(law, middle, window) < tokens else (low, middle)
    return (low + high) / 2
