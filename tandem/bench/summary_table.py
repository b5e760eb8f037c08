"""A summary for a terminal of 100 columns.

Invariant: a figure that is absent is a dash, never a zero; no line is wider than 100 columns; notes are whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from tandem.bench.simulation import SIMULATED_BAND
from tandem.bench.summary import ALL_CLASSES, RecordSummary, SummaryCell
from tandem.bench.terminal_text import clean_text, count_columns, fit_width, wrap_text

WIDTH = 100
_COLUMNS = (  # metric, width, two lines of heading
    ("ttft_ms", 6, "TTFT", "ms"),
    ("tpot_ms", 6, "TPOT", "ms"),
    ("chunk_gap_ms", 6, "gap", "ms"),
    ("e2e_ms", 7, "E2E", "ms"),
    ("tokens_per_chunk", 5, "tok/", "chunk"),
    ("output_tokens_per_s", 6, "tok/s", "stream"),
    ("system_output_tokens_per_s", 7, "tok/s", "all"),
    ("acceptance_length", 6, "accept", "length"),
    ("llmperf_inter_token_latency_ms", 7, "llmperf", "ITL ms"),
)
_COUNT_WIDTH = 6  # succeeded requests
_NAMES_WIDTH = WIDTH - _COUNT_WIDTH - 1 - sum(1 + width for _, width, *_ in _COLUMNS)
_ARM_WIDTH = 12  # qwen-sd-vllm
_NO_DECIMALS_FROM, _ONE_DECIMAL_FROM = 1000, 10  # from here on no decimals, or one


def write_table(summary: RecordSummary, file: TextIO) -> None:
    """Write the table and the notes to `file`."""
    file.writelines(f"{line}\n" for line in format_lines(summary))


def format_lines(summary: RecordSummary) -> Iterator[str]:
    """Yield one table for each concurrency or rate, then what must be known beside it."""
    if summary.simulated:
        yield SIMULATED_BAND
    cells = {(cell.concurrency, cell.rate_per_s, cell.class_, cell.arm, cell.metric): cell for cell in summary.cells}
    arm_width = min(_ARM_WIDTH, max([len("arm"), *(count_columns(clean_text(arm)) for arm in summary.arms)]))
    class_width = _NAMES_WIDTH - 1 - arm_width
    upper = [f"{'class':<{class_width}}", f"{'arm':<{arm_width}}", f"{'ok':>{_COUNT_WIDTH}}"]
    upper += [f"{text:>{width}}" for _, width, text, _ in _COLUMNS]
    lower = [" " * class_width, " " * arm_width, " " * _COUNT_WIDTH]
    lower += [f"{text:>{width}}" for _, width, _, text in _COLUMNS]
    loads = list(dict.fromkeys((counts.concurrency, counts.rate_per_s) for counts in summary.requests))
    for concurrency, rate_per_s in loads:
        rate = "concurrency not known" if rate_per_s is None else f"{rate_per_s:g} requests/s, open loop"
        load_text = rate if concurrency is None else f"concurrency {concurrency}"
        yield f"{load_text}: medians (p90, p99 and means: summary.json)"
        yield " ".join(upper)
        yield " ".join(lower)
        for class_, arm, success_count in _list_rows(summary, concurrency, rate_per_s):
            place = (concurrency, rate_per_s, class_, arm)
            figures = [_format_value(cells.get((*place, metric)), width) for metric, width, *_ in _COLUMNS]
            names = [fit_width(class_, class_width), fit_width(arm, arm_width)]
            yield " ".join([*names, f"{success_count:>{_COUNT_WIDTH}}", *figures])
        yield ""
    if not loads:
        yield "no request is recorded"
    for note in summary.notes:
        yield from wrap_text(f"note: {note}", WIDTH, indent="      ")


def _list_rows(
    summary: RecordSummary, concurrency: int | None, rate_per_s: float | None
) -> Iterator[tuple[str, str, int]]:
    """Yield class, arm and requests that succeeded; all classes together at the end, where there are several."""
    load = (concurrency, rate_per_s)
    counts = [row for row in summary.requests if (row.concurrency, row.rate_per_s) == load]
    yield from ((row.class_, row.arm, row.succeeded) for row in counts)
    if len({row.class_ for row in counts}) > 1:
        arms = {row.arm for row in counts}
        for arm in (arm for arm in summary.arms if arm in arms):
            yield ALL_CLASSES, arm, sum(row.succeeded for row in counts if row.arm == arm)


def _format_value(cell: SummaryCell | None, width: int) -> str:
    if cell is None:
        return "-".rjust(width)
    decimals = 0 if cell.p50 >= _NO_DECIMALS_FROM else 1 if cell.p50 >= _ONE_DECIMAL_FROM else 2
    text = f"{cell.p50:.{decimals}f}"
    return (text if len(text) <= width else f"{cell.p50:.0e}").rjust(width)
