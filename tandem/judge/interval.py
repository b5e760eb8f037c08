"""How sure a speed-up is: an interval and a p-value from one log-ratio per prompt.

Invariant: at every level, p is below 1 - level exactly if the interval at that level leaves out 0.
A prompt is one value, however often it was sent. The same values and the same seed give the same
interval.

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
from typing import NamedTuple

import numpy as np
from scipy import special

from tandem.bench.figures.columns import BoolArray, IntArray
from tandem.bench.figures.quantiles import Values
from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.judge.quantile_curve import (
    FEWEST_PROMPTS,
    NO_WIDTH,
    STUDENT_CURVE,
    QuantileCurve,
    ResidualPool,
    resample_curve,
)
from tandem.judge.schema import LEVEL, EvidenceScope, RatioEstimate

FEWEST_STARTS = 6
"""Fewest starts of an arm whose spread is estimated; enough also if swapped placements take degrees
of freedom."""

_UNKNOWN = -1
_LARGEST_LOG = 700.0  # a log-ratio whose exp is still a number
# of the test whether rounds differ: lenient, for a missed drift costs more than a wider interval
_ROUNDS_LEVEL = 0.1
_MOST_ABSENT = 0.5  # of the cells of a layout
_SWEEPS = 50  # to fill in absent cells of the layout


class RoundNoise(NamedTuple):
    """Noise that a round's prompts share: its variance of a log-ratio, and degrees of freedom."""

    variance: float
    df: float


NO_NOISE = RoundNoise(0.0, 1.0)


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

    @property
    def evidence(self) -> EvidenceScope:
        """What it holds for."""
        return "across-starts" if self.start_count else "one-start"

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
    has_own_noise: bool = True,
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
        has_own_noise: whether rounds that differ more than by `noise` and by chance widen the
            interval.
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
        own_noise = _find_own_noise(by_round) if has_own_noise else NO_NOISE
        shared_noise = _share_noise(by_round, max(noise, own_noise, key=lambda row: row.variance))
    return _estimate_over_prompts(logs[is_finite], shared_noise, pool, level)


def convert_log_ratio(log: float) -> float:
    """Return a log-ratio's ratio: finite and above 0, however broken a clock was."""
    return math.exp(min(max(float(log), -_LARGEST_LOG), _LARGEST_LOG))


def pool_round_noise(layouts: Iterable[Values]) -> RoundNoise:
    """Return the noise that prompts of a round share, pooled over the classes of a report.

    Args:
        layouts: log-ratios of each class, NaN where absent. Shapes: (prompts, rounds).
    """
    measures = [_measure_round_noise(by_round) for by_round in layouts]
    noises = [measure[0] for measure in measures if measure is not None]
    df = sum(noise.df for noise in noises)
    if not df:
        return NO_NOISE
    variance = sum(noise.variance * noise.df for noise in noises) / df
    return RoundNoise(max(variance, 0.0), df)


def mask_full_rounds(by_round: Values) -> BoolArray:
    """Return which rounds have at least half of the prompts: fewer do not show a round's own noise.

    Args:
        by_round: log-ratios, NaN where absent. Shapes: (prompts, rounds).
    """
    fewest = max((1 - _MOST_ABSENT) * len(by_round), 1)
    mask: BoolArray = np.isfinite(by_round).sum(axis=0) >= fewest
    return mask


def combine_variances(
    log: float, own_noise: RoundNoise, shared_noise: RoundNoise
) -> LogRatioEstimate:
    """Return an estimate with Student's interval; its variance is a sum of two."""
    variance = own_noise.variance + shared_noise.variance
    if variance < NO_WIDTH**2:
        return _build_exact_estimate(log, own_noise.df)
    own_spread = own_noise.variance**2 / own_noise.df
    shared_spread = shared_noise.variance**2 / shared_noise.df
    df = variance**2 / (own_spread + shared_spread)
    estimate = LogRatioEstimate(log, math.sqrt(variance), df, shared_noise=shared_noise)
    return _add_interval(estimate, LEVEL)


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
    p = 2 * float(special.stdtr(estimate.df, -quantile))
    low, high = compute_interval(estimate, level)
    return replace(estimate, low=low, high=high, p=p)


def _build_exact_estimate(log: float, df: float, start_count: int = 0) -> LogRatioEstimate:
    """Return the estimate of values that are all the same."""
    mean = log
    p = 0.0
    if abs(log) < NO_WIDTH:
        mean = 0.0
        p = 1.0
    return LogRatioEstimate(mean, 0.0, df, log, log, p, start_count=start_count)


def _estimate_over_prompts(
    logs: Values, shared_noise: RoundNoise, pool: ResidualPool | None, level: float
) -> LogRatioEstimate:
    count = len(logs)
    mean = float(np.mean(logs))
    se = float(np.std(logs, ddof=1)) / math.sqrt(count)
    variance = se**2 + shared_noise.variance
    if variance < NO_WIDTH**2:
        return _build_exact_estimate(mean, count - 1.0)
    curve = STUDENT_CURVE
    if pool is not None:
        curve = pool.find_curve(count)
    elif se >= NO_WIDTH:
        curve = resample_curve(logs, se)
    spread = se**4 / (count - 1) + shared_noise.variance**2 / shared_noise.df
    estimate = LogRatioEstimate(
        log=mean,
        se=math.sqrt(variance),
        df=variance**2 / spread,
        curve=curve.weaken(_keep_skewness(se**2, variance)),
        shared_noise=shared_noise,
    )
    return _add_interval(estimate, level)


def _keep_skewness(own_variance: float, variance: float) -> float:
    """Return what symmetric noise leaves of a mean's skewness."""
    share: float = (own_variance / variance) ** 1.5
    return share


def _find_own_noise(by_round: Values) -> RoundNoise:
    """Return a class's own noise if an F test at _ROUNDS_LEVEL says that it is more than chance.

    It has few degrees of freedom: used always, it would make intervals too wide where rounds are
    alike.
    """
    own_noise, is_real = _measure_round_noise(by_round) or (NO_NOISE, False)
    return own_noise if is_real else NO_NOISE


def _share_noise(by_round: Values, noise: RoundNoise) -> RoundNoise:
    """Return the variance that rounds of some noise add to a mean."""
    round_count = int(np.isfinite(by_round).any(axis=0).sum())
    if not round_count:
        return NO_NOISE
    return RoundNoise(noise.variance / round_count, noise.df)


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

    df = columns - 1
    complete_cells = fill_absent(cells, is_absent)
    squares = compute_mean_squares(complete_cells, df, int(is_absent.sum()))
    noise = RoundNoise((squares.columns - squares.residual) / rows, df)
    critical_ratio = float(special.fdtri(df, squares.df_residual, 1 - _ROUNDS_LEVEL))
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
    cells = _average_starts(by_round[:, is_usable], round_starts, columns)
    is_absent = ~np.isfinite(cells)
    if len(cells) < FEWEST_PROMPTS or is_absent.mean() > _MOST_ABSENT:
        return None

    cells = fill_absent(cells, is_absent)
    sizes = np.array([columns])
    groups = None
    if placements is not None:
        groups = _group_starts(placements[is_usable], round_starts, columns)
    if groups is not None:
        sizes = np.bincount(groups)
        means = np.array([cells[:, groups == group].mean() for group in range(len(sizes))])
        cells = cells + means.mean() - means[groups]
    # unequal shares of the placements make the starts count as fewer
    effective_starts = len(sizes) ** 2 / float((1 / sizes).sum())
    squares = compute_mean_squares(cells, columns - len(sizes), int(is_absent.sum()))
    return _estimate_layout(cells, squares, effective_starts, pool, level)


def _average_starts(by_round: Values, round_starts: IntArray, start_count: int) -> Values:
    """Return each prompt's mean in each start, NaN where absent, without prompts that have none."""
    is_in_start = (round_starts[:, np.newaxis] == np.arange(start_count)).astype(float)
    is_finite = np.isfinite(by_round)
    counts = is_finite.astype(float) @ is_in_start
    sums = np.where(is_finite, by_round, 0.0) @ is_in_start
    with np.errstate(invalid="ignore"):
        cells: Values = sums / counts
    return cells[np.isfinite(cells).any(axis=1)]


def _estimate_layout(
    cells: Values,
    squares: MeanSquares,
    effective_starts: float,
    pool: ResidualPool | None,
    level: float,
) -> LogRatioEstimate:
    """Return the mean of a filled layout of prompts crossed with starts."""
    rows, columns = cells.shape
    log = float(cells.mean())
    df_rows = rows - 1
    df_columns = squares.df_columns
    least_df = min(df_rows, df_columns)
    by_prompt = squares.rows / (rows * columns)
    by_start = squares.columns / (rows * effective_starts)
    by_residual = squares.residual / (rows * effective_starts)
    # both include the residual's share, so their sum counts it twice; neither alone can exceed the
    # whole
    variance = max(by_prompt + by_start - by_residual, by_prompt, by_start)
    if variance < NO_WIDTH**2:
        return _build_exact_estimate(log, float(least_df), columns)

    spread = by_prompt**2 / df_rows
    spread += by_start**2 / df_columns
    spread += by_residual**2 / squares.df_residual
    df = min(max(variance**2 / spread, least_df), df_rows + df_columns)
    curve = STUDENT_CURVE
    if pool is not None:
        curve = pool.find_curve(rows).weaken(_keep_skewness(by_prompt, variance))
    estimate = LogRatioEstimate(
        log=log,
        se=math.sqrt(variance),
        df=float(df),
        curve=curve,
        shared_noise=RoundNoise(max(by_start - by_residual, 0.0), df_columns),
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
    estimates = np.where(is_absent, np.nanmean(cells), cells)
    for _ in range(_SWEEPS):
        row_means = estimates.mean(axis=1, keepdims=True)
        column_means = estimates.mean(axis=0, keepdims=True)
        fit = row_means + column_means - estimates.mean()
        estimates = np.where(is_absent, fit, cells)
    return estimates


class MeanSquares(NamedTuple):
    """Mean squares of a two-way layout without repeats, and the degrees of freedom of two."""

    rows: float
    columns: float
    residual: float
    df_columns: int
    df_residual: int


def compute_mean_squares(cells: Values, df_columns: int, absent_count: int) -> MeanSquares:
    """Return the mean squares of a filled layout; `df_columns`: its columns' degrees of freedom."""
    rows, columns = cells.shape
    mean = cells.mean()
    row_effects = cells.mean(axis=1) - mean
    column_effects = cells.mean(axis=0) - mean
    residuals = cells - mean - row_effects[:, None] - column_effects
    df_residual = max((rows - 1) * df_columns - absent_count, 1)
    return MeanSquares(
        rows=columns * float((row_effects**2).sum()) / (rows - 1),
        columns=rows * float((column_effects**2).sum()) / df_columns,
        residual=float((residuals**2).sum()) / df_residual,
        df_columns=df_columns,
        df_residual=df_residual,
    )
