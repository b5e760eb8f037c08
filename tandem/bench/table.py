"""A summary for a terminal of 100 columns.

Invariant: a figure that is absent is a dash, never a zero; no line is wider than 100 columns; notes are whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from tandem.bench.shown import clean, columns, fit, wrapped
from tandem.bench.simulation import BAND
from tandem.bench.summary import ALL, Cell, Summary

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
_COUNT = 6  # succeeded requests
_NAMES = WIDTH - _COUNT - 1 - sum(1 + width for _, width, *_ in _COLUMNS)
_ARM = 12  # qwen-sd-vllm
_WHOLE, _TENTHS = 1000, 10  # from here on no decimals, or one

Loaded = tuple[int | None, float | None]


def show(summary: Summary, file: TextIO) -> None:
    """Write the table and the notes to `file`."""
    file.writelines(f"{line}\n" for line in lines(summary))


def lines(summary: Summary) -> Iterator[str]:
    """Yield one table for each concurrency or rate, then what must be known beside it."""
    if summary.simulated:
        yield BAND
    cells = {(cell.concurrency, cell.rate_per_s, cell.class_, cell.arm, cell.metric): cell for cell in summary.cells}
    loads = list(dict.fromkeys((asked.concurrency, asked.rate_per_s) for asked in summary.requests))
    for load in loads:
        yield f"{_load(load)}: medians (p90, p99 and means: summary.json)"
        yield from _heading(summary)
        for class_, arm, succeeded in _rows(summary, load):
            figures = [_figure(cells.get((*load, class_, arm, metric)), width) for metric, width, *_ in _COLUMNS]
            yield " ".join([*_names(class_, arm, summary), f"{succeeded:>{_COUNT}}", *figures])
        yield ""
    if not loads:
        yield "no request is recorded"
    for note in summary.notes:
        yield from wrapped(f"note: {note}", WIDTH, indent="      ")


def _load(load: Loaded) -> str:
    concurrency, rate_per_s = load
    if concurrency is not None:
        return f"concurrency {concurrency}"
    return "concurrency not known" if rate_per_s is None else f"{rate_per_s:g} requests/s, open loop"


def _rows(summary: Summary, load: Loaded) -> Iterator[tuple[str, str, int]]:
    """Yield class, arm and requests that succeeded; all classes together at the end, where there are several."""
    asked = [asked for asked in summary.requests if (asked.concurrency, asked.rate_per_s) == load]
    for one in asked:
        yield one.class_, one.arm, one.succeeded
    if len({one.class_ for one in asked}) > 1:
        for arm in summary.arms:
            mine = [one.succeeded for one in asked if one.arm == arm]
            if mine:
                yield ALL, arm, sum(mine)


def _widths(summary: Summary) -> tuple[int, int]:
    arm = min(_ARM, max([len("arm"), *(columns(clean(arm)) for arm in summary.arms)]))
    return _NAMES - 1 - arm, arm


def _names(class_: str, arm: str, summary: Summary) -> tuple[str, str]:
    return tuple(fit(name, width) for name, width in zip((class_, arm), _widths(summary), strict=True))  # type: ignore[return-value]


def _heading(summary: Summary) -> Iterator[str]:
    class_, arm = _widths(summary)
    upper = [f"{'class':<{class_}}", f"{'arm':<{arm}}", f"{'ok':>{_COUNT}}"]
    lower = [" " * class_, " " * arm, " " * _COUNT]
    yield " ".join([*upper, *(f"{above:>{width}}" for _, width, above, _ in _COLUMNS)])
    yield " ".join([*lower, *(f"{below:>{width}}" for _, width, _, below in _COLUMNS)])


def _figure(cell: Cell | None, width: int) -> str:
    if cell is None:
        return "-".rjust(width)
    decimals = 0 if cell.p50 >= _WHOLE else 1 if cell.p50 >= _TENTHS else 2
    written = f"{cell.p50:.{decimals}f}"
    return (written if len(written) <= width else f"{cell.p50:.0e}").rjust(width)
