"""Accuracy of Tandem's measurement: figures of the bench next to the server's own log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import servers_apart
from bench_command import run_bench, write_suite

from tandem.bench.figures.ground_truth import ServerLogEntry
from tandem.bench.figures.request_metrics import RequestMetrics
from tandem.bench.records.folder import RECORDS_FILE
from tandem.bench.records.record import RequestRecord, read_records

BURSTS = range(1, 9)
STEP_MS = 45
TOKENS = 120
# the simulator prefills one request at a time, and the others wait for it
PREFILL_MS = {4: 200, 32: 25}
REQUESTS = {4: 48, 32: 128}
# metric -> ms and share of it that a figure may be off, at each concurrency
LIMITS = {
    4: dict.fromkeys(("ttft_ms", "tpot_ms", "e2e_ms", "output_tokens_per_s"), (2.0, 0.005)),
    32: {"ttft_ms": (6.0, 0.0), "tpot_ms": (0.0, 0.005)},
}
QUANTILES = {"p50": 0.5, "p95": 0.95}


class Comparison(NamedTuple):
    """One figure: the true value, the measured one, and the allowed difference."""

    server: str
    concurrency: int
    metric: str
    place: str
    truth: float
    measured: float
    limit: float

    @property
    def holds(self) -> bool:
        """Whether the figure is within its limit."""
        return abs(self.measured - self.truth) <= self.limit

    def format_row(self) -> str:
        """Return the row of the table."""
        return (
            f"| {self.server} | {self.concurrency} | {self.metric} | {self.place} |"
            f" {self.truth:.2f} | {self.measured:.2f} | {self.measured - self.truth:+.2f} |"
            f" {self.limit:.2f} | {'yes' if self.holds else '**no**'} |"
        )


def measure(folder: Path) -> tuple[list[str], bool]:
    """Return the table of accuracy, and whether every limit holds."""
    rows: list[Comparison] = []
    for concurrency in REQUESTS:
        rows += compare_servers(folder, concurrency)
    lines = [
        "| server | concurrency | figure | at | truth | Tandem | off by | allowed | holds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [row.format_row() for row in rows]
    return lines, all(row.holds for row in rows)


def compare_servers(folder: Path, concurrency: int) -> Iterator[Comparison]:
    """Measure the independent server and the simulator; yield every figure with its truth."""
    requests = REQUESTS[concurrency]
    burst_prompts = []
    for number in range(requests):
        size = BURSTS[number % len(BURSTS)]
        schedule = servers_apart.write_schedule(
            ttft_ms=200, step_ms=STEP_MS, bursts=str(size), tokens=TOKENS
        )
        burst_prompts.append((f"burst-{size}", f"{schedule}\nNumber {number}."))
    with servers_apart.independent(folder) as server:
        yield from compare_figures("independent", server, folder, burst_prompts, concurrency)

    prompts = [("open", f"Tell of the town with number {number}.") for number in range(requests)]
    with servers_apart.simulator(folder, write_knobs(concurrency, TOKENS // 2)) as server:
        yield from compare_figures("simulator", server, folder, prompts, concurrency)


def write_knobs(concurrency: int, spread: int) -> dict[str, Any]:
    """Return the simulator's knobs: bursts, and answers of TOKENS, give or take the spread."""
    return {
        "law": "vllm",
        "num_speculative_tokens": 7,
        "step_ms": [STEP_MS],
        "prefill_base_ms": PREFILL_MS[concurrency],
        "prefill_ms_per_token": 0.0,
        "max_num_seqs": concurrency,
        "classes": {
            "default": {"acceptance": 0.8, "output_tokens": TOKENS, "output_spread": spread}
        },
    }


def compare_figures(
    name: str,
    server: servers_apart.Server,
    folder: Path,
    prompts: Sequence[tuple[str, str]],
    concurrency: int,
) -> Iterator[Comparison]:
    """Measure one server; yield its figures with their truth."""
    suite = write_suite(folder / f"{name}-{concurrency}.jsonl", prompts, TOKENS * 2)
    out = folder / f"{name}-{concurrency}"
    flags = f"--rounds 1 --mixed --concurrency {concurrency} --warm-up 4"
    run_bench({"measured": server.url}, server.model, suite, out, flags)
    records = list(read_records(out / RECORDS_FILE))
    entries = server.read_entries()
    truths = [entries[record.request_id] for record in records]

    values = RequestMetrics(records).by_name()
    for metric, (fixed_ms, share) in LIMITS[concurrency].items():
        true_values = [entry.figures()[metric] for entry in truths]
        for place, quantile in QUANTILES.items():
            truth = float(np.quantile(true_values, quantile))
            limit = fixed_ms + share * truth
            # the share that 2 ms are of the time over which the rate is counted
            if metric.endswith("_per_s"):
                limit = truth * (fixed_ms / float(np.median(values["e2e_ms"])) + share)
            measured = float(np.quantile(values[metric], quantile))
            yield Comparison(name, concurrency, metric, place, truth, measured, limit)
    yield compare_rate(name, records, truths, concurrency)


def compare_rate(
    name: str, records: Sequence[RequestRecord], truths: Sequence[ServerLogEntry], concurrency: int
) -> Comparison:
    """Compare tokens a second of the whole run: from the first request to the last burst."""
    span_s = max(entry.bursts[-1][0] for entry in truths) - min(
        entry.accepted_s for entry in truths
    )
    true_per_s = sum(entry.figures()["tokens"] for entry in truths) / span_s
    run_s = max(record.start_s + record.end_s for record in records) - min(
        record.start_s for record in records
    )
    per_s = sum(record.completion_tokens or 0 for record in records) / run_s
    limit = true_per_s * (0.005 + 0.002 / span_s)
    return Comparison(
        name, concurrency, "system_output_tokens_per_s", "whole run", true_per_s, per_s, limit
    )
