"""The baseline against itself: the noise floor of every cell, and whether it is too high for any conclusion.

Invariant: a server is no faster than itself, so whatever an interval says here is noise that no interval knows of; the
floor is the end of the interval farther from 1, never the middle.

When the run is void: the interval of some cell lies wholly beyond the margin. Its level is such that a run whose noise
the intervals know of is void in less than one of a hundred, all its cells taken together (Bonferroni). A time to the
first token must besides differ by more than MOST_LAG_S, below which the client speaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tandem.bench.host import MAX_LAG_S
from tandem.bench.request_table import RequestTable
from tandem.judge.decision import is_beyond_margin
from tandem.judge.interval import LogRatioEstimate, convert_log_ratio, estimate_log_ratio
from tandem.judge.pairs import JUDGED_METRICS, CellPairs, RequestPairing
from tandem.judge.schema import MARGIN, ControlCheck, NoiseFloor
from tandem.judge.text_format import format_load as spoken_load
from tandem.judge.text_format import format_metric

FALSE_VOID_RATE = 0.01
"""Most healthy runs that this control may void."""

_MAX_NAMES = 3
_MS = 1000.0


@dataclass(frozen=True, kw_only=True)
class _ControlCell:
    """One cell of the baseline's second go."""

    class_: int
    load: int
    metric: str
    pairs: CellPairs
    estimate: LogRatioEstimate


def check_aa_control(pairing: RequestPairing) -> tuple[ControlCheck, tuple[NoiseFloor, ...]]:
    """Return whether the baseline is itself, and what it differs from itself by in every cell.

    Args:
        pairing: the rounds that count.
    """
    table = pairing.table
    if table.control is None:
        return _build_absent_check("no noise floor: the baseline was not asked against itself (--control-rounds)"), ()
    cells = list(_estimate_cells(pairing, table.control))
    if not cells:
        return _build_absent_check(
            "no noise floor: no class has 3 prompts that both goes at the baseline answered in rounds that count"
        ), ()
    failing_cells = [cell for cell in cells if _is_different(cell, len(cells))]
    check = _report_failure(table, failing_cells) if failing_cells else _report_passed(table, cells)
    return check, tuple(_build_floor(table, cell) for cell in cells)


def _build_absent_check(sentence: str) -> ControlCheck:
    return ControlCheck(name="baseline against itself", result="absent", sentence=sentence)


def _estimate_cells(pairing: RequestPairing, control: str) -> Iterator[_ControlCell]:
    table = pairing.table
    rows = table.arm_mask(control)
    keys = sorted(set(zip(table.class_[rows].tolist(), table.load[rows].tolist(), strict=True)))
    for class_, load in keys:
        for metric in JUDGED_METRICS:
            pairs = pairing.pairs(baseline=table.baseline, variant=control, class_=class_, load=load, metric=metric)
            cell_estimate = estimate_log_ratio(pairs.logs, pairs.by_round, pairs.starts, placements=pairs.placements)
            if cell_estimate is not None:
                yield _ControlCell(class_=class_, load=load, metric=metric, pairs=pairs, estimate=cell_estimate)


def _is_different(cell: _ControlCell, cell_count: int) -> bool:
    if not is_beyond_margin(cell.estimate, FALSE_VOID_RATE, cell_count):
        return False
    difference_ms = abs(float(np.median(cell.pairs.variant_medians - cell.pairs.baseline_medians)))
    return cell.metric != "ttft_ms" or difference_ms > _MS * MAX_LAG_S


def _build_floor(table: RequestTable, cell: _ControlCell) -> NoiseFloor:
    estimate = cell.estimate
    return NoiseFloor(
        class_=table.classes[cell.class_],
        load=table.loads[cell.load],
        metric=cell.metric,
        speed_up=estimate.convert(),
        ratio=convert_log_ratio(max(abs(estimate.low), abs(estimate.high))),
    )


def _report_passed(table: RequestTable, cells: list[_ControlCell]) -> ControlCheck:
    worst_cell = max(cells, key=lambda cell: max(abs(cell.estimate.low), abs(cell.estimate.high)))
    text = f"asked twice, {table.baseline} is itself in {len(cells)} of {len(cells)} cells; the highest noise floor is "
    return ControlCheck(
        name="baseline against itself",
        result="passed",
        sentence=f"{text}{_build_floor(table, worst_cell).ratio:.3g}, of {_describe_cell(table, worst_cell)}",
    )


def _report_failure(table: RequestTable, failing_cells: list[_ControlCell]) -> ControlCheck:
    worst_cells = sorted(failing_cells, key=lambda cell: -abs(cell.estimate.log))
    cells_text = "; ".join(_describe_cell(table, cell) for cell in worst_cells[:_MAX_NAMES])
    remainder = f"; and {len(worst_cells) - _MAX_NAMES} more" if len(worst_cells) > _MAX_NAMES else ""
    return ControlCheck(
        name="baseline against itself",
        result="failed",
        sentence=f"asked twice, {table.baseline} differs from itself by more than {MARGIN:.0%}: "
        f"{cells_text}{remainder}; "
        "something beside the servers changes what is measured: see that nothing else uses them or this machine, and "
        "run again",
    )


def _describe_cell(table: RequestTable, cell: _ControlCell) -> str:
    low, high = convert_log_ratio(cell.estimate.low), convert_log_ratio(cell.estimate.high)
    return (
        f"{format_metric(cell.metric)} of {table.classes[cell.class_]} at {spoken_load(table.loads[cell.load])}, "
        f"{convert_log_ratio(cell.estimate.log):.3g} ({low:.3g} to {high:.3g})"
    )
