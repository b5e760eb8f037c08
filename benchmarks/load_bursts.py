"""The same tokens a second in bursts of 1 to 8: figures that stay the same, and those by a count of chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import load_parts as parts
import numpy as np
import servers_apart

from tandem.bench.folder import RECORDS_FILE
from tandem.bench.record import read_records
from tandem.bench.request_metrics import compute_request_metrics

TOKENS = 841  # the first alone, then 840: every burst of 1 to 8 divides it
TOKEN_MS, TTFT_MS = 10, 200
REQUESTS, CONCURRENCY = 4, 4
LIMIT = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Medians of the requests whose bursts all hold `size` tokens."""

    size: int
    tpot_ms: float
    chunk_gap_ms: float
    tokens_per_chunk: float
    llmperf_ms: float


def bursts(folder: Path) -> list[Burst]:
    """Measure every burst size on the independent server."""
    prompts = [
        (
            f"burst-{size}",
            parts.schedule(ttft_ms=TTFT_MS, step_ms=TOKEN_MS * size, bursts=str(size), first_burst=1, tokens=TOKENS)
            + f"\nNumber {number}.",
        )
        for size in range(1, 9)
        for number in range(REQUESTS)
    ]
    with servers_apart.independent(folder) as server:
        suite = parts.write_suite(folder / "bursts.jsonl", prompts, TOKENS)
        out = parts.bench_run(server, suite, folder / "bursts", "--concurrency", str(CONCURRENCY), "--warm-up", "4")
    records = list(read_records(out / RECORDS_FILE))
    return [_burst(size, [record for record in records if record.class_ == f"burst-{size}"]) for size in range(1, 9)]


def _burst(size: int, records: Sequence) -> Burst:
    figures = compute_request_metrics(records)
    median = {name: float(np.median(values)) for name, values in figures.values.items()}
    return Burst(
        size=size, tpot_ms=median["tpot_ms"], chunk_gap_ms=float(np.median(figures.gaps_ms)),
        tokens_per_chunk=median["tokens_per_chunk"], llmperf_ms=median["llmperf_inter_token_latency_ms"],
    )  # fmt: skip


def holds(rows: Sequence[Burst]) -> bool:
    """Return whether TPOT stays that of single tokens within the limit."""
    return all(abs(row.tpot_ms / rows[0].tpot_ms - 1) <= LIMIT for row in rows)


def table(rows: Sequence[Burst]) -> list[str]:
    """Return the rows as a Markdown table."""
    lines = [
        "| tokens in a burst | TPOT, ms | against 1 | gap, ms | tokens per chunk | llmperf's ITL, ms | against 1 |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.size} | {row.tpot_ms:.3f} | {row.tpot_ms / rows[0].tpot_ms - 1:+.2%} | {row.chunk_gap_ms:.2f} "
        f"| {row.tokens_per_chunk:.2f} | {row.llmperf_ms:.2f} | x {row.llmperf_ms / rows[0].llmperf_ms:.2f} |"
        for row in rows
    ]
    return lines
