"""A publish in a process of its own that is killed at a chosen request, and run again until it is done."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doubles.fault_proxy.proxy import FaultProxy
from publishing import Published

ROOT = Path(__file__).resolve().parents[2]
END_S = 120
MOST_RUNS = 20


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When to kill: at the so many-th of these requests, before it is sent on or when it is done and not answered."""

    when: str
    operation: str
    number: int

    @staticmethod
    def drawn(chance: random.Random, most: int) -> Moment:
        operation = chance.choice(["PutMetricData", "PutMetricData", "PutObject", "GetMetricData"])
        number = chance.randint(1, most if operation != "GetMetricData" else 1)
        return Moment(when=chance.choice(["asked", "done"]), operation=operation, number=number)


def start(published: Published) -> subprocess.Popen[bytes]:
    made = published.made_of
    arguments = [published.url, published.endpoint.region, published.bucket, published.environment, published.folder,
                 made.seed, made.number, made.first_s, made.step_s, made.gaps]  # fmt: skip
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("publishing.py")), *map(str, arguments)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "AWS_EC2_METADATA_DISABLED": "true"},
    )  # fmt: skip


def killed(published: Published, proxy: FaultProxy, moment: Moment) -> bool:
    """Start a publish and kill it at a moment; whether it still ran then."""
    process, count, lock = start(published), itertools.count(1), threading.Lock()

    def watch(when: str, request: Any) -> None:
        with lock:
            matches = (when, request.operation) == (moment.when, moment.operation)
            here = next(count) if matches else 0
        if here == moment.number:
            process.kill()

    try:
        proxy.moment_callback = watch
        return process.wait(END_S) == -signal.SIGKILL
    finally:
        proxy.moment_callback = None
        _settled(proxy)


def until_done(published: Published) -> int:
    """Run until it ends with 0; how often it was run."""
    for run in range(1, MOST_RUNS + 1):
        if start(published).wait(END_S) == 0:
            return run
    raise AssertionError(f"not done after {MOST_RUNS} runs")


def _settled(proxy: FaultProxy) -> None:
    """Wait until the endpoint has done with what the killed process had asked for."""
    until = time.monotonic() + 30
    while any(one.ended_s is None for one in proxy.log) and time.monotonic() < until:
        time.sleep(0.005)
