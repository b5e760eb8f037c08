"""How sure a speed-up is: an interval and a p-value from one log-ratio per prompt.

Invariant: at every level, p is below 1 - level exactly if the interval at that level leaves out 0.
A prompt is one value, however often it was sent. The same values and the same seed give the same
interval.

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

Prompts are not the only source of chance. A disturbance of one server that outlasts a turn affects
every prompt of a round. From FEWEST_ROUNDS rounds on, the variance includes the differences between
the rounds' means beyond chance. Four rounds of one class show little of this noise. So it is pooled
over the classes of the report (`pool_round_noise`), which the same servers answered. From
FEWEST_STARTS starts of the servers on, prompts and starts are crossed: every prompt runs in every
start, and the variance is that of the two-way layout with random rows and columns. All sums have
Satterthwaite's degrees of freedom (1946, Biometrics Bulletin 2, 110).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from tandem.bench.figures.columns import BoolArray, IntArray
from tandem.bench.figures.quantiles import Values
from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.judge.schema import RatioEstimate

FEWEST_PROMPTS = 3
"""Fewest prompts that give a usable spread."""

FEWEST_STARTS = 6
"""Fewest starts of an arm whose spread is estimated; enough also if swapped placements take degrees
of freedom."""

LEVEL = 0.95
_RESAMPLES = 4_000
_FEWEST_RESAMPLES = 1_000
# of a resampling matrix: 32 MB; more than a thousand prompts get fewer resamples
_NUMBERS = 4_000_000
_TAIL = 2.0  # Student's quantile up to which the resamples decide the curve
_GRID: Values = np.linspace(-_TAIL, _TAIL, 41)
_NO_WIDTH = 1e-9  # a log-ratio below it is a rounding error
_UNKNOWN = -1
_LARGEST_LOG = 700.0  # a log-ratio whose exp is still a number
# of the test whether rounds differ: lenient, for a missed drift costs more than a wider interval
_ROUNDS_LEVEL = 0.1
_MOST_ABSENT = 0.5  # of the cells of a layout
_SWEEPS = 50  # to fill in absent cells of the layout
# of the test whether residuals are skewed; higher, it costs mixed worlds their word
_SKEW_LEVEL = 0.02
_FEWEST_RESIDUALS = 12  # the test needs 8; fewer than 12 say nothing of a tail
_RATIO_DRAWS = 50_000  # of Student's ratio, so that a level of 1 in 5,000 rests on draws
# drawn at once; a mean of many prompts has fewer ratios, for it is tested at no such level
_RATIO_NUMBERS = 1_000_000
_LARGEST_RATIO = 100.0  # of Student's ratio; a curve goes on in proportion beyond it
_FEWEST_BEYOND = 10  # draws beyond the last point of a curve


class RoundNoise(NamedTuple):
    """Noise that a round's prompts share: its variance of a log-ratio, and degrees of freedom."""

    variance: float
    df: float


NO_NOISE = RoundNoise(0.0, 1.0)


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
            slopes = np.where(values < 0, y[0] / x[0], y[-1] / x[-1])
        followed: Values = inner + slopes * (values - clipped_values)
        return followed


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
            cautious = np.where(
                student < 0, np.minimum(drawn, transformed), np.maximum(drawn, transformed)
            )
            is_beyond = np.abs(student) > special.stdtrit(count - 1, (1 + LEVEL) / 2)
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
            is_spread = spreads > _NO_WIDTH
            ratios[is_spread] = draw_means[is_spread] / spreads[is_spread]
            parts.append(ratios)

        # the end of an interval mirrors the ratio: the mean is low where the ratio is low
        means: Values = -np.quantile(np.concatenate(parts), special.stdtr(count - 1, -student))
        return means

    def _transform(self, student: Values, count: int) -> Values:
        """Return the mean's quantiles by Hall's transformation of Student's ratio."""
        share = self.skewness / (3 * math.sqrt(count))
        ratios = np.linspace(-_LARGEST_RATIO, _LARGEST_RATIO, 20_001)
        transformed = ratios + share * (ratios**2 + 1 / 2) + share**2 * ratios**3 / 3
        means: Values = -np.interp(-student, transformed, ratios)
        return means


def _count_draws(count: int) -> int:
    fewest_draws = min(_RESAMPLES, max(_FEWEST_RESAMPLES, _NUMBERS // count))
    return min(_RATIO_DRAWS, max(fewest_draws, _RATIO_NUMBERS // count))


def _place_quantiles(count: int) -> Values:
    """Return Student's quantiles at the points of the curve of the mean of so many prompts."""
    tails = np.geomspace(_FEWEST_BEYOND / _count_draws(count), 0.5, 40)
    probabilities = np.concatenate([tails, 1 - tails[-2::-1]])
    quantiles: Values = special.stdtrit(count - 1, probabilities)
    return quantiles


@dataclass(frozen=True)
class LogRatioEstimate:
    """A mean log-ratio and how sure it is.

    Args:
        log: mean over prompts; its exp is the geometric mean of their ratios.
        se: its standard error.
        df: degrees of freedom of that.
        low, high: ends of the interval at the requested level.
        p: of the test that it is 0, two-sided.
        curve: the quantiles of the mean.
        shared_noise: the part of the mean's variance that rounds, or starts, have in common; more
            prompts do not lower it.
        start_count: how many independent starts of the servers are a factor of the interval; 0
            where it leaves out how they differ.
    """

    log: float
    se: float
    df: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    curve: QuantileCurve = field(default=STUDENT_CURVE, repr=False, compare=False)
    shared_noise: RoundNoise = NO_NOISE
    start_count: int = 0

    def convert(self) -> RatioEstimate:
        """Return the estimate as a ratio with its interval."""
        value, low, high = map(convert_log_ratio, (self.log, self.low, self.high))
        return RatioEstimate(value=value, low=low, high=high)


def estimate_log_ratio(  # noqa: PLR0913 - the signature is a sentence: values, what they are crossed with, how to answer
    logs: Values,
    by_round: Values | None = None,
    starts: IntArray | None = None,
    *,
    placements: IntArray | None = None,
    noise: RoundNoise = NO_NOISE,
    pool: ResidualPool | None = None,
    level: float = LEVEL,
) -> LogRatioEstimate | None:
    """Return the mean of `logs` with its interval; None of fewer than FEWEST_PROMPTS prompts.

    Prompts whose value is not finite are absent. Where all values are the same, the interval has no
    width.

    Args:
        logs: one log-ratio a prompt, above 0 where the variant is better. Shapes: (prompts,).
        by_round: the same in each round, NaN where absent. With `starts` it decides whether starts
            are a factor. Shapes: (prompts, rounds).
        starts: code of each round, the same for rounds that share a start of a server, -1 where
            unknown. Shapes: (rounds,).
        placements: code of the placement of each round, -1 where unknown: an effect that swapping
            takes out, so it is taken out of the starts' spread too. Shapes: (rounds,).
        noise: of a round, from `pool_round_noise` over all classes. Starts that are a factor
            include it.
        pool: from `pool_residuals` over all classes; None where prompts are not skewed.
        level: of low and high.
    """
    is_finite = np.isfinite(logs)
    if is_finite.sum() < FEWEST_PROMPTS:
        return None
    shared_noise = NO_NOISE
    if by_round is not None:
        by_round = by_round[is_finite]
        if starts is not None:
            estimate = _estimate_over_starts(by_round, starts, placements, pool, level)
            if estimate is not None:
                return estimate
        shared_noise = _estimate_shared_noise(by_round, noise)
    return _estimate_over_prompts(logs[is_finite], shared_noise, pool, level)


def convert_log_ratio(log: float) -> float:
    """Return a log-ratio's ratio: finite and above 0, however broken a clock was."""
    return math.exp(min(max(float(log), -_LARGEST_LOG), _LARGEST_LOG))


def pool_round_noise(layouts: Iterable[Values]) -> RoundNoise:
    """Return the noise that prompts of a round share, pooled over the classes of a report.

    Args:
        layouts: log-ratios of each class, NaN where absent. Shapes: (prompts, rounds).
    """
    noises = [
        measure[0]
        for by_round in layouts
        if (measure := _measure_round_noise(by_round)) is not None
    ]
    df = sum(noise.df for noise in noises)
    return (
        RoundNoise(max(sum(noise.variance * noise.df for noise in noises) / df, 0.0), df)
        if df
        else NO_NOISE
    )


def pool_residuals(logs_by_class: Iterable[Values]) -> ResidualPool | None:
    """Return the residuals of all classes where they are skewed beyond chance; else None.

    Args:
        logs_by_class: one log-ratio a prompt. Shapes: (prompts,).
    """
    classes = [logs[np.isfinite(logs)] for logs in logs_by_class]
    classes = [logs for logs in classes if len(logs) >= FEWEST_PROMPTS]
    # a class's own mean takes a part of the spread with it
    parts = [math.sqrt(len(logs) / (len(logs) - 1)) * (logs - logs.mean()) for logs in classes]
    residuals = np.concatenate(parts) if parts else np.empty(0)
    if len(residuals) < _FEWEST_RESIDUALS or np.ptp(residuals) < _NO_WIDTH:
        return None
    from scipy import stats  # noqa: PLC0415 - it takes half a second to load

    if stats.skewtest(residuals).pvalue >= _SKEW_LEVEL:
        return None
    weights = [len(logs) for logs in classes]
    variance = np.average([stats.kstat(logs, 2) for logs in classes], weights=weights)
    third_cumulant = np.average([stats.kstat(logs, 3) for logs in classes], weights=weights)
    return ResidualPool(residuals, float(third_cumulant / variance**1.5))


def mask_full_rounds(by_round: Values) -> BoolArray:
    """Return which rounds have at least half of the prompts: fewer do not show a round's own noise.

    Args:
        by_round: log-ratios, NaN where absent. Shapes: (prompts, rounds).
    """
    mask: BoolArray = np.isfinite(by_round).sum(axis=0) >= max(
        (1 - _MOST_ABSENT) * len(by_round), 1
    )
    return mask


def combine_variances(
    log: float, own_noise: RoundNoise, shared_noise: RoundNoise, level: float
) -> LogRatioEstimate:
    """Return an estimate with Student's interval; its variance is a sum of two."""
    variance = own_noise.variance + shared_noise.variance
    if variance < _NO_WIDTH**2:
        return _build_exact_estimate(log, own_noise.df)
    df = variance**2 / (
        own_noise.variance**2 / own_noise.df + shared_noise.variance**2 / shared_noise.df
    )
    return _add_interval(
        LogRatioEstimate(log, math.sqrt(variance), df, shared_noise=shared_noise), level
    )


def compute_interval(estimate: LogRatioEstimate, level: float) -> tuple[float, float]:
    """Return the ends of the interval of `estimate` at another level."""
    if not estimate.se:
        return estimate.log, estimate.log
    quantile = float(special.stdtrit(estimate.df, (1 + level) / 2))
    ends = estimate.curve.convert(np.array([-quantile, quantile]))
    low, high = (estimate.log + estimate.se * ends).tolist()
    return low, high


def _add_interval(estimate: LogRatioEstimate, level: float) -> LogRatioEstimate:
    """Add the interval and p to an estimate that has log, se, df and curve."""
    position = np.array([-estimate.log / estimate.se])
    quantile = abs(float(estimate.curve.invert(position)[0]))
    low, high = compute_interval(estimate, level)
    return replace(estimate, low=low, high=high, p=2 * float(special.stdtr(estimate.df, -quantile)))


def _build_exact_estimate(log: float, df: float, start_count: int = 0) -> LogRatioEstimate:
    """Return the estimate of values that are all the same."""
    is_zero = abs(log) < _NO_WIDTH
    return LogRatioEstimate(
        0.0 if is_zero else log, 0.0, df, log, log, 1.0 if is_zero else 0.0, start_count=start_count
    )


def _estimate_over_prompts(
    logs: Values, shared_noise: RoundNoise, pool: ResidualPool | None, level: float
) -> LogRatioEstimate:
    count = len(logs)
    mean = float(np.mean(logs))
    se = float(np.std(logs, ddof=1)) / math.sqrt(count)
    variance = se**2 + shared_noise.variance
    if variance < _NO_WIDTH**2:
        return _build_exact_estimate(mean, count - 1.0)
    curve = STUDENT_CURVE
    if pool is not None:
        curve = pool.find_curve(count)
    elif se >= _NO_WIDTH:
        curve = _resample_curve(logs, se)
    df = variance**2 / (se**4 / (count - 1) + shared_noise.variance**2 / shared_noise.df)
    estimate = LogRatioEstimate(
        log=mean,
        se=math.sqrt(variance),
        df=df,
        curve=curve.weaken(_keep_skewness(se**2, variance)),
        shared_noise=shared_noise,
    )
    return _add_interval(estimate, level)


def _resample_curve(logs: Values, se: float) -> QuantileCurve:
    """Return the curve of the mean of resampled prompts."""
    weights, lower_index, upper_share = plan_resampling(len(logs))
    means = np.sort(weights @ (logs - logs.mean())) / se
    mean = means[lower_index] * (1 - upper_share) + means[lower_index + 1] * upper_share
    return QuantileCurve(_GRID, mean)


def _keep_skewness(own_variance: float, variance: float) -> float:
    """Return what symmetric noise leaves of a mean's skewness."""
    share: float = (own_variance / variance) ** 1.5
    return share


@lru_cache(maxsize=32)
def plan_resampling(count: int) -> tuple[Values, IntArray, Values]:
    """Return each prompt's weight in each resample, and the sorted means around the points.

    Shapes: weights (resamples, count).
    """
    draws = min(_RESAMPLES, max(_FEWEST_RESAMPLES, _NUMBERS // count))
    rng = np.random.default_rng([0, count])
    weights = rng.multinomial(count, np.full(count, 1 / count), size=draws) / count
    places = special.ndtr(_GRID * math.sqrt(count / (count - 1))) * draws - 0.5
    lower_index = np.clip(np.floor(places).astype(np.intp), 0, draws - 2)
    return weights, lower_index, np.clip(places - lower_index, 0.0, 1.0)


def _estimate_shared_noise(by_round: Values, pooled_noise: RoundNoise) -> RoundNoise:
    """Return the variance that rounds add to a class's mean, and its degrees of freedom.

    The result is the noise of all classes. The class's own noise replaces it if that is larger and
    an F test at _ROUNDS_LEVEL says that chance does not explain it. The own noise has few degrees
    of freedom: used always, it would make intervals too wide where rounds are alike.
    """
    round_count = int(np.isfinite(by_round).any(axis=0).sum())
    own_noise, is_real = _measure_round_noise(by_round) or (NO_NOISE, False)
    noise = own_noise if is_real and own_noise.variance > pooled_noise.variance else pooled_noise
    return RoundNoise(noise.variance / round_count, noise.df) if round_count else NO_NOISE


def _measure_round_noise(by_round: Values) -> tuple[RoundNoise, bool] | None:
    """Return the noise of a class's rounds (negative by chance), and whether it exceeds chance.

    None for a class of fewer than FEWEST_PROMPTS prompts or FEWEST_ROUNDS rounds, or with too many
    absent cells.
    """
    cells = by_round[:, mask_full_rounds(by_round)]
    is_absent = ~np.isfinite(cells)
    rows, columns = cells.shape
    if rows < FEWEST_PROMPTS or columns < FEWEST_ROUNDS or is_absent.mean() > _MOST_ABSENT:
        return None
    squares = compute_mean_squares(fill_absent(cells, is_absent), columns - 1, int(is_absent.sum()))
    critical_ratio = float(special.fdtri(columns - 1, squares.df_residual, 1 - _ROUNDS_LEVEL))
    noise = RoundNoise((squares.columns - squares.residual) / rows, columns - 1)
    return noise, squares.columns > squares.residual * critical_ratio


def _estimate_over_starts(
    by_round: Values,
    starts: IntArray,
    placements: IntArray | None,
    pool: ResidualPool | None,
    level: float,
) -> LogRatioEstimate | None:
    """Return the mean over prompts crossed with starts; None with too few starts or cells."""
    is_usable = (starts != _UNKNOWN) & np.isfinite(by_round).any(axis=0)
    codes, round_starts = np.unique(starts[is_usable], return_inverse=True)
    columns = len(codes)
    if columns < FEWEST_STARTS:
        return None
    by_round = by_round[:, is_usable]
    is_in_start = (round_starts[:, np.newaxis] == np.arange(columns)).astype(float)
    counts = np.isfinite(by_round).astype(float) @ is_in_start
    with np.errstate(invalid="ignore"):
        cells = np.where(np.isfinite(by_round), by_round, 0.0) @ is_in_start / counts
    cells = cells[np.isfinite(cells).any(axis=1)]
    is_absent = ~np.isfinite(cells)
    rows = len(cells)
    if rows < FEWEST_PROMPTS or is_absent.mean() > _MOST_ABSENT:
        return None
    cells = fill_absent(cells, is_absent)
    placement_count = 1
    effective_starts = float(columns)
    groups = (
        None if placements is None else _group_starts(placements[is_usable], round_starts, columns)
    )
    # take out the placements' effect; unequal shares make the starts count as fewer
    if groups is not None:
        sizes = np.bincount(groups)
        placement_count = len(sizes)
        effective_starts = len(sizes) ** 2 / float((1 / sizes).sum())
        means = np.array([cells[:, groups == group].mean() for group in range(placement_count)])
        cells = cells + means.mean() - means[groups]
    log = float(cells.mean())
    df_rows = rows - 1
    df_columns = columns - placement_count
    squares = compute_mean_squares(cells, df_columns, int(is_absent.sum()))
    by_prompt = squares.rows / (rows * columns)
    by_start = squares.columns / (rows * effective_starts)
    by_residual = squares.residual / (rows * effective_starts)
    # both include the residual's share, so their sum counts it twice; neither alone can exceed the
    # whole
    variance = max(by_prompt + by_start - by_residual, by_prompt, by_start)
    if variance < _NO_WIDTH**2:
        return _build_exact_estimate(log, float(min(df_rows, df_columns)), columns)
    spread = (
        by_prompt**2 / df_rows + by_start**2 / df_columns + by_residual**2 / squares.df_residual
    )
    df = min(max(variance**2 / spread, min(df_rows, df_columns)), df_rows + df_columns)
    noise = RoundNoise(max(by_start - by_residual, 0.0), df_columns)
    curve = STUDENT_CURVE
    if pool is not None:
        curve = pool.find_curve(rows).weaken(_keep_skewness(min(by_prompt, variance), variance))
    estimate = LogRatioEstimate(
        log=log,
        se=math.sqrt(variance),
        df=float(df),
        curve=curve,
        shared_noise=noise,
        start_count=columns,
    )
    return _add_interval(estimate, level)


def _group_starts(
    placements: IntArray, round_starts: IntArray, start_count: int
) -> IntArray | None:
    """Return each start's placement, from 0; None if unknown, two of one start, or all the same."""
    codes_by_start = [np.unique(placements[round_starts == code]) for code in range(start_count)]
    if any(len(codes) != 1 or codes[0] == _UNKNOWN for codes in codes_by_start):
        return None
    groups = np.unique(np.concatenate(codes_by_start), return_inverse=True)[1]
    return groups if 0 < groups.max() < start_count - 2 else None


def fill_absent(cells: Values, is_absent: BoolArray) -> Values:
    """Return the layout with absent cells at their row's and column's mean (Yates 1933)."""
    if not is_absent.any():
        return cells
    estimates: Values = np.where(is_absent, np.nanmean(cells), cells)
    for _ in range(_SWEEPS):
        fit = (
            estimates.mean(axis=1, keepdims=True)
            + estimates.mean(axis=0, keepdims=True)
            - estimates.mean()
        )
        estimates = np.where(is_absent, fit, cells)
    return estimates


class MeanSquares(NamedTuple):
    """Mean squares of a two-way layout without repeats, and the degrees of freedom of the last."""

    rows: float
    columns: float
    residual: float
    df_residual: int


def compute_mean_squares(cells: Values, df_columns: int, absent_count: int) -> MeanSquares:
    """Return the mean squares of a filled layout; `df_columns`: its columns' degrees of freedom."""
    rows, columns = cells.shape
    row_effects = cells.mean(axis=1) - cells.mean()
    column_effects = cells.mean(axis=0) - cells.mean()
    residuals = cells - cells.mean() - row_effects[:, None] - column_effects[None, :]
    df_residual = max((rows - 1) * df_columns - absent_count, 1)
    return MeanSquares(
        rows=columns * float((row_effects**2).sum()) / (rows - 1),
        columns=rows * float((column_effects**2).sum()) / df_columns,
        residual=float((residuals**2).sum()) / df_residual,
        df_residual=df_residual,
    )
