"""Series under evaluation, and what CloudWatch does with their points.

Invariant: pure; a missing point is absent, never a NaN, and no result holds a number that is not finite.

Sources: user guide, "Using math expressions with CloudWatch metrics", read 2026-11-21. Stated by us, not by the guide:
FILL fills a series without any point too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
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


def summed(series: Iterable[Drawn]) -> Points:
    """Return, at each time, the sum of all series that have a point there."""
    found: Points = {}
    for each in series:
        for at, value in each.points.items():
            found[at] = found.get(at, 0.0) + value
    return {at: found[at] for at in sorted(found) if math.isfinite(found[at])}


def running(points: Points) -> Points:
    """Return the sum of each point and all before it."""
    total, found = 0.0, {}
    for at in sorted(points):
        total += points[at]
        if not math.isfinite(total):
            break
        found[at] = total
    return found


def filled(points: Points, value: float, grid: range) -> Points:
    """Return a point at each time of the grid: the series' own, else `value`."""
    return {at: points.get(at, value) for at in grid}
