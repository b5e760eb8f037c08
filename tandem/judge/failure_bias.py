"""Whether two arms failed so differently that what is compared are survivors.

Invariant: counted are the requests of rounds in which both arms were asked, failed ones too. An arm that drops what it
would be slow at looks fast; no figure of the answers that are left can show it, so the counts of failures decide.

Two arms fail differently when chance alone would part them so far in fewer than RARE_P of runs (Fisher's exact
test, one side at half of it), or when one fails FAR_SHARE more of its requests and at least FEWEST_FAILURES more: the
test sees little in a class of a dozen requests. The figures but Fisher's are Tandem's own choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tandem.bench.columns import IntArray
from tandem.judge.pairs import RequestPairing

RARE_P = 0.05
FAR_SHARE = 0.05
FEWEST_FAILURES = 2


class FailureCounts(NamedTuple):
    """Requests of both arms that were asked side by side, and those of them that failed."""

    baseline_requests: int
    baseline_failures: int
    variant_requests: int
    variant_failures: int

    @property
    def is_biased(self) -> bool:
        """Whether the arms failed so differently that survivors are compared."""
        return is_more_frequent(
            self.variant_failures, self.variant_requests, self.baseline_failures, self.baseline_requests
        ) or is_more_frequent(
            self.baseline_failures, self.baseline_requests, self.variant_failures, self.variant_requests
        )

    def describe(self, baseline: str, variant: str) -> str:
        """Return the counts in words."""
        return (
            f"{self.variant_failures} of {self.variant_requests} requests of {variant} failed, "
            f"{self.baseline_failures} of {self.baseline_requests} of {baseline}"
        )


def is_more_frequent(count: int, total: int, other_count: int, other_total: int) -> bool:
    """Return whether the first share is above the second by more than chance or by FAR."""
    if not total or not other_total or count * other_total <= other_count * total:
        return False
    if count - other_count >= FEWEST_FAILURES and count / total - other_count / other_total >= FAR_SHARE:
        return True
    from scipy.stats import hypergeom  # noqa: PLC0415 - it takes a second to load, and few runs have failures

    p = hypergeom.sf(count - 1, total + other_total, count + other_count, total)
    return bool(p < RARE_P / 2)


@dataclass(frozen=True)
class CellFailures:
    """Failures by cell; a cell is class code * number of loads + load code."""

    request_counts: IntArray
    failure_counts: IntArray

    def count_cell(self, cell: int) -> FailureCounts:
        """Return the counts of one class at one load."""
        return _build_counts(self.request_counts[cell], self.failure_counts[cell])

    def explain_bias(self, cell: int, baseline: str, variant: str) -> str:
        """Return why nothing may be said of a cell's survivors, or of those of the whole run; empty where it may."""
        for failures in (self.count_cell(cell), self.count_all()):
            if failures.is_biased:
                return f"only survivors could be compared: {failures.describe(baseline, variant)}"
        return ""

    def count_all(self) -> FailureCounts:
        """Return the counts of the whole run."""
        return _build_counts(self.request_counts.sum(axis=0), self.failure_counts.sum(axis=0))


def _build_counts(request_counts: IntArray, failure_counts: IntArray) -> FailureCounts:
    return FailureCounts(int(request_counts[0]), int(failure_counts[0]), int(request_counts[1]), int(failure_counts[1]))


def count_failures(pairing: RequestPairing, baseline: str, variant: str) -> CellFailures:
    """Return what two arms were asked in the same rounds, and what of it failed."""
    table = pairing.table
    cell_count, variant_mask = pairing.cell_count, table.arm_mask(variant)
    rows = np.flatnonzero(pairing.row_mask() & (variant_mask | table.arm_mask(baseline)))
    cell, arm = pairing.cell_codes()[rows], variant_mask[rows].astype(np.intp)
    rounds, round_ = np.unique(table.round[rows], return_inverse=True)
    turn = cell * len(rounds) + round_  # one number each: numpy sorts pairs far more slowly
    turn_requests = np.bincount(2 * turn + arm, minlength=2 * cell_count * len(rounds)).reshape(-1, 2)
    pair_mask = turn_requests.min(axis=1)[turn] > 0
    failure_mask = pair_mask & table.failed[rows]
    return CellFailures(
        _count_by_cell(cell[pair_mask], arm[pair_mask], cell_count),
        _count_by_cell(cell[failure_mask], arm[failure_mask], cell_count),
    )


def _count_by_cell(cell: IntArray, arm: IntArray, cell_count: int) -> IntArray:
    return np.bincount(2 * cell + arm, minlength=2 * cell_count).reshape(-1, 2)
