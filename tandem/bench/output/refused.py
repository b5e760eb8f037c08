"""Which outputs the suite's content check refused, held against the outputs they are paired with.

Invariant: a word counts the same on both sides; an output that was cut counts only where the other one was not, because
one limit on both cuts both. An answer has one word: garbage that ran into the limit is called garbage, and was cut.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from tandem.bench.columns import Mask, Whole
from tandem.bench.judge.form import Share
from tandem.bench.judge.observations import UNKNOWN, Observations
from tandem.bench.output.matching import Matched
from tandem.bench.output.shares import share

BROKEN = ("empty", "garbage", "loop", "refusal")
"""Words of the content check that no limit explains (tandem.bench.suites.content)."""

CUT = "truncated"


class Refused(NamedTuple):
    """Shares of both sides, over the pairs of which both outputs were checked.

    `p`: one-sided sign test over prompts, that the variant's outputs are refused no more often than the baseline's.
    """

    variant: Share
    baseline: Share
    p: float


def refused(seen: Observations, pairs: Matched) -> Refused | None:
    """Return what the content check refused; None where it checked no pair."""
    pairs = pairs.where((seen.content[pairs.first] != UNKNOWN) & (seen.content[pairs.second] != UNKNOWN))
    broken, cut = _said(seen, BROKEN), _said(seen, (CUT,))
    limited = cut | seen.cut
    mine = broken[pairs.first] | (cut[pairs.first] & ~limited[pairs.second])
    theirs = broken[pairs.second] | (cut[pairs.second] & ~limited[pairs.first])
    prompts = seen.prompt[pairs.first]
    of_variant, of_baseline = share(theirs, prompts), share(mine, prompts)
    if of_variant is None or of_baseline is None:
        return None
    return Refused(of_variant, of_baseline, _sign_test(theirs.astype(int) - mine.astype(int), prompts))


def _said(seen: Observations, words: tuple[str, ...]) -> Mask:
    mask: Mask = np.isin(seen.content, [code for code, word in enumerate(seen.contents) if word in words])
    return mask


def _sign_test(more: Whole, prompts: Whole) -> float:
    """Return how likely so many prompts or more would have an excess, were excess and lack as likely."""
    _, codes = np.unique(prompts, return_inverse=True)
    by_prompt = np.bincount(codes, more)
    worse, better = int((by_prompt > 0).sum()), int((by_prompt < 0).sum())
    return float(special.bdtrc(worse - 1, worse + better, 0.5)) if worse else 1.0
