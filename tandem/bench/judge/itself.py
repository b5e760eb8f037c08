"""The baseline against itself: the noise floor of every cell, and whether it is too high for any conclusion.

Invariant: a server is no faster than itself, so whatever an interval says here is noise that no interval knows of; the
floor is the end of the interval farther from 1, never the middle.

When the run is void: the interval of some cell lies wholly beyond the margin. Its level is such that a run whose noise
the intervals know of is void in less than one of a hundred, all its cells taken together (Bonferroni). A time to the
first token must besides differ by more than MOST_LAG_S, below which the client speaks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tandem.bench.host import MOST_LAG_S
from tandem.bench.judge.form import MARGIN, Check, Floor, Ratio
from tandem.bench.judge.interval import Estimate, estimate, interval_at
from tandem.bench.judge.observations import Observations
from tandem.bench.judge.pairs import JUDGED, Grouped, Pairs
from tandem.bench.judge.ratio import exp
from tandem.bench.judge.words import load as spoken_load
from tandem.bench.judge.words import short_metric

VOIDED = 0.01
"""Most healthy runs that this control may void."""

_MOST_NAMED = 3
_MS = 1000.0


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """One cell of the baseline's second go."""

    class_: int
    load: int
    metric: str
    pairs: Pairs
    found: Estimate


def against_itself(grouped: Grouped) -> tuple[Check, tuple[Floor, ...]]:
    """Return whether the baseline is itself, and what it differs from itself by in every cell.

    Args:
        grouped: the rounds that count.
    """
    seen = grouped.seen
    if seen.control is None:
        return _absent("no noise floor: the baseline was not asked against itself (--control-rounds)"), ()
    cells = list(_cells(grouped, seen.control))
    if not cells:
        return _absent(
            "no noise floor: no class has 3 prompts that both goes at the baseline answered in rounds that count"
        ), ()
    failing = [cell for cell in cells if _differs(cell, len(cells))]
    check = _failed(seen, failing) if failing else _passed(seen, cells)
    return check, tuple(_floor(seen, cell) for cell in cells)


def _absent(sentence: str) -> Check:
    return Check(name="baseline against itself", result="absent", sentence=sentence)


def _cells(grouped: Grouped, control: str) -> Iterator[_Cell]:
    seen = grouped.seen
    rows = seen.of_arm(control)
    asked = sorted(set(zip(seen.class_[rows].tolist(), seen.load[rows].tolist(), strict=True)))
    for class_, load in asked:
        for metric in JUDGED:
            pairs = grouped.pairs(baseline=seen.baseline, variant=control, class_=class_, load=load, metric=metric)
            found = estimate(pairs.logs, pairs.by_round, pairs.starts, placements=pairs.placements)
            if found is not None:
                yield _Cell(class_=class_, load=load, metric=metric, pairs=pairs, found=found)


def _differs(cell: _Cell, number: int) -> bool:
    low, high = interval_at(cell.found, 1 - VOIDED / number)
    if max(low, -high) <= math.log1p(MARGIN):
        return False
    apart_ms = abs(float(np.median(cell.pairs.measured - cell.pairs.baseline)))
    return cell.metric != "ttft_ms" or apart_ms > _MS * MOST_LAG_S


def _floor(seen: Observations, cell: _Cell) -> Floor:
    found = cell.found
    return Floor(
        class_=seen.classes[cell.class_], load=seen.loads[cell.load], metric=cell.metric,
        speed_up=Ratio(value=exp(found.log), low=exp(found.low), high=exp(found.high)),
        ratio=exp(max(abs(found.low), abs(found.high))),
    )  # fmt: skip


def _passed(seen: Observations, cells: list[_Cell]) -> Check:
    worst = max(cells, key=lambda cell: max(abs(cell.found.low), abs(cell.found.high)))
    said = f"asked twice, {seen.baseline} is itself in {len(cells)} of {len(cells)} cells; the highest noise floor is "
    return Check(
        name="baseline against itself", result="passed", sentence=f"{said}{_floor(seen, worst).ratio:.3g}, of "
        f"{_named(seen, worst)}",
    )  # fmt: skip


def _failed(seen: Observations, failing: list[_Cell]) -> Check:
    worst = sorted(failing, key=lambda cell: -abs(cell.found.log))
    named = "; ".join(_named(seen, cell) for cell in worst[:_MOST_NAMED])
    more = f"; and {len(worst) - _MOST_NAMED} more" if len(worst) > _MOST_NAMED else ""
    return Check(
        name="baseline against itself", result="failed",
        sentence=f"asked twice, {seen.baseline} differs from itself by more than {MARGIN:.0%}: {named}{more}; "
        "something beside the servers changes what is measured: see that nothing else uses them or this machine, and "
        "run again",
    )  # fmt: skip


def _named(seen: Observations, cell: _Cell) -> str:
    low, high = exp(cell.found.low), exp(cell.found.high)
    return (
        f"{short_metric(cell.metric)} of {seen.classes[cell.class_]} at {spoken_load(seen.loads[cell.load])}, "
        f"{exp(cell.found.log):.3g} ({low:.3g} to {high:.3g})"
    )
