"""Ways to conclude from one run which server is faster: Tandem's and the usual ones. All see the same requests.

Every way answers with a log speed-up, its interval and a word. Ways without an interval have ends that are not numbers.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from coverage_world import Seen, Values

from tandem.judge.interval import estimate_log_ratio, pool_round_noise

MARGIN = math.log(1.05)
REQUESTS_OF_THE_POST = 8
_RESAMPLES = 1_000


class Said(NamedTuple):
    """Answer of a way for one run: log speed-up, ends of its 95 % interval, and 1 faster, -1 slower, 0 neither."""

    log: float
    low: float
    high: float
    word: int


def by_prompt(seen: Seen, metric: str) -> Said:
    """Answer in Tandem's way: one log-ratio a prompt, of medians over rounds; prompts are resampled."""
    base, spec = seen.of(metric)
    by_round = np.log(base / spec).T
    medians = np.log(np.median(base, axis=0) / np.median(spec, axis=0))
    found = estimate_log_ratio(medians, by_round, noise=pool_round_noise([by_round]))  # as in a report of one class
    return _nothing() if found is None else _said(found.log, found.low, found.high)


def by_prompt_and_start(seen: Seen, metric: str) -> Said:
    """Answer in Tandem's way if every round has its own start and placement: prompts and starts are crossed."""
    base, spec = seen.of(metric)
    rounds = np.arange(base.shape[0])
    ratios = np.log(base / spec).T
    medians = np.log(np.median(base, axis=0) / np.median(spec, axis=0))
    found = estimate_log_ratio(medians, ratios, rounds, placements=rounds % 2)
    return _nothing() if found is None else _said(found.log, found.low, found.high)


def by_request(seen: Seen, metric: str) -> Said:
    """Resample pairs of requests as if each were a separate prompt; take percentiles of the geometric mean."""
    base, spec = seen.of(metric)
    logs = np.log(base / spec).ravel()
    means = np.sort(_weights(len(logs)) @ logs)
    low, high = means[round(0.025 * len(means))], means[round(0.975 * len(means)) - 1]
    return _said(float(logs.mean()), float(low), float(high))


def medians_of_few(seen: Seen, metric: str) -> Said:
    """Compare the medians of the first 8 requests of each server, as the post; the larger one is slower."""
    base, spec = (float(np.median(arm.ravel()[:REQUESTS_OF_THE_POST])) for arm in seen.of(metric))
    log = math.log(base / spec)
    return Said(log, math.nan, math.nan, (log > MARGIN) - (log < -MARGIN))


def by_chunk(seen: Seen, metric: str) -> Said:
    """Take time per chunk for time per token, as llmperf; otherwise Tandem's way."""
    del metric
    return by_prompt(seen, "chunk_itl_ms")


WAYS: Mapping[str, Callable[[Seen, str], Said]] = {
    "by request": by_request,
    "medians of 8": medians_of_few,
    "time per chunk": by_chunk,
}
"""Tandem's way and the usual ways."""


@lru_cache(maxsize=8)
def _weights(count: int) -> Values:
    return np.random.default_rng(count).multinomial(count, np.full(count, 1 / count), size=_RESAMPLES) / count


def _said(log: float, low: float, high: float) -> Said:
    return Said(log, low, high, (low > 0) - (high < 0))


def _nothing() -> Said:
    return Said(math.nan, math.nan, math.nan, 0)
