"""The mean and the 90th percentile of a time, beside its median: what a median does not see.

Invariant: prompts are what is resampled, as for the median, and every prompt counts alike; a variant whose median is
better and whose slow requests became slower shows it here. The mean's interval is that of the linearized ratio of two
means over prompts (the delta method: Cochran 1977, Sampling Techniques, chapter 6), with what rounds or starts share
from the same requests. The percentile's is by resampling prompts with all their requests; what rounds or starts share
is that of the median, because noise of a server scales all of its times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tandem.bench.judge.form import TailName, Word
from tandem.bench.judge.interval import (
    Estimate,
    RoundNoise,
    combine_parts,
    estimate,
    resample_prompts,
)
from tandem.bench.judge.pairs import CellRequests, Pairs
from tandem.bench.judge.ratio import exp
from tandem.bench.judge.words import number
from tandem.bench.quantiles import Values

QUANTILE = 0.9
TAIL_NAMES: dict[TailName, str] = {"mean": "mean", "p90": "90th percentile"}
_MEDIANS: dict[Word, str] = {"faster": "a faster median", "slower": "a slower median", "same": "the same median"}
_RESAMPLES, _FEWEST_RESAMPLES = 500, 100
_NUMBERS = 4_000_000  # of one arm's resampled requests: 32 MB, until _FEWEST_RESAMPLES of many requests take more


class WordLimits(NamedTuple):
    """What is called nothing: logs of the cell's noise floor and of 1 + the margin."""

    floor: float
    margin: float


class TailEstimate(NamedTuple):
    """One statistic of a cell: of baseline and variant, in the metric's unit, and the log speed-up of the two."""

    statistic: TailName
    baseline: float
    measured: float
    estimate: Estimate


def estimate_tails(pairs: Pairs, median: Estimate, noise: RoundNoise, level: float) -> tuple[TailEstimate, ...]:
    """Return the mean and the 90th percentile of a cell of times, where less is better.

    Args:
        pairs: the cell, of at least FEWEST_PROMPTS prompts.
        median: what was estimated of its median.
        noise: what the rounds of a class share, over all classes.
        level: of the intervals.
    """
    return _estimate_mean(pairs, noise, level), _estimate_percentile(pairs, median.shared, level)


def pool_tails(cells: Sequence[Pairs], noise: RoundNoise, level: float) -> tuple[TailEstimate, ...]:
    """Return mean and 90th percentile over all requests of several cells, as shares of each prompt's baseline median.

    A few slow requests in each of many classes show here, where each class alone has too few requests to tell.

    Args:
        cells: of the same arms, each of at least FEWEST_PROMPTS prompts; at least one.
        noise, level: as of `estimate_tails`.
    """
    rounds, places = np.unique(np.concatenate([pairs.rounds for pairs in cells]), return_inverse=True)
    columns = np.split(places, np.cumsum([len(pairs.rounds) for pairs in cells])[:-1])
    offsets = np.cumsum([0, *(len(pairs.prompts) for pairs in cells)])
    requests = [pairs.requests for pairs in cells]
    firsts = np.unique(places, return_index=True)[1]
    together = replace(
        cells[0],
        prompts=np.concatenate([pairs.prompts for pairs in cells]), rounds=rounds,
        by_round=np.empty((int(offsets[-1]), len(rounds))),
        starts=np.concatenate([pairs.starts for pairs in cells])[firsts],
        placements=np.concatenate([pairs.placements for pairs in cells])[firsts],
        requests=CellRequests(
            prompt=np.concatenate([one.prompt + offset for one, offset in zip(requests, offsets, strict=False)]),
            round=np.concatenate([column[one.round] for one, column in zip(requests, columns, strict=True)]),
            arm=np.concatenate([one.arm for one in requests]),
            value=np.maximum(
                np.concatenate([pairs.requests.value / pairs.baseline[pairs.requests.prompt] for pairs in cells]),
                np.finfo(float).tiny,  # a quotient that is too small for a number has a log all the same
            ),
        ),
    )  # fmt: skip
    of_classes = RoundNoise(noise.variance / len(cells), noise.df)  # classes meet the noise at times of their own
    shared = RoundNoise(of_classes.variance / len(rounds), noise.df)
    return _estimate_mean(together, of_classes, level), _estimate_percentile(together, shared, level)


def _estimate_mean(pairs: Pairs, noise: RoundNoise, level: float) -> TailEstimate:
    requests, (prompts, rounds) = pairs.requests, pairs.by_round.shape
    group = (requests.arm * prompts + requests.prompt) * rounds + requests.round
    size = 2 * prompts * rounds
    count = np.bincount(group, minlength=size).reshape(2, prompts, rounds)
    largest = [float(requests.value[requests.arm == arm].max()) for arm in (0, 1)]  # no sum of large ones overflows
    values = requests.value / np.array(largest)[requests.arm]
    total = np.bincount(group, values, minlength=size).reshape(2, prompts, rounds)
    of_prompts = total.sum(axis=2) / count.sum(axis=2)
    means = of_prompts.mean(axis=1)
    log = float(np.log(means[0]) - np.log(means[1]) + np.log(largest[0]) - np.log(largest[1]))
    with np.errstate(invalid="ignore"):
        of_rounds = total / count  # NaN where a prompt was not answered in a round
    linear = log - (of_prompts[1] / means[1] - of_prompts[0] / means[0])
    by_round = log - (of_rounds[1] / means[1] - of_rounds[0] / means[0])
    mean = estimate(linear, by_round, pairs.starts, placements=pairs.placements, noise=noise, level=level)
    assert mean is not None  # the cell has as many prompts as its median, which has an estimate
    return TailEstimate("mean", largest[0] * float(means[0]), largest[1] * float(means[1]), mean)


def _estimate_percentile(pairs: Pairs, shared: RoundNoise, level: float) -> TailEstimate:
    requests, prompts = pairs.requests, len(pairs.prompts)
    draws = min(_RESAMPLES, max(_NUMBERS // max(len(requests.value), 1), _FEWEST_RESAMPLES))
    weights = np.vstack([np.full((1, prompts), 1 / prompts), resample_prompts(prompts)[:draws]])
    baseline, measured = (_weigh_percentile(requests, arm, weights) for arm in (0, 1))
    logs = np.log(baseline) - np.log(measured)
    own = float(np.var(logs[1:], ddof=1)) * prompts / (prompts - 1)  # resampling n makes it too small by (n - 1) / n
    percentile = combine_parts(float(logs[0]), RoundNoise(own, prompts - 1), shared, level)
    return TailEstimate("p90", float(baseline[0]), float(measured[0]), percentile)


def _weigh_percentile(requests: CellRequests, arm: int, weights: Values) -> Values:
    """Return the percentile of one arm for each row of weights of the prompts. Shapes: weights (rows, prompts)."""
    mine = requests.arm == arm
    prompt, value = requests.prompt[mine], requests.value[mine]
    order = np.argsort(value, kind="stable")
    prompt, value = prompt[order], value[order]
    share = 1 / np.bincount(prompt, minlength=weights.shape[1])
    rising = np.cumsum(weights[:, prompt] * share[prompt], axis=1)
    place = (rising < QUANTILE * rising[:, -1:] - 1e-12).sum(axis=1)
    percentiles: Values = value[np.minimum(place, len(value) - 1)]
    return percentiles


class TailVerdict(NamedTuple):
    """The word of a cell once its mean and 90th percentile were looked at, and what they say against the median's.

    `opposition` is empty where they left the word as it was.
    """

    word: Word
    opposition: str


def weigh_tails(
    word: Word, tails: Sequence[TailEstimate], words: Sequence[Word], pooled: Sequence[TailEstimate], limits: WordLimits
) -> TailVerdict:
    """Return what is left of the word of a median.

    The word falls where the mean or the percentile is shown to go the other way (`mixed`), and where the mean is not
    shown to stay within the margin of that, or the percentile, which few requests decide, seems not to (`no
    evidence`). Their own 95 % intervals decide here; what calls a difference is held against all tests of the report.

    Args:
        word: of the median.
        tails: mean and 90th percentile of the cell. words: what each is called by itself.
        pooled: the same over all requests of the variant's cells whose medians go this way, or are the same too: slow
            requests that are few show there. Where the cell's own mean is called as its median is, their percentile,
            which mixes classes of other speed-ups, does not speak for it; their mean does.
        limits: what is called nothing.
    """
    everywhere = f"over all classes with {_MEDIANS.get(word, '')} the "
    if word == "same":
        called = [tail for tail, own in zip(tails, words, strict=True) if own in {"faster", "slower"}]
        beyond = [(tail, "the ") for tail in called if abs(tail.estimate.log) > limits.margin]
        beyond += [(tail, everywhere) for tail in pooled[:1] if abs(tail.estimate.log) > limits.margin]
        for tail, where in beyond:
            shown = tail in called or tail.estimate.low > 0 or tail.estimate.high < 0
            return TailVerdict("mixed" if shown else "no evidence", f"{where}{describe_tail(tail)}")
    if word not in {"faster", "slower"}:
        return TailVerdict(word, "")
    way = 1.0 if word == "faster" else -1.0
    called_alone = any(tail.statistic == "mean" and own == word for tail, own in zip(tails, words, strict=True))
    against = [
        (tail, where)
        for where, some in (("the ", tails), (everywhere, pooled[:1] if called_alone else pooled))
        for tail in some
        if _is_unsure(tail, way, limits.margin)
    ]
    for tail, where in against:
        ends = way * tail.estimate.low, way * tail.estimate.high
        if max(ends) < 0 and way * tail.estimate.log < -limits.floor:
            return TailVerdict("mixed", f"{where}{describe_tail(tail)}")
    for tail, where in against:
        return TailVerdict("no evidence", f"{where}{describe_tail(tail)}, which may be the other way")
    return TailVerdict(word, "")


def describe_tail(tail: TailEstimate) -> str:
    """Return `mean is 0.86 (0.80 to 0.93) times as fast`."""
    low, value, high = (number(exp(log)) for log in (tail.estimate.low, tail.estimate.log, tail.estimate.high))
    return f"{TAIL_NAMES[tail.statistic]} is {value} ({low} to {high}) times as fast"


def _is_unsure(tail: TailEstimate, way: float, margin: float) -> bool:
    estimate = tail.estimate
    far = estimate.log if tail.statistic == "p90" else estimate.low if way > 0 else estimate.high
    return way * far < -margin
