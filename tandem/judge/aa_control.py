"""The baseline against itself: the noise floor of every cell, and whether it is too high for any conclusion.

Invariant: a server is no faster than itself, so whatever an interval says here is noise that no interval knows of; the
floor is the end of the interval farther from 1, never the middle.

When the run is void: the interval of some cell lies wholly beyond the margin. Its level is such that a run whose noise
the intervals know of is void in less than one of a hundred, all its cells taken together (Bonferroni). A time to the
first token must besides differ by more than MAX_LAG_S, below which the client speaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from tandem.bench.host import MAX_LAG_S
from tandem.judge.decision import is_beyond_margin
from tandem.judge.interval import LogRatioEstimate, convert_log_ratio, estimate_log_ratio
from tandem.judge.pairs import JUDGED_METRICS, RequestPairing
from tandem.judge.schema import MARGIN, CheckFinding, NoiseFloor
from tandem.judge.text_format import format_load, format_metric

FALSE_VOID_RATE = 0.01
"""Most healthy runs that this control may void."""

_MAX_NAMES = 3


@dataclass(frozen=True, kw_only=True)
class _ControlCell:
    """One cell of the baseline's second go; `name` is for a sentence, `lag_ms` what its medians differ by."""

    floor: NoiseFloor
    name: str
    lag_ms: float
    estimate: LogRatioEstimate


def check_aa_control(pairing: RequestPairing) -> tuple[CheckFinding, tuple[NoiseFloor, ...]]:
    """Return whether the baseline is itself, and what it differs from itself by in every cell.

    Args:
        pairing: the rounds that count.
    """
    table = pairing.table
    if table.control is None:
        return ("absent", "no noise floor: the baseline was not asked against itself (--control-rounds)"), ()
    cells = list(_estimate_cells(pairing, table.control))
    if not cells:
        reason = "no class has 3 prompts that both goes at the baseline answered in rounds that count"
        return ("absent", f"no noise floor: {reason}"), ()
    floors = tuple(cell.floor for cell in cells)
    failures = sorted(
        (cell for cell in cells if _is_different(cell, len(cells))), key=lambda cell: -abs(cell.estimate.log)
    )
    if not failures:
        worst_cell = max(cells, key=lambda cell: cell.floor.ratio)
        return (
            "passed",
            (
                f"asked twice, {table.baseline} is itself in {len(cells)} of {len(cells)} cells; the highest noise "
                f"floor is {worst_cell.floor.ratio:.3g}, of {worst_cell.name}"
            ),
        ), floors
    remainder = f"; and {len(failures) - _MAX_NAMES} more" if len(failures) > _MAX_NAMES else ""
    return (
        "failed",
        (
            f"asked twice, {table.baseline} differs from itself by more than {MARGIN:.0%}: "
            f"{'; '.join(cell.name for cell in failures[:_MAX_NAMES])}{remainder}; "
            "something beside the servers changes what is measured: see that nothing else uses them or this machine, "
            "and run again"
        ),
    ), floors


def _estimate_cells(pairing: RequestPairing, control: str) -> Iterator[_ControlCell]:
    table = pairing.table
    rows = table.arm_mask(control)
    keys = sorted(set(zip(table.class_[rows].tolist(), table.load[rows].tolist(), strict=True)))
    for (class_code, load_code), metric in product(keys, JUDGED_METRICS):
        pairs = pairing.pairs(
            baseline=table.baseline, variant=control, class_=class_code, load=load_code, metric=metric
        )
        estimate = estimate_log_ratio(pairs.logs, pairs.by_round, pairs.starts, placements=pairs.placements)
        if estimate is None:
            continue
        class_, load, speed_up = table.classes[class_code], table.loads[load_code], estimate.convert()
        yield _ControlCell(
            floor=NoiseFloor(
                class_=class_,
                load=load,
                metric=metric,
                speed_up=speed_up,
                ratio=convert_log_ratio(max(abs(estimate.low), abs(estimate.high))),
            ),
            name=f"{format_metric(metric)} of {class_} at {format_load(load)}, "
            f"{speed_up.value:.3g} ({speed_up.low:.3g} to {speed_up.high:.3g})",
            lag_ms=abs(float(np.median(pairs.variant_medians - pairs.baseline_medians))),
            estimate=estimate,
        )


def _is_different(cell: _ControlCell, cell_count: int) -> bool:
    if not is_beyond_margin(cell.estimate, FALSE_VOID_RATE, cell_count):
        return False
    return cell.floor.metric != "ttft_ms" or cell.lag_ms > 1000 * MAX_LAG_S
