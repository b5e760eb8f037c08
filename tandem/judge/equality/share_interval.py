"""A share of pairs with an interval, where pairs of one prompt are alike.

Invariant: the interval never takes pairs of one prompt for more independent than they show themselves to be; where all
pairs agree, nothing shows it, and a prompt counts once however often it was asked.

Wilson's score interval (1927) with an effective number of pairs in place of their number: the number divided by the
design effect, which is the variance of the share between prompts over that of as many independent pairs (Kish 1965),
and corrected for the degrees of freedom that so few prompts have (Korn and Graubard 1998).
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from tandem.bench.columns import BoolArray, IntArray
from tandem.bench.quantiles import Values
from tandem.judge.interval import LEVEL
from tandem.judge.schema import ShareEstimate


def estimate_share(hits: BoolArray, prompts: IntArray) -> ShareEstimate | None:
    """Return how many of the pairs are hits, with a 95 % interval; None of no pairs.

    Args:
        hits: one a pair.
        prompts: code of each pair's prompt.
    """
    if not len(hits):
        return None
    effective_size = compute_effective_size(hits, prompts)
    proportion, z = float(hits.mean()), float(special.ndtri((1 + LEVEL) / 2))
    middle = (proportion + z**2 / (2 * effective_size)) / (1 + z**2 / effective_size)
    half_width = (
        z
        / (1 + z**2 / effective_size)
        * math.sqrt(proportion * (1 - proportion) / effective_size + (z / (2 * effective_size)) ** 2)
    )
    low = 0.0 if not hits.any() else max(middle - half_width, 0.0)
    high = 1.0 if hits.all() else min(middle + half_width, 1.0)
    return ShareEstimate(n=int(hits.sum()), of=len(hits), low=low, high=high)


def compute_effective_size(hits: BoolArray, prompts: IntArray) -> float:
    """Return how many independent pairs these are worth."""
    _, codes, sizes = np.unique(prompts, return_inverse=True, return_counts=True)
    pairs, count = len(hits), len(sizes)
    least_size = pairs**2 / float((sizes**2).sum())  # as if all pairs of a prompt were one
    proportion = float(hits.mean())
    if count == 1 or proportion in {0.0, 1.0}:
        return least_size
    residues: Values = np.bincount(codes, hits - proportion, minlength=count).astype(float)
    cluster_variance = count / (count - 1) * float((residues**2).sum()) / pairs**2
    independent_variance = proportion * (1 - proportion) / pairs
    effective_size = (
        float(np.clip(pairs * independent_variance / cluster_variance, least_size, pairs))
        if cluster_variance
        else float(pairs)
    )
    level = (1 + LEVEL) / 2
    t_size = effective_size * (special.stdtrit(max(pairs - 1, 1), level) / special.stdtrit(count - 1, level)) ** 2
    return float(t_size)
