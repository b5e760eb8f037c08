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

from tandem.bench.columns import Mask, Whole
from tandem.bench.judge.interval import Estimate
from tandem.bench.judge.pairs import Pairs
from tandem.bench.quantiles import Values

POWER = 0.8
"""How often a plan is to decide: four times out of five, the usual choice (Cohen 1988)."""

MOST_PROMPTS = 10_000
MOST_ROUNDS = 1_000
"""Beyond these no run is advised: Tandem's own bounds, days of asking."""

_LARGEST = 1e5  # of a noncentrality: far beyond any that matters, and within what scipy can do
_SWEEPS = 5


class Spread(NamedTuple):
    """Where the variance of a mean log speed-up comes from.

    Args:
        prompts, rounds: how many there were; `rounds` 0 where they cannot be told apart from prompts.
        between: variance between prompts.
        starts: variance of what the prompts of a round share: starts of the servers, or noise that outlasts a turn.
        rest: variance of one prompt in one round.
    """

    prompts: int
    rounds: int
    between: float
    starts: float
    rest: float


def spread(pairs: Pairs, found: Estimate) -> Spread:
    """Return the variances that add up to that of the estimate."""
    prompts, rounds = pairs.by_round.shape
    variance = found.se**2
    known = np.isfinite(pairs.by_round)
    columns = int(known.any(axis=0).sum())
    free = int(known.sum()) - prompts - columns + 1
    if columns < 2 or free < 1:  # noqa: PLR2004 - one round has no spread over rounds
        return Spread(prompts, 0, variance * prompts, 0.0, 0.0)
    residual = _residuals(pairs.by_round, known)
    rest = float((residual[known] ** 2).sum()) / free
    starts = found.shared.variance * rounds
    between = max(0.0, prompts * (variance - starts / rounds) - rest / rounds)
    total = between / prompts + starts / rounds + rest / (prompts * rounds)
    scale = variance / total if total > 0 else 0.0
    return Spread(prompts, rounds, scale * between, scale * starts, scale * rest)


def _residuals(by_round: Values, known: Mask) -> Values:
    """Return what is left when prompts and rounds have taken theirs."""
    left = np.where(known, by_round, 0.0)
    for _ in range(1 if known.all() else _SWEEPS):  # once is exact where nothing is absent
        left = np.where(known, left - left.sum(axis=1, keepdims=True) / known.sum(axis=1, keepdims=True), 0.0)
        step = left.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        left = np.where(known, left - step, 0.0)
    return left


@dataclass(frozen=True)
class Asked:
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

    def of(self, places: Sequence[int]) -> Asked:
        """Return the same of some cells."""
        which = np.array(places, np.intp)
        return replace(self, logs=self.logs[which], floors=self.floors[which], alpha=self.alpha[which])


def detectable(se: Values, df: Values, asked: Asked) -> Values:
    """Return the smallest log speed-up, above 0, that would be called four times out of five.

    Args:
        se, df: of the estimates.
        asked: their floors and levels.
    """
    by_test = special.nctdtrinc(df, 1 - POWER, special.stdtrit(df, 1 - asked.alpha / 2))
    found: Values = np.maximum(by_test * se, asked.floors + special.stdtrit(df, POWER) * se)
    return found


def prompts_to_decide(spreads: Sequence[Spread], asked: Asked) -> list[int | None]:
    """Return how many prompts in all would decide each cell; None where no number up to MOST_PROMPTS would."""
    rounds = np.array([max(one.rounds, 1) for one in spreads], float)
    now = np.array([one.prompts for one in spreads], np.intp)
    return _fewest(now, MOST_PROMPTS, lambda prompts: _decides(spreads, asked, prompts.astype(float), rounds))


def rounds_to_decide(spreads: Sequence[Spread], asked: Asked) -> list[int | None]:
    """Return how many rounds in all would decide each cell; None where no number up to MOST_ROUNDS would."""
    prompts = np.array([one.prompts for one in spreads], float)
    now = np.array([one.rounds or MOST_ROUNDS for one in spreads], np.intp)  # no plan where rounds cannot be told
    return _fewest(now, MOST_ROUNDS, lambda rounds: _decides(spreads, asked, prompts, rounds.astype(float)))


def _fewest(now: Whole, most: int, decides: Callable[[Whole], Mask]) -> list[int | None]:
    """Return the smallest number above `now` of each that decides, by halving what is between."""
    if not len(now):
        return []
    low, high = np.minimum(now, most), np.full(len(now), most)
    possible = (low < most) & decides(high)
    while (open_ := high - low > 1).any():
        middle = (low + high) // 2
        enough = decides(np.maximum(middle, now))
        high, low = np.where(open_ & enough, middle, high), np.where(open_ & ~enough, middle, low)
    return [int(number) if can else None for number, can in zip(high, possible, strict=True)]


def _decides(spreads: Sequence[Spread], asked: Asked, prompts: Values, rounds: Values) -> Mask:
    """Return which cells so many prompts and rounds would decide, as faster or slower or as the same."""
    of_prompts = np.array([one.between for one in spreads]) / prompts
    of_starts = np.array([one.starts for one in spreads]) / rounds
    of_rest = np.array([one.rest for one in spreads]) / (prompts * rounds)
    variance = of_prompts + of_starts + of_rest
    se, df = np.sqrt(variance), _degrees(of_prompts + of_rest, of_starts, prompts, rounds)
    size = np.abs(asked.logs)
    decided: Mask = _called(size, se, df, asked) | _same(size, se, df, asked)
    return decided


def _degrees(of_prompts: Values, of_starts: Values, prompts: Values, rounds: Values) -> Values:
    """Return Satterthwaite's degrees of freedom of a sum of two variances."""
    parts = of_prompts**2 / (prompts - 1) + of_starts**2 / np.maximum(rounds - 1, 1)
    df: Values = np.divide((of_prompts + of_starts) ** 2, parts, out=prompts - 1, where=parts > 0)
    return df


def _called(size: Values, se: Values, df: Values, asked: Asked) -> Mask:
    wide = np.maximum(se, np.finfo(float).tiny)
    by_test = special.nctdtr(df, np.minimum(size / wide, _LARGEST), special.stdtrit(df, 1 - asked.alpha / 2))
    by_floor = special.stdtr(df, np.clip((size - asked.floors) / wide, -_LARGEST, _LARGEST))
    called: Mask = (1 - by_test >= POWER) & (by_floor >= POWER)
    return called


def _same(size: Values, se: Values, df: Values, asked: Asked) -> Mask:
    wide, quantile = np.maximum(se, np.finfo(float).tiny), special.stdtrit(df, (1 + asked.level) / 2)
    above, below = (asked.margin - size) / wide - quantile, (asked.margin + size) / wide - quantile
    inside = special.stdtr(df, np.clip(above, -_LARGEST, _LARGEST)) + special.stdtr(
        df, np.clip(below, -_LARGEST, _LARGEST)
    )
    same: Mask = inside - 1 >= POWER
    return same
