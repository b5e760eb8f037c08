"""Series under evaluation, and what CloudWatch does with their points.

Invariant: pure; a missing point is absent, never a NaN, and no result holds a number that is not finite.

Sources: user guide, "Using math expressions with CloudWatch metrics", read 2026-11-21. Stated by us, not by the guide:
FILL with REPEAT leaves what lies before the first point empty, and FILL with a number fills a series without any point;
MIN and MAX of an array pass over missing points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tandem.watch.series import Key, Points

Binary = Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A series under evaluation.

    Args:
        points: of it.
        label: what the legend says where nobody else says it.
        key: the metric that it is; None for what is computed.
    """

    points: Points
    label: str = ""
    key: Key | None = None


def finite(does: Binary, left: float, right: float) -> float | None:
    """Return the result, None where there is none: a division by zero, a number beyond all bounds."""
    try:
        found = does(left, right)
    except (ZeroDivisionError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def joined(does: Binary, left: float | Drawn, right: float | Drawn) -> Points:
    """Return the result at each time at which either side has a point: the other's missing one counts as 0."""
    times = sorted({at for side in (left, right) if isinstance(side, Drawn) for at in side.points})

    def value(side: float | Drawn, at: int) -> float:
        return side if isinstance(side, float) else side.points.get(at, 0.0)

    found = {at: finite(does, value(left, at), value(right, at)) for at in times}
    return {at: result for at, result in found.items() if result is not None}


def chosen(condition: Drawn, then: float | Drawn, otherwise: float | Drawn) -> Points:
    """Return IF's points: at each point of the condition, that of `then` where it is not 0, else that of `otherwise`.

    Where `then` lacks the point it is 0; where `otherwise` does, none is drawn.
    """
    points: Points = {}
    for at, holds in condition.points.items():
        side = then if holds else otherwise
        if isinstance(side, float):
            points[at] = side
        elif holds or at in side.points:
            points[at] = side.points.get(at, 0.0)
    return points


def pooled(series: Iterable[Drawn], does: Callable[[list[float]], float]) -> Points:
    """Return, at each time, one number of all series that have a point there."""
    pools: dict[int, list[float]] = {}
    for each in series:
        for at, value in each.points.items():
            pools.setdefault(at, []).append(value)
    found = {at: does(pools[at]) for at in sorted(pools)}
    return {at: value for at, value in found.items() if math.isfinite(value)}


def running(points: Points) -> Points:
    """Return the sum of each point and all before it."""
    total, found = 0.0, {}
    for at in sorted(points):
        total += points[at]
        if not math.isfinite(total):
            break
        found[at] = total
    return found


def filled(points: Points, filler: Mapping[int, float], grid: range) -> Points:
    """Return the points, and those of the filler where there is none."""
    return {at: (points if at in points else filler)[at] for at in grid if at in points or at in filler}


def repeated(points: Points, grid: range) -> Points:
    """Return the points, each repeated until the next."""
    found, last = {}, None
    for at in grid:
        last = points.get(at, last)
        if last is not None:
            found[at] = last
    return found
