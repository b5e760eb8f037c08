"""Accuracy of Tandem's measurement: figures of the bench next to the server's own log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import load_parts as parts
import numpy as np
import servers_apart

from tandem.bench.folder import RECORDS_FILE
from tandem.bench.ground_truth import ServerLogEntry
from tandem.bench.record import RequestRecord, read_records
from tandem.bench.request_metrics import compute_request_metrics

BURSTS = range(1, 9)
TTFT_MS, STEP_MS, TOKENS = 200, 45, 120
PREFILL_MS = {4: 200, 32: 25}  # the simulator prefills one request at a time, and the others wait for it
REQUESTS = {4: 48, 32: 128}
# at concurrency 4: 2 ms + 0.5 % of every figure; at 32: TPOT 0.5 %, TTFT 6 ms (the issue's own limits)
LIMITS = {
    4: dict.fromkeys(("ttft_ms", "tpot_ms", "e2e_ms", "output_tokens_per_s"), (2.0, 0.005)),
    32: {"ttft_ms": (6.0, 0.0), "tpot_ms": (0.0, 0.005)},
}
QUANTILES = (0.5, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure at one quantile: the true value, the measured one, and the allowed difference."""

    server: str
    concurrency: int
    metric: str
    quantile: float
    truth: float
    measured: float
    limit: float

    @property
    def holds(self) -> bool:
        """Whether the figure is within its limit."""
        return abs(self.measured - self.truth) <= self.limit


def accuracy(folder: Path) -> Iterator[Compared]:
    """Measure the independent server and the simulator at each concurrency; yield every figure with its truth."""
    for concurrency, requests in REQUESTS.items():
        with servers_apart.independent(folder) as server:
            prompts = [
                (f"burst-{size}", parts.schedule(ttft_ms=TTFT_MS, step_ms=STEP_MS, bursts=str(size), tokens=TOKENS))
                for size in BURSTS
            ]
            yield from _measured("independent", server, folder, prompts * (requests // len(prompts)), concurrency)
        knobs = {
            "law": "vllm", "num_speculative_tokens": 7, "step_ms": [STEP_MS],
            "prefill_base_ms": PREFILL_MS[concurrency], "prefill_ms_per_token": 0.0, "max_num_seqs": concurrency,
            "classes": {"default": {"acceptance": 0.8, "output_tokens": TOKENS, "output_spread": TOKENS // 2}},
        }  # fmt: skip
        with servers_apart.simulator(folder, knobs) as server:
            asked = [("open", f"Tell of the town with number {number}.") for number in range(requests)]
            yield from _measured("simulator", server, folder, asked, concurrency)


def _measured(
    name: str, server: servers_apart.Server, folder: Path, prompts: Sequence[tuple[str, str]], concurrency: int
) -> Iterator[Compared]:
    suite = parts.write_suite(folder / f"{name}-{concurrency}.jsonl", _distinct(prompts), TOKENS * 2)
    out = parts.bench_run(
        server, suite, folder / f"{name}-{concurrency}", "--mixed", "--concurrency", str(concurrency), "--warm-up", "4"
    )
    records = list(read_records(out / RECORDS_FILE))
    served = server.served()
    truths = [served[record.request_id] for record in records]
    values = compute_request_metrics(records).values
    for metric, (fixed, relative) in LIMITS[concurrency].items():
        true = np.array([one.figures()[metric] for one in truths])
        for quantile in QUANTILES:
            truth, measured = (float(np.quantile(each, quantile)) for each in (true, values[metric]))
            # the limit of a rate: the share that 2 ms are of the time over which the rate is counted
            allowed = fixed / float(np.median(values["e2e_ms"])) * truth if metric.endswith("_per_s") else fixed
            yield Compared(
                server=name, concurrency=concurrency, metric=metric, quantile=quantile, truth=truth, measured=measured,
                limit=allowed + relative * truth,
            )  # fmt: skip
    yield _whole_rate(name, records, truths, concurrency)


def _whole_rate(
    name: str, records: Sequence[RequestRecord], truths: Sequence[ServerLogEntry], concurrency: int
) -> Compared:
    """Compare tokens a second of the whole run: from the first request to the last burst."""
    span_s = max(one.bursts[-1][0] for one in truths) - min(one.accepted_s for one in truths)
    measured_s = max(record.start_s + record.end_s for record in records) - min(record.start_s for record in records)
    true = sum(one.figures()["tokens"] for one in truths) / span_s
    tokens = sum(record.completion_tokens or 0 for record in records)
    return Compared(
        server=name, concurrency=concurrency, metric="system_output_tokens_per_s", quantile=1.0, truth=true,
        measured=tokens / measured_s, limit=true * (0.005 + 0.002 / span_s),
    )  # fmt: skip


def _distinct(prompts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(class_, f"{prompt}\nNumber {number}.") for number, (class_, prompt) in enumerate(prompts)]


def table(rows: Sequence[Compared]) -> list[str]:
    """Return the rows as a Markdown table."""
    lines = [
        "| server | concurrency | figure | at | truth | Tandem | off by | allowed | holds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        at = "whole run" if row.metric.startswith("system") else f"p{row.quantile * 100:.0f}"
        lines.append(
            f"| {row.server} | {row.concurrency} | {row.metric} | {at} | {row.truth:.2f} | {row.measured:.2f} "
            f"| {row.measured - row.truth:+.2f} | {row.limit:.2f} | {'yes' if row.holds else '**no**'} |"
        )
    return lines
