"""One simulated server measured by Tandem, guidellm and aiperf, beside the server's own log.

Each tool sends the same prompts to the same process, one tool after another; all answers have the
same length. The truth of a tool is the server's log of that tool's requests. Then `tandem bench
run` measures guidellm's mock server, as `make others` measures servers.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import foreign_servers
import load_capacity
import numpy as np
import servers_apart
from bench_command import ROOT, BenchError, run_bench, write_suite
from load_accuracy import TOKENS, write_knobs

from rehearsal.loopback import HOST
from tandem.bench.figures.request_metrics import RequestMetrics
from tandem.bench.records.folder import RECORDS_FILE
from tandem.bench.records.record import read_records

GUIDELLM = ROOT / ".venv-guidellm" / "bin" / "guidellm"
LOCKS = {
    "guidellm": ROOT / "benchmarks" / "guidellm-requirements.txt",
    "aiperf": ROOT / "benchmarks" / "aiperf-requirements.txt",
}
CONCURRENCY = 4
PROMPTS = [f"Tell of the town with number {number}." for number in range(64)]
LIMIT = 0.02
METRICS = ("ttft_ms", "tpot_ms", "e2e_ms")
MOCK_SERVER = foreign_servers.Measurement(
    name="guidellm",
    servers=(
        foreign_servers.ForeignServer(
            name="mock-server",
            command=f"{shlex.quote(str(GUIDELLM))} mock-server --host {HOST} --port {{port}}"
            " --model gpt-4o --ttft-ms 50 --itl-ms 10 --output-tokens 16",
        ),
    ),
    model="gpt-4o",
    rounds=16,
    concurrency=4,
)
Medians = Mapping[str, float]


class ToolResult(NamedTuple):
    """Medians that a tool states, and those of the server's log of its requests."""

    tool: str
    stated: Medians
    logged: Medians

    def find_error(self, metric: str) -> float:
        """Return how far the tool's median is from the log's, as a share."""
        return self.stated[metric] / self.logged[metric] - 1

    def format_row(self) -> str:
        """Return the row of the table."""
        cells = [
            f"{self.stated[metric]:.2f}, {self.logged[metric]:.2f} | {self.find_error(metric):+.2%}"
            for metric in METRICS
        ]
        return f"| {self.tool} | {' | '.join(cells)} |"


def run_tandem(server: servers_apart.Server, folder: Path) -> tuple[Medians, set[str]]:
    """Measure by Tandem; return its medians, and the ids of the requests that it counts."""
    prompts = [("town", prompt) for prompt in PROMPTS]
    suite = write_suite(folder / "suite.jsonl", prompts, TOKENS)
    flags = f"--rounds 1 --control-rounds 0 --mixed --concurrency {CONCURRENCY} --warm-up 4"
    run_bench({"measured": server.url}, server.model, suite, folder / "run", flags)
    records = list(read_records(folder / "run" / RECORDS_FILE))
    values = RequestMetrics(records).by_name()
    medians = {metric: float(np.median(values[metric])) for metric in METRICS}
    return medians, {record.request_id for record in records}


def run_guidellm(server: servers_apart.Server, folder: Path) -> tuple[Medians, set[str]]:
    """Measure by guidellm; its report has no ids that the server knows.

    Its `time_per_output_token_ms` divides all of the answer's time by all tokens. The other tools'
    TPOT is its `inter_token_latency_ms`.
    """
    prompts = folder / "prompts.jsonl"
    lines = [{"prompt": prompt, "output_tokens_count": TOKENS} for prompt in PROMPTS]
    prompts.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    report = folder / "report.json"
    command = [
        str(GUIDELLM),
        "run",
        "--disable-console",
        *("--backend", f"kind=openai_http,target={server.url},model={server.model}"),
        *("--profile", f"kind=concurrent,streams={CONCURRENCY}"),
        *("--constraint", f"kind=max_requests,count={len(PROMPTS)}"),
        *("--data", f"kind=json_file,path={prompts}"),
        *("--tokenizer", "kind=hf_auto,model=tandem/words"),
        *("--output", f"kind=json,path={report}"),
    ]
    load_capacity.call_tool(command, folder, load_capacity.write_tokenizer())
    metrics = json.loads(report.read_text())["benchmarks"][0]["metrics"]
    medians = {
        "ttft_ms": metrics["time_to_first_token_ms"]["successful"]["median"],
        "tpot_ms": metrics["inter_token_latency_ms"]["successful"]["median"],
        "e2e_ms": 1000 * metrics["request_latency"]["successful"]["median"],
    }
    return medians, set()


def run_aiperf(server: servers_apart.Server, folder: Path) -> tuple[Medians, set[str]]:
    """Measure by aiperf; every request that it sends is one that it counts."""
    summary = load_capacity.call_aiperf(server, PROMPTS, CONCURRENCY, TOKENS, folder)
    places = ("time_to_first_token", "inter_token_latency", "request_latency")
    return {
        metric: summary[place]["p50"] for metric, place in zip(METRICS, places, strict=True)
    }, set()


TOOLS: Mapping[str, Callable[[servers_apart.Server, Path], tuple[Medians, set[str]]]] = {
    "tandem": run_tandem,
    "guidellm": run_guidellm,
    "aiperf": run_aiperf,
}


def measure_tool(tool: str, server: servers_apart.Server, folder: Path) -> ToolResult:
    """Measure the server by one tool, and read the log of that tool's requests.

    Raises:
        BenchError: the tool failed, or the log has not a line for each prompt.
    """
    folder.mkdir()
    earlier = server.read_entries().keys()
    stated, counted = TOOLS[tool](server, folder)
    entries = server.read_entries()
    own_ids = counted or entries.keys() - earlier
    if len(own_ids) < len(PROMPTS):
        raise BenchError(f"{tool}: the log has {len(own_ids)} of {len(PROMPTS)} requests")
    truths = [entries[request_id].figures() for request_id in own_ids]
    logged = {metric: float(np.median([truth[metric] for truth in truths])) for metric in METRICS}
    return ToolResult(tool, stated, logged)


def measure(folder: Path) -> tuple[list[str], bool]:
    """Return both tables, and whether Tandem's medians hold and no request failed."""
    with servers_apart.simulator(folder, write_knobs(CONCURRENCY, 0)) as server:
        results = [measure_tool(tool, server, folder / tool) for tool in TOOLS]
    rows = foreign_servers.measure(MOCK_SERVER, folder / "mock")
    is_near = all(abs(results[0].find_error(metric)) <= LIMIT for metric in METRICS)
    versions = [foreign_servers.read_versions(lock, (f"{tool}=",)) for tool, lock in LOCKS.items()]
    lines = [
        f"{', '.join(versions)}; medians of {len(PROMPTS)} requests at concurrency {CONCURRENCY}.",
        "",
        (
            "| tool | TTFT p50 ms: tool, log | off | TPOT p50 ms: tool, log | off |"
            " E2E p50 ms: tool, log | off |"
        ),
        "|---|---|---|---|---|---|---|",
        *(result.format_row() for result in results),
        "",
        *foreign_servers.format_rows(rows),
    ]
    return lines, is_near and foreign_servers.is_right(rows)
