"""How many streams one machine can time: the delay that each tool adds to a chunk, side by side.

The server gives every stream its own phase, so that chunks come evenly and not all at one instant. It logs the time of
each write. Added delay is arrival at the tool minus that time. Server and tool share the machine's cores.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import load_parts as parts
import numpy as np
import servers_apart
from llmperf_tool import prepared

from tandem.bench.folder import RECORDS_FILE
from tandem.bench.llmperf import results
from tandem.bench.llmperf.run import RAW, LlmperfSession
from tandem.bench.llmperf.tool import LlmperfLoad, LlmperfTool
from tandem.bench.manifest import ManifestArm
from tandem.bench.record import read_records
from tandem.bench.request_metrics import compute_request_metrics

RATES = (20, 50)
STREAMS = (4, 32, 64, 128, 256, 384, 512, 768)
SECONDS = 6
FIRST_MS = 1000  # every stream has begun before the first one gets a chunk
LIMIT_MS = 2.0
AIPERF = servers_apart.ROOT / ".venv-aiperf"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load on a tool: streams at once, and chunks a second of each."""

    streams: int
    rate: int

    @property
    def tokens(self) -> int:
        """Tokens of one stream, one in each chunk."""
        return self.rate * SECONDS

    def prompts(self) -> list[str]:
        """Return one prompt a stream."""
        gap_ms = 1000 / self.rate
        return [
            parts.schedule(
                ttft_ms=FIRST_MS + gap_ms * number / self.streams, step_ms=gap_ms, bursts="1", tokens=self.tokens
            )
            for number in range(self.streams)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One tool under one load: added delay in ms, its own TPOT, and the server's own pace."""

    tool: str
    load: Load
    delay_p50_ms: float
    delay_p99_ms: float
    tpot_p50_ms: float
    served_gap_p50_ms: float

    @property
    def holds(self) -> bool:
        """Whether the median added delay is within the limit."""
        return self.delay_p50_ms < LIMIT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """llmperf's result for one load: TTFT and time per chunk minus the true ones; llmperf keeps no chunk."""

    load: Load
    ttft_error_ms: float
    step_error_ms: float

    @property
    def holds(self) -> bool:
        """Whether llmperf's TTFT is within the limit of the others' added delay."""
        return self.ttft_error_ms < LIMIT_MS


Arrivals = dict[str, list[float]]
Client = Callable[[servers_apart.Server, Load, Path], tuple[Arrivals, float]]


def capacity(folder: Path) -> Iterator[Timed]:
    """Raise the number of streams of each tool at each rate until the added delay is over the limit."""
    tools: dict[str, Client] = {"tandem": _tandem, "aiperf": _aiperf}
    for rate in RATES:
        for name, tool in tools.items():
            for streams in STREAMS:
                timed = _timed(name, tool, Load(streams=streams, rate=rate), folder / f"{name}-{rate}-{streams}")
                yield timed
                if not timed.holds:
                    break


def llmperf(folder: Path, checkout: Path) -> Iterator[Stepped]:
    """Raise the number of streams of llmperf at each rate until its TTFT is off by more than the limit."""
    tool = prepared(checkout)
    for rate in RATES:
        for streams in STREAMS:
            stepped = _stepped(tool, Load(streams=streams, rate=rate), folder / f"llmperf-{rate}-{streams}")
            yield stepped
            if not stepped.holds:
                break


def _stepped(tool: LlmperfTool, load: Load, folder: Path) -> Stepped:
    folder.mkdir(parents=True)
    flags = ["--ttft-ms", str(FIRST_MS), "--step-ms", str(1000 / load.rate), "--tokens", str(load.tokens)]
    told = LlmperfLoad(
        output_tokens=load.tokens,
        concurrency=load.streams,
        requests=load.streams,
        timeout_s=120,
    )
    with servers_apart.independent(folder, *flags) as server:
        arm = ManifestArm(name="measured", role="baseline", url=server.url, model=servers_apart.MODEL)
        (call,) = LlmperfSession(arms=[arm], load=told, tool=tool, out=folder / "run", say=lambda _: None).run(1)
        served = list(server.served().values())
    found = results.read_results(folder / "run" / RAW / call.arm / str(call.call))
    if call.how != "done" or found is None:
        raise parts.PartError(f"llmperf ended with {call.how}: {call.detail}")
    ttft_ms = [row.ttft_s * 1000 for row in found.rows if row.ttft_s]
    step_ms = [row.inter_token_latency_s * 1000 for row in found.rows if row.inter_token_latency_s]
    return Stepped(
        load=load,
        ttft_error_ms=float(np.median(ttft_ms) - np.median([one.figures()["ttft_ms"] for one in served])),
        step_error_ms=float(np.median(step_ms) - np.median([one.figures()["chunk_gap_ms"] for one in served])),
    )


def _timed(name: str, tool: Client, load: Load, folder: Path) -> Timed:
    folder.mkdir(parents=True)
    with servers_apart.independent(folder) as server:
        arrivals, tpot_ms = tool(server, load, folder)
        served = server.served()
    written = {key: [time for time, _ in one.bursts] for key, one in served.items()}
    for key, times in arrivals.items():
        if len(times) != len(written[key]):
            raise parts.PartError(f"{name}: request {key} has {len(times)} chunks of {len(written[key])}")
    if len(arrivals) != load.streams:
        raise parts.PartError(f"{name}: {len(arrivals)} of {load.streams} streams came to their end")
    delays = np.concatenate([np.array(times) - np.array(written[key]) for key, times in arrivals.items()]) * 1000
    gaps = np.concatenate([np.diff(written[key]) for key in arrivals]) * 1000
    p50, p99 = (float(value) for value in np.quantile(delays, (0.5, 0.99)))
    return Timed(
        tool=name, load=load, delay_p50_ms=p50, delay_p99_ms=p99, tpot_p50_ms=tpot_ms,
        served_gap_p50_ms=float(np.median(gaps)),
    )  # fmt: skip


def _tandem(server: servers_apart.Server, load: Load, folder: Path) -> tuple[Arrivals, float]:
    suite = parts.write_suite(folder / "suite.jsonl", [("even", prompt) for prompt in load.prompts()], load.tokens)
    out = parts.bench_run(
        server, suite, folder / "run", "--mixed", "--concurrency", str(load.streams), "--warm-up", "0"
    )
    records = list(read_records(out / RECORDS_FILE))
    arrivals = {
        record.request_id: [record.start_s + chunk.at_s for chunk in record.chunks if chunk.bears_tokens]
        for record in records
    }
    return arrivals, float(np.median(compute_request_metrics(records).values["tpot_ms"]))


def _aiperf(server: servers_apart.Server, load: Load, folder: Path) -> tuple[Arrivals, float]:
    home = _aiperf_home()
    asked = folder / "asked.jsonl"
    asked.write_text("".join(json.dumps({"text": prompt}) + "\n" for prompt in load.prompts()))
    command = [
        str(AIPERF / "bin" / "aiperf"), "profile", "-m", server.model, "--url", server.url, "--endpoint-type", "chat",
        "--streaming", "--tokenizer", "tandem/words", "--input-file", str(asked), "--custom-dataset-type",
        "single_turn", "--concurrency", str(load.streams), "--request-count", str(load.streams),
        "--use-server-token-count", "--extra-inputs", f"max_tokens:{load.tokens}", "--export-level", "raw",
        "--output-artifact-dir", str(folder / "run"), "--ui", "none", "--no-gpu-telemetry", "--no-server-metrics",
    ]  # fmt: skip
    environment = os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise parts.PartError(f"aiperf ended with {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    lines = (folder / "run" / "profile_export_raw.jsonl").read_text().splitlines()
    arrivals = dict(_arrivals(json.loads(line)) for line in lines)
    said = json.loads((folder / "run" / "profile_export_aiperf.json").read_text())
    return arrivals, float(said["inter_token_latency"]["p50"])


def _arrivals(answer: dict[str, Any]) -> tuple[str, list[float]]:
    times = [
        response["perf_ns"] / 1e9  # perf_counter, which on Linux is CLOCK_MONOTONIC too
        for response in answer["responses"]
        for packet in response["packets"]
        if packet["name"] == "data" and _has_text(packet["value"])
    ]
    return answer["metadata"]["x_request_id"], times


def _has_text(value: str) -> bool:
    if not value.startswith("{"):
        return False
    choices = json.loads(value)["choices"]
    return bool(choices and choices[0]["delta"].get("content"))


def _aiperf_home() -> Path:
    """Return a home with a tokenizer that aiperf loads but never uses, because it takes the server's counts."""
    if not (AIPERF / "bin" / "aiperf").exists():
        raise parts.PartError("aiperf is not installed; run `make bench-load`, which makes .venv-aiperf")
    home = AIPERF / "hub-home"
    if not home.exists():
        subprocess.run([str(AIPERF / "bin" / "python"), "-c", TOKENIZER, str(home)], check=True, capture_output=True)
    return home


def highest(rows: Sequence[Timed], tool: str, rate: int) -> int:
    """Return the most streams that a tool timed within the limit; 0 for none."""
    return max((row.load.streams for row in rows if (row.tool, row.load.rate) == (tool, rate) and row.holds), default=0)


def disagreement(rows: Sequence[Timed]) -> float:
    """Return the largest relative difference of the tools' TPOT at the lightest load of each rate.

    Under more streams the table shows which tool's TPOT changes, next to the server's gap, which does not.
    """
    lightest = [row for row in rows if row.load.streams == STREAMS[0]]
    by_rate = {rate: [row.tpot_p50_ms for row in lightest if row.load.rate == rate] for rate in RATES}
    return max(max(each) / min(each) - 1 for each in by_rate.values())


def table(rows: Sequence[Timed]) -> list[str]:
    """Return the rows as a Markdown table."""
    lines = [
        "| chunks/s each | streams | tool | added delay p50, ms | p99, ms | its TPOT p50, ms | server's gap p50, ms |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.load.rate} | {row.load.streams} | {row.tool} | {row.delay_p50_ms:.2f}{'' if row.holds else ' (over)'} "
        f"| {row.delay_p99_ms:.2f} | {row.tpot_p50_ms:.3f} | {row.served_gap_p50_ms:.3f} |"
        for row in rows
    ]
    return lines


def llmperf_table(rows: Sequence[Stepped]) -> list[str]:
    """Return llmperf's rows as a Markdown table."""
    lines = [
        "| chunks/s each | streams | llmperf's TTFT less the true, p50, ms | its time per chunk less the gap, ms |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row.load.rate} | {row.load.streams} | {row.ttft_error_ms:+.2f} | {row.step_error_ms:+.2f} |"
        for row in rows
    ]
    return lines
