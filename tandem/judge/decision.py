"""Faster, slower, same or no evidence: the one place where a speed-up gets its word.

Invariant: a speed-up is `same` only if the whole interval lies inside the margin. It is `faster` or
`slower` only beyond the noise floor, and only if chance does not explain it, adjusted for every
other test of the report. This module decides a cell, its mean and percentile, a claim and a row of
two runs alike. They differ only in the tests that their p-value is adjusted for; each caller names
these.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from tandem.bench.figures.columns import BoolArray
from tandem.bench.figures.quantiles import Values
from tandem.errors import InputError
from tandem.judge.interval import LogRatioEstimate, compute_interval
from tandem.judge.schema import LEVEL, MARGIN, CellWord, RatioEstimate

OVERALL_SHARE = 0.2
"""Share of the level that the pooled tests begin with: .01 of .05 (docs/decisions/0053)."""

ATTAINMENT_SHARE = 0.2
"""Share of the level of the tests of goodput limits: .01 of .05, which the cells of a run with
limits give up."""


class SpeedUpDecision(NamedTuple):
    """The word of a speed-up, and the ground of the decision.

    Args:
        word: the verdict on the speed-up.
        ground: `absent`: there is no estimate. `margin`: the interval lies inside it. `chance`: the
            adjusted p-value is not below 1 - LEVEL. `floor`: the estimate lies within the noise
            floor. `difference`: none of these.
    """

    word: CellWord
    ground: Literal["absent", "margin", "chance", "floor", "difference"]


def require_margin(margin: float) -> None:
    """Refuse an equivalence margin that is not above 0, or is above 1.

    Raises:
        InputError: the margin is not above 0, or above 1.
    """
    if not 0 < margin <= 1:
        raise InputError(
            f"{margin!r}; allowed: above 0, at most 1", where="margin", change="change it"
        )


def decide_speed_up(
    estimate: LogRatioEstimate | None,
    adjusted_p: float | None,
    *,
    floor: float | None,
    margin: float,
) -> SpeedUpDecision:
    """Decide the word of a speed-up.

    Args:
        estimate: of its logarithm; None where there are too few units for one.
        adjusted_p: of the test that the speed-up is 1, adjusted for every other test that could
            have been reported: by `adjust_p_values` where all p-values are at hand, by
            `adjust_single_p` where only their number is.
        floor: the noise floor as a ratio of 1 or more; None if the baseline was not measured
            against itself.
        margin: a speed-up within 1 / (1 + margin) to 1 + margin is `same`.
    """
    if estimate is None or adjusted_p is None:
        return SpeedUpDecision("no evidence", "absent")
    log_margin = math.log1p(margin)
    if -log_margin <= estimate.low and estimate.high <= log_margin:
        return SpeedUpDecision("same", "margin")
    if adjusted_p >= 1 - LEVEL:
        return SpeedUpDecision("no evidence", "chance")
    if abs(estimate.log) <= math.log(floor or 1.0):
        return SpeedUpDecision("no evidence", "floor")
    return SpeedUpDecision("faster" if estimate.log > 0 else "slower", "difference")


def adjust_p_values(p_values: Values, weights: Values | None = None) -> Values:
    """Return each p-value adjusted for all of them (Holm 1979, Scand. Journal of Statistics 6, 65).

    Args:
        p_values: of the tests.
        weights: each test's part of the level, in any unit; None: all tests have the same (section
            4 of Holm's paper).
    """
    own_weights = np.ones(len(p_values)) if weights is None else weights
    weighted = p_values / own_weights
    order = np.argsort(weighted, kind="stable")
    open_weights = np.cumsum(own_weights[order][::-1])[::-1]

    adjusted_p_values = np.empty(len(p_values))
    adjusted_p_values[order] = np.minimum(
        np.maximum.accumulate(weighted[order] * open_weights), 1.0
    )
    return adjusted_p_values


def adjust_groups(
    p_values: Values, weights: Values, is_overall: BoolArray, level_share: float = 1.0
) -> Values:
    """Return the p-values of a report's tests: the pooled ones and all others, adjusted as groups.

    Each of the two groups has its share of the level, and Holm's procedure within it. A group of
    which every test succeeds hands its share to the other (Wiens 2003, Pharmaceutical Statistics 2,
    211; Bretz and others 2009, Statistics in Medicine 28, 586). An empty group leaves the whole
    level to the other.

    Args:
        p_values: of the tests.
        weights: as for `adjust_p_values`; within the pooled tests all count alike.
        is_overall: which tests are over all classes.
        level_share: of the level that the two groups have; tests beside them have the rest.
    """
    adjusted_p_values = np.empty(len(p_values))
    overall_holm = adjust_p_values(p_values[is_overall])
    cell_holm = adjust_p_values(p_values[~is_overall], weights[~is_overall])
    overall_with_all = np.minimum(overall_holm / level_share, 1.0)
    cells_with_all = np.minimum(cell_holm / level_share, 1.0)
    if not len(overall_holm) or not len(cell_holm):
        adjusted_p_values[is_overall] = overall_with_all
        adjusted_p_values[~is_overall] = cells_with_all
        return adjusted_p_values

    overall_alone = np.minimum(overall_holm / OVERALL_SHARE, 1.0)
    cells_alone = np.minimum(cell_holm / (level_share - OVERALL_SHARE), 1.0)
    overall = np.minimum(overall_alone, np.maximum(overall_with_all, cells_alone.max()))
    cells = np.minimum(cells_alone, np.maximum(cells_with_all, overall_alone.max()))
    adjusted_p_values[is_overall] = overall
    adjusted_p_values[~is_overall] = cells
    return adjusted_p_values


def adjust_single_p(p: float, test_count: int) -> float:
    """Return a p-value adjusted for a number of tests whose p-values are unknown (Bonferroni)."""
    return min(p * test_count, 1.0)


def is_beyond_margin(estimate: LogRatioEstimate, false_alarm_rate: float, test_count: int) -> bool:
    """Return whether a control's change surely lies beyond MARGIN, at a level that all tests share.

    Args:
        estimate: of the logarithm of the change.
        false_alarm_rate: share of healthy runs in which any of the tests may say so.
        test_count: how many there are (Bonferroni).
    """
    low, high = compute_interval(estimate, 1 - false_alarm_rate / test_count)
    return max(low, -high) > math.log1p(MARGIN)


def compare_lengths(ratio: RatioEstimate, margin: float) -> Literal["shorter", "longer", "alike"]:
    """Return how answers differ in length; alike, unless the whole interval leaves the margin."""
    if (ratio.high or ratio.value) < 1 / (1 + margin):
        return "shorter"
    if (ratio.low or ratio.value) > 1 + margin:
        return "longer"
    return "alike"
