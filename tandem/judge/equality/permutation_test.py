"""Whether outputs differ more from the baseline's than the baseline's from each other.

Invariant: the test is exact for any server, whatever share of its outputs equal each other. If both
arms draw their outputs of a prompt from one distribution, any output could have been the
baseline's. So the test exchanges the arms' names at random within each prompt and load, and
compares the observed value with those of the exchanges. Prompts whose outputs are all alike say
nothing either way and cost nothing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tandem.bench.figures.columns import IntArray
from tandem.bench.figures.quantiles import Values
from tandem.bench.figures.request_table import Digests

_DRAWS = 1_999
_OUTPUTS = 8  # of each side and prompt: one prompt with eight and eight already reaches 1 in 12,870
_PROMPTS = 400  # whose outputs differ; more would only cost time
_ROUNDING = 1e-9


class PermutationResult(NamedTuple):
    """Result of the test.

    Args:
        p: how often exchanged names give as large an excess.
        least_p: p of a variant that is as different as these outputs allow; above the level of the
            test, the test could have found nothing.
    """

    p: float
    least_p: float


class OutputStrata(NamedTuple):
    """Outputs of one side: the code of the prompt and load of each, and its digest."""

    strata: IntArray
    digests: Digests


def run_permutation_test(
    baseline: OutputStrata, variant: OutputStrata, seed: int = 0
) -> PermutationResult | None:
    """Test whether pairs across differ more often than the baseline's; None without pairs.

    Args:
        baseline: every output of the baseline and of its control.
        variant: every output of the variant.
        seed: of the exchanges.
    """
    baseline_groups = _group_by_stratum(baseline)
    variant_groups = _group_by_stratum(variant)
    pairs = [
        (baseline_groups[code], variant_groups[code])
        for code in sorted(baseline_groups.keys() & variant_groups.keys())
        if len(baseline_groups[code]) > 1
    ]
    if not pairs:
        return None
    different_pairs = [pair for pair in pairs if len(np.unique(np.concatenate(pair))) > 1]
    rng = np.random.default_rng(seed)
    total = np.zeros(_DRAWS)
    statistic = 0.0
    log_least = 0.0
    for place in spread_places(len(different_pairs), _PROMPTS):
        pair = different_pairs[place]
        size = len(pair[0])
        _, codes = np.unique(np.concatenate(pair), return_inverse=True)
        digest_counts = np.bincount(codes)
        baseline_counts = np.bincount(codes[:size], minlength=len(digest_counts))
        drawn_counts = rng.multivariate_hypergeometric(digest_counts, size, size=_DRAWS)
        draws = _compute_statistic(drawn_counts, digest_counts)
        statistic += float(_compute_statistic(baseline_counts[None, :], digest_counts)[0])
        total += draws
        is_largest = draws >= draws.max() - _ROUNDING
        log_least += math.log(float(is_largest.mean()))
    p = 1.0
    if different_pairs:
        is_as_far = total >= statistic - _ROUNDING
        p = (1 + int(is_as_far.sum())) / (_DRAWS + 1)
    return PermutationResult(p, math.exp(log_least))


def _compute_statistic(baseline_counts: IntArray, digest_counts: IntArray) -> Values:
    """Return the share of different pairs across minus the baseline's, for each row of counts."""
    variant_counts = digest_counts - baseline_counts
    baseline_size = baseline_counts.sum(axis=1)
    variant_size = variant_counts.sum(axis=1)
    same_across = (baseline_counts * variant_counts).sum(axis=1)
    same_within = (baseline_counts * (baseline_counts - 1)).sum(axis=1)
    cross_share = 1 - same_across / (baseline_size * variant_size)
    within_share = 1 - same_within / (baseline_size * (baseline_size - 1))
    statistic: Values = cross_share - within_share
    return statistic


def _group_by_stratum(side: OutputStrata) -> dict[int, Digests]:
    """Return the outputs of a side for each prompt and load, at most _OUTPUTS of them."""
    order = np.argsort(side.strata, kind="stable")
    codes, first = np.unique(side.strata[order], return_index=True)
    # without an output there is still one group, which no code names
    groups = np.split(side.digests[order], first[1:])
    return {
        code: group[spread_places(len(group), _OUTPUTS)]
        for code, group in zip(codes.tolist(), groups, strict=False)
    }


def spread_places(count: int, limit: int) -> IntArray:
    """Return at most `limit` places of `count`, evenly spread."""
    return np.linspace(0, count - 1, min(count, limit)).round().astype(np.intp)
