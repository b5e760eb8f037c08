"""Each figure beside the one from the server's log, and llmperf's by a count of chunks.

Invariant: this module computes the truth from the server's log itself, never with
`request_metrics`, so a mistake there shows as a difference. A request counts on both sides or on
neither: a request that failed, or that its server did not log or faulted on purpose, is left out of
truth and measurement, and counted. Server and client must share a monotonic clock: one machine, two
processes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from tandem.bench.figures.quantiles import Values, compute_median
from tandem.bench.figures.request_table import hash_texts, read_request_table
from tandem.bench.figures.summary import ALL_CLASSES
from tandem.bench.records import json_file, manifest
from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.bench.records.terminal_table import WIDTH, format_table
from tandem.bench.records.terminal_text import wrap_text


class ServerLogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One request in its server's log.

    Args:
        request_id: the client's X-Request-Id.
        accepted_s: time in seconds on the monotonic clock at which the request's body was read.
        bursts: of every chunk with tokens: the time of its write, on the same clock, and its number
            of tokens.
        fault: the injected fault; None for an honest answer.
    """

    request_id: str = ""
    accepted_s: float = 0.0
    bursts: tuple[tuple[float, int], ...] = ()
    fault: str | None = None

    def figures(self) -> dict[str, float]:
        """Return the figures by metric, chunk_gap_ms as the mean; NaN where there is none."""
        times_s, sizes = zip(*self.bursts, strict=True)
        tokens = sum(sizes)
        ttft_ms = 1000 * (times_s[0] - self.accepted_s)
        e2e_ms = 1000 * (times_s[-1] - self.accepted_s)
        return {
            "tokens": tokens,
            "ttft_ms": ttft_ms,
            "tpot_ms": (e2e_ms - ttft_ms) / (tokens - 1) if tokens > 1 else math.nan,
            "chunk_gap_ms": (e2e_ms - ttft_ms) / (len(sizes) - 1) if len(sizes) > 1 else math.nan,
            "e2e_ms": e2e_ms,
            "tokens_per_chunk": tokens / len(sizes),
            "output_tokens_per_s": 1000 * tokens / e2e_ms if e2e_ms else math.nan,
        }


def read_log(path: Path) -> dict[str, ServerLogEntry]:
    """Return the entries of a server's log, by request id, without requests that got no token.

    Args:
        path: JSON lines; lines without a `request_id` (the log's head) are skipped.

    Raises:
        InputError: the file cannot be read, or a line is no such JSON.
    """
    change = "name the file that the server was started to log to"
    entries = json_file.read_json_lines(
        path, ServerLogEntry, label="the server's log", change=change
    )
    return {entry.request_id: entry for entry in entries if entry.request_id and entry.bursts}


LLMPERF_ITL = "llmperf_inter_token_latency_ms"
# metric that the log has too -> heading of its two columns
_COLUMNS = {
    "ttft_ms": "TTFT ms",
    "tpot_ms": "TPOT ms",
    "e2e_ms": "E2E ms",
    "tokens_per_chunk": "tok/chunk",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundTruthRow:
    """Medians of a class and arm: metric to (truth, measured), and llmperf's on the same."""

    class_: str
    arm: str
    n: int
    figures: dict[str, tuple[float, float]]
    llmperf_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundTruth:
    """Compared medians, the number of requests left out, and whether an arm is simulated."""

    rows: tuple[GroundTruthRow, ...]
    left_out: int
    simulated: bool | None = None


def compare_ground_truth(folder: Path, logs: Sequence[Path]) -> GroundTruth:
    """Return the medians of a run next to those of its servers' logs.

    Args:
        folder: of a run of `tandem bench run`.
        logs: logs of its servers, from the same machine.

    Raises:
        InputError: a file is missing or invalid.
    """
    log_entries = _join_logs(logs)
    table = read_request_table(folder)
    is_main = ~np.isin(table.round, list(manifest.control_round_numbers(table.run)))
    has_truth = np.isin(table.request_digest, np.array(list(log_entries), np.uint64))
    rows = np.flatnonzero(is_main & ~table.failed & has_truth)
    parts = {class_: rows[table.class_[rows] == code] for code, class_ in enumerate(table.classes)}
    parts = {class_: part for class_, part in parts.items() if len(part)}
    parts |= {ALL_CLASSES: rows} if len(parts) > 1 else {}

    truth_rows = []
    for (class_, part), (code, arm) in itertools.product(parts.items(), enumerate(table.arms)):
        arm_rows = part[table.arm[part] == code]
        if len(arm_rows):
            digests = table.request_digest[arm_rows].tolist()
            truths = [log_entries[digest].figures() for digest in digests]
            measured = {name: values[arm_rows] for name, values in table.figures.items()}
            truth_rows.append(_compare_medians(class_, arm, truths, measured))
    left_out = int(is_main.sum()) - len(rows)
    return GroundTruth(rows=tuple(truth_rows), left_out=left_out, simulated=table.run.simulated)


def _join_logs(logs: Sequence[Path]) -> dict[int, ServerLogEntry]:
    """Return the entries without a fault, by digest of their request's id."""
    entries: dict[int, ServerLogEntry] = {}
    for path in logs:
        honest = {name: entry for name, entry in read_log(path).items() if entry.fault is None}
        digests = hash_texts(map(str.encode, honest)).tolist()
        entries |= dict(zip(digests, honest.values(), strict=True))
    return entries


def _compare_medians(
    class_: str,
    arm: str,
    truths: Sequence[Mapping[str, float]],
    measured: Mapping[str, Values],
) -> GroundTruthRow:
    """Return the medians of the same requests, by their server's log and as measured."""
    figures = {}
    for name in _COLUMNS:
        truth = compute_median(np.array([truth_figures[name] for truth_figures in truths]))
        figures[name] = truth, compute_median(measured[name])
    return GroundTruthRow(
        class_=class_,
        arm=arm,
        n=len(truths),
        figures=figures,
        llmperf_ms=compute_median(measured[LLMPERF_ITL]),
    )


def format_lines(comparison: GroundTruth, *, width: int = WIDTH) -> Iterator[str]:
    """Yield the table and its conclusions, in lines of at most `width` columns."""
    if comparison.simulated:
        yield SIMULATED_BAND
    headings = ["class", "arm", "n"]
    for heading in _COLUMNS.values():
        headings += [f"{heading}\ntruth", f"{heading}\nours"]
    rows = []
    for row in comparison.rows:
        values = itertools.chain(*row.figures.values(), [row.llmperf_ms])
        rows.append([row.class_, row.arm, str(row.n), *map(_format_value, values)])
    heads = [*headings, 'llmperf\n"ITL"']
    yield from format_table(heads, rows, numbers=range(2, len(heads)), flexible=(0, 1), width=width)

    classes = {row.class_ for row in comparison.rows}
    arm_rows = [row for row in comparison.rows if row.class_ == ALL_CLASSES or len(classes) == 1]
    for variant in arm_rows[1:]:
        yield from wrap_text(_compare_arms(arm_rows[0], variant), width, indent="  ")
    if comparison.left_out:
        yield f"left out: {comparison.left_out} requests that failed or that no log has"


def _compare_arms(baseline: GroundTruthRow, variant: GroundTruthRow) -> str:
    """Return the ratio of two arms by each way of counting."""
    truth, ours = map(_format_ratio, baseline.figures["tpot_ms"], variant.figures["tpot_ms"])
    by_chunks = _format_ratio(baseline.llmperf_ms, variant.llmperf_ms)
    ratios = f"truth {truth}, Tandem {ours}, by llmperf's count of chunks {by_chunks}"
    return f"time per token, {baseline.arm} / {variant.arm}: {ratios}"


def _format_ratio(value: float, divisor: float) -> str:
    return _format_value(value / divisor) if divisor else "-"


def _format_value(value: float) -> str:
    decimals = 2 if value < 100 else 0  # noqa: PLR2004
    return "-" if np.isnan(value) else f"{value:.{decimals}f}"
