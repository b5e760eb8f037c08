"""The knee of each arm and their ratio, estimated from the counted requests of a run's turns.

Invariant: a pure function of the turns; nothing comes from an earlier estimate. A load that the
measuring machine could not send is never a knee.

The share of requests that keep every limit is one logistic curve of the logarithm of the rate: a
maximum-likelihood fit over all turns of an arm, which never rises. The knee is where the curve
falls through the wanted share. Requests of a turn depend on each other, because they share a queue.
So the round is the unit: the interval is a jackknife over rounds with Student's t. The ratio of two
arms is paired by round, because both arms get the same prompts and gaps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from tandem.bench.plan.knee_search import (
    PILOT_ROUND,
    KneeTurnCount,
    list_pilot,
    read_pilot,
)

CONFIDENCE = 0.95
FEWEST_ROUNDS = 3  # of an interval: two rounds leave Student's t one degree of freedom
_SLOPE_LIMITS = (0.1, 300.0)  # of the logit, for each factor of e in the rate
_PRIOR_MISSES = 0.02  # of each turn, so a turn without a miss has a logarithm

KneeWord = Literal["found", "above", "below", "too few rounds", "too fast to send", "not reached"]


class KneePoint(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of an arm at one rate, over all rounds.

    Args:
        rate_per_s: requests started each second.
        counted: number of counted requests.
        good: those that kept every limit.
        fitted: share by the curve; None without a curve.
    """

    rate_per_s: float
    counted: int
    good: int
    fitted: float | None = None


class KneeRange(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate with its interval; the ends are None if there are too few rounds."""

    value: float
    low: float | None = None
    high: float | None = None


class ArmKnee(msgspec.Struct, frozen=True, kw_only=True):
    """The knee of an arm.

    Args:
        arm: name of the arm.
        word: `found`; `above` or `below` if the curve crosses the share outside the measured rates;
            `too few rounds` before an interval is possible; `too fast to send` if the server keeps
            the share at the highest rate that this machine can send; `not reached` if it keeps the
            share at no rate.
        rate_per_s: the knee; None without one.
        pilot_rate_per_s: result of the pilot; None without one.
        bound_per_s: the highest rate that kept the share, or the lowest that did not, where there
            is no knee.
        rounds: number of rounds behind the knee.
        points: of the curve.
        slope: of the logit of the share, for each factor of e in the rate; None without a curve.
    """

    arm: str
    word: KneeWord
    rate_per_s: KneeRange | None = None
    pilot_rate_per_s: float | None = None
    bound_per_s: float | None = None
    rounds: int = 0
    points: tuple[KneePoint, ...] = ()
    slope: float | None = None


class KneeRatio(msgspec.Struct, frozen=True, kw_only=True):
    """The load that a variant holds, as a multiple of the baseline's."""

    variant: str
    baseline: str
    ratio: KneeRange


class KneeFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The knees of a run.

    Args:
        share: of requests that must keep every limit.
        limits: of each metric, in its unit.
        arms: the baseline first.
        ratios: of each variant with a knee, if the baseline has one.
    """

    share: float
    limits: dict[str, float]
    arms: tuple[ArmKnee, ...]
    ratios: tuple[KneeRatio, ...]


class _RateCurve:
    """The fitted share of good requests by rate.

    Args:
        rates: of the turns. Shapes: (turns,).
        counted, good: requests of the turns. Shapes: (turns,).
    """

    def __init__(
        self,
        rates: NDArray[np.float64],
        counted: NDArray[np.float64],
        good: NDArray[np.float64],
    ) -> None:
        self._middle = float(np.log(rates).mean())
        places = np.log(rates) - self._middle
        misses = counted - good + _PRIOR_MISSES

        def compute_loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            logits = parameters[0] + parameters[1] * places
            loss = (misses + good) * np.logaddexp(0, logits) - misses * logits
            residuals = (misses + good) * special.expit(logits) - misses
            return float(loss.sum()), np.array([residuals.sum(), (residuals * places).sum()])

        first = np.array([special.logit(misses.sum() / (misses + good).sum()), 5.0])
        fit = optimize.minimize(
            compute_loss,
            first,
            jac=True,
            method="L-BFGS-B",
            bounds=[(-30.0, 30.0), _SLOPE_LIMITS],
        )
        self.offset = float(fit.x[0])
        self.slope = float(fit.x[1])

    def find_log_rate(self, share: float) -> float:
        """Return the logarithm of the rate at which the curve has a share."""
        return self._middle + (float(special.logit(1 - share)) - self.offset) / self.slope

    def find_share(self, rate_per_s: float) -> float:
        """Return the share at a rate."""
        place = math.log(rate_per_s) - self._middle
        return float(special.expit(-self.offset - self.slope * place))


def find_knees(
    arms: Sequence[str],
    counts: Sequence[KneeTurnCount],
    share: float,
    limits: dict[str, float],
) -> KneeFinding:
    """Return the knee of each arm, and the ratio of each variant to the baseline.

    Args:
        arms: names, the baseline first.
        counts: whole turns in the order of sending, pilots included.
        share: of requests that must keep every limit.
        limits: of each metric, in its unit.
    """
    knees = [find_arm_knee(counts, arm, share) for arm in arms]
    ratios = []
    for knee in knees[1:]:
        if knee.word == knees[0].word == "found":
            ratio = compare_knees(counts, (knees[0].arm, knee.arm), share)
            ratios.append(KneeRatio(variant=knee.arm, baseline=knees[0].arm, ratio=ratio))
    return KneeFinding(share=share, limits=limits, arms=tuple(knees), ratios=tuple(ratios))


def find_arm_knee(counts: Sequence[KneeTurnCount], arm: str, share: float) -> ArmKnee:
    """Return the knee of one arm; arguments as for `find_knees`."""
    pilot = read_pilot(list_pilot(counts, arm), share, 1.0)
    rounds = _list_rounds(counts, arm)
    if pilot.rate_per_s is None or not rounds:
        word: KneeWord = "too few rounds"
        if pilot.next_rate_per_s is None and pilot.rate_per_s is None:
            word = "not reached" if pilot.highest_good is None else "too fast to send"
        bound = pilot.lowest_bad if word == "not reached" else pilot.highest_good
        return ArmKnee(arm=arm, word=word, pilot_rate_per_s=pilot.rate_per_s, bound_per_s=bound)

    turns = list(itertools.chain.from_iterable(rounds))
    curve = _fit_turns(turns)
    knee = _estimate_range(*_resample_rounds(rounds, share))
    rates = [count.turn.rate_per_s for count in turns]
    late_rates = [
        count.turn.rate_per_s for count in counts if count.turn.arm == arm and count.is_late
    ]
    word = "found"
    bound_per_s = None
    if late_rates and knee.value >= min(late_rates):
        word = "too fast to send"
        bound_per_s = min(late_rates)
    elif not min(rates) <= knee.value <= max(rates):
        word = "below" if knee.value < min(rates) else "above"
        bound_per_s = min(rates) if word == "below" else max(rates)
    elif knee.low is None:
        word = "too few rounds"
    return ArmKnee(
        arm=arm,
        word=word,
        rate_per_s=None if bound_per_s else knee,
        pilot_rate_per_s=pilot.rate_per_s,
        bound_per_s=bound_per_s,
        rounds=len(rounds),
        points=tuple(_list_points(turns, curve)),
        slope=curve.slope,
    )


def compare_knees(
    counts: Sequence[KneeTurnCount], arms: tuple[str, str], share: float
) -> KneeRange:
    """Return the knee of the second arm as a multiple of the first's, paired by round."""
    rounds = [_list_rounds(counts, arm) for arm in arms]
    pairs = min(map(len, rounds))
    (first, first_values), (second, second_values) = (
        _resample_rounds(arm_rounds[:pairs], share) for arm_rounds in rounds
    )
    return _estimate_range(second - first, second_values - first_values)


def _list_rounds(counts: Sequence[KneeTurnCount], arm: str) -> list[list[KneeTurnCount]]:
    """Return the turns of each measured round that the machine could send."""
    rounds: dict[int, list[KneeTurnCount]] = {}
    for count in counts:
        if count.turn.arm == arm and count.turn.round != PILOT_ROUND and not count.is_late:
            rounds.setdefault(count.turn.round, []).append(count)
    most = max(map(len, rounds.values()), default=0)
    return [turns for turns in rounds.values() if len(turns) == most]


def _fit_turns(turns: Sequence[KneeTurnCount]) -> _RateCurve:
    return _RateCurve(
        np.array([count.turn.rate_per_s for count in turns], float),
        np.array([count.counted for count in turns], float),
        np.array([count.good for count in turns], float),
    )


def _resample_rounds(
    rounds: Sequence[Sequence[KneeTurnCount]], share: float
) -> tuple[float, NDArray[np.float64]]:
    """Return the logarithm of the knee, and its jackknife pseudo-values. Shapes: (rounds,)."""
    whole = _fit_turns(list(itertools.chain.from_iterable(rounds))).find_log_rate(share)
    if len(rounds) < FEWEST_ROUNDS:
        return whole, np.empty(0)
    values = []
    for place in range(len(rounds)):
        others = itertools.chain(*rounds[:place], *rounds[place + 1 :])
        without = _fit_turns(list(others)).find_log_rate(share)
        values.append(len(rounds) * whole - (len(rounds) - 1) * without)
    return whole, np.array(values)


def _estimate_range(log_value: float, values: NDArray[np.float64]) -> KneeRange:
    """Return an estimate with the interval of its pseudo-values."""
    if not len(values):
        return KneeRange(value=math.exp(log_value))
    quantile = stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)
    half = float(quantile * values.std(ddof=1) / math.sqrt(len(values)))
    return KneeRange(
        value=math.exp(log_value), low=math.exp(log_value - half), high=math.exp(log_value + half)
    )


def _list_points(turns: Sequence[KneeTurnCount], curve: _RateCurve) -> list[KneePoint]:
    """Return the requests at each rate, by rising rate."""
    points = []
    rates = sorted({count.turn.rate_per_s for count in turns})
    for rate_per_s in rates:
        own = [count for count in turns if count.turn.rate_per_s == rate_per_s]
        point = KneePoint(
            rate_per_s=rate_per_s,
            counted=sum(count.counted for count in own),
            good=sum(count.good for count in own),
            fitted=curve.find_share(rate_per_s),
        )
        points.append(point)
    return points
