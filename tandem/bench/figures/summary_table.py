"""A summary for a terminal.

Invariant: an absent figure is a dash, never a zero; no line is wider than the given width; notes
are complete.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tandem.bench.figures.summary import ALL_CLASSES, RecordSummary, SummaryCell
from tandem.bench.plan.schedule import LoadLevel
from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.bench.records.terminal_table import WIDTH, format_table
from tandem.bench.records.terminal_text import wrap_text

_COLUMNS = {  # metric to its heading
    "ttft_ms": "TTFT\nms",
    "tpot_ms": "TPOT\nms",
    "chunk_gap_ms": "gap\nms",
    "e2e_ms": "E2E\nms",
    "tokens_per_chunk": "tok/\nchunk",
    "output_tokens_per_s": "tok/s\nstream",
    "system_output_tokens_per_s": "tok/s\nall",
    "acceptance_length": "accept\nlength",
    "llmperf_inter_token_latency_ms": "llmperf\nITL ms",
}
# from these values on: no decimals, one decimal
_NO_DECIMALS_FROM = 1000
_ONE_DECIMAL_FROM = 10
_LONGEST = 7  # characters of a figure; a longer one is written as a power


def format_lines(summary: RecordSummary, *, width: int = WIDTH) -> Iterator[str]:
    """Yield one table for each concurrency or rate, then the notes.

    Args:
        summary: of a run's records.
        width: of a line, in columns.
    """
    if summary.simulated:
        yield SIMULATED_BAND
    loads = dict.fromkeys((counts.concurrency, counts.rate_per_s) for counts in summary.requests)
    for concurrency, rate_per_s in loads:
        level = "a load that is not known"
        if concurrency or rate_per_s:
            level = str(LoadLevel(concurrency=concurrency, rate_per_s=rate_per_s))
        loop = ", open loop" if rate_per_s else ""
        yield f"{level}{loop}: medians (p90, p99 and means: summary.json)"
        rows = _list_rows(summary, concurrency, rate_per_s)
        heads = ["class", "arm", "ok", *_COLUMNS.values()]
        yield from format_table(
            heads, rows, numbers=range(2, len(heads)), flexible=(0, 1), width=width
        )
        yield ""
    if not loads:
        yield "no request is recorded"
    for note in summary.notes:
        yield from wrap_text(f"note: {note}", width, indent="      ")


def _list_rows(
    summary: RecordSummary, concurrency: int | None, rate_per_s: float | None
) -> Iterator[list[str]]:
    """Yield a row for each class and arm at one load; all classes last, if there are several."""
    cells = {
        (cell.class_, cell.arm, cell.metric): cell
        for cell in summary.cells
        if (cell.concurrency, cell.rate_per_s) == (concurrency, rate_per_s)
    }
    counts: dict[tuple[str, str], int] = defaultdict(int)
    pooled_counts: dict[tuple[str, str], int] = defaultdict(int)
    for row in summary.requests:
        if (row.concurrency, row.rate_per_s) == (concurrency, rate_per_s):
            counts[row.class_, row.arm] += row.succeeded
            pooled_counts[ALL_CLASSES, row.arm] += row.succeeded
    if len({class_ for class_, _ in counts}) > 1:
        counts |= pooled_counts

    for place, count in counts.items():
        figures = (_format_value(cells.get((*place, metric))) for metric in _COLUMNS)
        yield [*place, str(count), *figures]


def _format_value(cell: SummaryCell | None) -> str:
    if cell is None:
        return "-"
    decimals = 2 - (cell.p50 >= _ONE_DECIMAL_FROM) - (cell.p50 >= _NO_DECIMALS_FROM)
    text = f"{cell.p50:.{decimals}f}"
    return text if len(text) <= _LONGEST else f"{cell.p50:.0e}"
