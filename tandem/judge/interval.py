"""How sure a speed-up is: one log-ratio a prompt goes in, an interval and a p-value come out.

Invariant: p is below 1 - level exactly where the interval at that level leaves out 0, at every level. A prompt is one
value however often it was asked; the same values and the same seed give the same interval.

Prompts are resampled, and the percentiles of their mean are expanded: resampling n prompts makes the mean's spread too
small by sqrt((n - 1) / n), and takes normal quantiles where a few prompts need Student's. So the percentile is the one
at which a normal with that smaller spread has Student's quantile (Hesterberg 2015, The American Statistician 69, 371,
section 4.2). Beyond `_TAIL`, where few resamples or few prompts say nothing, the curve goes on as Student's
does: levels adjusted for thousands of cells need it, and so do three prompts, whose means have ten values in all.

Prompts are not the only chance. A disturbance of one server that outlasts a turn is met by every prompt of a round:
from FEWEST_ROUNDS rounds on, what the rounds' means differ by beyond chance is added to the variance. Four rounds of
one class tell little of that, so it is pooled over the classes of the report (`pool_round_noise`), which the same
servers answered. From FEWEST_STARTS starts of the servers on, prompts and starts are crossed: every prompt meets every
start, and the variance is that of the two-way layout with random rows and columns. All sums have Satterthwaite's
degrees of freedom (1946, Biometrics Bulletin 2, 110).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from tandem.bench.columns import BoolArray, IntArray
from tandem.bench.quantiles import Values
from tandem.bench.schedule import FEWEST_ROUNDS
from tandem.judge.schema import RatioEstimate

FEWEST_PROMPTS = 3
"""Fewer have no spread worth the name."""

FEWEST_STARTS = 6
"""Starts of an arm from which on their spread is estimated, with what swapped placements take from its freedom."""

LEVEL = 0.95
_RESAMPLES = 4_000
_NUMBERS = 4_000_000  # of a resampling matrix: 32 MB; a thousand prompts are resampled so often only
_TAIL = 2.0  # Student's quantile, up to which the resamples speak
_GRID: Values = np.linspace(-_TAIL, _TAIL, 41)
_NO_WIDTH = 1e-9  # a log-ratio below it is a rounding error
_UNKNOWN = -1
_LARGEST_LOG = 700.0  # a log-ratio whose exp is still a number
_ROUNDS_LEVEL = 0.1  # of the test whether rounds differ: lenient, for a missed drift costs more than a wider interval
_MOST_ABSENT = 0.5  # of the cells of a layout
_SWEEPS = 50  # to fill in absent cells of the layout


class RoundNoise(NamedTuple):
    """What all prompts of a round share: the variance of a log-ratio by it, and the degrees of freedom of that."""

    variance: float
    df: float


NO_NOISE = RoundNoise(0.0, 1.0)


@dataclass(frozen=True)
class LogRatioEstimate:
    """A mean log-ratio and how sure it is.

    Args:
        log: mean over prompts; its exp is the geometric mean of their ratios.
        se: its standard error. df: degrees of freedom of that.
        low, high: ends of the interval at the level asked for.
        p: of the test that it is 0, two-sided.
        bootstrap_quantiles: the resampled mean at Student's quantiles _GRID, as (mean - log) / se; empty where it is
            Student's.
        shared_noise: the part of the mean's variance that rounds, or starts, have in common; more prompts do not lower
            it.
        start_count: how many independent starts of the servers are a factor of the interval; 0 where it leaves out how
            they
            differ.
    """

    log: float
    se: float
    df: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    bootstrap_quantiles: Values = field(default_factory=lambda: np.empty(0), repr=False, compare=False)
    shared_noise: RoundNoise = NO_NOISE
    start_count: int = 0

    def convert(self) -> RatioEstimate:
        """Return the same as a ratio with its interval."""
        return RatioEstimate(
            value=convert_log_ratio(self.log), low=convert_log_ratio(self.low), high=convert_log_ratio(self.high)
        )


def estimate_log_ratio(  # noqa: PLR0913 - the signature is a sentence: values, what they are crossed with, how to answer
    logs: Values,
    by_round: Values | None = None,
    starts: IntArray | None = None,
    *,
    placements: IntArray | None = None,
    noise: RoundNoise = NO_NOISE,
    level: float = LEVEL,
    seed: int = 0,
) -> LogRatioEstimate | None:
    """Return the mean of `logs` with its interval; None of fewer than FEWEST_PROMPTS prompts.

    Prompts whose value is not finite are absent. Where all values are the same, the interval has no width.

    Args:
        logs: one log-ratio a prompt, above 0 where the variant is better. Shapes: (prompts,).
        by_round: the same in each round, NaN where absent. With `starts` it decides whether starts are a factor.
            Shapes: (prompts, rounds).
        starts: code of each round, the same for rounds that share a start of a server, -1 where unknown. Shapes:
            (rounds,).
        placements: code of the placement of each round, -1 where unknown: an effect that swapping takes out, so it
            is taken out of the starts' spread too. Shapes: (rounds,).
        noise: of a round, as `pool_round_noise` has it from all classes. Starts that are a factor have it in them.
        level: of low and high.
        seed: of the resampling.
    """
    is_finite = np.isfinite(logs)
    if is_finite.sum() < FEWEST_PROMPTS:
        return None
    if by_round is not None and starts is not None:
        layout = _build_layout(by_round[is_finite], starts, placements)
        if layout is not None:
            return _estimate_crossed_layout(layout, level)
    shared_noise = _estimate_shared_noise(by_round[is_finite], noise) if by_round is not None else NO_NOISE
    return _estimate_over_prompts(logs[is_finite], shared_noise, level, seed)


def convert_log_ratio(log: float) -> float:
    """Return the ratio of a log-ratio: a finite number above 0, however far a broken clock put two figures apart."""
    return math.exp(min(max(float(log), -_LARGEST_LOG), _LARGEST_LOG))


def pool_round_noise(layouts: Iterable[Values]) -> RoundNoise:
    """Return what rounds share, pooled over the classes of a report.

    Args:
        layouts: log-ratios of each class, NaN where absent. Shapes: (prompts, rounds).
    """
    classes = [noise for by_round in layouts if (noise := _measure_round_noise(by_round)) is not None]
    df = sum(noise.df for noise, _ in classes)
    if not df:
        return NO_NOISE
    return RoundNoise(max(sum(noise.variance * noise.df for noise, _ in classes) / df, 0.0), df)


def mask_full_rounds(by_round: Values) -> BoolArray:
    """Return which rounds have at least half of the prompts: fewer say nothing of what a round has of its own.

    Args:
        by_round: log-ratios, NaN where absent. Shapes: (prompts, rounds).
    """
    mask: BoolArray = np.isfinite(by_round).sum(axis=0) >= max((1 - _MOST_ABSENT) * len(by_round), 1)
    return mask


def resample_prompts(count: int, seed: int = 0) -> Values:
    """Return the weight of each prompt in each resample of `count` prompts, as `estimate_log_ratio` draws them.

    Shapes: (resamples, count).
    """
    return _plan_resampling(count, seed).weights


def combine_variances(log: float, own_noise: RoundNoise, shared_noise: RoundNoise, level: float) -> LogRatioEstimate:
    """Return an estimate whose variance is the sum of two, each with its degrees of freedom; Student's interval."""
    variance = own_noise.variance + shared_noise.variance
    if variance < _NO_WIDTH**2:
        return _build_exact_estimate(log, own_noise.df)
    df = variance**2 / (own_noise.variance**2 / own_noise.df + shared_noise.variance**2 / shared_noise.df)
    return _add_interval(LogRatioEstimate(log, math.sqrt(variance), df, shared_noise=shared_noise), level)


def compute_interval(estimate: LogRatioEstimate, level: float) -> tuple[float, float]:
    """Return the ends of the interval of `estimate` at another level."""
    if not estimate.se:
        return estimate.log, estimate.log
    quantile = float(special.stdtrit(estimate.df, (1 + level) / 2))
    return estimate.log + estimate.se * _map_quantile(
        estimate.bootstrap_quantiles, -quantile
    ), estimate.log + estimate.se * _map_quantile(estimate.bootstrap_quantiles, quantile)


def _estimate_over_prompts(logs: Values, shared_noise: RoundNoise, level: float, seed: int) -> LogRatioEstimate:
    count, mean = len(logs), float(np.mean(logs))
    se = float(np.std(logs, ddof=1)) / math.sqrt(count)
    variance = se**2 + shared_noise.variance
    if variance < _NO_WIDTH**2:
        return _build_exact_estimate(mean, count - 1.0)
    bootstrap_quantiles = _compute_bootstrap_quantiles(logs, seed) if se >= _NO_WIDTH else _GRID
    skewness_ratio = (se**2 / variance) ** 1.5  # a mean's skewness, once something without any is added to it
    df = variance**2 / (se**4 / (count - 1) + shared_noise.variance**2 / shared_noise.df)
    bootstrap_quantiles = _GRID + skewness_ratio * (bootstrap_quantiles - _GRID)
    return _add_interval(
        LogRatioEstimate(
            mean, math.sqrt(variance), df, bootstrap_quantiles=bootstrap_quantiles, shared_noise=shared_noise
        ),
        level,
    )


def _estimate_shared_noise(by_round: Values, pooled_noise: RoundNoise) -> RoundNoise:
    """Return what rounds add to the variance of a class's mean, and its degrees of freedom.

    It is the noise of all classes, or the class's own where that is larger and an F test at _ROUNDS_LEVEL says that
    chance does not explain it: the own one has few degrees of freedom, and taken always it would make intervals too
    wide where rounds are alike.
    """
    round_count = int(np.isfinite(by_round).any(axis=0).sum())
    own_noise = _measure_round_noise(by_round)
    noise = (
        own_noise[0]
        if own_noise is not None and own_noise[1] and own_noise[0].variance > pooled_noise.variance
        else pooled_noise
    )
    return RoundNoise(noise.variance / round_count, noise.df) if round_count else NO_NOISE


def _measure_round_noise(by_round: Values) -> tuple[RoundNoise, bool] | None:
    """Return the noise of a class's rounds, below 0 where chance made them alike, and whether chance explains it not.

    None of a class of fewer than FEWEST_PROMPTS prompts or FEWEST_ROUNDS rounds, or with too much absent.
    """
    cells = by_round[:, mask_full_rounds(by_round)]
    absent = ~np.isfinite(cells)
    rows, columns = cells.shape
    if rows < FEWEST_PROMPTS or columns < FEWEST_ROUNDS or absent.mean() > _MOST_ABSENT:
        return None
    mean_squares = _compute_mean_squares(_fill_absent(cells, absent), columns - 1, int(absent.sum()))
    critical_value = mean_squares.residual * float(
        special.fdtri(columns - 1, mean_squares.df_residual, 1 - _ROUNDS_LEVEL)
    )
    return RoundNoise(
        (mean_squares.columns - mean_squares.residual) / rows, columns - 1
    ), mean_squares.columns > critical_value


def _compute_bootstrap_quantiles(logs: Values, seed: int) -> Values:
    """Return where the mean of resampled prompts is at each of _GRID, from its middle in standard errors."""
    plan = _plan_resampling(len(logs), seed)
    means = np.sort(plan.weights @ (logs - logs.mean())) / (np.std(logs, ddof=1) / math.sqrt(len(logs)))
    lower_index, upper_share = plan.lower_index, plan.upper_share
    quantiles: Values = means[lower_index] * (1 - upper_share) + means[lower_index + 1] * upper_share
    return quantiles


class _ResamplePlan(NamedTuple):
    """Weights of the prompts in each resample, and between which sorted means the curve's points lie."""

    weights: Values
    lower_index: IntArray
    upper_share: Values


@lru_cache(maxsize=32)
def _plan_resampling(count: int, seed: int) -> _ResamplePlan:
    draws = min(_RESAMPLES, max(1_000, _NUMBERS // count))
    rng = np.random.default_rng([seed, count])
    weights = rng.multinomial(count, np.full(count, 1 / count), size=draws) / count
    places = special.ndtr(_GRID * math.sqrt(count / (count - 1))) * draws - 0.5
    lower_index = np.clip(np.floor(places).astype(np.intp), 0, draws - 2)
    return _ResamplePlan(weights, lower_index, np.clip(places - lower_index, 0.0, 1.0))


def _add_interval(estimate: LogRatioEstimate, level: float) -> LogRatioEstimate:
    """Return an estimate of which log, se, df and bends are known with its interval and p."""
    p = 2 * float(
        special.stdtr(estimate.df, -abs(_invert_quantile(estimate.bootstrap_quantiles, -estimate.log / estimate.se)))
    )
    low, high = compute_interval(estimate, level)
    return replace(estimate, low=low, high=high, p=p)


def _build_exact_estimate(log: float, df: float) -> LogRatioEstimate:
    is_zero = abs(log) < _NO_WIDTH
    return LogRatioEstimate(0.0 if is_zero else log, 0.0, df, log, log, 1.0 if is_zero else 0.0)


def _map_quantile(bootstrap_quantiles: Values, quantile: float) -> float:
    """Return where the mean is at one of Student's quantiles, in standard errors from its middle."""
    if not len(bootstrap_quantiles):
        return quantile
    clipped_quantile = min(max(quantile, -_TAIL), _TAIL)
    return float(np.interp(clipped_quantile, _GRID, bootstrap_quantiles)) + quantile - clipped_quantile


def _invert_quantile(bootstrap_quantiles: Values, position: float) -> float:
    """Return Student's quantile of a place; the inverse of _bend."""
    if not len(bootstrap_quantiles):
        return position
    clipped_position = min(max(position, float(bootstrap_quantiles[0])), float(bootstrap_quantiles[-1]))
    return float(np.interp(clipped_position, bootstrap_quantiles, _GRID)) + position - clipped_position


class _TwoWayLayout(NamedTuple):
    """Log-ratios by prompt and start, the placements' effect taken out.

    Args:
        cells: Shapes: (prompts, starts). absent: which of them were filled in.
        placement_count: how many placements there were; 1 where nothing was taken out.
        effective_starts: how many starts the mean over them is worth: fewer than there are where placements have
            unequal shares.
    """

    cells: Values
    is_absent: BoolArray
    placement_count: int
    effective_starts: float


def _build_layout(by_round: Values, starts: IntArray, placements: IntArray | None) -> _TwoWayLayout | None:
    """Return prompts by starts; None where starts are too few or cells too many are absent."""
    usable_rounds = (starts != _UNKNOWN) & np.isfinite(by_round).any(axis=0)
    codes, columns = np.unique(starts[usable_rounds], return_inverse=True)
    if len(codes) < FEWEST_STARTS:
        return None
    cells = np.column_stack(
        [_compute_row_means(by_round[:, usable_rounds][:, columns == code]) for code in range(len(codes))]
    )
    cells = cells[np.isfinite(cells).any(axis=1)]
    is_absent = ~np.isfinite(cells)
    if len(cells) < FEWEST_PROMPTS or is_absent.mean() > _MOST_ABSENT:
        return None
    cells = _fill_absent(cells, is_absent)
    groups = _group_starts(placements[usable_rounds], columns, len(codes)) if placements is not None else None
    if groups is None:
        return _TwoWayLayout(cells, is_absent, 1, float(len(codes)))
    means = [cells[:, groups == group].mean() for group in np.unique(groups)]
    sizes = np.unique(groups, return_counts=True)[1]
    cells = cells + np.mean(means) - np.array(means)[groups]
    return _TwoWayLayout(cells, is_absent, len(sizes), len(sizes) ** 2 / float((1 / sizes).sum()))


def _compute_row_means(values: Values) -> Values:
    """Return the mean of what is known in each row; NaN where nothing is."""
    is_finite = np.isfinite(values)
    sums = np.where(is_finite, values, 0.0).sum(axis=1)
    means: Values = np.divide(
        sums, is_finite.sum(axis=1), out=np.full(len(values), np.nan), where=is_finite.any(axis=1)
    )
    return means


def _fill_absent(cells: Values, is_absent: BoolArray) -> Values:
    """Return the layout with absent cells at their row's and column's mean (Yates 1933): they add no residual."""
    if not is_absent.any():
        return cells
    estimates: Values = np.where(is_absent, np.nanmean(cells), cells)
    for _ in range(_SWEEPS):
        fit = estimates.mean(axis=1, keepdims=True) + estimates.mean(axis=0, keepdims=True) - estimates.mean()
        estimates = np.where(is_absent, fit, cells)
    return estimates


def _group_starts(placements: IntArray, columns: IntArray, count: int) -> IntArray | None:
    """Return the placement of each start from 0; None where one is unknown, or one start met two, or all met one."""
    codes_by_start = [np.unique(placements[columns == code]) for code in range(count)]
    if any(len(codes) != 1 or codes[0] == _UNKNOWN for codes in codes_by_start):
        return None
    groups = np.unique(np.concatenate(codes_by_start), return_inverse=True)[1]
    sizes = np.bincount(groups)
    return groups if len(sizes) > 1 and count > len(sizes) + 1 else None


class _MeanSquares(NamedTuple):
    """Mean squares of a two-way layout without repeats, and the degrees of freedom of the last."""

    rows: float
    columns: float
    residual: float
    df_residual: int


def _compute_mean_squares(cells: Values, df_columns: int, absent_count: int) -> _MeanSquares:
    rows, columns = cells.shape
    row_effects, column_effects = cells.mean(axis=1) - cells.mean(), cells.mean(axis=0) - cells.mean()
    residuals = cells - cells.mean() - row_effects[:, None] - column_effects[None, :]
    df_residual = max((rows - 1) * df_columns - absent_count, 1)
    return _MeanSquares(
        rows=columns * float((row_effects**2).sum()) / (rows - 1),
        columns=rows * float((column_effects**2).sum()) / df_columns,
        residual=float((residuals**2).sum()) / df_residual,
        df_residual=df_residual,
    )


def _estimate_crossed_layout(layout: _TwoWayLayout, level: float) -> LogRatioEstimate:
    (rows, columns), log = layout.cells.shape, float(layout.cells.mean())
    df_rows, df_columns = rows - 1, columns - layout.placement_count
    mean_squares = _compute_mean_squares(layout.cells, df_columns, int(layout.is_absent.sum()))
    by_prompt = mean_squares.rows / (rows * columns)
    by_start, by_residual = (
        mean_squares.columns / (rows * layout.effective_starts),
        mean_squares.residual / (rows * layout.effective_starts),
    )
    # both hold the residual's share, so it counts twice in their sum; neither alone can be more than the whole
    variance = max(by_prompt + by_start - by_residual, by_prompt, by_start)
    if variance < _NO_WIDTH**2:
        return replace(_build_exact_estimate(log, float(min(df_rows, df_columns))), start_count=columns)
    spread = by_prompt**2 / df_rows + by_start**2 / df_columns + by_residual**2 / mean_squares.df_residual
    df = min(max(variance**2 / spread, min(df_rows, df_columns)), df_rows + df_columns)
    shared_noise = RoundNoise(max(by_start - by_residual, 0.0), df_columns)
    return _add_interval(
        LogRatioEstimate(log, math.sqrt(variance), float(df), shared_noise=shared_noise, start_count=columns), level
    )
