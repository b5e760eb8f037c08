"""Each figure beside what the server itself says, and beside what a count of chunks makes of it.

Invariant: a request counts on both sides or on neither: one that failed, or that its server did not log or spoiled on
purpose, is left out of truth and measurement alike, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tandem.bench import manifest
from tandem.bench.columns import IntArray
from tandem.bench.quantiles import Values
from tandem.bench.request_table import RequestTable, hash_texts, read_request_table
from tandem.bench.server_log import ServerLogEntry, read_log
from tandem.bench.simulation import SIMULATED_BAND
from tandem.bench.summary import ALL_CLASSES

LLMPERF_ITL = "llmperf_inter_token_latency_ms"
# metric, how the log has it; chunk_gap_ms is compared by each request's mean
LOGGED_METRICS: dict[str, Callable[[ServerLogEntry], float | None]] = {
    "ttft_ms": lambda served: served.ttft_ms,
    "tpot_ms": lambda served: served.tpot_ms,
    "e2e_ms": lambda served: served.e2e_ms,
    "tokens_per_chunk": lambda served: served.tokens_per_chunk,
}
_WIDTHS = {"ttft_ms": 7, "tpot_ms": 7, "e2e_ms": 8, "tokens_per_chunk": 6}
_HEADS = {"ttft_ms": "TTFT ms", "tpot_ms": "TPOT ms", "e2e_ms": "E2E ms", "tokens_per_chunk": "tokens/chunk"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundTruthRow:
    """Medians of one class and arm: metric to (truth, measured), and llmperf's figure from the same records."""

    class_: str
    arm: str
    n: int
    figures: dict[str, tuple[float, float]]
    llmperf_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundTruth:
    """What was compared, how many requests could not be, and whether an arm is a simulated server."""

    rows: tuple[GroundTruthRow, ...]
    left_out: int
    simulated: bool | None = None


def compare_ground_truth(folder: Path, logs: Sequence[Path]) -> GroundTruth:
    """Return the medians of a run beside those of its servers' logs.

    Args:
        folder: what `tandem bench run` wrote.
        logs: what its servers wrote, on the same machine.

    Raises:
        BenchError: a file is missing or is not what it must be.
    """
    log_entries = {
        digest: entry
        for path in logs
        for request_id, entry in read_log(path).items()
        for digest in hash_texts([request_id.encode()]).tolist()
        if entry.fault is None
    }
    table = read_request_table(folder)
    is_main = ~np.isin(table.round, list(manifest.control_round_numbers(table.run)))
    has_truth = np.isin(table.request_digest, np.array(list(log_entries), np.uint64))
    rows = np.flatnonzero(is_main & ~table.failed & has_truth)
    classes = [(class_, rows[table.class_[rows] == code]) for code, class_ in enumerate(table.classes)]
    classes = [(class_, class_rows) for class_, class_rows in classes if len(class_rows)]
    if len(classes) > 1:
        classes.append((ALL_CLASSES, rows))
    return GroundTruth(
        rows=tuple(
            _build_row(class_, arm, table, class_rows[table.arm[class_rows] == code], log_entries)
            for class_, class_rows in classes
            for code, arm in enumerate(table.arms)
            if (table.arm[class_rows] == code).any()
        ),
        left_out=int(is_main.sum()) - len(rows),
        simulated=table.run.simulated,
    )


def _build_row(
    class_: str, arm: str, table: RequestTable, rows: IntArray, log_entries: Mapping[int, ServerLogEntry]
) -> GroundTruthRow:
    entries = [log_entries[digest] for digest in table.request_digest[rows].tolist()]
    figures = {
        name: (
            _finite_median(np.array([read_truth(entry) for entry in entries], float)),
            _finite_median(table.figures[name][rows]),
        )
        for name, read_truth in LOGGED_METRICS.items()
    }
    llmperf_ms = _finite_median(table.figures[LLMPERF_ITL][rows])
    return GroundTruthRow(class_=class_, arm=arm, n=len(rows), figures=figures, llmperf_ms=llmperf_ms)


def _finite_median(values: Values) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else float("nan")


def format_lines(comparison: GroundTruth) -> Iterator[str]:
    """Yield the table for a terminal of 100 columns, and what a reader should see in it."""
    if comparison.simulated:
        yield SIMULATED_BAND
    arm = max((len(row.arm) for row in comparison.rows), default=0)
    class_ = max((len(row.class_) for row in comparison.rows), default=0)
    pairs = [f"{_HEADS[name]:^{2 * width + 1}}" for name, width in _WIDTHS.items()]
    halves = [f"{'truth':>{width}} {'ours':>{width}}" for width in _WIDTHS.values()]
    yield " ".join([" " * class_, " " * arm, " " * 3, *pairs, "llmperf"]).rstrip()
    yield " ".join([f"{'class':<{class_}}", f"{'arm':<{arm}}", " n ", *halves, ' "ITL"'])
    for row in comparison.rows:
        cells = [f"{_format_value(row.figures[name][0], width)} {_format_value(row.figures[name][1], width)}"
                 for name, width in _WIDTHS.items()]  # fmt: skip
        yield " ".join(
            [f"{row.class_:<{class_}}", f"{row.arm:<{arm}}", f"{row.n:>3}", *cells, _format_value(row.llmperf_ms, 7)]
        )
    yield from _describe_speed_ups(comparison.rows)
    if comparison.left_out:
        yield f"left out: {comparison.left_out} requests that failed or that no log has"


def _format_value(value: float, width: int) -> str:
    return "-".rjust(width) if np.isnan(value) else f"{value:>{width}.{2 if value < 100 else 0}f}"  # noqa: PLR2004


def _describe_speed_ups(rows: Sequence[GroundTruthRow]) -> Iterator[str]:
    """Yield, for the arms over all classes, how many times faster each way of counting calls a token."""
    arm_rows = [
        row
        for row in rows
        if row.class_ == (ALL_CLASSES if any(candidate.class_ == ALL_CLASSES for candidate in rows) else row.class_)
    ]
    if len(arm_rows) < 2 or len({row.class_ for row in arm_rows}) > 1:  # noqa: PLR2004 - two arms can be compared
        return
    baseline_row, *variant_rows = arm_rows
    for variant_row in variant_rows:
        true_ratio, measured_ratio = (
            baseline_row.figures["tpot_ms"][side] / variant_row.figures["tpot_ms"][side] for side in (0, 1)
        )
        yield (
            f"time per token, {baseline_row.arm} / {variant_row.arm}: truth {true_ratio:.2f}, Tandem "
            f"{measured_ratio:.2f}, "
            f"by llmperf's count of chunks {baseline_row.llmperf_ms / variant_row.llmperf_ms:.2f}"
        )
