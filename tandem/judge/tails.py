"""The mean and the 90th percentile of a time: they show slow requests, which the median does not.

Invariant: prompts are resampled, as for the median, and every prompt counts alike. These figures
show a variant whose median is better and whose slow requests became slower. The mean's interval is
that of the linearized ratio of two means over prompts (the delta method: Cochran 1977, Sampling
Techniques, chapter 6). Its shared noise of rounds or starts is from the same requests. The
percentile's interval resamples prompts with all their requests. Its shared noise is that of the
median, because noise of a server scales all its times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tandem.bench.figures.quantiles import Values
from tandem.judge import interval
from tandem.judge.comparability import FailureCounts
from tandem.judge.decision import OVERALL_SHARE
from tandem.judge.interval import LogRatioEstimate, RoundNoise
from tandem.judge.pairs import CellPairs, CellRequests
from tandem.judge.quantile_curve import ResidualPool, plan_resampling
from tandem.judge.schema import LEVEL, CellWord, TailName
from tandem.judge.text_format import describe_ratio

QUANTILE = 0.9
TAIL_NAMES: dict[TailName, str] = {"mean": "mean", "p90": "90th percentile"}
_MEDIANS: dict[CellWord, str] = {
    "faster": "a faster median",
    "slower": "a slower median",
    "same": "the same median",
}
_DIFFERENCES: tuple[CellWord, ...] = ("faster", "slower")
_OVERALL_LEVEL = 1 - OVERALL_SHARE * (1 - LEVEL)
_RESAMPLES = 500
_FEWEST_RESAMPLES = 100
# of one arm's resampled requests: 32 MB, until _FEWEST_RESAMPLES of many requests take more
_NUMBERS = 4_000_000


class TailEstimate(NamedTuple):
    """A statistic of a cell: of both arms, in the metric's unit, and the log speed-up."""

    statistic: TailName
    baseline_value: float
    variant_value: float
    estimate: LogRatioEstimate


def estimate_tails(
    pairs: CellPairs,
    median_noise: RoundNoise,
    noise: RoundNoise,
    pool: ResidualPool | None,
) -> tuple[TailEstimate, TailEstimate]:
    """Return the mean and the 90th percentile of a cell of times, where less is better.

    Args:
        pairs: the cell, of at least FEWEST_PROMPTS prompts.
        median_noise: noise that rounds or starts share, in the cell's median.
        noise: noise that prompts of a round share, over all classes.
        pool: residuals of the medians of all classes; None where they are not skewed.
    """
    return _estimate_mean(pairs, noise, pool), _estimate_percentile(pairs, median_noise)


def pool_mean(
    joined_pairs: CellPairs, noise: RoundNoise, pool: ResidualPool | None
) -> TailEstimate:
    """Return the mean over all requests of cells, failed ones too, in shares of baseline medians.

    A few slow requests in each of many classes show here, where each class alone has too few
    requests to tell. A percentile of these shares would show how the speed-ups of prompts differ,
    and call that slow.

    Args:
        joined_pairs: several cells as one, of at least FEWEST_PROMPTS prompts.
        noise: noise that prompts of a round share, over all classes, in the mean of these cells.
        pool: as for `estimate_tails`.
    """
    requests = joined_pairs.requests
    shares = requests.value / joined_pairs.baseline_medians[requests.prompt]
    # the logarithm stays finite if the quotient underflows
    shares = np.maximum(shares, np.finfo(float).tiny)
    pairs = replace(joined_pairs, requests=requests._replace(value=shares))
    return _estimate_mean(pairs, noise, pool)


def _estimate_mean(pairs: CellPairs, noise: RoundNoise, pool: ResidualPool | None) -> TailEstimate:
    prompt_means, round_means = pairs.average_requests()
    baseline, variant = prompt_means.mean(axis=1)
    log = float(np.log(baseline) - np.log(variant))
    prompt_shares = prompt_means[1] / variant - prompt_means[0] / baseline
    round_shares = round_means[1] / variant - round_means[0] / baseline
    estimate = interval.estimate_log_ratio(
        log - prompt_shares,
        log - round_shares,
        pairs.starts,
        placements=pairs.placements,
        noise=noise,
        pool=pool,
    )
    assert estimate is not None  # the cell has as many prompts as its median, which has an estimate
    return TailEstimate("mean", float(baseline), float(variant), estimate)


def _estimate_percentile(pairs: CellPairs, shared_noise: RoundNoise) -> TailEstimate:
    requests = pairs.requests
    prompts = len(pairs.prompts)
    most_draws = max(_NUMBERS // max(len(requests.value), 1), _FEWEST_RESAMPLES)
    draws = plan_resampling(prompts)[0][: min(_RESAMPLES, most_draws)]
    even_weights = np.full((1, prompts), 1 / prompts)
    weights = np.vstack([even_weights, draws])
    baseline = _compute_percentile(requests, 0, weights)
    variant = _compute_percentile(requests, 1, weights)
    logs = np.log(baseline) - np.log(variant)

    # resampling n prompts makes the variance too small by (n - 1) / n
    own_variance = float(np.var(logs[1:], ddof=1)) * prompts / (prompts - 1)
    own_noise = RoundNoise(own_variance, prompts - 1)
    estimate = interval.combine_variances(float(logs[0]), own_noise, shared_noise)
    return TailEstimate("p90", float(baseline[0]), float(variant[0]), estimate)


def _compute_percentile(requests: CellRequests, arm: int, weights: Values) -> Values:
    """Return an arm's percentile for each row of weights. Shapes: weights (rows, prompts)."""
    is_own = requests.arm == arm
    values = requests.value[is_own]
    prompts = requests.prompt[is_own]
    order = np.argsort(values, kind="stable")
    values = values[order]
    prompts = prompts[order]
    share = 1 / np.bincount(prompts, minlength=weights.shape[1])
    cumulative_weights = np.cumsum(weights[:, prompts] * share[prompts], axis=1)
    limit = QUANTILE * cumulative_weights[:, -1:] - 1e-12  # a rounding error
    place = (cumulative_weights < limit).sum(axis=1)
    percentiles: Values = values[np.minimum(place, len(values) - 1)]
    return percentiles


class _TailWitness(NamedTuple):
    """A tail that may object to the word of a median.

    Args:
        tail: the one.
        scope: what it is of, before its description.
        margin: log of a ratio; the tail objects where it may go the other way by more.
    """

    tail: TailEstimate
    scope: str
    margin: float


class TailVerdict(NamedTuple):
    """A cell's word after a look at its mean and 90th percentile, and what these object.

    `opposition` is empty if they left the word as it was.
    """

    word: CellWord
    opposition: str = ""


def weigh_tails(  # noqa: PLR0913 - a word, what it is weighed against, and how far that must go
    word: CellWord,
    words: Mapping[TailEstimate, CellWord],
    pooled_mean: TailEstimate,
    *,
    is_overall: bool,
    floor: float,
    margin: float,
    failures: FailureCounts,
) -> TailVerdict:
    """Return the word of a median after a look at the mean and the percentile.

    The word becomes `mixed` if the mean or the percentile is shown to go the other way. The word
    becomes `no evidence` if the mean's interval, or the percentile itself, which few requests
    decide, goes the other way beyond the margin. Their own 95 % intervals decide here, but a pooled
    mean beside `same` needs the level of the pooled test; only the words in `words` are adjusted
    for all tests of the report.

    Args:
        word: of the median.
        words: the words that the cell's mean and 90th percentile have by themselves; empty over
            several classes.
        pooled_mean: the mean over all requests of the variant's cells whose medians go this way, or
            are the same too: it shows slow requests that are few.
        is_overall: whether the median is of all classes, and the pooled mean of all their requests.
        floor, margin: logs of the cell's noise floor and of 1 + the margin: nothing smaller is
            called.
        failures: of the run. If the arm that the word favours failed requests, the pooled mean may
            not go the other way at all, for a failure costs its user more than its wait. If it may
            fail far more than the other, it has no word.
    """
    if word not in _MEDIANS:
        return TailVerdict(word)
    is_same = word == "same"
    witnesses = [
        _TailWitness(tail, "the ", margin)
        for tail, tail_word in words.items()
        if not is_same or tail_word in _DIFFERENCES
    ]
    scope = "over all requests" if is_overall else f"over all classes with {_MEDIANS[word]}"
    if is_same:
        witnesses.append(_TailWitness(pooled_mean, f"{scope} the ", margin))
        return _weigh_same(witnesses)

    failure_count, request_count, _, other_requests = failures.count_favoured(
        is_faster=word == "faster"
    )
    witnesses.append(_TailWitness(pooled_mean, f"{scope} the ", 0.0 if failure_count else margin))
    verdict = _weigh_difference(word, witnesses, floor)
    if verdict.word == word and failures.may_fail_far_more(is_faster=word == "faster"):
        counts_text = (
            f"{failure_count} of {request_count} requests, the other none of {other_requests}"
        )
        doubt = f"the {word} arm failed {counts_text}: it may fail far more, and more prompts tell"
        return TailVerdict("no evidence", doubt)
    return verdict


def _weigh_same(witnesses: Sequence[_TailWitness]) -> TailVerdict:
    """Return the word of a median that is the same, beside tails."""
    for tail, scope, margin in witnesses:
        if abs(tail.estimate.log) > margin:
            low, high = interval.compute_interval(tail.estimate, _OVERALL_LEVEL)
            is_shown = scope == "the " or low > 0 or high < 0
            word: CellWord = "mixed" if is_shown else "no evidence"
            return TailVerdict(word, f"{scope}{describe_tail(tail)}")
    return TailVerdict("same")


def _weigh_difference(
    word: CellWord, witnesses: Sequence[_TailWitness], floor: float
) -> TailVerdict:
    """Return the word of a median that is faster or slower, beside tails."""
    direction = 1.0 if word == "faster" else -1.0
    contrary_tails = []
    for tail, scope, margin in witnesses:
        bound = tail.estimate.low if direction > 0 else tail.estimate.high
        if tail.statistic == "p90":
            bound = tail.estimate.log
        if direction * bound < -margin:
            contrary_tails.append((tail, scope))

    for tail, scope in contrary_tails:
        farther_end = max(direction * tail.estimate.low, direction * tail.estimate.high)
        if farther_end < 0 and direction * tail.estimate.log < -floor:
            return TailVerdict("mixed", f"{scope}{describe_tail(tail)}")
    for tail, scope in contrary_tails[:1]:
        opposition = f"{scope}{describe_tail(tail)}, which may be the other way"
        return TailVerdict("no evidence", opposition)
    return TailVerdict(word)


def describe_tail(tail: TailEstimate) -> str:
    """Return `mean is 1.16 times slower (1.08 to 1.25)`."""
    return f"{TAIL_NAMES[tail.statistic]} is {describe_ratio(tail.estimate.convert())}"
