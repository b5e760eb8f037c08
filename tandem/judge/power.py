"""The smallest effect that a run could find, and what would decide its open cells.

Invariant: every figure holds for a report like this one: at the level that its number of cells
needs, with this noise floor and this margin, four times out of five. The figures take the estimate
for the unknown truth, so a number of prompts is an order of magnitude. All cells are planned at
once, because a report may have thousands.

The test of a mean by Student's t has the power of the noncentral t (Cohen 1988, Statistical Power
Analysis, chapter 2). The spread of a mean over prompts and rounds is that of the two-way layout
(see interval). The part between prompts shrinks with prompts alone, the part between starts with
rounds alone, the rest with both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import special

from tandem.bench.figures.columns import BoolArray, IntArray
from tandem.bench.figures.quantiles import Values
from tandem.judge import interval
from tandem.judge.interval import LogRatioEstimate
from tandem.judge.pairs import CellPairs
from tandem.judge.schema import LEVEL

POWER = 0.8
"""How often a plan should decide: four times out of five, the usual choice (Cohen 1988)."""

MOST_PROMPTS = 10_000
MOST_ROUNDS = 1_000
"""No run beyond these is advised: Tandem's own bounds, days of requests."""

_LARGEST = 1e5  # of a noncentrality: far beyond any that matters, and within what scipy can do


class VarianceParts(NamedTuple):
    """Sources of the variance of a mean log speed-up.

    Args:
        prompt_count, round_count: how many there were; `round_count` is 0 if rounds cannot be
            separated from prompts.
        prompt_variance: variance between prompts.
        round_variance: variance that the prompts of a round share: starts of the servers, or noise
            that outlasts a turn.
        residual_variance: variance of one prompt in one round.
    """

    prompt_count: int
    round_count: int
    prompt_variance: float
    round_variance: float
    residual_variance: float


def split_variance(pairs: CellPairs, estimate: LogRatioEstimate) -> VarianceParts:
    """Return the variances that add up to that of the estimate."""
    prompts, rounds = pairs.by_round.shape
    variance = estimate.se**2
    is_finite = np.isfinite(pairs.by_round)
    has_values = is_finite.any(axis=0)
    cells = pairs.by_round[:, has_values]
    is_absent = ~is_finite[:, has_values]
    degrees = cells.shape[1] - 1
    absent_count = int(is_absent.sum())
    # one round has no spread over rounds
    if (prompts - 1) * degrees <= absent_count:
        return VarianceParts(prompts, 0, variance * prompts, 0.0, 0.0)

    complete_cells = interval.fill_absent(cells, is_absent)
    by_residual = interval.compute_mean_squares(complete_cells, degrees, absent_count).residual
    by_round = estimate.shared_noise.variance * rounds
    by_prompt = max(0.0, prompts * (variance - by_round / rounds) - by_residual / rounds)
    total = by_prompt / prompts + by_round / rounds + by_residual / (prompts * rounds)
    scale = variance / total if total > 0 else 0.0
    return VarianceParts(prompts, rounds, scale * by_prompt, scale * by_round, scale * by_residual)


@dataclass(frozen=True)
class DecisionTargets:
    """Targets that decide cells, one value a cell.

    Args:
        logs: estimates.
        floors: logs of the noise floors; 0 where there is none.
        alpha: level that each p must be below, other cells taken into account.
        margin: log of 1 + the margin; the interval must lie inside it.
    """

    logs: Values
    floors: Values
    alpha: Values
    margin: float

    def select(self, places: Sequence[int]) -> DecisionTargets:
        """Return the targets of some cells."""
        indices = np.array(places, np.intp)
        return replace(
            self, logs=self.logs[indices], floors=self.floors[indices], alpha=self.alpha[indices]
        )


def compute_detectable_effect(se: Values, df: Values, targets: DecisionTargets) -> Values:
    """Return the smallest log speed-up, above 0, that would be called four times out of five.

    Args:
        se, df: of the estimates.
        targets: their floors and levels.
    """
    critical_value = special.stdtrit(df, 1 - targets.alpha / 2)
    by_test = special.nctdtrinc(df, 1 - POWER, critical_value) * se
    beyond_floor = targets.floors + special.stdtrit(df, POWER) * se
    effects: Values = np.maximum(by_test, beyond_floor)
    return effects


def plan_samples(
    spreads: Sequence[VarianceParts], targets: DecisionTargets
) -> list[tuple[int | None, int | None]]:
    """Return how many prompts and rounds would decide each cell; None where none would."""
    prompts = np.array([parts.prompt_count for parts in spreads], np.intp)
    rounds = np.array([parts.round_count for parts in spreads], np.intp)
    decide = partial(_mask_decidable, spreads, targets)
    decide_by_prompts = partial(decide, round_counts=np.maximum(rounds, 1))
    decide_by_rounds = partial(decide, prompts)
    more_prompts = _find_fewest(prompts, MOST_PROMPTS, decide_by_prompts)
    known_rounds = np.where(rounds > 0, rounds, MOST_ROUNDS)  # no plan without rounds
    more_rounds = _find_fewest(known_rounds, MOST_ROUNDS, decide_by_rounds)
    return list(zip(more_prompts, more_rounds, strict=True))


def _find_fewest(
    current: IntArray, limit: int, decide: Callable[[IntArray], BoolArray]
) -> list[int | None]:
    """Return for each cell the smallest number above `current` that decides, by bisection."""
    low = np.minimum(current, limit)
    high = np.full(len(current), limit)
    is_possible = (low < limit) & decide(high)
    while (high - low > 1).any():
        is_open = high - low > 1
        middle = (low + high) // 2
        is_enough = decide(np.maximum(middle, current))
        high = np.where(is_open & is_enough, middle, high)
        low = np.where(is_open & ~is_enough, middle, low)
    return [
        int(number) if has_answer else None
        for number, has_answer in zip(high, is_possible, strict=True)
    ]


def _mask_decidable(
    spreads: Sequence[VarianceParts],
    targets: DecisionTargets,
    prompt_counts: IntArray,
    round_counts: IntArray,
) -> BoolArray:
    """Return which cells so many prompts and rounds would decide, in any word."""
    se, df = _combine_variances(spreads, prompt_counts.astype(float), round_counts.astype(float))
    effect = np.abs(targets.logs)
    critical_value = special.stdtrit(df, 1 - targets.alpha / 2)
    missed = special.nctdtr(df, np.minimum(effect / se, _LARGEST), critical_value)
    beyond_floor = _bound_share(df, (effect - targets.floors) / se)
    is_faster_or_slower = (1 - missed >= POWER) & (beyond_floor >= POWER)

    reach = special.stdtrit(df, (1 + LEVEL) / 2)
    below = _bound_share(df, (targets.margin - effect) / se - reach)
    above = _bound_share(df, (targets.margin + effect) / se - reach)
    is_same = below + above - 1 >= POWER
    mask: BoolArray = is_faster_or_slower | is_same
    return mask


def _bound_share(df: Values, quantiles: Values) -> Values:
    """Return the share of Student's distribution below each quantile."""
    share: Values = special.stdtr(df, np.clip(quantiles, -_LARGEST, _LARGEST))
    return share


def _combine_variances(
    spreads: Sequence[VarianceParts], prompts: Values, rounds: Values
) -> tuple[Values, Values]:
    """Return the standard errors of so many prompts and rounds, and their degrees of freedom."""
    by_prompt = np.array([parts.prompt_variance for parts in spreads])
    by_round = np.array([parts.round_variance for parts in spreads])
    by_residual = np.array([parts.residual_variance for parts in spreads])
    own_variance = by_prompt / prompts + by_residual / (prompts * rounds)
    round_variance = by_round / rounds
    variance = own_variance + round_variance
    # Satterthwaite's degrees of freedom of a sum of two variances
    prompt_weights = own_variance**2 / (prompts - 1)
    round_weights = round_variance**2 / np.maximum(rounds - 1, 1)
    weights = prompt_weights + round_weights
    df = np.divide(variance**2, weights, out=prompts - 1, where=weights > 0)
    se = np.sqrt(variance)
    return np.maximum(se, np.finfo(float).tiny), df
