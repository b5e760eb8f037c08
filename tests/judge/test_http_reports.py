"""Whole reports over HTTP on servers that share no code with ours: how many of them say what is not
true.

A report is a run of two independent servers, each a process of its own, and the verdict on it.
Prompts differ in times and tokens, and every request has times of its own, so no two reports are
alike. A seed repeats what is drawn; what the machine adds to every time is its own.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import uvloop
from planned import suite_file
from running import settings

from tandem.bench.figures import request_table
from tandem.bench.figures.request_table import RequestTable, read_request_table
from tandem.bench.load.run import MeasurementRun
from tandem.judge.schema import Verdict
from tandem.judge.verdict import JudgeOptions, judge_run

PROGRAM = Path(__file__).parents[1] / "bench" / "independent_server.py"
CLASSES = ("chat", "code", "json")
PROMPTS = 8
ROUNDS = 4
CONTROL_ROUNDS = 1
CONCURRENCY = 4
SPREAD = 0.1
SPEED_UP = 1.5
REPORTS = 200
# of a report's 15 s a processor works 1.3 s, so they hardly delay each other
AT_ONCE = 3 * (os.cpu_count() or 1)
MOST_FALSE = 0.065
MOST_VOID = 0.01
LEAST_FOUND = 0.99
DECIDED = ("faster", "slower", "mixed")
SEED = 16


@contextlib.contextmanager
def serve(speed: float, seed: int) -> Iterator[int]:
    """Run an independent server; yield its port."""
    command = [
        sys.executable,
        str(PROGRAM),
        "--port",
        "0",
        "--speed",
        str(speed),
        "--spread",
        str(SPREAD),
    ]
    with subprocess.Popen(
        [*command, "--seed", str(seed)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield int(re.search(r":(\d+)$", process.stdout.readline().strip()).group(1))
        finally:
            process.terminate()


def draw_prompt(generator: random.Random, name: str) -> str:
    """Return a prompt that brings times and tokens of its own, the same for both servers."""
    schedule = {
        "ttft_ms": generator.uniform(40, 100),
        "step_ms": generator.uniform(8, 16),
        "tokens": generator.randint(5, 9),
    }
    return f"Tell me about {name}.\n#schedule {json.dumps(schedule)}"


def measure_report(speed_up: float, seed: str) -> Verdict:
    """Measure a server beside one that is `speed_up` times as fast; return the verdict.

    Args:
        speed_up: the truth; 1.0 for equal servers.
        seed: of all that is drawn.
    """
    generator = random.Random(seed)  # noqa: S311 - no secret
    texts = {
        name: [draw_prompt(generator, f"{name} {number}") for number in range(PROMPTS)]
        for name in CLASSES
    }
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = [
            stack.enter_context(serve(speed, generator.randrange(2**32)))
            for speed in (1.0, speed_up)
        ]
        run_settings = settings(
            ports,
            suite_file(folder, texts),
            concurrency=(CONCURRENCY,),
            rounds=ROUNDS,
            control_rounds=CONTROL_ROUNDS,
            warm_up=CONCURRENCY,
            seed=generator.randrange(2**32),
        )
        uvloop.run(
            MeasurementRun(settings=run_settings, folder=folder / "run", out=io.StringIO()).run()
        )
        return judge_run(read_request_table(folder / "run"), JudgeOptions())


def is_decided(word: str) -> bool:
    """Whether a word says that servers differ, with whatever reserve."""
    return any(decided in word for decided in DECIDED)


def words_of(verdict: Verdict) -> list[str]:
    return [headline.verdict for headline in verdict.headlines] + [
        cell.verdict for cell in verdict.cells
    ]


# the proof


def read_biased_table(folder: Path) -> RequestTable:
    """Read a run as if the baseline had taken a fifth more time."""
    table = request_table.read_request_table(folder)
    factors = np.where(table.arm == table.arms.index(table.variants[0]), 1.0, 1.2)
    times = {
        name: values * factors for name, values in table.figures.items() if name.endswith("_ms")
    }
    return replace(table, figures={**table.figures, **times})


@pytest.mark.proof
def test_clock_that_favours_an_arm_is_caught(monkeypatch):
    monkeypatch.setitem(globals(), "read_request_table", read_biased_table)
    verdict = measure_report(1.0, f"{SEED}")
    assert not verdict.controls.void
    monkeypatch.setitem(globals(), "REPORTS", 1)
    monkeypatch.setitem(globals(), "measure_reports", lambda *_: [verdict])
    with pytest.raises(AssertionError):
        test_few_reports_of_equal_servers_say_a_difference(f"{SEED}")


def measure_reports(speed_up: float, seed: str) -> Sequence[Verdict]:
    """Measure REPORTS reports, AT_ONCE at a time: they wait most of their time."""
    seeds = [f"{seed} {speed_up} {number}" for number in range(REPORTS)]
    with ProcessPoolExecutor(AT_ONCE, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(measure_report, itertools.repeat(speed_up), seeds))


def print_words(verdicts: Sequence[Verdict], seed: str) -> None:
    """Print what the reports said: the proof's figures."""
    headlines = Counter(headline.verdict for verdict in verdicts for headline in verdict.headlines)
    cells = Counter(cell.verdict for verdict in verdicts for cell in verdict.cells)
    failed = Counter(
        check.name
        for verdict in verdicts
        for check in verdict.controls.checks
        if check.result == "failed"
    )
    print(  # noqa: T201
        f"seed {seed}: headlines {dict(headlines)}; cells {dict(cells)}; controls failed"
        f" {dict(failed)}"
    )


@pytest.mark.proof
@pytest.mark.xdist_group("http reports")
def test_few_reports_of_equal_servers_say_a_difference(proof_seed):
    verdicts = measure_reports(1.0, proof_seed)
    print_words(verdicts, proof_seed)
    void = sum(bool(verdict.controls.void) for verdict in verdicts)
    false = sum(any(map(is_decided, words_of(verdict))) for verdict in verdicts)
    # a void report says nothing false: on a busy machine this proves nothing
    assert void <= MOST_VOID * REPORTS
    assert false <= MOST_FALSE * REPORTS


@pytest.mark.proof
@pytest.mark.xdist_group("http reports")
def test_nearly_all_reports_find_a_true_speed_up(proof_seed):
    verdicts = measure_reports(SPEED_UP, proof_seed)
    print_words(verdicts, proof_seed)
    result = sum("faster" in verdict.headlines[0].verdict for verdict in verdicts)
    assert result >= LEAST_FOUND * REPORTS
