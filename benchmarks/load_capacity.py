"""How many streams one machine can time: the delay that each tool adds to a chunk, side by side.

The server gives every stream its own phase, so that chunks come evenly and not all at one instant.
It logs the time of each write. Added delay is arrival at the tool minus that time. Server and tool
share the machine's cores.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import servers_apart
from bench_command import ROOT, BenchError, run_bench, write_suite

from tandem.bench.figures.request_metrics import RequestMetrics
from tandem.bench.records.folder import RECORDS_FILE
from tandem.bench.records.record import read_records

RATES = (20, 50)
STREAMS = (4, 32, 64, 128, 256, 384, 512, 768)
SECONDS = 6
FIRST_MS = 1000  # every stream has begun before the first one gets a chunk
LIMIT_MS = 2.0
MOST_APART = 0.01  # of the tools' TPOT at the lightest load
AIPERF = ROOT / ".venv-aiperf"
AIPERF_FLAGS = (
    "--endpoint-type chat --streaming --tokenizer tandem/words --custom-dataset-type single_turn "
    "--use-server-token-count --export-level raw --ui none --no-gpu-telemetry --no-server-metrics"
)
TOKENIZER = """
import pathlib, sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

revision = "0" * 39 + "1"
folder = pathlib.Path(sys.argv[1]) / "hub" / "models--tandem--words"
(folder / "refs").mkdir(parents=True)
(folder / "refs" / "main").write_text(revision)
words = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
home = folder / "snapshots" / revision
PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(home)
(home / "config.json").write_text('{"model_type": "qwen3"}')
"""


class StreamLoad(NamedTuple):
    """Load on a tool: streams at once, and chunks a second of each, a token in each chunk."""

    streams: int
    rate: int

    @property
    def tokens(self) -> int:
        """Tokens of one stream."""
        return self.rate * SECONDS

    def list_prompts(self) -> list[str]:
        """Return one prompt a stream, each with a phase of its own."""
        gap_ms = 1000 / self.rate
        phases_ms = [FIRST_MS + gap_ms * number / self.streams for number in range(self.streams)]
        return [
            servers_apart.write_schedule(
                ttft_ms=phase_ms, step_ms=gap_ms, bursts="1", tokens=self.tokens
            )
            for phase_ms in phases_ms
        ]


class ToolDelay(NamedTuple):
    """One tool under one load: added delay in ms, its own TPOT, and the server's own pace."""

    tool: str
    load: StreamLoad
    delay_p50_ms: float
    delay_p99_ms: float
    tpot_p50_ms: float
    server_gap_p50_ms: float

    @property
    def holds(self) -> bool:
        """Whether the median added delay is within the limit."""
        return self.delay_p50_ms < LIMIT_MS

    def format_row(self) -> str:
        """Return the row of the table."""
        over = "" if self.holds else " (over)"
        return (
            f"| {self.load.rate} | {self.load.streams} | {self.tool} |"
            f" {self.delay_p50_ms:.2f}{over} | {self.delay_p99_ms:.2f} | {self.tpot_p50_ms:.3f} |"
            f" {self.server_gap_p50_ms:.3f} |"
        )


Arrivals = dict[str, list[float]]
Client = Callable[[servers_apart.Server, StreamLoad, Path], tuple[Arrivals, float]]


def measure(folder: Path) -> tuple[list[str], bool]:
    """Return the tables of capacity, and whether Tandem's is the highest and the tools agree."""
    rows = []
    for row in raise_streams(folder):
        print(row.format_row(), file=sys.stderr)
        rows.append(row)
    lines = [
        (
            "| chunks/s each | streams | tool | added delay p50, ms | p99, ms | its TPOT p50, ms |"
            " server's gap p50, ms |"
        ),
        "|---|---|---|---|---|---|---|",
        *(row.format_row() for row in rows),
        "",
    ]
    holds = True
    for rate in RATES:
        most = {tool: find_most_streams(rows, tool, rate) for tool in CLIENTS}
        holds &= most["tandem"] >= most["aiperf"]
        counts = ", ".join(f"{tool} {streams}" for tool, streams in most.items())
        lines.append(f"Most streams at {rate} chunks/s under {LIMIT_MS:g} ms: {counts}.")
    apart = compare_tpots(rows)
    lines.append(
        f"Largest difference of the tools' TPOT at the lightest load of each rate: {apart:.2%}"
        " (limit 1 %)."
    )
    return lines, holds and apart <= MOST_APART


def raise_streams(folder: Path) -> Iterator[ToolDelay]:
    """Raise each tool's streams at each rate until the added delay exceeds the limit."""
    for rate in RATES:
        for tool in CLIENTS:
            for streams in STREAMS:
                delay = measure_delay(
                    tool, StreamLoad(streams, rate), folder / f"{tool}-{rate}-{streams}"
                )
                yield delay
                if not delay.holds:
                    break


def measure_delay(tool: str, load: StreamLoad, folder: Path) -> ToolDelay:
    """Measure one tool under one load.

    Raises:
        BenchError: a stream or a chunk is missing.
    """
    folder.mkdir(parents=True)
    with servers_apart.independent(folder) as server:
        arrivals, tpot_ms = CLIENTS[tool](server, load, folder)
        entries = server.read_entries()
    if len(arrivals) != load.streams:
        raise BenchError(f"{tool}: {len(arrivals)} of {load.streams} streams came to their end")
    delays_ms: list[float] = []
    gaps_ms: list[float] = []
    for key, times_s in arrivals.items():
        writes_s = [write_s for write_s, _ in entries[key].bursts]
        if len(times_s) != len(writes_s):
            raise BenchError(f"{tool}: request {key} has {len(times_s)} chunks of {len(writes_s)}")
        delays_ms += list(1000 * np.subtract(times_s, writes_s))
        gaps_ms += list(1000 * np.diff(writes_s))
    p50, p99 = np.quantile(delays_ms, (0.5, 0.99))
    return ToolDelay(tool, load, float(p50), float(p99), tpot_ms, float(np.median(gaps_ms)))


def run_tandem(
    server: servers_apart.Server, load: StreamLoad, folder: Path
) -> tuple[Arrivals, float]:
    """Measure by Tandem; return the arrivals of each request and the median TPOT in ms."""
    suite = write_suite(
        folder / "suite.jsonl", [("even", prompt) for prompt in load.list_prompts()], load.tokens
    )
    flags = f"--rounds 1 --mixed --concurrency {load.streams} --warm-up 0"
    run_bench({"measured": server.url}, server.model, suite, folder / "run", flags)
    records = list(read_records(folder / "run" / RECORDS_FILE))
    arrivals = {}
    for record in records:
        times_s = [record.start_s + chunk.at_s for chunk in record.chunks if chunk.bears_tokens]
        arrivals[record.request_id] = times_s
    return arrivals, float(np.median(RequestMetrics(records).tpot_ms))


def run_aiperf(
    server: servers_apart.Server, load: StreamLoad, folder: Path
) -> tuple[Arrivals, float]:
    """Measure by aiperf; return as `run_tandem` does.

    Raises:
        BenchError: aiperf is not installed, or failed.
    """
    summary = call_aiperf(server, load.list_prompts(), load.streams, load.tokens, folder)
    lines = (folder / "run" / "profile_export_raw.jsonl").read_text().splitlines()
    return dict(map(read_arrivals, lines)), float(summary["inter_token_latency"]["p50"])


def call_aiperf(
    server: servers_apart.Server,
    prompts: Sequence[str],
    concurrency: int,
    max_tokens: int,
    folder: Path,
) -> dict[str, Any]:
    """Send each prompt once by aiperf; return its summary; `folder` / "run" has what it exports.

    Raises:
        BenchError: aiperf is not installed, or failed.
    """
    home = write_tokenizer()
    suite = folder / "prompts.jsonl"
    suite.write_text("".join(json.dumps({"text": prompt}) + "\n" for prompt in prompts))
    flags = (
        f"profile -m {server.model} --url {server.url} --input-file {suite} --concurrency"
        f" {concurrency} --request-count {len(prompts)} --extra-inputs max_tokens:{max_tokens}"
        f" --output-artifact-dir {folder / 'run'} {AIPERF_FLAGS}"
    )
    call_tool([str(AIPERF / "bin" / "aiperf"), *shlex.split(flags)], folder, home)
    summary: dict[str, Any] = json.loads(
        (folder / "run" / "profile_export_aiperf.json").read_text()
    )
    return summary


def call_tool(command: Sequence[str], folder: Path, home: Path) -> None:
    """Run another project's tool to its end, without a network; `home` has its tokenizer.

    Raises:
        BenchError: it failed; the end of what it printed is in the text.
    """
    environment = os.environ | {
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchError(
            f"{Path(command[0]).name} ended with {done.returncode}:\n"
            f"{done.stdout[-1000:]}{done.stderr[-1000:]}"
        )


def read_arrivals(line: str) -> tuple[str, list[float]]:
    """Return the request id of a line of aiperf's raw export, and its text chunks' times."""
    answer = json.loads(line)
    times_s = []
    for response in answer["responses"]:
        texts = [packet["value"] for packet in response["packets"] if packet["name"] == "data"]
        # perf_counter, which on Linux is CLOCK_MONOTONIC too
        times_s += [response["perf_ns"] / 1e9 for text in texts if has_text(text)]
    return answer["metadata"]["x_request_id"], times_s


def has_text(value: str) -> bool:
    """Return whether the data of an event has text of the answer."""
    choices: list[dict[str, Any]] = json.loads(value)["choices"] if value.startswith("{") else []
    return bool(choices and choices[0]["delta"].get("content"))


def write_tokenizer() -> Path:
    """Return a home with a tokenizer aiperf loads but never uses: it takes the server's counts."""
    if not (AIPERF / "bin" / "aiperf").exists():
        raise BenchError("aiperf is not installed; run `make bench-load`, which makes .venv-aiperf")
    home = AIPERF / "hub-home"
    if not home.exists():
        subprocess.run(
            [str(AIPERF / "bin" / "python"), "-c", TOKENIZER, str(home)],
            check=True,
            capture_output=True,
        )
    return home


CLIENTS: dict[str, Client] = {"tandem": run_tandem, "aiperf": run_aiperf}


def find_most_streams(rows: Sequence[ToolDelay], tool: str, rate: int) -> int:
    """Return the most streams that a tool timed within the limit; 0 for none."""
    own_rows = [row for row in rows if (row.tool, row.load.rate) == (tool, rate)]
    return max((row.load.streams for row in own_rows if row.holds), default=0)


def compare_tpots(rows: Sequence[ToolDelay]) -> float:
    """Return the largest relative difference of the tools' TPOT at the lightest load of each rate.

    Under more streams the table shows which tool's TPOT changes, next to the server's gap, which
    does not.
    """
    apart = []
    for rate in RATES:
        tpots_ms = [row.tpot_p50_ms for row in rows if row.load == StreamLoad(STREAMS[0], rate)]
        apart.append(max(tpots_ms) / min(tpots_ms) - 1)
    return max(apart)
