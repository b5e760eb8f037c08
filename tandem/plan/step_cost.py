"""The cost of a speculative step relative to a plain one, fitted to published rows of one kind.

The model: a step takes the time of a plain step, that of its draft forwards, and a share of a plain
step for each drafted token that it verifies. On Neuron a draft forward is bound by latency: heads
of one layer and drafts of sixteen take about as many milliseconds (docs/theory.md). A verified
token costs little where the target is dense, because the weights are read anyway; each one loads
experts of its own where it is not.

Invariant: no time is predicted without a measured plain TPOT, and no speed-up for a kind whose own
rows do not predict each other: a range is a factor 2 wide, and each row lies in the range that is
fitted to the other pairs of servers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from tandem.plan.measurement_rows import PublishedRow, RowKind, TargetKind

RANGE_FACTOR = math.sqrt(2)
"""A step may cost so many times more, or less, than the fit says: the range of a speed-up is a
factor 2 wide. Two pairs of servers give no distribution; the largest error of their own rows is
smaller (docs/theory.md)."""

FEWEST_PAIRS = 2
"""Pairs of servers without which nothing can be left out and predicted from the rest."""


class SpeedUpRange(NamedTuple):
    """A speed-up, and the range in which a measurement is expected."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """What a speculative step costs on servers of one kind.

    Args:
        draft_ms: of one draft forward, mean of the pairs of servers.
        low_ms, high_ms: the least and the most that one pair implies.
        verified_share: of a plain step, of each drafted token that is verified.
        concurrency: the highest load of any row; above it nothing was published.
    """

    draft_ms: float
    low_ms: float
    high_ms: float
    verified_share: float
    concurrency: int

    def count_steps(self, forwards: int, verified: int, plain_tpot_ms: float) -> float:
        """Return how many plain steps a speculative step takes.

        Args:
            forwards: draft forwards, one after the other.
            verified: drafted tokens that the target verifies.
            plain_tpot_ms: of the target without speculation.
        """
        return 1 + forwards * self.draft_ms / plain_tpot_ms + verified * self.verified_share

    def find_gain_tpot(self, tokens: float, forwards: int, verified: int) -> float | None:
        """Return the plain TPOT in ms above which speculation is surely faster; else None.

        Args:
            tokens: mean of a step.
            forwards, verified: as of `count_steps`.
        """
        spare = tokens / RANGE_FACTOR - 1 - verified * self.verified_share
        if spare > 0:
            return forwards * self.draft_ms / spare
        return None


def fit_step_cost(rows: Iterable[PublishedRow], kind: RowKind) -> StepCost:
    """Return a step's cost over all kept rows of a kind; each pair of servers counts once.

    Raises:
        ValueError: there is no such row.
    """
    used = [row for row in rows if row.left_out is None]
    verified_share = fit_verified_share(used, kind.target)
    implied_ms = defaultdict[str, list[float]](list)
    own = [row for row in used if row.kind == kind]
    for row in own:
        implied_ms[row.pair].append(imply_draft_ms(row, verified_share))
    if not own:
        raise ValueError(f"no published row of this kind: {kind.words}")
    means_ms = [fmean(values) for values in implied_ms.values()]
    return StepCost(
        draft_ms=fmean(means_ms),
        low_ms=min(means_ms),
        high_ms=max(means_ms),
        verified_share=verified_share,
        concurrency=max(row.concurrency for row in own),
    )


def fit_verified_share(rows: Iterable[PublishedRow], target: TargetKind) -> float:
    """Return the share of a plain step that one more verified token costs: 0 where no rows tell.

    Only parallel drafts tell: their windows differ in verified tokens alone. It is the slope of the
    cost of a step over verified tokens, within rows that have one plain server.
    """
    groups = defaultdict[tuple[str, float], list[PublishedRow]](list)
    for row in rows:
        if row.left_out is None and row.target == target and row.drafting == "parallel":
            groups[row.pair, row.baseline_tpot_ms.value].append(row)
    products = 0.0
    squares = 0.0
    for group in groups.values():
        mean_verified = fmean(row.verified for row in group)
        mean_cost = fmean(row.step_cost for row in group)
        products += sum(
            (row.verified - mean_verified) * (row.step_cost - mean_cost) for row in group
        )
        squares += sum((row.verified - mean_verified) ** 2 for row in group)
    if not squares:
        return 0.0
    return max(0.0, products / squares)


def imply_draft_ms(row: PublishedRow, verified_share: float) -> float:
    """Return a draft forward's time, if the rest of a step is plain plus verified tokens."""
    draft_steps = row.step_cost - 1 - row.verified * verified_share
    return draft_steps * row.baseline_tpot_ms.value / row.forwards


def predict_range(row: PublishedRow, cost: StepCost) -> SpeedUpRange:
    """Return what a fit says of a row, from its tokens of a step and its plain TPOT."""
    assert row.tokens is not None, "a row that is left out predicts nothing"
    steps = cost.count_steps(row.forwards, row.verified, row.baseline_tpot_ms.value)
    middle = row.tokens / steps
    return SpeedUpRange(middle, middle / RANGE_FACTOR, middle * RANGE_FACTOR)


class HeldOutRow(NamedTuple):
    """A row, and what the other pairs of its kind say of it: None where there is none."""

    row: PublishedRow
    predicted: SpeedUpRange | None

    @property
    def is_within(self) -> bool:
        """Return whether the range contains what was measured."""
        return (
            self.predicted is not None
            and self.predicted.low <= self.row.speed_up <= self.predicted.high
        )


def hold_rows_out(rows: Sequence[PublishedRow]) -> Iterator[HeldOutRow]:
    """Yield each kept row with what the other pairs of its kind say of it."""
    for row in rows:
        if row.left_out is not None:
            continue
        others = [other for other in rows if other.pair != row.pair]
        pairs = {
            other.pair for other in others if other.left_out is None and other.kind == row.kind
        }
        predicted = None
        if pairs:
            predicted = predict_range(row, fit_step_cost(others, row.kind))
        yield HeldOutRow(row, predicted)


def find_objection(rows: Sequence[PublishedRow], kind: RowKind) -> str:
    """Return why no speed-up of a kind is forecast; empty where its rows predict each other."""
    pairs = sorted({row.pair for row in rows if row.left_out is None and row.kind == kind})
    if len(pairs) < FEWEST_PAIRS:
        count = "no pair of servers was published"
        if pairs:
            count = f"one pair of servers was published ({pairs[0]})"
        return f"{count}, and a range needs {FEWEST_PAIRS} to be tested"
    missed = [
        held.row.name
        for held in hold_rows_out(rows)
        if held.row.kind == kind and not held.is_within
    ]
    if not missed:
        return ""
    return f"the published rows do not predict {', '.join(missed)}"
