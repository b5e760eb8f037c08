"""Each figure beside what the server itself says, and beside what a count of chunks makes of it.

Invariant: a request counts on both sides or on neither: one that failed, or that its server did not log or spoiled on
purpose, is left out of truth and measurement alike, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tandem.bench import manifest
from tandem.bench.derive import Figures, derive
from tandem.bench.folder import RECORDS
from tandem.bench.quantiles import Values
from tandem.bench.record import Record, read_records
from tandem.bench.simulation import BAND
from tandem.bench.summary import ALL
from tandem.bench.truth import Served, read_logs

LLMPERF = "llmperf_inter_token_latency_ms"
# metric, how the log has it; chunk_gap_ms is compared by each request's mean
COMPARED: dict[str, Callable[[Served], float | None]] = {
    "ttft_ms": lambda served: served.ttft_ms,
    "tpot_ms": lambda served: served.tpot_ms,
    "e2e_ms": lambda served: served.e2e_ms,
    "tokens_per_chunk": lambda served: served.tokens_per_chunk,
}
_WIDTHS = {"ttft_ms": 7, "tpot_ms": 7, "e2e_ms": 8, "tokens_per_chunk": 6}
_HEADS = {"ttft_ms": "TTFT ms", "tpot_ms": "TPOT ms", "e2e_ms": "E2E ms", "tokens_per_chunk": "tokens/chunk"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Medians of one class and arm: metric to (truth, measured), and llmperf's figure from the same records."""

    class_: str
    arm: str
    n: int
    figures: dict[str, tuple[float, float]]
    llmperf_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What was compared, how many requests could not be, and whether an arm is a simulated server."""

    rows: tuple[Row, ...]
    left_out: int
    simulated: bool | None = None


def beside(folder: Path, logs: Sequence[Path]) -> Beside:
    """Return the medians of a run beside those of its servers' logs.

    Args:
        folder: what `tandem bench run` wrote.
        logs: what its servers wrote, on the same machine.

    Raises:
        BenchError: a file is missing or is not what it must be.
    """
    served = read_logs(logs)
    run = manifest.read(folder)
    controls = manifest.controls(run)
    records = [record for record in read_records(folder / RECORDS) if record.round not in controls]
    kept = [record for record in records if record.error is None and _honest(served.get(record.request_id))]
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in kept:
        groups.setdefault((record.class_, record.arm), []).append(record)
    if len({class_ for class_, _ in groups}) > 1:
        for record in kept:
            groups.setdefault((ALL, record.arm), []).append(record)
    rows = [_row(class_, arm, group, served) for (class_, arm), group in groups.items()]
    rows.sort(key=_placed_as(run))
    return Beside(rows=tuple(rows), left_out=len(records) - len(kept), simulated=run.simulated)


def _honest(served: Served | None) -> bool:
    return served is not None and served.fault is None


def _placed_as(run: manifest.Manifest) -> Callable[[Row], tuple[int, int]]:
    """Return the place of a row: classes as the suites have them, all together last; the baseline before variants."""
    classes = [*(class_ for suite in run.suites for class_ in suite.classes), ALL]
    arms = [arm.name for arm in run.arms]
    return lambda row: (classes.index(row.class_), arms.index(row.arm))


def _row(class_: str, arm: str, records: Sequence[Record], served: dict[str, Served]) -> Row:
    measured: Figures = derive(records)
    truths = [served[record.request_id] for record in records]
    figures = {
        name: (_median(np.array([true(one) for one in truths], float)), _median(measured.values[name]))
        for name, true in COMPARED.items()
    }
    return Row(class_=class_, arm=arm, n=len(records), figures=figures, llmperf_ms=_median(measured.values[LLMPERF]))


def _median(values: Values) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else float("nan")


def lines(found: Beside) -> Iterator[str]:
    """Yield the table for a terminal of 100 columns, and what a reader should see in it."""
    if found.simulated:
        yield BAND
    arm = max((len(row.arm) for row in found.rows), default=0)
    class_ = max((len(row.class_) for row in found.rows), default=0)
    pairs = [f"{_HEADS[name]:^{2 * width + 1}}" for name, width in _WIDTHS.items()]
    halves = [f"{'truth':>{width}} {'ours':>{width}}" for width in _WIDTHS.values()]
    yield " ".join([" " * class_, " " * arm, " " * 3, *pairs, "llmperf"]).rstrip()
    yield " ".join([f"{'class':<{class_}}", f"{'arm':<{arm}}", " n ", *halves, ' "ITL"'])
    for row in found.rows:
        cells = [f"{_short(row.figures[name][0], width)} {_short(row.figures[name][1], width)}"
                 for name, width in _WIDTHS.items()]  # fmt: skip
        yield " ".join(
            [f"{row.class_:<{class_}}", f"{row.arm:<{arm}}", f"{row.n:>3}", *cells, _short(row.llmperf_ms, 7)]
        )
    yield from _moral(found.rows)
    if found.left_out:
        yield f"left out: {found.left_out} requests that failed or that no log has"


def _short(value: float, width: int) -> str:
    return "-".rjust(width) if np.isnan(value) else f"{value:>{width}.{2 if value < 100 else 0}f}"  # noqa: PLR2004


def _moral(rows: Sequence[Row]) -> Iterator[str]:
    """Yield, for the arms over all classes, how many times faster each way of counting calls a token."""
    last = [row for row in rows if row.class_ == (ALL if any(one.class_ == ALL for one in rows) else row.class_)]
    if len(last) < 2 or len({row.class_ for row in last}) > 1:  # noqa: PLR2004 - two arms can be compared
        return
    first, *others = last
    for other in others:
        true, ours = (first.figures["tpot_ms"][side] / other.figures["tpot_ms"][side] for side in (0, 1))
        yield (
            f"time per token, {first.arm} / {other.arm}: truth {true:.2f}, Tandem {ours:.2f}, "
            f"by llmperf's count of chunks {first.llmperf_ms / other.llmperf_ms:.2f}"
        )
