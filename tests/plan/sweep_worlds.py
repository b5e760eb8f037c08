"""Worlds of a sweep: what is true of drafts and classes, and measurements of it with the noise of
servers.

A world: acceptance by position of each draft and class, cost of a draft forward uniform from 0.05
to 0.4 of a plain step. A quarter of the worlds is drawn until plain decoding is the best, the
others until it is not. A measurement has the noise of a start, 1.5 % of each server, and of its
own, 2 % over 30 s. Three kinds of acceptance:

- `constant`: the same at every position, uniform from 0.3 to 0.95.
- `rising`: from 0.3 to 0.9 at the first position; the rest to 1 shrinks by a factor e over 1 to 6
  positions.
- `mixture`: 10 to 60 % of the steps copy, with an acceptance of 0.98; the others have 0.1 to 0.6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul

import numpy as np

from tandem.plan.candidate_search import (
    CandidateResult,
    SweepCandidate,
    decide_sweep,
    plan_next,
    score_classes,
)
from tandem.plan.step_tokens import count_drafted, sum_positions

LAW = "k"
DRAFTS = ("small", "large")
CLASSES = ("json", "code", "chat", "open")
CANDIDATES = tuple(SweepCandidate(draft, window) for window in (7, 5, 10, 15) for draft in DRAFTS)
START_SD = 0.015
OWN_SD = 0.02
OWN_S = 30.0
CLASS_S = 60.0  # of each arm in each class
PLAIN_SHARE = 0.25
WITHIN = 0.05
COPY_ACCEPTANCE = 0.98
MOST_POSITIONS = 15


@dataclass(frozen=True)
class SweepWorld:
    """What is true: acceptance by draft and class at each position, the last one goes on; a draft
    forward's cost."""

    acceptance: dict[tuple[str, str], tuple[float, ...]]
    cost: dict[str, float]

    def position_rates(self, candidate, class_):
        """The share of drafts accepted at each position."""
        conditional = self.acceptance[candidate.draft, class_]
        drafts = count_drafted(LAW, candidate.window)
        positions = [conditional[min(position, len(conditional) - 1)] for position in range(drafts)]
        return tuple(accumulate(positions, mul))

    def tokens(self, candidate, class_):
        """The true mean of a step."""
        return sum_positions(LAW, self.position_rates(candidate, class_), candidate.window)

    def speed_up(self, candidate, class_):
        """The true speed-up of a class."""
        return self.tokens(candidate, class_) / (1 + candidate.window * self.cost[candidate.draft])

    def score(self, candidate):
        """The true score of a candidate; 1 of plain decoding."""
        return (
            1.0
            if candidate is None
            else score_classes(self.speed_up(candidate, class_) for class_ in CLASSES)
        )

    def best(self):
        """The candidate that is truly best; None for plain decoding."""
        return max([None, *CANDIDATES], key=self.score)


def draw_constant(rng):
    return (rng.uniform(0.3, 0.95),)


def draw_rising(rng):
    first = rng.uniform(0.3, 0.9)
    positions = rng.uniform(1, 6)
    return tuple(
        1 - (1 - first) * math.exp(-position / positions) for position in range(MOST_POSITIONS)
    )


def draw_mixture(rng):
    share = rng.uniform(0.1, 0.6)
    second_rate = rng.uniform(0.1, 0.6)
    rates = [
        share * COPY_ACCEPTANCE**position + (1 - share) * second_rate**position
        for position in range(MOST_POSITIONS + 1)
    ]
    return tuple(second / first for first, second in pairwise(rates))


KINDS = {"constant": draw_constant, "rising": draw_rising, "mixture": draw_mixture}


def draw_world(rng, kind):
    wants_plain = rng.random() < PLAIN_SHARE
    while True:
        acceptance = {(draft, class_): KINDS[kind](rng) for draft in DRAFTS for class_ in CLASSES}
        world = SweepWorld(acceptance, {draft: rng.uniform(0.05, 0.4) for draft in DRAFTS})
        if (world.best() is None) == wants_plain:
            return world


def measure(world, candidate, rng, *, counts_positions=True):
    """A measurement of a candidate against plain decoding, one start of each."""
    start = rng.normal(0, START_SD) - rng.normal(0, START_SD)
    own_sd = OWN_SD * math.sqrt(OWN_S / CLASS_S)
    noise = {class_: start + rng.normal(0, own_sd) - rng.normal(0, own_sd) for class_ in CLASSES}
    speed_ups = {
        class_: world.speed_up(candidate, class_) * math.exp(noise[class_]) for class_ in CLASSES
    }
    return CandidateResult(
        candidate=candidate,
        score=score_classes(speed_ups.values()),
        speed_ups=speed_ups,
        tokens={class_: world.tokens(candidate, class_) for class_ in CLASSES},
        log_sd=math.sqrt(2 * START_SD**2 + 2 * own_sd**2 / len(CLASSES)),
        position_rates={
            class_: world.position_rates(candidate, class_)
            for class_ in CLASSES
            if counts_positions
        },
    )


@dataclass(frozen=True)
class SearchOutcome:
    """How a search in a world ended."""

    is_plain_best: bool
    is_plain_named: bool
    is_near: bool
    share: float


def search(seed, kind="constant", *, counts_positions=False):
    """A search in a world of a seed, on servers that count accepted drafts by position or do
    not."""
    rng = np.random.default_rng(seed)
    world = draw_world(rng, kind)
    results = []
    while (state := plan_next(CANDIDATES, results, LAW)).next is not None:
        results.append(measure(world, state.next, rng, counts_positions=counts_positions))
    decision = decide_sweep(CANDIDATES, results, LAW)
    return SearchOutcome(
        is_plain_best=world.best() is None,
        is_plain_named=decision.winner is None,
        is_near=world.score(decision.winner) * (1 + WITHIN) >= world.score(world.best()),
        share=len(results) / len(CANDIDATES),
    )


def summarize(outcomes):
    """Share near the best, share of plain where it is best, and share of the grid's
    measurements."""
    plain = [outcome.is_plain_named for outcome in outcomes if outcome.is_plain_best]
    return (
        float(np.mean([outcome.is_near for outcome in outcomes])),
        float(np.mean(plain)),
        float(np.mean([outcome.share for outcome in outcomes])),
        float(np.mean([outcome.is_plain_best for outcome in outcomes])),
    )
