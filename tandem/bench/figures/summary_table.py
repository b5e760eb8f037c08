"""A summary for a terminal.

Invariant: an absent figure is a dash, never a zero; no line is wider than the given width; notes
are complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.table import Table

from tandem.bench.figures.summary import ALL_CLASSES, RecordSummary, SummaryCell
from tandem.bench.plan.schedule import LoadLevel
from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.bench.records.terminal_text import clean_text, wrap_text

WIDTH = 100  # default columns
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
    cells = {
        (cell.concurrency, cell.rate_per_s, cell.class_, cell.arm, cell.metric): cell
        for cell in summary.cells
    }
    loads = list(
        dict.fromkeys((counts.concurrency, counts.rate_per_s) for counts in summary.requests)
    )
    for load in loads:
        level = (
            LoadLevel(concurrency=load[0], rate_per_s=load[1])
            if any(load)
            else "a load that is not known"
        )
        yield (
            f"{level}{', open loop' if load[1] else ''}: medians (p90, p99 and means: summary.json)"
        )
        counts = Counter[tuple[str, str]]()
        for row in summary.requests:
            if (row.concurrency, row.rate_per_s) == load:
                counts.update(
                    {(row.class_, row.arm): row.succeeded, (ALL_CLASSES, row.arm): row.succeeded}
                )
        is_pooled = len({class_ for class_, _ in counts} - {ALL_CLASSES}) > 1
        places = sorted(counts, key=lambda place: place[0] == ALL_CLASSES)
        rows = [
            [
                *place,
                str(counts[place]),
                *(_format_value(cells.get((*load, *place, metric))) for metric in _COLUMNS),
            ]
            for place in places
            if is_pooled or place[0] != ALL_CLASSES
        ]
        yield from format_table(["class", "arm", "ok", *_COLUMNS.values()], rows, width)
        yield ""
    if not loads:
        yield "no request is recorded"
    for note in summary.notes:
        yield from wrap_text(f"note: {note}", width, indent="      ")


def format_table(
    headings: Iterable[str], rows: Iterable[Sequence[str]], width: int = WIDTH
) -> list[str]:
    """Return a table's lines: two columns of names, cut to fit, then figures."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for place, heading in enumerate(headings):
        is_figure = place > 1
        table.add_column(
            heading,
            justify="right" if is_figure else "left",
            no_wrap=is_figure,
            overflow="ellipsis",
        )
    for row in rows:
        table.add_row(*map(clean_text, row))
    console = Console(width=width, color_system=None, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


def _format_value(cell: SummaryCell | None) -> str:
    if cell is None:
        return "-"
    decimals = 0 if cell.p50 >= _NO_DECIMALS_FROM else 1 if cell.p50 >= _ONE_DECIMAL_FROM else 2
    text = f"{cell.p50:.{decimals}f}"
    return text if len(text) <= _LONGEST else f"{cell.p50:.0e}"
