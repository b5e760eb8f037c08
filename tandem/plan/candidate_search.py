"""Which draft and window to measure next, to leave out, and to serve: a sweep's search.

A run measures each candidate against plain decoding on the two halves of a node. What the windows
of a draft committed, and how long their steps took, bounds every other window of that draft. The
search leaves out a window that even at its bound is no faster than the best measured one. No law of
acceptance by position is assumed (`window_bound`).

Invariant: pure arithmetic on plain numbers; the same measurements give the same search. Plain
decoding is always a candidate, and a draft wins only where its pair's verdict allows it and chance
does not explain its lead over plain decoding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import NormalDist, fmean, geometric_mean
from typing import Literal, NamedTuple

from tandem.plan.step_tokens import CommitLaw
from tandem.plan.window_bound import WindowTokens, bound_tokens

NOISE_SLACK = 0.03
"""A window is left out where its bound lies so far below the best: more than the starts of two
servers put a measured speed-up off, 2.1 % (1.5 % each, as a judged pair assumes)."""

FALSE_LEAD = 0.05
"""How often a draft may be named where plain decoding is as fast."""


class SweepCandidate(NamedTuple):
    """One draft and window.

    Args:
        draft: id of the model.
        window: num_speculative_tokens.
    """

    draft: str
    window: int


@dataclass(frozen=True, kw_only=True)
class CandidateResult:
    """What was measured of a candidate against plain decoding in the same run.

    Args:
        candidate: which.
        score: the speed-up over all prompts: the verdict's pooled figure.
        speed_ups: by class: plain time over the candidate's, of the same answers.
        tokens: by class: mean tokens of a step.
        log_sd: standard deviation of the logarithm of the score, starts included.
        can_win: whether the verdict of its pair allows that it wins. What cannot win predicts other
            windows, and leaves none out.
        position_rates: by class: share of drafts accepted at each position, the first position
            first; without a class where the server counts none.
    """

    candidate: SweepCandidate
    score: float
    speed_ups: Mapping[str, float]
    tokens: Mapping[str, float]
    log_sd: float
    can_win: bool = True
    position_rates: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def speed_up_interval(self) -> tuple[float, float, float]:
        """Return the score and its 95 % interval, this candidate taken alone."""
        factor = math.exp(NormalDist().inv_cdf(0.975) * self.log_sd)
        return self.score, self.score / factor, self.score * factor


class Elimination(NamedTuple):
    """A candidate that nobody needs to measure.

    Args:
        candidate: which.
        bound: the most that its score can be.
        best: the best measured score at that time.
    """

    candidate: SweepCandidate
    bound: float
    best: float


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """How far a search is.

    Args:
        next: the candidate to measure now; None where the search is over.
        eliminated: what the measurements so far leave out.
        reason: why `next` is next, or why the search is over.
    """

    next: SweepCandidate | None
    eliminated: tuple[Elimination, ...]
    reason: str


class SweepDecision(NamedTuple):
    """What to serve.

    Args:
        winner: the candidate; None for plain decoding.
        score: of the winner, 1 for plain decoding.
        low, high: its interval.
        word: `decided`: the search ended. `unfinished`: candidates remain that were neither
            measured nor left out.
        reason: in a sentence.
    """

    winner: SweepCandidate | None
    score: float
    low: float
    high: float
    word: Literal["decided", "unfinished"]
    reason: str


def score_classes(speed_ups: Iterable[float]) -> float:
    """Return the speed-up over classes of equally many prompts: the geometric mean."""
    return geometric_mean(speed_ups)


def plan_next(
    candidates: Sequence[SweepCandidate], results: Sequence[CandidateResult], law: CommitLaw
) -> SearchState:
    """Return what to measure next.

    Args:
        candidates: all of the sweep, the most promising first: the order of `tandem plan`.
        results: of those that were measured.
        law: of the runtime.
    """
    measured_candidates = {result.candidate for result in results}
    best = max([1.0, *(result.score for result in results if result.can_win)])
    known_drafts = {result.candidate.draft for result in results}
    for candidate in candidates:
        if candidate.draft not in known_drafts:
            return SearchState(
                next=candidate, eliminated=(), reason="nothing was measured of its draft yet"
            )

    eliminated = []
    open_bounds = {}
    for candidate in candidates:
        if candidate in measured_candidates:
            continue
        bound = bound_score(candidate, results, law)
        if bound * (1 + NOISE_SLACK) < best:
            eliminated.append(Elimination(candidate, bound, best))
        else:
            open_bounds[candidate] = bound

    if not open_bounds:
        return SearchState(
            next=None, eliminated=tuple(eliminated), reason="every other candidate is left out"
        )
    following = max(open_bounds, key=lambda candidate: open_bounds[candidate])
    reason = f"it can be as much as {open_bounds[following]:.2f} times as fast, more than any other"
    return SearchState(next=following, eliminated=tuple(eliminated), reason=reason)


def bound_score(
    candidate: SweepCandidate, results: Sequence[CandidateResult], law: CommitLaw
) -> float:
    """Return the most that a candidate can score, by its draft's other windows.

    Args:
        candidate: not measured.
        results: one at least of its draft.
        law: of the runtime.
    """
    own = [result for result in results if result.candidate.draft == candidate.draft]
    step_time = estimate_step_time(own, candidate.window)
    speed_ups = []
    for class_ in own[0].tokens:
        measurements = [
            WindowTokens(
                window=result.candidate.window,
                tokens=result.tokens[class_],
                position_rates=result.position_rates.get(class_, ()),
            )
            for result in own
            if class_ in result.tokens
        ]
        speed_ups.append(bound_tokens(law, measurements, candidate.window) / step_time)
    return score_classes(speed_ups)


def estimate_step_time(own: Iterable[CandidateResult], window: int) -> float:
    """Return the time of a step over a plain one.

    Between two measured windows it lies on the line between them, and the plain step is window 0.
    Beyond the longest measured window each draft forward takes its share of that one.

    Args:
        own: of one draft, one result at least.
        window: num_speculative_tokens.
    """
    steps = {0: 1.0}
    for result in own:
        steps[result.candidate.window] = _imply_step_time(result)
    for left, right in pairwise(sorted(steps)):
        if window <= right:
            rise = steps[right] - steps[left]
            return steps[left] + rise * (window - left) / (right - left)
    longest = max(steps)
    return 1 + (steps[longest] - 1) * window / longest


def _imply_step_time(result: CandidateResult) -> float:
    """Return a step's time over a plain one, over all classes; noise may put it below 1."""
    return max(
        1.0, fmean(result.tokens[class_] / result.speed_ups[class_] for class_ in result.speed_ups)
    )


def decide_sweep(
    candidates: Sequence[SweepCandidate], results: Sequence[CandidateResult], law: CommitLaw
) -> SweepDecision:
    """Return what to serve after the search, or as far as it came.

    Args:
        candidates, results, law: as of `plan_next`.
    """
    word: Literal["decided", "unfinished"] = "decided"
    if plan_next(candidates, results, law).next is not None:
        word = "unfinished"
    if not results:
        return SweepDecision(None, 1.0, 1.0, 1.0, word, "nothing was measured")
    able_results = [result for result in results if result.can_win]
    if not able_results:
        return SweepDecision(None, 1.0, 1.0, 1.0, word, "plain decoding: no candidate can win")
    best = max(able_results, key=lambda result: result.score)
    # any of the measured candidates could have led by chance (Bonferroni)
    deviation = NormalDist().inv_cdf(1 - FALSE_LEAD / len(results)) * best.log_sd
    low = best.score * math.exp(-deviation)
    high = best.score * math.exp(deviation)
    name = f"{best.candidate.draft} with window {best.candidate.window}"
    times = f"{best.score:.2f} times as fast"
    interval = f"({low:.2f} to {high:.2f})"
    if low <= 1:
        reason = f"plain decoding: the best candidate, {name}, is {times} {interval}"
        return SweepDecision(None, 1.0, low, high, word, reason)
    reason = f"{name}: {times} as plain decoding {interval}"
    return SweepDecision(best.candidate, best.score, low, high, word, reason)
