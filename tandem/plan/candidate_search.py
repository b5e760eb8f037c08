"""Which draft and window to measure next, which to leave out, and which to serve: the search of a sweep.

A run measures each candidate against plain decoding on the two halves of a node. The first window of a draft shows its
acceptance by class and the cost of its forward; they predict every other window of that draft. The search leaves out a
window whose prediction lies clearly below the best measured one.

Invariant: pure arithmetic on plain numbers; the same measurements give the same search. Plain decoding is always a
candidate, and a draft wins only where its pair's verdict allows it and chance does not explain its lead over plain
decoding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, geometric_mean
from typing import Literal, NamedTuple

from tandem.plan.step_tokens import CommitLaw, expect_tokens, find_acceptance

MODEL_SLACK = 0.08
"""A window is left out where its prediction lies so far below the best: more than the model's median error on published
rows, 4.6 % (docs/theory.md), and than 5 %, within which two candidates count as alike."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateResult:
    """What was measured of a candidate against plain decoding in the same run.

    Args:
        candidate: which.
        score: the speed-up over all prompts: the verdict's pooled figure.
        speed_ups: by class: plain time over the candidate's, of the same answers.
        tokens: by class: mean tokens of a step.
        log_sd: standard deviation of the logarithm of the score, starts included.
        can_win: whether the verdict of its pair allows that it wins. What cannot win predicts other windows, and leaves
            none out.
    """

    candidate: SweepCandidate
    score: float
    speed_ups: Mapping[str, float]
    tokens: Mapping[str, float]
    log_sd: float
    can_win: bool = True

    @property
    def speed_up_interval(self) -> tuple[float, float, float]:
        """Return the score and its 95 % interval, this candidate taken alone."""
        factor = math.exp(NormalDist().inv_cdf(0.975) * self.log_sd)
        return self.score, self.score / factor, self.score * factor


class Elimination(NamedTuple):
    """A candidate that nobody needs to measure.

    Args:
        candidate: which.
        predicted: its score by the model.
        best: the best measured score at that time.
    """

    candidate: SweepCandidate
    predicted: float
    best: float


@dataclass(frozen=True, slots=True, kw_only=True)
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
        word: `decided`: the search ended. `unfinished`: candidates remain that were neither measured nor left out.
        reason: in a sentence.
    """

    winner: SweepCandidate | None
    score: float
    low: float
    high: float
    word: Literal["decided", "unfinished"]
    reason: str


def score_classes(speed_ups: Iterable[float]) -> float:
    """Return the speed-up over classes of as many prompts each: the geometric mean, as in a verdict."""
    return geometric_mean(speed_ups)


def plan_next(candidates: Sequence[SweepCandidate], results: Sequence[CandidateResult], law: CommitLaw) -> SearchState:
    """Return what to measure next.

    Args:
        candidates: all of the sweep, the most promising first: the order of `tandem plan`.
        results: of those that were measured.
        law: of the runtime.
    """
    measured = {result.candidate for result in results}
    best = max([1.0, *(result.score for result in results if result.can_win)])
    known_drafts = {result.candidate.draft for result in results}
    for candidate in candidates:
        if candidate.draft not in known_drafts:
            return SearchState(next=candidate, eliminated=(), reason="nothing was measured of its draft yet")
    eliminated, open_candidates = [], dict[SweepCandidate, float]()
    for candidate in candidates:
        if candidate in measured:
            continue
        predicted = predict_score(candidate, results, law)
        if predicted * (1 + MODEL_SLACK) < best:
            eliminated.append(Elimination(candidate, predicted, best))
        else:
            open_candidates[candidate] = predicted
    if not open_candidates:
        return SearchState(next=None, eliminated=tuple(eliminated), reason="every other candidate is left out")
    following = max(open_candidates, key=lambda candidate: open_candidates[candidate])
    if open_candidates[following] <= best and len(measured) > len(known_drafts):
        left = [Elimination(candidate, predicted, best) for candidate, predicted in open_candidates.items()]
        reason = "no prediction is above the best measured candidate"
        return SearchState(next=None, eliminated=(*eliminated, *left), reason=reason)
    reason = f"the best prediction: {open_candidates[following]:.2f} times"
    return SearchState(next=following, eliminated=tuple(eliminated), reason=reason)


def predict_score(candidate: SweepCandidate, results: Sequence[CandidateResult], law: CommitLaw) -> float:
    """Return a candidate's score from what was measured of its draft in other windows.

    Args:
        candidate: not measured.
        results: one at least of its draft.
        law: of the runtime.
    """
    own = [result for result in results if result.candidate.draft == candidate.draft]
    cost = max(0.0, fmean(imply_draft_cost(result) for result in own))
    nearest = min(own, key=lambda result: abs(result.candidate.window - candidate.window))
    speed_ups = []
    for class_, tokens in nearest.tokens.items():
        acceptances = [_find_class_acceptance(result, class_, law) for result in own if class_ in result.tokens]
        acceptance = fmean(acceptances) if acceptances else _find_acceptance_within(tokens, nearest, law)
        speed_ups.append(expect_tokens(law, acceptance, candidate.window) / (1 + candidate.window * cost))
    return score_classes(speed_ups)


def imply_draft_cost(result: CandidateResult) -> float:
    """Return the share of a plain step that one draft forward took, over all classes alike."""
    window = result.candidate.window
    return fmean((result.tokens[class_] / result.speed_ups[class_] - 1) / window for class_ in result.speed_ups)


def _find_class_acceptance(result: CandidateResult, class_: str, law: CommitLaw) -> float:
    return _find_acceptance_within(result.tokens[class_], result, law)


def _find_acceptance_within(tokens: float, result: CandidateResult, law: CommitLaw) -> float:
    """Return the acceptance of so many tokens; 1 or 0 where noise puts them outside of what a window can give."""
    acceptance = find_acceptance(law, tokens, result.candidate.window)
    return acceptance if acceptance is not None else float(tokens > 1)


def decide_sweep(
    candidates: Sequence[SweepCandidate], results: Sequence[CandidateResult], law: CommitLaw
) -> SweepDecision:
    """Return what to serve after the search, or as far as it came.

    Args:
        candidates, results, law: as of `plan_next`.
    """
    word: Literal["decided", "unfinished"] = (
        "decided" if plan_next(candidates, results, law).next is None else "unfinished"
    )
    if not results:
        return SweepDecision(None, 1.0, 1.0, 1.0, word, "nothing was measured")
    able_results = [result for result in results if result.can_win]
    if not able_results:
        return SweepDecision(None, 1.0, 1.0, 1.0, word, "plain decoding: no candidate can win")
    best = max(able_results, key=lambda result: result.score)
    # any of the measured candidates could have led by chance (Bonferroni)
    deviation = NormalDist().inv_cdf(1 - FALSE_LEAD / len(results)) * best.log_sd
    low, high = (best.score * math.exp(sign * deviation) for sign in (-1, 1))
    name = f"{best.candidate.draft} with window {best.candidate.window}"
    if low <= 1:
        reason = (
            f"plain decoding: the best candidate, {name}, is {best.score:.2f} times as fast ({low:.2f} to {high:.2f})"
        )
        return SweepDecision(None, 1.0, low, high, word, reason)
    reason = f"{name}: {best.score:.2f} times as fast as plain decoding ({low:.2f} to {high:.2f})"
    return SweepDecision(best.candidate, best.score, low, high, word, reason)
