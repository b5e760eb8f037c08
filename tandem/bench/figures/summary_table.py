"""A summary for a terminal.

Invariant: an absent figure is a dash, never a zero; no line is wider than the given width; notes
are complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from tandem.bench.figures.summary import RecordSummary, SummaryCell, SummaryPlace, list_places
from tandem.bench.plan.schedule import LoadLevel
from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.bench.records.terminal_table import WIDTH, format_table
from tandem.bench.records.terminal_text import wrap_text


class _Column(NamedTuple):
    """One quantile of a metric, and its heading."""

    head: str
    metric: str
    quantile: Literal["p50", "p90", "p99"] = "p50"


def _list_quantiles(name: str, unit: str, metric: str) -> tuple[_Column, ...]:
    return (
        _Column(f"{name}\np50", metric, "p50"),
        _Column(f"{unit}\np90", metric, "p90"),
        _Column("p99", metric, "p99"),
    )


_LATENCIES = (
    *_list_quantiles("TTFT", "ms", "ttft_ms"),
    *_list_quantiles("TPOT", "ms", "tpot_ms"),
    *_list_quantiles("E2E", "ms", "e2e_ms"),
)
_OTHERS = (
    *_list_quantiles("good", "req/s", "goodput_per_s"),
    _Column("gap\nms", "chunk_gap_ms"),
    _Column("tok/\nchunk", "tokens_per_chunk"),
    _Column("tok/s\nstream", "output_tokens_per_s"),
    _Column("tok/s\nall", "system_output_tokens_per_s"),
    _Column("accept\nlength", "acceptance_length"),
    _Column("llmperf\nITL ms", "llmperf_inter_token_latency_ms"),
)
# from these values on: no decimals, one decimal
_NO_DECIMALS_FROM = 1000
_ONE_DECIMAL_FROM = 10
_LONGEST = 7  # characters of a figure; a longer one is written as a power


def format_lines(summary: RecordSummary, *, width: int = WIDTH) -> Iterator[str]:
    """Yield two tables for each concurrency or rate, then the notes.

    Args:
        summary: of a run's records.
        width: of a line, in columns.
    """
    if summary.simulated:
        yield SIMULATED_BAND
    places = list_places(summary)
    for load in dict.fromkeys(place.load for place in places):
        rows = [place for place in places if place.load == load]
        yield from _format_load(rows, _describe_load(*load), width)
        yield ""
    if not places:
        yield "no request is recorded"
    for note in summary.notes:
        yield from wrap_text(f"note: {note}", width, indent="      ")


def _describe_load(concurrency: int | None, rate_per_s: float | None) -> str:
    if not concurrency and not rate_per_s:
        return "a load that is not known"
    level = LoadLevel(concurrency=concurrency, rate_per_s=rate_per_s)
    return f"{level}, open loop" if rate_per_s else str(level)


def _format_load(places: Sequence[SummaryPlace], load: str, width: int) -> Iterator[str]:
    """Yield the latencies of a load, then the other figures that it has."""
    yield f"{load}: latencies"
    yield from _format_rows(places, _LATENCIES, width)
    known_metrics = set().union(*(place.cells for place in places))
    columns = [column for column in _OTHERS if column.metric in known_metrics]
    if columns:
        yield ""
        yield f"{load}: other medians (with p90, p99 and means: summary.json)"
        yield from _format_rows(places, columns, width)


def _format_rows(
    places: Sequence[SummaryPlace], columns: Sequence[_Column], width: int
) -> list[str]:
    """Return the lines of a table with a row for each place."""
    heads = ["class", "arm", "ok", *(column.head for column in columns)]
    rows = []
    for place in places:
        figures = [_format_value(place.cells.get(metric), key) for _, metric, key in columns]
        rows.append([place.class_, place.arm, str(place.succeeded), *figures])
    return format_table(heads, rows, numbers=range(2, len(heads)), flexible=(0, 1), width=width)


def _format_value(cell: SummaryCell | None, quantile: str) -> str:
    if cell is None:
        return "-"
    value = getattr(cell, quantile)
    decimals = 2 - (value >= _ONE_DECIMAL_FROM) - (value >= _NO_DECIMALS_FROM)
    text = f"{value:.{decimals}f}"
    return text if len(text) <= _LONGEST else f"{value:.0e}"
