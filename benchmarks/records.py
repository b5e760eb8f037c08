"""Measure the time and memory that verdict and report of a run's records take, in seconds and MB.

The program times the whole `tandem bench report`: figures, verdict and page. A fifth of the records
is in control rounds, and no two outputs are alike.

The file is that of a long run with two arms at two concurrencies. An answer has 40 to 64 tokens, in
bursts of at most 5 or 8 by arm (two windows, about 17 and 12 chunks an answer). It also has text,
running usage and the server's usage. 1 % of requests failed. The program makes the file from a
seed, does not time that, and removes the file afterwards. The report is a separate process: its
wall time starts with Python. Its memory is the sum of the resident sets of itself and its children,
read every 20 ms.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from machine import describe_day

from tandem.bench.plan.schedule import CONTROL_SUFFIX
from tandem.bench.records import manifest
from tandem.bench.records.folder import RECORDS_FILE
from tandem.bench.records.record import SCHEMA, Chunk, RequestRecord, split_chunks

CLASSES = (
    "repeat",
    "numbers",
    "json",
    "code",
    "edit",
    "extract",
    "report",
    "config",
    "summary",
    "creative",
)
ARMS = {"window-4": 5, "window-7": 8}  # to the most tokens of a burst
BASELINE, VARIANT = ARMS
WORDS = [
    "the",
    "server",
    "writes",
    "one",
    "line",
    "of",
    "plain",
    "text",
    "after",
    "another",
    "until",
    "said",
    "what",
]
RECORDS = 100_000
ROUND = 4_000  # records
# records to seconds and MB; no run records more
LIMITS = {100_000: (10, 500), 1_000_000: (60, 1500)}
HTML_MB = 2.0
CONTROL_EVERY = 5  # rounds
FAILED = 0.01
INTERVAL_S = 0.02
ENDS = {0, 1, 4}  # judged, some requests failed, void: made-up figures may give any of these


def draw_bursts(tokens: int, most: int, rng: random.Random) -> Iterator[int]:
    """Split `tokens` into chunks: the first token alone, as a prefill gives it."""
    yield 1
    left = tokens - 1
    while left:
        size = min(rng.randint(1, most), left)
        left -= size
        yield size


def draw_chunks(tokens: int, most: int, rng: random.Random) -> list[Chunk]:
    """Return the chunks of an answer whose bursts have at most `most` tokens."""
    at_s = 0.002 + 0.02 * rng.random()
    chunks = [Chunk(round(at_s, 9), "role", 0)]
    for size in list(draw_bursts(tokens, most, rng)):
        at_s += 0.04 + 0.01 * rng.random()
        chunks.append(Chunk(round(at_s, 9), "text", size))
    return [
        *chunks,
        Chunk(round(at_s + 1e-5, 9), "end", 0),
        Chunk(round(at_s + 2e-5, 9), "usage", None),
    ]


def draw_record(number: int, rng: random.Random) -> RequestRecord:
    """Make the record of one request; every field has the size and the digits of a measured one."""
    arm = list(ARMS)[number // 8 % 2]
    tokens = rng.randint(40, 64)
    is_control = number // ROUND % CONTROL_EVERY == CONTROL_EVERY - 1 and arm == VARIANT
    chunks = draw_chunks(tokens, ARMS[BASELINE if is_control else arm], rng)
    failed = rng.random() < FAILED
    class_ = CLASSES[number % len(CLASSES)]
    outcome: dict[str, Any] = {
        "completion_tokens": tokens,
        "counted_by": "usage",
        "finish_reason": "stop",
        "error": None,
        "error_detail": None,
        "content": "ok",
    }
    if failed:
        outcome = dict.fromkeys(outcome)
        outcome |= {"error": "closed", "error_detail": "the stream ended before finish_reason"}
    return RequestRecord(
        schema=SCHEMA,
        reconnected=0,
        request_id=f"{rng.getrandbits(64):016x}-{number}",
        arm=f"{BASELINE}{CONTROL_SUFFIX}" if is_control else arm,
        class_=class_,
        suite="real",
        prompt_id=f"{class_}-{number % 12:02d}",
        round=number // ROUND,
        slot=number // 8 % 4,
        concurrency=(1, 4)[number // 32 % 2],
        worker=number % 4,
        start_s=round(1_000_000 + number * 0.2 + rng.random(), 9),
        headers_s=round(0.001 + 0.001 * rng.random(), 9),
        end_s=round(chunks[-1].at_s - 2e-5 + 1e-4, 9),
        prompt_tokens=rng.randint(40, 400),
        cached_tokens=0,
        text=" ".join(rng.choices(WORDS, k=tokens)),
        model="qwen3-32b",
        status=200,
        **split_chunks(chunks),
        **outcome,
    )


def write_run(folder: Path, count: int) -> int:
    """Write a run of `count` records below `folder` and return the records' bytes."""
    rng = random.Random(5)  # noqa: S311 - a benchmark's data
    encoder = msgspec.json.Encoder()
    path = folder / RECORDS_FILE
    with path.open("wb") as file:
        for number in range(count):
            file.write(encoder.encode(draw_record(number, rng)) + b"\n")
    moment = "2026-11-21T00:00:00Z"
    run = manifest.RunManifest(
        schema=manifest.SCHEMA,
        simulated=True,
        version="0.1.0",
        created_utc=moment,
        arms=tuple(
            manifest.ManifestArm(name=name, role="variant", url="http://h:1", model="qwen3")
            for name in ARMS
        ),
        suites=(manifest.SuiteEntry(name="real", sha256="0" * 64, prompts=120, classes=CLASSES),),
        schedule="interleaved",
        seed=5,
        api="chat",
        concurrency=(1, 4),
        rounds=count // ROUND + 1,
        clock=manifest.ClockReading(
            source="monotonic", resolution_s=1e-9, monotonic_s=1e6, utc=moment
        ),
        host=manifest.HostInfo(cpus=1, python=platform.python_version()),
        plan=manifest.PlanTotals(requests=count),
    )
    manifest.write_manifest(folder, run)
    return path.stat().st_size


def measure_resident_bytes(process: int) -> int:
    """Return the resident bytes of a process and all its children; 0 for an ended process."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(
        measure_resident_bytes(int(child)) for child in children
    )


class ReportFigures(NamedTuple):
    """What one report took: wall and processor time in seconds, peak memory in bytes."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def time_report(folder: Path) -> ReportFigures:
    """Run `tandem bench report` and return what it took.

    Raises:
        SystemExit: it failed.
    """
    start_s = time.perf_counter()
    before = os.times()
    command = [sys.executable, "-m", "tandem", "bench", "report", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak_bytes = 0
    while process.poll() is None:
        peak_bytes = max(peak_bytes, measure_resident_bytes(process.pid))
        time.sleep(INTERVAL_S)
    wall_s = time.perf_counter() - start_s
    if process.returncode not in ENDS:
        raise SystemExit(f"the report ended with {process.returncode}")
    after = os.times()
    cpu_s = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return ReportFigures(wall_s, cpu_s, peak_bytes)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--records", type=int, default=RECORDS, metavar="N", help=f"of the file ({RECORDS})"
    )
    parser.add_argument(
        "--runs", type=int, default=3, help="reports timed; the table names the slowest"
    )
    parser.add_argument(
        "--below",
        type=Path,
        metavar="DIR",
        help="where the file is made; it takes 1.3 GB a million",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.below) as name:
        size = write_run(Path(name), options.records)
        runs = [time_report(Path(name)) for _ in range(options.runs)]
        page_mb = (Path(name) / "report.html").stat().st_size / 1e6
    print(
        f"{describe_day()}, load {os.getloadavg()[0]:.1f}, {options.records:,} records,"
        f" {size / 1e6:.0f} MB\n"
    )
    limit_s, limit_mb = LIMITS.get(options.records, ("-", "-"))
    print("| judged and reported | measured | limit |\n|---|---|---|")
    print(
        f"| wall time, slowest of {len(runs)} | {max(run.wall_s for run in runs):.1f} s |"
        f" {limit_s} s |"
    )
    print(f"| CPU time | {max(run.cpu_s for run in runs):.1f} s | - |")
    print(f"| peak memory | {max(run.peak_bytes for run in runs) / 1e6:.0f} MB | {limit_mb} MB |")
    print(f"| report.html | {page_mb:.2f} MB | {HTML_MB:.0f} MB |")


if __name__ == "__main__":
    main()
