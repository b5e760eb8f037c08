"""The cost of a speculative step relative to a plain one, fitted to published rows.

The model: a step of window k takes the time of a plain step and k times one draft forward. On Neuron a draft forward is
bound by latency, not by the draft's size: heads of one layer and drafts of sixteen take about as many milliseconds
(docs/theory.md). So one constant is fitted, in milliseconds; where a run has measured its own, that one counts.

Invariant: no time is predicted without a measured plain TPOT: the constant alone says nothing of a model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from tandem.plan.measurement_rows import PublishedRow


@dataclass(frozen=True, slots=True)
class DraftCost:
    """Milliseconds of one draft forward.

    Args:
        mean_ms: of all rows that it was fitted to.
        low_ms, high_ms: the least and the most that one of them implies.
    """

    mean_ms: float
    low_ms: float
    high_ms: float


def imply_draft_ms(row: PublishedRow) -> float:
    """Return what one draft forward took, if a step is a plain step and k draft forwards.

    Args:
        row: with its tokens of a step.
    """
    assert row.tokens is not None, "a row that is left out implies nothing"
    return (row.tokens * row.speculative_tpot_ms.value - row.baseline_tpot_ms.value) / row.window


def fit_draft_cost(rows: Iterable[PublishedRow]) -> DraftCost:
    """Return the cost of a draft forward over all rows that are not left out.

    Raises:
        ValueError: every row is left out.
    """
    implied_ms = [imply_draft_ms(row) for row in rows if row.left_out is None]
    if not implied_ms:
        raise ValueError("no published row has a known acceptance")
    return DraftCost(fmean(implied_ms), min(implied_ms), max(implied_ms))
