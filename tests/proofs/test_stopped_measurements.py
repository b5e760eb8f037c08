"""Runs of `tandem bench` that are killed or interrupted at random moments, resumed until they are
whole."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from bench_cli import Pair, Schedule, records, start

pytestmark = pytest.mark.proof

STOPS = 30
TEXTS = {
    "code": [f"say {number}" for number in range(24)],
    "chat": [f"tell {number}" for number in range(12)],
}
ROUNDS = 2
CONTROLS = 1
ARMS = 2
# 130 once the run hears signals; before and after, the interpreter ends as any other program does
WHOLE = {0, 4}  # 4: all is measured, on a machine too busy for a verdict
ENDS = WHOLE | {130, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT}
PLANNED = (ROUNDS + CONTROLS) * ARMS * sum(map(len, TEXTS.values()))


@pytest.fixture
def pair():
    new_pair = Pair(Schedule(ttft_ms=40, step_ms=4, tokens=8))
    yield new_pair
    new_pair.end()


def base(identity: str) -> str:
    return identity.partition("~")[0]


def stopped(chance, flags: list[str], path: Path) -> tuple[int, str]:
    """Start, stop with a random signal at a random moment, mostly once it records; its code and the
    signal it took."""
    process = start(flags)
    size = path.stat().st_size if path.exists() else 0
    # now and then before anything is measured
    while chance.random() > 0.001 and process.poll() is None:
        if path.exists() and path.stat().st_size > size:
            break
        time.sleep(0.005)
    try:
        process.communicate(timeout=chance.uniform(0.0, 1.2))
    except subprocess.TimeoutExpired:
        number = chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        process.send_signal(number)
        process.communicate()
        return process.returncode, number.name
    return process.returncode, ""


def test_stopped_at_random_moments_every_request_is_answered_once(pair, chance, report, tmp_path):
    stops: Counter[str] = Counter()
    runs = resumes = 0
    while stops.total() < STOPS:
        folder = tmp_path / str(runs)
        folder.mkdir()
        lengths = ("--rounds", str(ROUNDS), "--control-rounds", str(CONTROLS))
        flags = pair.flags(folder, TEXTS, *lengths)
        out = folder / "out"
        code = None
        before = b""
        while code not in WHOLE:
            has_begun = (out / "manifest.json").exists()
            path = out / "records.jsonl"
            code, output = stopped(
                chance, [*flags, "--resume" if has_begun else "--out", str(out)], path
            )
            assert code in ENDS, (runs, code)
            stops[output] += bool(output)
            resumes += has_begun
            now = path.read_bytes() if path.exists() else b""
            full_lines = before[: before.rfind(b"\n") + 1]
            assert now.startswith(full_lines), "a record that was written has changed"
            before = now
        ids = [record["request_id"] for record in records(out)]
        answers = Counter(
            base(record["request_id"]) for record in records(out) if record["error"] is None
        )
        assert len(ids) == len(set(ids))
        assert len(answers) == PLANNED
        assert set(answers.values()) == {1}
        runs += 1

    summary = ", ".join(f"{name} {number}" for name, number in sorted(stops.items()) if name)
    report(
        runs=runs,
        requests_of_each=PLANNED,
        stops=summary,
        resumptions=resumes,
        missing=0,
        answered_twice=0,
    )
