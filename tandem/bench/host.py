"""The measuring machine: how busy it was, and whether the client itself was the bottleneck.

Invariant: nothing here waits for anything; a figure that this system does not give is None.

The lag of the event loop is measured by a sleeper: how much later than asked it wakes is how late a chunk's time may
have been taken. Times of chunks carry this error, so it stands in the manifest.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

STEP_S = 0.02  # how often the lag is measured
MOST_LAG_S = 0.005  # at p99; a token of a fast server takes 10 ms
MOST_CPU = 0.8  # of one CPU: an event loop has no more than one
STAT = Path("/proc/stat")
IDLE = slice(3, 5)  # idle and iowait (proc_stat(5))
FIRST_GUEST = 8  # guest time is part of user time already


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What was seen between a `HostWatch`'s start and end.

    Args:
        load_1m_start, load_1m_end: one-minute load averages.
        cpu_busy: share of all CPUs that worked, 0 to 1.
        client_cpu: share of one CPU that this process took; above 1 where its threads ran at once.
        lag_p50_s, lag_p99_s, lag_max_s: how much later than asked the event loop woke.
    """

    load_1m_start: float | None
    load_1m_end: float | None
    cpu_busy: float | None
    client_cpu: float | None
    lag_p50_s: float | None
    lag_p99_s: float | None
    lag_max_s: float | None

    def warnings(self, cpus: int) -> list[str]:
        """Return what a reader of the figures must know, in sentences."""
        said = []
        if self.load_1m_start is not None and self.load_1m_start > cpus:
            said.append(
                f"this machine was busy before the run began (load {self.load_1m_start:.1f} on {cpus} CPUs): "
                "run on an idle one"
            )
        late = self.lag_p99_s is not None and self.lag_p99_s > MOST_LAG_S
        full = self.client_cpu is not None and self.client_cpu > MOST_CPU
        if late or full:
            why = "this client took" if full else "other work took the CPUs; this client took"
            said.append(
                f"times may be late by up to {1000 * (self.lag_p99_s or 0):.1f} ms (p99 of the event loop's lag; at "
                f"most {1000 * MOST_LAG_S:.0f}): {why} {self.client_cpu or 0:.0%} of a CPU; lower --concurrency, or "
                "measure from a machine with idle CPUs"
            )
        return said


class Lap(NamedTuple):
    """What was seen since the lap before; `Load` says what the figures are.

    Args:
        wall_s: how long that was, what was left out not counted.
        wakes: how often the lag was measured.
    """

    wall_s: float
    cpu_busy: float | None
    client_cpu: float | None
    lag_p50_s: float | None
    lag_p90_s: float | None
    lag_p99_s: float | None
    lag_max_s: float | None
    wakes: int


class HostWatch:
    """Watches from its making, or the last `start`, to `end`; meanwhile `lap` tells of its parts."""

    def __init__(self) -> None:
        self._sleeper: asyncio.Task[None] | None = None
        self._apart = False
        self.start()

    def start(self) -> None:
        """Begin anew, for instance once a warm-up has ended; inside the event loop that is watched."""
        self._load, self._stat = load_1m(), _cpu_times()
        self._wall, self._cpu = time.monotonic(), time.process_time()
        self._lags = array("d")
        self._lap = self._wall, self._cpu, self._stat, 0
        self._sleeper = self._sleeper or asyncio.create_task(self._sleep())

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Leave out the lag, and what this process takes, while nothing is measured."""
        self._apart, wall, cpu = True, time.monotonic(), time.process_time()
        try:
            yield
        finally:
            self._apart = False
            wall, cpu = time.monotonic() - wall, time.process_time() - cpu
            self._wall, self._cpu = self._wall + wall, self._cpu + cpu
            since, taken, stat, first = self._lap
            self._lap = since + wall, taken + cpu, stat, first

    def lap(self) -> Lap:
        """Return what was seen since the last lap, or the start, and begin the next."""
        now = time.monotonic(), time.process_time(), _cpu_times(), len(self._lags)
        wall, cpu, stat, first = self._lap
        self._lap = now
        wall_s, lags = now[0] - wall, sorted(self._lags[first:])
        return Lap(
            wall_s=wall_s, cpu_busy=_busy(stat, now[2]), client_cpu=(now[1] - cpu) / wall_s if wall_s > 0 else None,
            lag_p50_s=_quantile(lags, 0.5), lag_p90_s=_quantile(lags, 0.9), lag_p99_s=_quantile(lags, 0.99),
            lag_max_s=_quantile(lags, 1.0), wakes=len(lags),
        )  # fmt: skip

    async def end(self) -> Load:
        """Stop watching and return what was seen."""
        assert self._sleeper is not None
        self._sleeper.cancel()
        await asyncio.gather(self._sleeper, return_exceptions=True)
        wall, lags = time.monotonic() - self._wall, sorted(self._lags)
        return Load(
            load_1m_start=self._load, load_1m_end=load_1m(), cpu_busy=_busy(self._stat, _cpu_times()),
            client_cpu=(time.process_time() - self._cpu) / wall if wall > 0 else None,
            lag_p50_s=_quantile(lags, 0.5), lag_p99_s=_quantile(lags, 0.99), lag_max_s=_quantile(lags, 1.0),
        )  # fmt: skip

    async def _sleep(self) -> None:
        while True:
            asked, apart = time.monotonic(), self._apart
            await asyncio.sleep(STEP_S)
            if not (apart or self._apart):
                self._lags.append(max(time.monotonic() - asked - STEP_S, 0.0))


def load_1m() -> float | None:
    """Return the one-minute load average."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def cpus() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def python() -> str:
    """Return the interpreter's version."""
    return platform.python_version()


def _quantile(rising: Sequence[float], share: float) -> float | None:
    return rising[min(int(share * len(rising)), len(rising) - 1)] if rising else None


def _cpu_times() -> tuple[int, int] | None:
    """Return busy and all jiffies of all CPUs since the start of this machine."""
    try:
        fields = [int(value) for value in STAT.read_text().split("\n", 1)[0].split()[1:][:FIRST_GUEST]]
    except (OSError, ValueError):
        return None
    return sum(fields) - sum(fields[IDLE]), sum(fields)


def _busy(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    if before is None or after is None or after[1] <= before[1]:
        return None
    return round((after[0] - before[0]) / (after[1] - before[1]), 4)
