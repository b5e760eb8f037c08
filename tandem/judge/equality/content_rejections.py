"""Which outputs the suite's content check refused, held against the outputs they are paired with.

Invariant: a word counts the same on both sides; an output that was cut counts only where the other one was not, because
one limit on both cuts both. An answer has one word: garbage that ran into the limit is called garbage, and was cut.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from tandem.bench.columns import BoolArray, IntArray
from tandem.bench.request_table import UNKNOWN, RequestTable
from tandem.judge.equality.output_pairs import OutputPairs
from tandem.judge.equality.share_interval import estimate_share
from tandem.judge.schema import ShareEstimate

BROKEN_CONTENT = ("empty", "garbage", "loop", "refusal")
"""Words of the content check that no limit explains (tandem.bench.suites.content)."""

TRUNCATED_CONTENT = "truncated"


class ContentRejections(NamedTuple):
    """Shares of both sides, over the pairs of which both outputs were checked.

    `p`: one-sided sign test over prompts, that the variant's outputs are refused no more often than the baseline's.
    """

    variant: ShareEstimate
    baseline: ShareEstimate
    p: float


def compare_rejections(table: RequestTable, pairs: OutputPairs) -> ContentRejections | None:
    """Return what the content check refused; None where it checked no pair."""
    pairs = pairs.select((table.content[pairs.first] != UNKNOWN) & (table.content[pairs.second] != UNKNOWN))
    broken_mask, truncation_mask = _mask_content(table, BROKEN_CONTENT), _mask_content(table, (TRUNCATED_CONTENT,))
    limit_mask = truncation_mask | table.hit_token_limit
    baseline_hits = broken_mask[pairs.first] | (truncation_mask[pairs.first] & ~limit_mask[pairs.second])
    variant_hits = broken_mask[pairs.second] | (truncation_mask[pairs.second] & ~limit_mask[pairs.first])
    prompts = table.prompt[pairs.first]
    variant_share, baseline_share = estimate_share(variant_hits, prompts), estimate_share(baseline_hits, prompts)
    if variant_share is None or baseline_share is None:
        return None
    return ContentRejections(
        variant_share, baseline_share, _test_signs(variant_hits.astype(int) - baseline_hits.astype(int), prompts)
    )


def _mask_content(table: RequestTable, words: tuple[str, ...]) -> BoolArray:
    mask: BoolArray = np.isin(table.content, [code for code, word in enumerate(table.contents) if word in words])
    return mask


def _test_signs(excess: IntArray, prompts: IntArray) -> float:
    """Return how likely so many prompts or more would have an excess, were excess and lack as likely."""
    _, codes = np.unique(prompts, return_inverse=True)
    by_prompt = np.bincount(codes, excess)
    worse, better = int((by_prompt > 0).sum()), int((by_prompt < 0).sum())
    return float(special.bdtrc(worse - 1, worse + better, 0.5)) if worse else 1.0
