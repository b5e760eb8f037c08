"""The quantiles of a mean beside Student's, and the residuals of skewed prompts that give them.

Invariant: a curve rises, and goes through 0 where it is Student's own.

This module resamples prompts and expands the percentiles of their mean. Resampling n prompts makes
the mean's spread too small by sqrt((n - 1) / n), and takes normal quantiles where a few prompts
need Student's. So the percentile is the one at which a normal with that smaller spread has
Student's quantile (Hesterberg 2015, The American Statistician 69, 371, section 4.2). Beyond
`_TAIL`, where few resamples or few prompts say nothing, the curve continues as Student's. Levels
adjusted for thousands of cells need this, and so do three prompts, whose means have ten values in
all.

Student's quantiles presume that prompts differ symmetrically. Where the prompts of a report are
skewed, eight values of one class do not show how much. So the residuals of all classes are pooled
(`pool_residuals`), and the curve is that of Student's ratio of as many draws from them (the
bootstrap-t: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 12), or of the
ratio transformed by its skewness (Hall 1992, Journal of the Royal Statistical Society B 54, 221),
beyond LEVEL whichever is farther out: draws around a class's own mean blur a hard edge, and a
skewness knows no edge. Used always, it would cost much power where prompts are not skewed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from scipy import special

from tandem.bench.figures.columns import IntArray
from tandem.bench.figures.quantiles import Values
from tandem.judge.schema import LEVEL

FEWEST_PROMPTS = 3
"""Fewest prompts that give a usable spread."""

NO_WIDTH = 1e-9
"""A log-ratio below it is a rounding error."""

_RESAMPLES = 4_000
_FEWEST_RESAMPLES = 1_000
# of a resampling matrix: 32 MB; more than a thousand prompts get fewer resamples
_NUMBERS = 4_000_000
_TAIL = 2.0  # Student's quantile up to which the resamples decide the curve
_GRID: Values = np.linspace(-_TAIL, _TAIL, 41)

# of the test whether residuals are skewed; higher, it costs mixed worlds their word
_SKEW_LEVEL = 0.02
_FEWEST_RESIDUALS = 12  # the test needs 8; fewer than 12 say nothing of a tail
_RATIO_DRAWS = 50_000  # of Student's ratio, so that a level of 1 in 5,000 rests on draws
# drawn at once; a mean of many prompts has fewer ratios, for it is tested at no such level
_RATIO_NUMBERS = 1_000_000
_LARGEST_RATIO = 100.0  # of Student's ratio; a curve goes on in proportion beyond it
_FEWEST_BEYOND = 10  # draws beyond the last point of a curve


@dataclass(frozen=True)
class QuantileCurve:
    """The quantiles of a mean beside those of Student's, both in standard errors and rising.

    Args:
        student: Student's quantiles.
        mean: those of the mean, less the mean itself.
        is_proportional: whether the mean's quantiles go on in proportion to Student's beyond the
            last point; else they go on as Student's.
    """

    student: Values
    mean: Values
    is_proportional: bool = False

    def convert(self, quantiles: Values) -> Values:
        """Return the mean's quantiles for Student's."""
        return self._follow(quantiles, self.student, self.mean)

    def invert(self, positions: Values) -> Values:
        """Return Student's quantiles for the mean's: the inverse of `convert`."""
        return self._follow(positions, self.mean, self.student)

    def weaken(self, share: float) -> QuantileCurve:
        """Return the curve with a share of its difference from Student's."""
        return replace(self, mean=self.student + share * (self.mean - self.student))

    def _follow(self, values: Values, x: Values, y: Values) -> Values:
        clipped_values = np.clip(values, x[0], x[-1])
        inner = np.interp(clipped_values, x, y)
        slopes = 1.0
        if self.is_proportional:
            low_slope = y[0] / x[0]
            high_slope = y[-1] / x[-1]
            slopes = np.where(values < 0, low_slope, high_slope)
        return inner + slopes * (values - clipped_values)


STUDENT_CURVE = QuantileCurve(_GRID, _GRID)


@dataclass(frozen=True)
class ResidualPool:
    """The prompts of a report around the mean of their class, where they are skewed.

    Args:
        residuals: of all classes.
        skewness: of one prompt, from the k-statistics of the classes; those have no bias.
    """

    residuals: Values
    skewness: float
    _curves: dict[int, QuantileCurve] = field(default_factory=dict, repr=False, compare=False)

    def find_curve(self, count: int) -> QuantileCurve:
        """Return the curve of the mean of so many prompts, each end the more cautious of two."""
        if count not in self._curves:
            student = _place_quantiles(count)
            drawn = self._draw_means(student, count)
            transformed = self._transform(student, count)
            lower = np.minimum(drawn, transformed)
            upper = np.maximum(drawn, transformed)
            cautious = np.where(student < 0, lower, upper)
            edge = special.stdtrit(count - 1, (1 + LEVEL) / 2)
            is_beyond = np.abs(student) > edge
            mean = np.where(is_beyond, cautious, drawn)
            self._curves[count] = QuantileCurve(student, mean, is_proportional=True)
        return self._curves[count]

    def _draw_means(self, student: Values, count: int) -> Values:
        """Return the mean's quantiles by the bootstrap-t, for Student's."""
        draw_count = _count_draws(count)
        rng = np.random.default_rng([1, count])
        parts = []
        part_size = max(_RATIO_NUMBERS // count, 1)
        for begin in range(0, draw_count, part_size):
            shape = (min(part_size, draw_count - begin), count)
            draws = self.residuals[rng.integers(0, len(self.residuals), shape)]
            spreads = draws.std(axis=1, ddof=1) / math.sqrt(count)
            draw_means = draws.mean(axis=1)
            # a draw of equal residuals says that no spread is too small for its mean
            ratios = np.sign(draw_means) * _LARGEST_RATIO
            is_spread = spreads > NO_WIDTH
            ratios[is_spread] = draw_means[is_spread] / spreads[is_spread]
            parts.append(ratios)

        # the end of an interval mirrors the ratio: the mean is low where the ratio is low
        all_ratios = np.concatenate(parts)
        probabilities = special.stdtr(count - 1, -student)
        means: Values = -np.quantile(all_ratios, probabilities)
        return means

    def _transform(self, student: Values, count: int) -> Values:
        """Return the mean's quantiles by Hall's transformation of Student's ratio."""
        share = self.skewness / (3 * math.sqrt(count))
        ratios = np.linspace(-_LARGEST_RATIO, _LARGEST_RATIO, 20_001)
        square_term = share * (ratios**2 + 1 / 2)
        cube_term = share**2 * ratios**3 / 3
        transformed = ratios + square_term + cube_term
        return -np.interp(-student, transformed, ratios)


def _count_draws(count: int) -> int:
    return min(_RATIO_DRAWS, max(_count_resamples(count), _RATIO_NUMBERS // count))


def _count_resamples(count: int) -> int:
    return min(_RESAMPLES, max(_FEWEST_RESAMPLES, _NUMBERS // count))


def _place_quantiles(count: int) -> Values:
    """Return Student's quantiles at the points of the curve of the mean of so many prompts."""
    tails = np.geomspace(_FEWEST_BEYOND / _count_draws(count), 0.5, 40)
    probabilities = np.concatenate([tails, 1 - tails[-2::-1]])
    quantiles: Values = special.stdtrit(count - 1, probabilities)
    return quantiles


def pool_residuals(logs_by_class: Iterable[Values]) -> ResidualPool | None:
    """Return the residuals of all classes where they are skewed beyond chance; else None.

    Args:
        logs_by_class: one log-ratio a prompt. Shapes: (prompts,).
    """
    classes = []
    parts = [np.empty(0)]
    for class_logs in logs_by_class:
        logs = class_logs[np.isfinite(class_logs)]
        count = len(logs)
        if count >= FEWEST_PROMPTS:
            classes.append(logs)
            # a class's own mean takes a part of the spread with it
            scale = math.sqrt(count / (count - 1))
            parts.append(scale * (logs - logs.mean()))
    residuals = np.concatenate(parts)
    if len(residuals) < _FEWEST_RESIDUALS or np.ptp(residuals) < NO_WIDTH:
        return None
    from scipy import stats  # noqa: PLC0415 - it takes half a second to load

    if stats.skewtest(residuals).pvalue >= _SKEW_LEVEL:
        return None
    weights = [len(logs) for logs in classes]
    variance = np.average([stats.kstat(logs, 2) for logs in classes], weights=weights)
    third_cumulant = np.average([stats.kstat(logs, 3) for logs in classes], weights=weights)
    return ResidualPool(residuals, float(third_cumulant / variance**1.5))


def resample_curve(logs: Values, se: float) -> QuantileCurve:
    """Return the curve of the mean of resampled prompts."""
    weights, lower_index, upper_share = plan_resampling(len(logs))
    means = np.sort(weights @ (logs - logs.mean())) / se
    lower = means[lower_index]
    upper = means[lower_index + 1]
    return QuantileCurve(_GRID, lower * (1 - upper_share) + upper * upper_share)


@lru_cache(maxsize=32)
def plan_resampling(count: int) -> tuple[Values, IntArray, Values]:
    """Return each prompt's weight in each resample, and the sorted means around the points.

    Shapes: weights (resamples, count).
    """
    draws = _count_resamples(count)
    rng = np.random.default_rng([0, count])
    weights = rng.multinomial(count, np.full(count, 1 / count), size=draws) / count
    probabilities = special.ndtr(_GRID * math.sqrt(count / (count - 1)))
    places = probabilities * draws - 0.5
    lower_index = np.clip(np.floor(places).astype(np.intp), 0, draws - 2)
    upper_share = np.clip(places - lower_index, 0.0, 1.0)
    return weights, lower_index, upper_share
