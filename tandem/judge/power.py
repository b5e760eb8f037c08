"""What a run could have found, and how much longer a run would decide what it left open.

Invariant: every figure is for a report as this one: at the level that its number of cells asks for, with this noise
floor and this margin, and found four times out of five. The estimate stands for the truth, which nobody knows, so a
number of prompts is an order of magnitude. All cells are planned at once: a report may have thousands.

The test of a mean by Student's t has the power of the noncentral t (Cohen 1988, Statistical Power Analysis, chapter 2).
The spread of a mean over prompts and rounds is that of the two-way layout (see interval): between prompts it shrinks
with prompts alone, between starts with rounds alone, the rest with both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from tandem.bench.columns import BoolArray, IntArray
from tandem.bench.quantiles import Values
from tandem.judge.interval import LogRatioEstimate
from tandem.judge.pairs import CellPairs

POWER = 0.8
"""How often a plan is to decide: four times out of five, the usual choice (Cohen 1988)."""

MOST_PROMPTS = 10_000
MOST_ROUNDS = 1_000
"""Beyond these no run is advised: Tandem's own bounds, days of asking."""

_LARGEST = 1e5  # of a noncentrality: far beyond any that matters, and within what scipy can do
_SWEEPS = 5


class VarianceParts(NamedTuple):
    """Where the variance of a mean log speed-up comes from.

    Args:
        prompt_count, round_count: how many there were; `round_count` 0 where they cannot be told apart from prompts.
        prompt_variance: variance between prompts.
        round_variance: variance of what the prompts of a round share: starts of the servers, or noise that outlasts a
            turn.
        residual_variance: variance of one prompt in one round.
    """

    prompt_count: int
    round_count: int
    prompt_variance: float
    round_variance: float
    residual_variance: float


def split_variance(pairs: CellPairs, estimate: LogRatioEstimate) -> VarianceParts:
    """Return the variances that add up to that of the estimate."""
    prompt_count, round_count = pairs.by_round.shape
    variance = estimate.se**2
    is_known = np.isfinite(pairs.by_round)
    columns = int(is_known.any(axis=0).sum())
    df = int(is_known.sum()) - prompt_count - columns + 1
    if columns < 2 or df < 1:  # noqa: PLR2004 - one round has no spread over rounds
        return VarianceParts(prompt_count, 0, variance * prompt_count, 0.0, 0.0)
    residual = _compute_residuals(pairs.by_round, is_known)
    residual_variance = float((residual[is_known] ** 2).sum()) / df
    round_variance = estimate.shared_noise.variance * round_count
    prompt_variance = max(
        0.0, prompt_count * (variance - round_variance / round_count) - residual_variance / round_count
    )
    total = (
        prompt_variance / prompt_count + round_variance / round_count + residual_variance / (prompt_count * round_count)
    )
    scale = variance / total if total > 0 else 0.0
    return VarianceParts(
        prompt_count, round_count, scale * prompt_variance, scale * round_variance, scale * residual_variance
    )


def _compute_residuals(by_round: Values, is_known: BoolArray) -> Values:
    """Return what is left when prompts and rounds have taken theirs."""
    residuals = np.where(is_known, by_round, 0.0)
    for _ in range(1 if is_known.all() else _SWEEPS):  # once is exact where nothing is absent
        residuals = np.where(
            is_known, residuals - residuals.sum(axis=1, keepdims=True) / is_known.sum(axis=1, keepdims=True), 0.0
        )
        step = residuals.sum(axis=0) / np.maximum(is_known.sum(axis=0), 1)
        residuals = np.where(is_known, residuals - step, 0.0)
    return residuals


@dataclass(frozen=True)
class DecisionTargets:
    """What cells are to be decided by, one value a cell.

    Args:
        logs: estimates. floors: logs of the noise floors; 0 where there is none.
        alpha: at which level each p must stand, other cells taken into account.
        margin: log of 1 + the margin. level: of the interval that must lie inside it.
    """

    logs: Values
    floors: Values
    alpha: Values
    margin: float
    level: float

    def select(self, places: Sequence[int]) -> DecisionTargets:
        """Return the same of some cells."""
        indices = np.array(places, np.intp)
        return replace(self, logs=self.logs[indices], floors=self.floors[indices], alpha=self.alpha[indices])


def compute_detectable_effect(se: Values, df: Values, targets: DecisionTargets) -> Values:
    """Return the smallest log speed-up, above 0, that would be called four times out of five.

    Args:
        se, df: of the estimates.
        targets: their floors and levels.
    """
    by_test = special.nctdtrinc(df, 1 - POWER, special.stdtrit(df, 1 - targets.alpha / 2))
    effects: Values = np.maximum(by_test * se, targets.floors + special.stdtrit(df, POWER) * se)
    return effects


def plan_prompts(spreads: Sequence[VarianceParts], targets: DecisionTargets) -> list[int | None]:
    """Return how many prompts in all would decide each cell; None where no number up to MOST_PROMPTS would."""
    rounds = np.array([max(parts.round_count, 1) for parts in spreads], float)
    prompt_counts = np.array([parts.prompt_count for parts in spreads], np.intp)
    return _find_fewest(
        prompt_counts, MOST_PROMPTS, lambda prompts: _mask_decidable(spreads, targets, prompts.astype(float), rounds)
    )


def plan_rounds(spreads: Sequence[VarianceParts], targets: DecisionTargets) -> list[int | None]:
    """Return how many rounds in all would decide each cell; None where no number up to MOST_ROUNDS would."""
    prompts = np.array([parts.prompt_count for parts in spreads], float)
    round_counts = np.array(
        [parts.round_count or MOST_ROUNDS for parts in spreads], np.intp
    )  # no plan where rounds cannot be told
    return _find_fewest(
        round_counts, MOST_ROUNDS, lambda rounds: _mask_decidable(spreads, targets, prompts, rounds.astype(float))
    )


def _find_fewest(current: IntArray, limit: int, decides: Callable[[IntArray], BoolArray]) -> list[int | None]:
    """Return the smallest number above `current` of each that decides, by halving what is between."""
    if not len(current):
        return []
    low, high = np.minimum(current, limit), np.full(len(current), limit)
    is_possible = (low < limit) & decides(high)
    while (is_open := high - low > 1).any():
        middle = (low + high) // 2
        is_enough = decides(np.maximum(middle, current))
        high, low = np.where(is_open & is_enough, middle, high), np.where(is_open & ~is_enough, middle, low)
    return [int(number) if has_answer else None for number, has_answer in zip(high, is_possible, strict=True)]


def _mask_decidable(
    spreads: Sequence[VarianceParts], targets: DecisionTargets, prompts: Values, rounds: Values
) -> BoolArray:
    """Return which cells so many prompts and rounds would decide, as faster or slower or as the same."""
    prompt_variance = np.array([parts.prompt_variance for parts in spreads]) / prompts
    round_variance = np.array([parts.round_variance for parts in spreads]) / rounds
    residual_variance = np.array([parts.residual_variance for parts in spreads]) / (prompts * rounds)
    variance = prompt_variance + round_variance + residual_variance
    se, df = np.sqrt(variance), _compute_degrees(prompt_variance + residual_variance, round_variance, prompts, rounds)
    effect = np.abs(targets.logs)
    mask: BoolArray = _mask_differences(effect, se, df, targets) | _mask_same(effect, se, df, targets)
    return mask


def _compute_degrees(prompt_variance: Values, round_variance: Values, prompts: Values, rounds: Values) -> Values:
    """Return Satterthwaite's degrees of freedom of a sum of two variances."""
    parts = prompt_variance**2 / (prompts - 1) + round_variance**2 / np.maximum(rounds - 1, 1)
    df: Values = np.divide((prompt_variance + round_variance) ** 2, parts, out=prompts - 1, where=parts > 0)
    return df


def _mask_differences(effect: Values, se: Values, df: Values, targets: DecisionTargets) -> BoolArray:
    positive_se = np.maximum(se, np.finfo(float).tiny)
    by_test = special.nctdtr(df, np.minimum(effect / positive_se, _LARGEST), special.stdtrit(df, 1 - targets.alpha / 2))
    by_floor = special.stdtr(df, np.clip((effect - targets.floors) / positive_se, -_LARGEST, _LARGEST))
    mask: BoolArray = (1 - by_test >= POWER) & (by_floor >= POWER)
    return mask


def _mask_same(effect: Values, se: Values, df: Values, targets: DecisionTargets) -> BoolArray:
    positive_se, quantile = np.maximum(se, np.finfo(float).tiny), special.stdtrit(df, (1 + targets.level) / 2)
    upper_quantile, lower_quantile = (
        (targets.margin - effect) / positive_se - quantile,
        (targets.margin + effect) / positive_se - quantile,
    )
    probability = special.stdtr(df, np.clip(upper_quantile, -_LARGEST, _LARGEST)) + special.stdtr(
        df, np.clip(lower_quantile, -_LARGEST, _LARGEST)
    )
    mask: BoolArray = probability - 1 >= POWER
    return mask
