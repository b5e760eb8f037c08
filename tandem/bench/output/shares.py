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

from tandem.bench.columns import Mask, Whole
from tandem.bench.judge.form import Share
from tandem.bench.judge.interval import LEVEL
from tandem.bench.quantiles import Values


def share(hits: Mask, prompts: Whole) -> Share | None:
    """Return how many of the pairs are hits, with a 95 % interval; None of no pairs.

    Args:
        hits: one a pair.
        prompts: code of each pair's prompt.
    """
    if not len(hits):
        return None
    number = effective(hits, prompts)
    part, z = float(hits.mean()), float(special.ndtri((1 + LEVEL) / 2))
    middle = (part + z**2 / (2 * number)) / (1 + z**2 / number)
    reach = z / (1 + z**2 / number) * math.sqrt(part * (1 - part) / number + (z / (2 * number)) ** 2)
    low = 0.0 if not hits.any() else max(middle - reach, 0.0)
    high = 1.0 if hits.all() else min(middle + reach, 1.0)
    return Share(n=int(hits.sum()), of=len(hits), low=low, high=high)


def effective(hits: Mask, prompts: Whole) -> float:
    """Return how many independent pairs these are worth."""
    _, codes, sizes = np.unique(prompts, return_inverse=True, return_counts=True)
    pairs, count = len(hits), len(sizes)
    least = pairs**2 / float((sizes**2).sum())  # as if all pairs of a prompt were one
    part = float(hits.mean())
    if count == 1 or part in {0.0, 1.0}:
        return least
    residues: Values = np.bincount(codes, hits - part, minlength=count).astype(float)
    between = count / (count - 1) * float((residues**2).sum()) / pairs**2
    alone = part * (1 - part) / pairs
    kept = float(np.clip(pairs * alone / between, least, pairs)) if between else float(pairs)
    level = (1 + LEVEL) / 2
    corrected = kept * (special.stdtrit(max(pairs - 1, 1), level) / special.stdtrit(count - 1, level)) ** 2
    return float(corrected)
