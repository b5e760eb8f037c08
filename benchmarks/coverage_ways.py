"""Tandem's and the usual ways to tell the faster server from one run, all from equal requests.

Every way answers with a log speed-up, its interval and a word. Ways without an interval have ends
that are not numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from coverage_world import ClientView, Values

from tandem.judge.interval import estimate_log_ratio, pool_round_noise
from tandem.judge.schema import MARGIN

REQUESTS_OF_THE_POST = 8
_RESAMPLES = 1_000


class Answer(NamedTuple):
    """A way's answer for a run: log speed-up, 95 % interval, 1 faster, -1 slower, 0 neither."""

    log: float
    low: float
    high: float
    word: int


def compare_prompts(view: ClientView, metric: str, *, has_starts: bool = False) -> Answer:
    """Answer in Tandem's way: a log-ratio a prompt, of medians over rounds; resample prompts.

    Args:
        view: of the run.
        metric: that is compared.
        has_starts: every round has its own start and placement: prompts and starts are crossed.
    """
    base, spec = view.read_metric(metric)
    by_round = np.log(base / spec).T
    medians = np.log(np.median(base, axis=0) / np.median(spec, axis=0))
    if has_starts:
        rounds = np.arange(base.shape[0])
        ratio = estimate_log_ratio(medians, by_round, rounds, placements=rounds % 2)
    else:  # as in a report of one class
        ratio = estimate_log_ratio(medians, by_round, noise=pool_round_noise([by_round]))
    if ratio is None:
        return Answer(math.nan, math.nan, math.nan, 0)
    return Answer(ratio.log, ratio.low, ratio.high, (ratio.low > 0) - (ratio.high < 0))


def resample_requests(view: ClientView, metric: str) -> Answer:
    """Resample request pairs as separate prompts; take the geometric mean's percentiles."""
    base, spec = view.read_metric(metric)
    logs = np.log(base / spec).ravel()
    means = np.sort(_draw_weights(len(logs)) @ logs)
    low = float(means[round(0.025 * len(means))])
    high = float(means[round(0.975 * len(means)) - 1])
    return Answer(float(logs.mean()), low, high, (low > 0) - (high < 0))


def compare_few(view: ClientView, metric: str) -> Answer:
    """Compare medians of each server's first 8 requests, as the post does; larger is slower."""
    base, spec = (
        float(np.median(arm.ravel()[:REQUESTS_OF_THE_POST])) for arm in view.read_metric(metric)
    )
    log = math.log(base / spec)
    margin = math.log1p(MARGIN)
    return Answer(log, math.nan, math.nan, (log > margin) - (log < -margin))


def compare_chunks(view: ClientView, _metric: str) -> Answer:
    """Take time per chunk for time per token, as llmperf; otherwise Tandem's way."""
    return compare_prompts(view, "chunk_itl_ms")


WAYS: Mapping[str, Callable[[ClientView, str], Answer]] = {
    "by request": resample_requests,
    "medians of 8": compare_few,
    "time per chunk": compare_chunks,
}
"""The usual ways."""


@lru_cache(maxsize=8)
def _draw_weights(count: int) -> Values:
    return (
        np.random.default_rng(count).multinomial(count, np.full(count, 1 / count), size=_RESAMPLES)
        / count
    )
