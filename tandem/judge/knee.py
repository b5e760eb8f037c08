"""The knee of each arm and their ratio, estimated from the counted requests of a run's turns.

Invariant: a pure function of the turns; nothing comes from an earlier estimate. A load that the
measuring machine could not send is never a knee.

The share of requests that keep every limit is one logistic curve of the logarithm of the rate: a
maximum-likelihood fit over the turns of an arm, which never rises. Rates far beyond the knee are
left out of it. The knee is where the curve
falls through the wanted share. Requests of a turn depend on each other, because they share a queue.
So the round is the unit: the interval is a jackknife over rounds with Student's t. The ratio of two
arms is paired by round, because both arms get the same prompts and gaps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from tandem.bench.figures.knee_turns import read_knee_history
from tandem.bench.figures.request_table import RequestTable
from tandem.bench.plan.knee_search import (
    PILOT_ROUND,
    KneePilot,
    KneeTurnCount,
    list_pilot,
    read_pilot,
)
from tandem.bench.records import json_file
from tandem.errors import InputError

FILE = "knee.json"
CONFIDENCE = 0.95
FEWEST_TURNS = 3  # of a round; a round with fewer that were sent in time is left out
FEWEST_ROUNDS = 3  # of an interval: two rounds leave Student's t one degree of freedom
MAX_EXTRAPOLATION = 1.15  # as close as a pilot comes; a curve is not trusted farther out
_SLOPE_LIMITS = (0.1, 300.0)  # of the logit, for each factor of e in the rate
_FAR_MISSES = 5.0  # times as many as the share allows
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
        word: `found`; `above` or `below` if the curve crosses the share far outside the measured
            rates; `too few rounds` before an interval is possible; `too fast to send` if the server
            keeps the share at the highest rate that this machine can send; `not reached` if it
            keeps the share at no rate.
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


def judge_knee(table: RequestTable) -> KneeFinding:
    """Return the knees of a run that searched them, from its records.

    Args:
        table: requests of the run.

    Raises:
        InputError: the run searched no knee, or a line is no record.
    """
    run = table.run
    if run.goodput_share is None:
        change = "measure with --knee, or with knee=True from Python"
        raise InputError("the run searched no knee", where=str(table.folder), change=change)
    history = read_knee_history(table.folder, run)
    arms = [arm.name for arm in run.arms]
    return find_knees(arms, history.counts, run.goodput_share, run.goodput or {})


def save_knee(folder: Path, finding: KneeFinding) -> Path:
    """Write knee.json whole.

    Raises:
        ExternalError: the folder cannot be written to.
    """
    path = folder / FILE
    json_file.save_json(path, finding, label="the knee")
    return path


def find_arm_knee(counts: Sequence[KneeTurnCount], arm: str, share: float) -> ArmKnee:
    """Return the knee of one arm; arguments as for `find_knees`."""
    pilot = read_pilot(list_pilot(counts, arm), share, 1.0)
    rounds = _list_rounds(counts, arm)
    if pilot.rate_per_s is None or not rounds:
        return _explain_pilot(arm, pilot)

    turns = list(itertools.chain.from_iterable(rounds.values()))
    curve = _fit_turns(turns, share)
    knee = _estimate_range(*_resample_rounds(list(rounds.values()), share))
    rates = sorted({count.turn.rate_per_s for count in turns})
    word, bound_per_s = _check_range(knee, rates, _find_late_rate(counts, arm))
    return ArmKnee(
        arm=arm,
        word=word,
        rate_per_s=knee if bound_per_s is None else None,
        pilot_rate_per_s=pilot.rate_per_s,
        bound_per_s=bound_per_s,
        rounds=len(rounds),
        points=tuple(_list_points(turns, curve)),
        slope=curve.slope,
    )


def _explain_pilot(arm: str, pilot: KneePilot) -> ArmKnee:
    """Return an arm of which no round says anything."""
    word: KneeWord = "too few rounds"
    bound_per_s = pilot.highest_good
    if pilot.next_rate_per_s is None and pilot.rate_per_s is None:
        word = "not reached" if pilot.highest_good is None else "too fast to send"
        bound_per_s = pilot.highest_good or pilot.lowest_bad
    return ArmKnee(arm=arm, word=word, pilot_rate_per_s=pilot.rate_per_s, bound_per_s=bound_per_s)


def _check_range(
    knee: KneeRange, rates: Sequence[float], late_rate: float | None
) -> tuple[KneeWord, float | None]:
    """Return the word of a knee, and the bound in its place if it cannot be named.

    Args:
        knee: where the curve falls through the share.
        rates: that were measured, rising.
        late_rate: the lowest that the machine could not send; None if it could send all.
    """
    if late_rate is not None and knee.value >= late_rate:
        return "too fast to send", max((rate for rate in rates if rate < late_rate), default=0.0)
    if knee.value < rates[0] / MAX_EXTRAPOLATION:
        return "below", rates[0]
    if knee.value > rates[-1] * MAX_EXTRAPOLATION:
        return "above", rates[-1]
    return ("too few rounds" if knee.low is None else "found"), None


def compare_knees(
    counts: Sequence[KneeTurnCount], arms: tuple[str, str], share: float
) -> KneeRange:
    """Return the knee of the second arm as a multiple of the first's, paired by round."""
    first_rounds, second_rounds = (_list_rounds(counts, arm) for arm in arms)
    both = sorted(first_rounds.keys() & second_rounds.keys())
    first, first_values = _resample_rounds([first_rounds[number] for number in both], share)
    second, second_values = _resample_rounds([second_rounds[number] for number in both], share)
    return _estimate_range(second - first, second_values - first_values)


def _find_late_rate(counts: Sequence[KneeTurnCount], arm: str) -> float | None:
    """Return the lowest rate of which the machine could not send half of the turns, or more."""
    lateness: dict[float, list[bool]] = {}
    for count in counts:
        if count.turn.arm == arm and count.turn.round != PILOT_ROUND:
            lateness.setdefault(count.turn.rate_per_s, []).append(count.is_late)
    return min(
        (rate for rate, late in lateness.items() if 2 * sum(late) >= len(late)), default=None
    )


def _list_rounds(counts: Sequence[KneeTurnCount], arm: str) -> dict[int, list[KneeTurnCount]]:
    """Return the turns of each measured round that the machine could send, by its number."""
    rounds: dict[int, list[KneeTurnCount]] = {}
    for count in counts:
        if count.turn.arm == arm and count.turn.round != PILOT_ROUND and not count.is_late:
            rounds.setdefault(count.turn.round, []).append(count)
    return {number: turns for number, turns in sorted(rounds.items()) if len(turns) >= FEWEST_TURNS}


def _fit_turns(turns: Sequence[KneeTurnCount], share: float) -> _RateCurve:
    """Return the curve of turns, without the rates that say nothing about the knee."""
    kept_turns = _select_turns(turns, share)
    return _RateCurve(
        np.array([count.turn.rate_per_s for count in kept_turns], float),
        np.array([count.counted for count in kept_turns], float),
        np.array([count.good for count in kept_turns], float),
    )


def _select_turns(turns: Sequence[KneeTurnCount], share: float) -> Sequence[KneeTurnCount]:
    """Return the turns up to the first rate that misses far more than the share allows.

    Behind a cliff nearly all requests miss their limits, and the curve would bend to them: in
    virtual time it put the knee 3 % too high.
    """
    by_rate: dict[float, list[KneeTurnCount]] = {}
    for count in turns:
        by_rate.setdefault(count.turn.rate_per_s, []).append(count)

    kept_turns: list[KneeTurnCount] = []
    for place, rate_per_s in enumerate(sorted(by_rate)):
        own_turns = by_rate[rate_per_s]
        kept_turns += own_turns
        counted = sum(count.counted for count in own_turns)
        misses = counted - sum(count.good for count in own_turns)
        if place > 0 and misses > _FAR_MISSES * (1 - share) * counted:
            break
    return kept_turns


def _resample_rounds(
    rounds: Sequence[Sequence[KneeTurnCount]], share: float
) -> tuple[float, NDArray[np.float64]]:
    """Return the logarithm of the knee, and its jackknife pseudo-values. Shapes: (rounds,)."""
    whole = _fit_turns(list(itertools.chain.from_iterable(rounds)), share).find_log_rate(share)
    if len(rounds) < FEWEST_ROUNDS:
        return whole, np.empty(0)
    values = []
    for place in range(len(rounds)):
        others = itertools.chain(*rounds[:place], *rounds[place + 1 :])
        without = _fit_turns(list(others), share).find_log_rate(share)
        values.append(len(rounds) * whole - (len(rounds) - 1) * without)
    return whole, np.array(values)


def _estimate_range(log_value: float, values: NDArray[np.float64]) -> KneeRange:
    """Return an estimate with the interval of its pseudo-values."""
    if not len(values):
        return KneeRange(value=math.exp(log_value))
    quantile = special.stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)
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
