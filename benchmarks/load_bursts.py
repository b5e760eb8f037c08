"""The same token rate in bursts of 1 to 8: figures that stay, and those by chunk count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import servers_apart
from bench_command import run_bench, write_suite

from tandem.bench.figures.request_metrics import RequestMetrics
from tandem.bench.records.folder import RECORDS_FILE
from tandem.bench.records.record import read_records

SIZES = range(1, 9)
TOKENS = 841  # the first alone, then 840: every burst of 1 to 8 divides it
TOKEN_MS = 10
REQUESTS = 4  # of each size
LIMIT = 0.005


def measure(folder: Path) -> tuple[list[str], bool]:
    """Return the table of medians by burst size, and whether TPOT stays that of single tokens."""
    prompts = []
    for number in range(REQUESTS * len(SIZES)):
        size = SIZES[number // REQUESTS]
        schedule = servers_apart.write_schedule(
            ttft_ms=200, step_ms=TOKEN_MS * size, bursts=str(size), first_burst=1, tokens=TOKENS
        )
        prompts.append((f"burst-{size}", f"{schedule}\nNumber {number}."))
    suite = write_suite(folder / "bursts.jsonl", prompts, TOKENS)
    out = folder / "bursts"
    with servers_apart.independent(folder) as server:
        run_bench(
            {"measured": server.url},
            server.model,
            suite,
            out,
            "--rounds 1 --concurrency 4 --warm-up 4",
        )

    lines = [
        (
            "| tokens in a burst | TPOT, ms | against 1 | gap, ms | tokens per chunk | llmperf's"
            " ITL, ms | against 1 |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    records = list(read_records(out / RECORDS_FILE))
    tpots_ms = []
    llmperf_ms = []
    for size in SIZES:
        figures = RequestMetrics([record for record in records if record.class_ == f"burst-{size}"])
        gaps_ms, _ = figures.list_gaps()
        tpots_ms.append(float(np.median(figures.tpot_ms)))
        llmperf_ms.append(float(np.median(figures.llmperf_inter_token_latency_ms)))
        lines.append(
            f"| {size} | {tpots_ms[-1]:.3f} | {tpots_ms[-1] / tpots_ms[0] - 1:+.2%} "
            f"| {np.median(gaps_ms):.2f} | {np.median(figures.tokens_per_chunk):.2f} "
            f"| {llmperf_ms[-1]:.2f} | x {llmperf_ms[-1] / llmperf_ms[0]:.2f} |"
        )
    return lines, all(abs(tpot_ms / tpots_ms[0] - 1) <= LIMIT for tpot_ms in tpots_ms)
