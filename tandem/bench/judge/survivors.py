"""Whether two arms failed so differently that what is compared are survivors.

Invariant: counted are the requests of rounds in which both arms were asked, failed ones too. An arm that drops what it
would be slow at looks fast; no figure of the answers that are left can show it, so the counts of failures decide.

Two arms fail differently when chance alone would part them so far in fewer than RARE of runs (Fisher's exact test, one
side at half of it), or when one fails FAR more of its requests, and at least FEW more: the test cannot see much in a
class of a dozen requests. The figures but Fisher's are Tandem's own choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tandem.bench.columns import Whole
from tandem.bench.judge.pairs import Grouped

RARE = 0.05
FAR = 0.05
FEW = 2


class Failures(NamedTuple):
    """Requests of both arms that were asked side by side, and those of them that failed."""

    of_baseline: int
    baseline: int
    of_variant: int
    variant: int

    @property
    def differ(self) -> bool:
        """Whether the arms failed so differently that survivors are compared."""
        return more_often(self.variant, self.of_variant, self.baseline, self.of_baseline) or more_often(
            self.baseline, self.of_baseline, self.variant, self.of_variant
        )

    def sentence(self, baseline: str, variant: str) -> str:
        """Return the counts in words."""
        return (
            f"{self.variant} of {self.of_variant} requests of {variant} failed, "
            f"{self.baseline} of {self.of_baseline} of {baseline}"
        )


def more_often(some: int, of_some: int, others: int, of_others: int) -> bool:
    """Return whether the first share is above the second by more than chance or by FAR."""
    if not of_some or not of_others or some * of_others <= others * of_some:
        return False
    if some - others >= FEW and some / of_some - others / of_others >= FAR:
        return True
    from scipy.stats import hypergeom  # noqa: PLC0415 - it takes a second to load, and few runs have failures

    p = hypergeom.sf(some - 1, of_some + of_others, some + others, of_some)
    return bool(p < RARE / 2)


@dataclass(frozen=True)
class Counted:
    """Failures by cell; a cell is class code * number of loads + load code."""

    asked: Whole
    failed: Whole

    def of_cell(self, cell: int) -> Failures:
        """Return the counts of one class at one load."""
        return _failures(self.asked[cell], self.failed[cell])

    def barred(self, cell: int, baseline: str, variant: str) -> str:
        """Return why nothing may be said of a cell's survivors, or of those of the whole run; empty where it may."""
        for failures in (self.of_cell(cell), self.of_all()):
            if failures.differ:
                return f"only survivors could be compared: {failures.sentence(baseline, variant)}"
        return ""

    def of_all(self) -> Failures:
        """Return the counts of the whole run."""
        return _failures(self.asked.sum(axis=0), self.failed.sum(axis=0))


def _failures(asked: Whole, failed: Whole) -> Failures:
    return Failures(int(asked[0]), int(failed[0]), int(asked[1]), int(failed[1]))


def count(grouped: Grouped, baseline: str, variant: str) -> Counted:
    """Return what two arms were asked in the same rounds, and what of it failed."""
    seen = grouped.seen
    cells, of_variant = grouped.number_of_cells, seen.of_arm(variant)
    rows = np.flatnonzero(grouped.rows() & (of_variant | seen.of_arm(baseline)))
    cell, arm = grouped.cells()[rows], of_variant[rows].astype(np.intp)
    rounds, round_ = np.unique(seen.round[rows], return_inverse=True)
    turn = cell * len(rounds) + round_  # one number each: numpy sorts pairs far more slowly
    asked = np.bincount(2 * turn + arm, minlength=2 * cells * len(rounds)).reshape(-1, 2)
    beside = asked.min(axis=1)[turn] > 0
    failed = beside & seen.failed[rows]
    return Counted(_by_cell(cell[beside], arm[beside], cells), _by_cell(cell[failed], arm[failed], cells))


def _by_cell(cell: Whole, arm: Whole, cells: int) -> Whole:
    return np.bincount(2 * cell + arm, minlength=2 * cells).reshape(-1, 2)
