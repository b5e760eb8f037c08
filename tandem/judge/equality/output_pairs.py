"""Pairs of outputs: which are compared, which are identical, and which the content check refused.

Invariant: a pair has the same prompt, load, round and repeat, so also the same seed. Only requests
that succeeded are in a pair, each at most once. Only digests are compared. Outputs are compared by
token ids if every output has them, else by text: one kind for all arms of a run's comparison, never
mixed.

A word of the content check counts the same on both sides. A cut output counts only if the other one
was not cut, because one limit on both cuts both. An answer has one word: garbage that reached the
limit is called garbage, and was cut.

The interval of a share never takes pairs of one prompt for more independent than the data show. If
all pairs agree, the data show nothing, and a prompt counts once, however often it was sent. The
interval is Wilson's score interval (1927) with an effective number of pairs. That is the number of
pairs divided by the design effect: the variance of the share between prompts over that of as many
independent pairs (Kish 1965). The effective number is corrected for the degrees of freedom that so
few prompts have (Korn and Graubard 1998).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from tandem.bench.figures.columns import BoolArray, IntArray
from tandem.bench.figures.request_table import NO_DIGEST, UNKNOWN, Digests, RequestTable
from tandem.judge.comparability import BROKEN_CONTENT, mask_content
from tandem.judge.schema import LEVEL, ShareEstimate

_QUANTILE_LEVEL = (1 + LEVEL) / 2


@dataclass(frozen=True)
class OutputPairs:
    """Pairs of requests.

    Args:
        first, second: rows of the pairs in the observations.
        is_same: which pairs have identical outputs.
        failure_count: how often both arms got a request and it failed on either side.
        silent_count: pairs in which neither side has any output; they are in no other figure.
    """

    first: IntArray
    second: IntArray
    is_same: BoolArray
    failure_count: int = 0
    silent_count: int = 0

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self.first)

    def select(self, indices: BoolArray | IntArray) -> OutputPairs:
        """Return some of the pairs."""
        return replace(
            self,
            first=self.first[indices],
            second=self.second[indices],
            is_same=self.is_same[indices],
        )


@dataclass(frozen=True)
class OutputMatcher:
    """Digests and codes that find pairs and identical outputs.

    Args:
        table: the run.
        digests: of token ids where `uses_token_ids`, else of texts.
        strata: a code for each request's prompt and load: outputs with the same code should be
            alike.
        places: a code for each request's prompt, load, round and repeat.
    """

    table: RequestTable
    digests: Digests
    uses_token_ids: bool
    strata: IntArray
    places: IntArray

    def pair_arms(self, first: str, second: str) -> OutputPairs:
        """Pair the outputs of two arms."""
        first_rows = self.find_answer_rows(first)
        second_rows = self.find_answer_rows(second)
        first_places = self.places[first_rows]
        second_places = self.places[second_rows]
        _, *rows = np.intersect1d(
            first_places, second_places, assume_unique=True, return_indices=True
        )
        is_first = self.table.arm_mask(first)
        is_second = self.table.arm_mask(second)
        shared_places = np.intersect1d(self.places[is_first], self.places[is_second])
        failure_count = len(shared_places) - len(rows[0])
        return self._build_pairs(first_rows[rows[0]], second_rows[rows[1]], failure_count)

    def pair_repeats(self, *arms: str) -> OutputPairs:
        """Pair each output of the arms with the next for the same prompt at the same load."""
        table = self.table
        rows = np.concatenate([self.find_answer_rows(arm) for arm in arms])
        keys = (table.start_s, table.repeat, table.round, self.strata)
        rows = rows[np.lexsort([key[rows] for key in keys])]
        first = rows[:-1]
        second = rows[1:]
        is_next = self.strata[first] == self.strata[second]
        return self._build_pairs(first[is_next], second[is_next], 0)

    def find_answer_rows(self, arm: str) -> IntArray:
        """Return the rows of an arm that succeeded; of a repeated request the later one."""
        is_answer = self.table.arm_mask(arm) & ~self.table.failed
        rows = np.flatnonzero(is_answer)[::-1]
        _, firsts = np.unique(self.places[rows], return_index=True)
        return rows[firsts]

    def _build_pairs(self, first: IntArray, second: IntArray, failure_count: int) -> OutputPairs:
        is_silent = (self.table.output == NO_DIGEST) & (self.table.ids == NO_DIGEST)
        has_output = ~(is_silent[first] & is_silent[second])
        is_same = self.digests[first] == self.digests[second]
        silent_count = int((~has_output).sum())
        pairs = OutputPairs(first, second, is_same, failure_count, silent_count)
        return pairs.select(has_output)


def build_matcher(table: RequestTable, *arms: str) -> OutputMatcher:
    """Return a matcher for the outputs of `arms`: by token ids if all have them, else by text."""
    codes = [table.arms.index(arm) for arm in arms]
    is_answer = np.isin(table.arm, codes) & ~table.failed
    has_ids = table.ids[is_answer] != NO_DIGEST
    has_text = table.output[is_answer] != NO_DIGEST
    # an answer without any output needs no ids
    uses_token_ids = bool(has_ids.any() and (has_ids | ~has_text).all())
    digests = table.ids if uses_token_ids else table.output

    strata = table.prompt * max(len(table.loads), 1) + table.load
    places = strata
    for column in (table.round, table.repeat):
        values, value_codes = np.unique(column, return_inverse=True)
        places = places * max(len(values), 1) + value_codes
    return OutputMatcher(table, digests, uses_token_ids, strata, places)


class ContentRejections(NamedTuple):
    """Shares of refused outputs on both sides, over the pairs of which both outputs were checked.

    `p`: one-sided sign test over prompts, that the variant's outputs are refused no more often than
    the baseline's.
    """

    variant: ShareEstimate
    baseline: ShareEstimate
    p: float


def compare_rejections(table: RequestTable, pairs: OutputPairs) -> ContentRejections | None:
    """Return the shares that the content check refused; None if it checked no pair."""
    is_checked = table.content != UNKNOWN
    checked_pairs = pairs.select(is_checked[pairs.first] & is_checked[pairs.second])
    first = checked_pairs.first
    second = checked_pairs.second
    prompts = table.prompt[first]
    is_broken = mask_content(table, BROKEN_CONTENT)
    is_cut = mask_content(table, ["truncated"])
    hit_limit = is_cut | table.hit_token_limit
    baseline_hits = is_broken[first] | (is_cut[first] & ~hit_limit[second])
    variant_hits = is_broken[second] | (is_cut[second] & ~hit_limit[first])
    variant_share = estimate_share(variant_hits, prompts)
    baseline_share = estimate_share(baseline_hits, prompts)
    if variant_share is None or baseline_share is None:
        return None

    codes = np.unique(prompts, return_inverse=True)[1]
    excess = np.bincount(codes, variant_hits) - np.bincount(codes, baseline_hits)
    worse = int((excess > 0).sum())
    better = int((excess < 0).sum())
    # probability of so many prompts or more with an excess, if excess and lack are as likely
    p = 1.0
    if worse:
        p = float(special.bdtrc(worse - 1, worse + better, 0.5))
    return ContentRejections(variant_share, baseline_share, p)


def estimate_share(hits: BoolArray, prompts: IntArray) -> ShareEstimate | None:
    """Return how many of the pairs are hits, with a 95 % interval; None of no pairs.

    Args:
        hits: one a pair.
        prompts: code of each pair's prompt.
    """
    if not len(hits):
        return None
    size = compute_effective_size(hits, prompts)
    share = float(hits.mean())
    z = float(special.ndtri(_QUANTILE_LEVEL))
    scale = 1 + z**2 / size
    middle = (share + z**2 / (2 * size)) / scale
    variance = share * (1 - share) / size + (z / (2 * size)) ** 2
    half_width = z / scale * math.sqrt(variance)

    low = 0.0
    high = 1.0
    if hits.any():
        low = max(middle - half_width, 0.0)
    if not hits.all():
        high = min(middle + half_width, 1.0)
    return ShareEstimate(n=int(hits.sum()), of=len(hits), low=low, high=high)


def compute_effective_size(hits: BoolArray, prompts: IntArray) -> float:
    """Return how many independent pairs these are worth."""
    _, codes, sizes = np.unique(prompts, return_inverse=True, return_counts=True)
    pairs = len(hits)
    count = len(sizes)
    share = float(hits.mean())
    least_size = pairs**2 / float((sizes**2).sum())  # as if all pairs of a prompt were one
    if count == 1 or share in {0.0, 1.0}:
        return least_size

    residues = np.bincount(codes, hits - share, minlength=count)
    residue_sum = float((residues**2).sum())
    cluster_variance = count / (count - 1) * residue_sum / pairs**2
    size = float(pairs)
    if cluster_variance:
        independent_variance = share * (1 - share) / pairs
        size = pairs * independent_variance / cluster_variance
        size = float(np.clip(size, least_size, pairs))
    # more pairs than one, as both words are among them, and so are two prompts
    pair_quantile, prompt_quantile = special.stdtrit([pairs - 1, count - 1], _QUANTILE_LEVEL)
    return float(size * (pair_quantile / prompt_quantile) ** 2)
