"""Measure the time and memory that verdict and report of a run's records take, in seconds and MB.

The program times the whole `tandem bench report`: figures, verdict and page. A fifth of the records is in control
rounds, and no two outputs are alike. With --figures it times only the figures.

The file is that of a long run with two arms at two concurrencies. An answer has 40 to 64 tokens, in bursts of at most 5
or 8 by arm (two windows, about 17 and 12 chunks an answer). It also has text, running usage and the server's usage. 1 %
of requests failed. The program makes the file from a seed, does not time that, and removes the file afterwards. The
report is a separate process: its wall time starts with Python. Its memory is the sum of the resident sets of itself and
its children, read every 20 ms.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec
from machine import describe_day

from tandem.bench import manifest
from tandem.bench.record import SCHEMA, Chunk, RequestRecord, split_chunks
from tandem.bench.schedule import CONTROL_SUFFIX

ROOT = Path(__file__).resolve().parent.parent

CLASSES = ("repeat", "numbers", "json", "code", "edit", "extract", "report", "config", "summary", "creative")
ARMS = {"window-4": 5, "window-7": 8}  # to the most tokens of a burst
WORDS = ["the", "server", "writes", "one", "line", "of", "plain", "text", "after", "another", "until", "said", "what"]
RECORDS = 100_000
LIMITS = {100_000: (10, 500), 1_000_000: (60, 1500)}  # records to seconds and MB; no run records more
HTML_MB = 2.0
CONTROL_EVERY = 5  # rounds
FAILED = 0.01
ENDS = {0, 1, 4}  # judged, some requests failed, void: made-up figures may give any of these


def bursts(tokens: int, most: int, rng: random.Random) -> list[int]:
    """Split `tokens` into chunks: the first token alone, as a prefill gives it."""
    sizes, left = [1], tokens - 1
    while left:
        sizes.append(min(rng.randint(1, most), left))
        left -= sizes[-1]
    return sizes


def record(number: int, rng: random.Random) -> RequestRecord:
    """Make the record of one request; every field has the size and the digits of a measured one."""
    arm, tokens = list(ARMS)[number // 8 % 2], rng.randint(40, 64)
    base, variant = ARMS
    if arm == variant and number // 4_000 % CONTROL_EVERY == CONTROL_EVERY - 1:
        arm = f"{base}{CONTROL_SUFFIX}"
    at, chunks = 0.002 + 0.02 * rng.random(), []
    chunks.append(Chunk(round(at, 9), "role", 0))
    for size in bursts(tokens, ARMS[arm.removesuffix(CONTROL_SUFFIX)], rng):
        at += 0.04 + 0.01 * rng.random()
        chunks.append(Chunk(round(at, 9), "text", size))
    chunks += [Chunk(round(at + 1e-5, 9), "end", 0), Chunk(round(at + 2e-5, 9), "usage", None)]
    failed = rng.random() < FAILED
    return RequestRecord(
        schema=SCHEMA,
        reconnected=0,
        request_id=f"{rng.getrandbits(64):016x}-{number}",
        arm=arm,
        class_=CLASSES[number % len(CLASSES)],
        suite="real",
        prompt_id=f"{CLASSES[number % len(CLASSES)]}-{number % 12:02d}",
        round=number // 4_000,
        slot=number // 8 % 4,
        concurrency=(1, 4)[number // 32 % 2],
        worker=number % 4,
        start_s=round(1_000_000 + number * 0.2 + rng.random(), 9),
        headers_s=round(0.001 + 0.001 * rng.random(), 9),
        end_s=round(at + 1e-4, 9),
        **split_chunks(chunks),
        prompt_tokens=rng.randint(40, 400),
        cached_tokens=0,
        completion_tokens=None if failed else tokens,
        counted_by=None if failed else "usage",
        text=" ".join(rng.choices(WORDS, k=tokens)),
        model="qwen3-32b",
        status=200,
        finish_reason=None if failed else "stop",
        error="closed" if failed else None,
        error_detail="the stream ended before finish_reason" if failed else None,
        content=None if failed else "ok",
    )


def write(folder: Path, count: int) -> int:
    """Write a run of `count` records below `folder` and return the records' bytes."""
    rng = random.Random(5)  # noqa: S311 - a benchmark's data
    encoder = msgspec.json.Encoder()
    with (folder / "records.jsonl").open("wb") as file:
        for number in range(count):
            file.write(encoder.encode(record(number, rng)) + b"\n")
    manifest.write_manifest(folder, _manifest(count))
    return (folder / "records.jsonl").stat().st_size


def _manifest(count: int) -> manifest.RunManifest:
    return manifest.RunManifest(
        schema=manifest.SCHEMA,
        simulated=True,
        version="0.1.0",
        created_utc="2026-11-21T00:00:00Z",
        arms=tuple(
            manifest.ManifestArm(name=name, role="variant", url="http://127.0.0.1:1", model="qwen3-32b")
            for name in ARMS
        ),
        suites=(manifest.SuiteEntry(name="real", sha256="0" * 64, prompts=120, classes=CLASSES),),
        schedule="interleaved",
        seed=5,
        api="chat",
        concurrency=(1, 4),
        rounds=count // 4_000 + 1,
        clock=manifest.ClockReading(source="monotonic", resolution_s=1e-9, monotonic_s=1e6, utc="2026-11-21T00:00:00Z"),
        host=manifest.HostInfo(cpus=os.cpu_count() or 1, python=platform.python_version()),
        plan=manifest.PlanTotals(requests=count),
    )


def resident(process: int) -> int:
    """Return the resident bytes of a process and all its children; 0 for a process that has ended."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(resident(int(child)) for child in children)


def report(folder: Path, *flags: str) -> tuple[float, float, int]:
    """Run `tandem bench report` and return its wall time and CPU time in seconds, and its peak memory in bytes."""
    start, before = time.perf_counter(), os.times()
    process = subprocess.Popen(
        [sys.executable, "-m", "tandem", "bench", "report", str(folder), *flags], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    peak, over = 0, threading.Event()
    threading.Thread(target=lambda: (process.wait(), over.set()), daemon=True).start()
    while not over.wait(0.02):
        peak = max(peak, resident(process.pid))
    wall, after = time.perf_counter() - start, os.times()
    if process.returncode not in ENDS:
        raise SystemExit(f"the report ended with {process.returncode}")
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, busy, peak


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figures", action="store_true", help="the figures alone, without verdict and page")
    parser.add_argument("--records", type=int, default=RECORDS, metavar="N", help=f"of the file ({RECORDS})")
    parser.add_argument("--runs", type=int, default=3, help="reports timed; the table names the slowest")
    parser.add_argument("--below", type=Path, metavar="DIR", help="where the file is made; it takes 1.3 GB a million")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.below) as name:
        folder = Path(name)
        size = write(folder, options.records)
        runs = [report(folder, *(["--figures"] if options.figures else [])) for _ in range(options.runs)]
        page = 0 if options.figures else (folder / "report.html").stat().st_size
    print(
        f"{describe_day()}, load {os.getloadavg()[0]:.1f}, {options.records:,} records, {size / 1e6:.0f} MB, "
        f"{size // options.records} bytes each\n"
    )
    limit_s, limit_mb = LIMITS.get(options.records, ("-", "-"))
    print(f"| {'figures' if options.figures else 'judged and reported'} | measured | limit |\n|---|---|---|")
    print(f"| wall time, slowest of {len(runs)} | {max(run[0] for run in runs):.1f} s | {limit_s} s |")
    print(f"| CPU time | {max(run[1] for run in runs):.1f} s | - |")
    print(f"| peak memory | {max(run[2] for run in runs) / 1e6:.0f} MB | {limit_mb} MB |")
    if page:
        print(f"| report.html | {page / 1e6:.2f} MB | {HTML_MB:.0f} MB |")


if __name__ == "__main__":
    main()
