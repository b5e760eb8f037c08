"""Measure the simulator: its process model in virtual time, and how late its server writes; print Markdown.

Virtual time: whole runs of 100,000 requests, model and draws, after imports. Server: a separate process whose streams a
raw client of this process reads. Lateness is from the server's own log: each burst's write minus its planned time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import servers_apart
import uvloop
from taken_on import taken_on
from virtual_engine import run_engine

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tandem.simulator.engine import BLOCK_STEPS, EngineRequest  # noqa: E402
from tandem.simulator.settings import AcceptanceModelName, PromptClassSettings, SimulatorSettings  # noqa: E402

TARGET_S = 10.0
ACCEPTANCE, PROMPT, OUTPUT = 0.8, 64, 128
LAWS: tuple[tuple[AcceptanceModelName, int], ...] = (("none", 0), ("nxdi", 7), ("vllm", 3))
SERVED = ((4, 45.0), (32, 45.0), (32, 20.0), (64, 20.0))  # streams, and their step in ms


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000, help="of each run in virtual time")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run of the server")
    parser.add_argument("--only", choices=["virtual", "served"], help="one of the two")
    options = parser.parse_args()
    print(taken_on())
    if options.only != "served":
        _print_virtual(options.requests)
    if options.only != "virtual":
        _print_served(options.seconds)


def _print_virtual(count: int) -> None:
    print(f"\n| law, k | loop | {count:,} requests, s | of it processor, s | tokens a step | by the formula |")
    print("|---|---|---|---|---|---|")
    for law, window in LAWS:
        for concurrency in (None, 8):
            print(_virtual(law, window, count, concurrency))
    print(f"\ntarget: less than {TARGET_S:.0f} s each")


def _virtual(law: AcceptanceModelName, window: int, count: int, concurrency: int | None) -> str:
    knobs = SimulatorSettings(
        law=law,
        num_speculative_tokens=window,
        jitter=0.05,
        classes={"default": PromptClassSettings(acceptance=ACCEPTANCE)},
        max_num_seqs=8,
    )
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1.0, count))
    jobs = (EngineRequest(number + 1, "default", PROMPT, OUTPUT, float(at)) for number, at in enumerate(arrivals))
    wall, processor = time.perf_counter(), time.process_time()
    committed = steps = 0
    ends = run_engine(knobs, jobs, concurrency=concurrency, max_steps=BLOCK_STEPS)
    for job in (job for _, done in ends for job in done):
        committed, steps = committed + int(job.step_tokens.sum()), steps + job.step_count
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    loop = f"closed, {concurrency}" if concurrency else "open"
    most = {"none": 1, "nxdi": window, "vllm": window + 1}[law]
    expected = (1 - ACCEPTANCE**most) / (1 - ACCEPTANCE)
    return f"| {law}, {window} | {loop} | {wall:.1f} | {processor:.1f} | {committed / steps:.3f} | {expected:.3f} |"


def _print_served(seconds: float) -> None:
    print("\n| streams | step, ms | bursts | written late by, ms: p50 | p95 | p99 | most |")
    print("|---|---|---|---|---|---|---|")
    for streams, step_ms in SERVED:
        late = np.concatenate(list(_late_ms(streams, step_ms, seconds)))
        p50, p95, p99 = np.percentile(late, [50, 95, 99])
        print(f"| {streams} | {step_ms:g} | {len(late):,} | {p50:.2f} | {p95:.2f} | {p99:.2f} | {late.max():.1f} |")


def _late_ms(streams: int, step_ms: float, seconds: float) -> Iterator[np.ndarray]:
    knobs = {
        "law": "vllm", "num_speculative_tokens": 7, "step_ms": [step_ms], "prefill_base_ms": 1,
        "prefill_ms_per_token": 0, "max_num_seqs": streams, "max_model_len": 100_000,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        with servers_apart.simulator(Path(folder), knobs) as server:
            uvloop.run(_read(int(server.url.rpartition(":")[2]), streams, seconds))
        for one in map(json.loads, server.log.read_text().splitlines()[1:]):
            yield (np.array([written for written, _ in one["bursts"]]) - np.array(one["due_s"])) * 1000


async def _read(port: int, streams: int, seconds: float) -> None:
    """Read some streams for some seconds, then leave."""
    await asyncio.wait([asyncio.create_task(_stream(port, seconds)) for _ in range(streams)])


async def _stream(port: int, seconds: float) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "stream": True, "ignore_eos": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and await reader.read(65536):
        pass
    writer.close()


if __name__ == "__main__":
    main()
