"""Whether two arms' answers may be compared: not if only survivors are, or no text.

Invariant: the counts cover rounds that count and in which both arms got requests, failed requests
included. An arm that drops its slow requests looks fast. The answers that are left cannot show
this, so the counts of failures decide. A speed is worth nothing if the answers are no text.
Equality finds text that one arm alone breaks. Here both arms break it, for example with damaged
model files, and outputs may be identical. A small model may answer with refusals and loops, so the
report names these and they bar nothing.

Two arms fail differently if chance alone would part them so far in fewer than RARE_P of runs
(Fisher's exact test, one side at half of RARE_P). They also do if one fails FAR_SHARE more of its
requests and at least FEWEST_FAILURES more: the test sees little in a class of a dozen requests. All
figures but Fisher's are Tandem's own choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from tandem.bench.figures.columns import BoolArray, IntArray
from tandem.bench.figures.request_table import UNKNOWN, RequestTable
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import RunControls

RARE_P = 0.05
FAR_SHARE = 0.05
FEWEST_FAILURES = 2
BROKEN_CONTENT = ("empty", "garbage", "loop", "refusal")
"""Words of the content check that no limit explains (tandem.bench.suites.content)."""

NO_TEXT = ("empty", "garbage")
"""Words of the content check for answers that no working model gives to most prompts."""


class FailureCounts(NamedTuple):
    """Requests of both arms in the same rounds, and how many of them failed."""

    baseline_requests: int
    baseline_failures: int
    variant_requests: int
    variant_failures: int

    @property
    def is_biased(self) -> bool:
        """Whether the arms failed so differently that only survivors are compared."""
        return any(
            is_more_frequent(*self.count_favoured(is_faster=is_faster))
            for is_faster in (True, False)
        )

    def count_favoured(self, *, is_faster: bool) -> tuple[int, int, int, int]:
        """Return failures and requests of the arm that a word favours, then those of the other."""
        baseline = (self.baseline_failures, self.baseline_requests)
        variant = (self.variant_failures, self.variant_requests)
        if is_faster:
            return (*variant, *baseline)
        return (*baseline, *variant)

    def may_fail_far_more(self, *, is_faster: bool) -> bool:
        """Return whether the favoured arm alone failed, and may fail FAR_SHARE more.

        The share that it may fail is Clopper and Pearson's upper bound at 95 % (1934, Biometrika
        26, 404): 1 of 72 requests says no more than that it is below 6.4 %.
        """
        count, total, other_count, other_total = self.count_favoured(is_faster=is_faster)
        if not count or other_count or not other_total:
            return False
        if count == total:
            return True
        return bool(special.betaincinv(count + 1, total - count, 1 - RARE_P) >= FAR_SHARE)

    def describe(
        self, baseline: str, variant: str, *, noun: str = "requests", verb: str = " failed"
    ) -> str:
        """Return the counts in words."""
        return (
            f"{self.variant_failures} of {self.variant_requests} {noun} of {variant}{verb}, "
            f"{self.baseline_failures} of {self.baseline_requests} of {baseline}"
        )


def is_more_frequent(count: int, total: int, other_count: int, other_total: int) -> bool:
    """Return whether the first share is above the second by more than chance or by FAR_SHARE."""
    if not total or not other_total or count * other_total <= other_count * total:
        return False
    excess_share = count / total - other_count / other_total
    if count - other_count >= FEWEST_FAILURES and excess_share >= FAR_SHARE:
        return True
    from scipy.stats import hypergeom  # noqa: PLC0415 - it takes a second to load, and few runs have failures

    p = hypergeom.sf(count - 1, total + other_total, count + other_count, total)
    return bool(p < RARE_P / 2)


class FailureBias(NamedTuple):
    """Failures that differ between two arms, and the cell's code; None is the whole run."""

    failures: FailureCounts
    cell: int | None


@dataclass(frozen=True)
class CellFailures:
    """Failures by cell (class code * loads + load code) and arm. Shapes: (cells, 2)."""

    request_counts: IntArray
    failure_counts: IntArray

    def count(self, cell: int | None = None) -> FailureCounts:
        """Return the counts of one class at one load; of the whole run if `cell` is None."""
        rows = slice(None) if cell is None else slice(cell, cell + 1)
        baseline_requests, variant_requests = self.request_counts[rows].sum(axis=0).tolist()
        baseline_failures, variant_failures = self.failure_counts[rows].sum(axis=0).tolist()
        return FailureCounts(
            baseline_requests, baseline_failures, variant_requests, variant_failures
        )

    def find_bias(self, cells: Sequence[int]) -> FailureBias | None:
        """Return failures that leave only survivors of some cells; None if all can be compared.

        One of many cells has more failures by chance where both arms fail now and then. So a cell
        decides about others only where one arm failed nothing in the whole run.

        Args:
            cells: their codes; one decides for itself.
        """
        run_failures = self.count()
        run_bias = FailureBias(run_failures, None)
        cell_biases = [FailureBias(self.count(cell), cell) for cell in cells]
        biases = [run_bias]
        if len(cells) == 1:
            biases = [*cell_biases, run_bias]
        elif not (run_failures.variant_failures and run_failures.baseline_failures):
            biases = [run_bias, *cell_biases]
        for bias in biases:
            if bias.failures.is_biased:
                return bias
        return None


def count_failures(pairing: RequestPairing, baseline: str, variant: str) -> CellFailures:
    """Count the requests that two arms got in the same rounds, and how many of them failed."""
    table = pairing.table
    rounds, round_ = np.unique(table.round, return_inverse=True)
    turns = pairing.cell_codes() * len(rounds) + round_
    masks = [pairing.row_mask() & table.arm_mask(arm) for arm in (baseline, variant)]
    has_both = np.ones(len(table), bool)
    for mask in masks:
        has_both &= np.isin(turns, turns[mask])
    return _count_cells(pairing, [mask & has_both for mask in masks], table.failed)


def count_refusals(pairing: RequestPairing, baseline: str, variant: str) -> CellFailures:
    """Count the checked answers of two arms, and how many the content check refused."""
    table = pairing.table
    is_checked = pairing.row_mask() & ~table.failed & (table.content != UNKNOWN)
    masks = [is_checked & table.arm_mask(arm) for arm in (baseline, variant)]
    return _count_cells(pairing, masks, mask_content(table, BROKEN_CONTENT))


def mask_content(table: RequestTable, words: Sequence[str]) -> BoolArray:
    """Return which answers the content check gave one of some words."""
    codes = [code for code, word in enumerate(table.contents) if word in words]
    return np.isin(table.content, codes)


def _count_cells(
    pairing: RequestPairing, masks: Sequence[BoolArray], is_hit: BoolArray
) -> CellFailures:
    """Return how many requests of each arm's mask each cell has, and how many of them are hits."""
    cells = pairing.cell_codes()
    totals = [np.bincount(cells[mask], minlength=pairing.cell_count) for mask in masks]
    hits = [np.bincount(cells[mask & is_hit], minlength=pairing.cell_count) for mask in masks]
    return CellFailures(np.column_stack(totals), np.column_stack(hits))


class ContentCounts(NamedTuple):
    """Checked answers of an arm, and how many of them got each word of BROKEN_CONTENT."""

    arm: str
    answer_count: int
    broken: Counter[str]


def count_content(pairing: RequestPairing, arm: str) -> ContentCounts:
    """Count the answers of an arm that the content check refused."""
    table = pairing.table
    is_checked = ~table.failed & (table.content != UNKNOWN)
    mask = pairing.row_mask() & is_checked & table.arm_mask(arm)
    words = [table.contents[code] for code in table.content[mask].tolist()]
    broken = Counter(word for word in words if word in BROKEN_CONTENT)
    return ContentCounts(arm, len(words), broken)


def explain_bar(pairing: RequestPairing, controls: RunControls, baseline: str, variant: str) -> str:
    """Return why nothing of a variant may be judged; empty if it may be."""
    if controls.void:
        return f"void: {controls.void[0]}"
    return explain_invalidity(pairing, baseline, variant)


def explain_invalidity(pairing: RequestPairing, baseline: str, variant: str) -> str:
    """Return why the speed of these arms is worth nothing; empty if their answers are text."""
    arm_counts = [count_content(pairing, arm) for arm in (variant, baseline)]
    texts = []
    for counts in arm_counts:
        count = sum(counts.broken[word] for word in NO_TEXT)
        if 2 * count <= counts.answer_count:
            return ""
        texts.append(f"{count} of {counts.answer_count} answers of {counts.arm}")
    return (
        f"{' and '.join(texts)} are empty or garbage,"
        " and a speed is worth nothing where the text is none"
    )
