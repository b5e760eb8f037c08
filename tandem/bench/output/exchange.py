"""Whether a variant's outputs differ from the baseline's more than the baseline's differ from each other.

Invariant: exact for any server, whatever share of its outputs equal each other: if the variant's outputs of a prompt
come from where the baseline's come from, any of them could have been the baseline's. So within each prompt and load
the arms' names are exchanged at random, and what was seen is held against what the exchanges give. Prompts whose
outputs are all alike say nothing either way and cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tandem.bench.columns import Whole
from tandem.bench.judge.observations import Digests
from tandem.bench.quantiles import Values

_DRAWS = 1_999
_OUTPUTS = 8  # of each side and prompt: one prompt of eight and eight can say 1 in 12,870 already
_PROMPTS = 400  # whose outputs differ; more would only cost time
_ROUNDING = 1e-9


class Excess(NamedTuple):
    """Result of the test.

    Args:
        p: how often exchanged names give as large an excess.
        least_p: what p would be, had the variant been as different as these outputs allow; above the level of the test,
            nothing could have been found.
    """

    p: float
    least_p: float


class Side(NamedTuple):
    """Outputs of one side: the code of the prompt and load of each, and its digest."""

    strata: Whole
    digests: Digests


def excess(baseline: Side, variant: Side, seed: int = 0) -> Excess | None:
    """Test whether pairs across the sides differ more often than pairs of the baseline; None where it has no pairs.

    Args:
        baseline: every output of the baseline and of its control.
        variant: every output of the variant.
        seed: of the exchanges.
    """
    both = [pair for pair in _by_stratum(baseline, variant) if len(pair[0]) > 1]
    if not both:
        return None
    unlike = [pair for pair in both if len(np.unique(np.concatenate(pair))) > 1]
    unlike = [unlike[place] for place in _spread(len(unlike), _PROMPTS)]
    rng = np.random.default_rng(seed)
    total: Values = np.zeros(_DRAWS)
    seen, log_least = 0.0, 0.0
    for mine, theirs in unlike:
        _, codes = np.unique(np.concatenate([mine, theirs]), return_inverse=True)
        colours = np.bincount(codes)
        found = np.bincount(codes[: len(mine)], minlength=len(colours))
        drawn = _statistic(rng.multivariate_hypergeometric(colours, len(mine), size=_DRAWS), colours)
        seen += float(_statistic(found[None, :], colours)[0])
        total += drawn
        log_least += math.log(float((drawn >= drawn.max() - _ROUNDING).mean()))
    p = (1 + int((total >= seen - _ROUNDING).sum())) / (_DRAWS + 1)
    return Excess(p if unlike else 1.0, math.exp(log_least))


def _statistic(counts: Whole, colours: Whole) -> Values:
    """Return the share of pairs across that differ less that of the baseline's own; one of each row of counts."""
    others = colours - counts
    mine, theirs = counts.sum(axis=1), others.sum(axis=1)
    across = 1 - (counts * others).sum(axis=1) / (mine * theirs)
    within = 1 - (counts * (counts - 1)).sum(axis=1) / (mine * (mine - 1))
    statistic: Values = across - within
    return statistic


def _by_stratum(baseline: Side, variant: Side) -> Iterator[tuple[Digests, Digests]]:
    """Yield the outputs of both sides for each prompt and load that both answered, at most _OUTPUTS of a side."""
    mine, theirs = _grouped(baseline), _grouped(variant)
    for code in sorted(mine.keys() & theirs.keys()):
        yield _some(mine[code]), _some(theirs[code])


def _grouped(side: Side) -> dict[int, Digests]:
    order = np.argsort(side.strata, kind="stable")
    codes, first = np.unique(side.strata[order], return_index=True)
    return dict(zip(codes.tolist(), np.split(side.digests[order], first[1:]), strict=True)) if len(codes) else {}


def _some(digests: Digests) -> Digests:
    chosen: Digests = digests[_spread(len(digests), _OUTPUTS)]
    return chosen


def _spread(count: int, most: int) -> Whole:
    """Return at most `most` places of `count`, evenly spread."""
    places: Whole = np.arange(count) if count <= most else np.linspace(0, count - 1, most).round().astype(np.intp)
    return places
