"""Absolute figures of each arm at each load: requests a second, TTFT, TPOT, goodput.

Invariant: all classes of a load count together. Control rounds, and rounds in which the measuring
machine was the bottleneck, are in no figure. Nothing is decided here: a reader sees how fast the
servers were, and how hard they were asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from tandem.bench.figures.columns import BoolArray
from tandem.bench.figures.quantiles import ValueSpread, compute_spread
from tandem.bench.figures.request_table import RequestTable
from tandem.bench.figures.throughput import compute_busy_s
from tandem.bench.plan.schedule import LoadLevel
from tandem.judge.pairs import find_figures
from tandem.judge.schema import ArmFigures, RunControls


def measure_arms(table: RequestTable, controls: RunControls) -> tuple[ArmFigures, ...]:
    """Return the figures of each arm at each load at which it got requests, the baseline first.

    Args:
        table: the run.
        controls: rounds that they mark are left out.
    """
    return tuple(
        _measure_rows(table, rows, arm, load)
        for arm, load, rows in select_arm_rows(table, controls)
    )


def select_arm_rows(
    table: RequestTable, controls: RunControls
) -> Iterator[tuple[str, LoadLevel, BoolArray]]:
    """Yield the requests of each arm at each load at which it got some, the baseline first.

    Args:
        table: the run.
        controls: rounds that they mark are left out, as control rounds are.
    """
    counted_rows = ~table.control_round_mask() & ~np.isin(table.round, controls.marked_rounds)
    arms = (table.baseline, *table.variants)
    for (load_code, load), arm in product(enumerate(table.loads), arms):
        rows = counted_rows & (table.load == load_code) & table.arm_mask(arm)
        if rows.any():
            yield arm, load, rows


def _measure_rows(table: RequestTable, rows: BoolArray, arm: str, load: LoadLevel) -> ArmFigures:
    busy_s = measure_busy_s(table, rows)
    answered_rows = rows & ~table.failed
    ttft = _spread_metric(table, answered_rows, "ttft_ms")
    tpot = _spread_metric(table, answered_rows, "tpot_ms")
    good_rows, unknown_rows = table.limit_masks()
    has_attainment = bool(table.run.goodput) and not unknown_rows[rows].any()
    urls = {server.name: server.url for server in table.run.arms}
    return ArmFigures(
        arm=arm,
        url=urls.get(arm, ""),
        load=load,
        requests=int(rows.sum()),
        requests_per_s=int(answered_rows.sum()) / busy_s if busy_s > 0 else None,
        ttft_p50_ms=ttft.p50 if ttft else None,
        ttft_p99_ms=ttft.p99 if ttft else None,
        tpot_p50_ms=tpot.p50 if tpot else None,
        tpot_p99_ms=tpot.p99 if tpot else None,
        within_limits=int(good_rows[rows].sum()) if has_attainment else None,
    )


def measure_busy_s(table: RequestTable, rows: BoolArray) -> float:
    """Return the seconds in which at least one of some requests ran."""
    if not rows.any():
        return 0.0
    turns = np.zeros(int(rows.sum()), np.intp)
    return float(compute_busy_s(turns, table.start_s[rows], table.end_s[rows], 1)[0])


def _spread_metric(table: RequestTable, rows: BoolArray, metric: str) -> ValueSpread | None:
    """Return the spread of a metric over some requests; None where no request has it."""
    values = find_figures(table, metric)[rows]
    return compute_spread(values[np.isfinite(values)])
