"""Series under evaluation, and what CloudWatch does with their points.

Invariant: pure; a missing point is absent, never a NaN, and no result holds a number that is not
finite.

Sources: user guide, "Using math expressions with CloudWatch metrics", read 2026-11-21. Stated by
us, not by the guide: FILL fills a series without any point too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from doubles.cloudwatch.series_store import MetricKey, Points

BinaryOperation = Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class PointSeries:
    """A series under evaluation.

    Args:
        points: of it.
        label: what the legend says where nobody else says it.
        key: the metric that it is; None for what is computed.
    """

    points: Points
    label: str = ""
    key: MetricKey | None = None


def compute_finite(operation: BinaryOperation, first: float, second: float) -> float | None:
    """Return the result, None where there is none: a division by zero, a number beyond all
    bounds."""
    try:
        result = operation(first, second)
    except (ZeroDivisionError, OverflowError):
        return None
    return result if math.isfinite(result) else None


def join_series(
    operation: BinaryOperation, first: float | PointSeries, second: float | PointSeries
) -> Points:
    """Return the result at each time at which either side has a point: the other's missing one
    counts as 0."""
    times = sorted(
        {
            time_s
            for side in (first, second)
            if isinstance(side, PointSeries)
            for time_s in side.points
        }
    )

    def value(side: float | PointSeries, time_s: int) -> float:
        return side if isinstance(side, float) else side.points.get(time_s, 0.0)

    results = {
        time_s: compute_finite(operation, value(first, time_s), value(second, time_s))
        for time_s in times
    }
    return {time_s: result for time_s, result in results.items() if result is not None}


def choose_points(
    condition: PointSeries, then_value: float | PointSeries, else_value: float | PointSeries
) -> Points:
    """Return IF's points: `then_value` where the condition is not 0, else `else_value`.

    Where `then_value` lacks the point it is 0; where `else_value` does, none is drawn.
    """
    points: Points = {}
    for time_s, is_true in condition.points.items():
        side = then_value if is_true else else_value
        if isinstance(side, float):
            points[time_s] = side
        elif is_true or time_s in side.points:
            points[time_s] = side.points.get(time_s, 0.0)
    return points


def sum_series(series: Iterable[PointSeries]) -> Points:
    """Return, at each time, the sum of all series that have a point there."""
    totals: Points = {}
    for member in series:
        for time_s, value in member.points.items():
            totals[time_s] = totals.get(time_s, 0.0) + value
    return {time_s: totals[time_s] for time_s in sorted(totals) if math.isfinite(totals[time_s])}


def accumulate_points(points: Points) -> Points:
    """Return the sum of each point and all before it."""
    total = 0.0
    totals = {}
    for time_s in sorted(points):
        total += points[time_s]
        if not math.isfinite(total):
            break
        totals[time_s] = total
    return totals


def fill_points(points: Points, value: float, grid: range) -> Points:
    """Return a point at each time of the grid: the series' own, else `value`."""
    return {time_s: points.get(time_s, value) for time_s in grid}
