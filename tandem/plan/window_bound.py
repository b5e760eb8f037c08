"""The most tokens that a step of one window can commit, by the draft's other windows.

A draft counts at a position if it and all before it were accepted, so each position adds at most as
much as the one before it. With the window the mean of a step therefore rises in a concave curve.
Between measured windows, and beyond them, the curve lies below the lines through its measured
points. That needs no law of acceptance by position.

Invariant: pure arithmetic on plain numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

from tandem.plan.step_tokens import CommitLaw, count_drafted, expect_tokens, find_acceptance


@dataclass(frozen=True, kw_only=True)
class WindowTokens:
    """What one window of a draft committed.

    Args:
        window: num_speculative_tokens.
        tokens: mean of a step.
        position_rates: share of drafts accepted at each position, the first position first; empty
            where the server counts none.
    """

    window: int
    tokens: float
    position_rates: Sequence[float] = ()


def bound_tokens(law: CommitLaw, measurements: Sequence[WindowTokens], window: int) -> float:
    """Return the most tokens that a step can commit on average.

    A window shorter than all measured ones has no such line on its left. There the bound is the
    mean of a constant acceptance: no acceptance that rises by position commits more. One that falls
    does, by a few percent.

    Args:
        law: of the runtime.
        measurements: of windows of the same draft with the same prompts, one at least.
        window: num_speculative_tokens, from 1.
    """
    drafted = count_drafted(law, window)
    points = _list_points(law, measurements)
    if drafted in points:
        return points[drafted]

    shorter = [count for count in sorted(points) if count < drafted]
    longer = [count for count in sorted(points) if count > drafted]
    bounds = [1.0 + drafted]
    if longer:
        bounds.append(points[longer[0]])
    if len(longer) > 1:
        bounds.append(_extend_line(points, longer[0], longer[1], drafted))
    if len(shorter) > 1:
        bounds.append(_extend_line(points, shorter[-1], shorter[-2], drafted))
    elif longer:
        bounds.append(_predict_shorter(points[longer[0]], longer[0], drafted))
    return max(1.0, min(bounds))


def _list_points(law: CommitLaw, measurements: Iterable[WindowTokens]) -> dict[int, float]:
    """Return a step's mean by the number of drafts that it may commit; one token without any."""
    values = dict[int, list[float]]()
    for measurement in measurements:
        drafted = count_drafted(law, measurement.window)
        rates = measurement.position_rates[:drafted]
        for position, tokens in enumerate(accumulate(rates, initial=1.0)):
            values.setdefault(position, []).append(tokens)
        if not rates:
            values.setdefault(drafted, []).append(measurement.tokens)
    return {0: 1.0} | {count: fmean(tokens) for count, tokens in values.items() if count}


def _extend_line(points: Mapping[int, float], near: int, far: int, drafted: int) -> float:
    """Return the tokens at a number of drafts, on the line through two points.

    Noise may put the share of a position outside of 0 to 1.
    """
    slope = (points[far] - points[near]) / (far - near)
    return points[near] + (drafted - near) * min(1.0, max(0.0, slope))


def _predict_shorter(tokens: float, longer: int, shorter: int) -> float:
    """Return the mean of a step with fewer drafts, each accepted with the same chance."""
    # of this law the window is the number of drafts
    acceptance = find_acceptance("k+1", tokens, longer)
    if acceptance is None:  # noise puts the mean outside of what a step can commit
        acceptance = float(tokens > 1)
    return expect_tokens("k+1", acceptance, shorter)
