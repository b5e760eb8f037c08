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

LAG_INTERVAL_S = 0.02  # how often the lag is measured
MAX_LAG_S = 0.005  # at p99; a token of a fast server takes 10 ms
MAX_CLIENT_CPU = 0.8  # of one CPU: an event loop has no more than one
PROC_STAT = Path("/proc/stat")
IDLE = slice(3, 5)  # idle and iowait (proc_stat(5))
FIRST_GUEST = 8  # guest time is part of user time already


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
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
        warnings = []
        if self.load_1m_start is not None and self.load_1m_start > cpus:
            warnings.append(
                f"this machine was busy before the run began (load {self.load_1m_start:.1f} on {cpus} CPUs): "
                "run on an idle one"
            )
        is_late = self.lag_p99_s is not None and self.lag_p99_s > MAX_LAG_S
        is_busy = self.client_cpu is not None and self.client_cpu > MAX_CLIENT_CPU
        if is_late or is_busy:
            cause = "this client took" if is_busy else "other work took the CPUs; this client took"
            warnings.append(
                f"times may be late by up to {1000 * (self.lag_p99_s or 0):.1f} ms (p99 of the event loop's lag; at "
                f"most {1000 * MAX_LAG_S:.0f}): {cause} {self.client_cpu or 0:.0%} of a CPU; lower --concurrency, or "
                "measure from a machine with idle CPUs"
            )
        return warnings


class HostSample(NamedTuple):
    """What was seen since the lap before; `HostLoad` says what the figures are.

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
    """Watches from its making, or the last `start`, to `end`; meanwhile `sample` tells of its parts."""

    def __init__(self) -> None:
        self._sleeper: asyncio.Task[None] | None = None
        self._is_excluding = False
        self.start()

    def start(self) -> None:
        """Begin anew, for instance once a warm-up has ended; inside the event loop that is watched."""
        self._start_load_1m, self._start_cpu_times = read_load_1m(), _read_cpu_times()
        self._start_s, self._start_cpu_s = time.monotonic(), time.process_time()
        self._lags = array("d")
        self._sample_start = self._start_s, self._start_cpu_s, self._start_cpu_times, 0
        self._sleeper = self._sleeper or asyncio.create_task(self._sleep())

    @contextlib.contextmanager
    def exclude(self) -> Iterator[None]:
        """Leave out the lag, and what this process takes, while nothing is measured."""
        self._is_excluding, wall, cpu = True, time.monotonic(), time.process_time()
        try:
            yield
        finally:
            self._is_excluding = False
            wall, cpu = time.monotonic() - wall, time.process_time() - cpu
            self._start_s, self._start_cpu_s = self._start_s + wall, self._start_cpu_s + cpu
            sample_start_s, sample_cpu_s, sample_cpu_times, first_lag = self._sample_start
            self._sample_start = sample_start_s + wall, sample_cpu_s + cpu, sample_cpu_times, first_lag

    def sample(self) -> HostSample:
        """Return what was seen since the last lap, or the start, and begin the next."""
        now = time.monotonic(), time.process_time(), _read_cpu_times(), len(self._lags)
        start_s, start_cpu_s, start_cpu_times, first_lag = self._sample_start
        self._sample_start = now
        wall_s, lags = now[0] - start_s, sorted(self._lags[first_lag:])
        return HostSample(
            wall_s=wall_s,
            cpu_busy=_compute_busy_share(start_cpu_times, now[2]),
            client_cpu=(now[1] - start_cpu_s) / wall_s if wall_s > 0 else None,
            lag_p50_s=_read_quantile(lags, 0.5),
            lag_p90_s=_read_quantile(lags, 0.9),
            lag_p99_s=_read_quantile(lags, 0.99),
            lag_max_s=_read_quantile(lags, 1.0),
            wakes=len(lags),
        )

    async def end(self) -> HostLoad:
        """Stop watching and return what was seen."""
        assert self._sleeper is not None
        self._sleeper.cancel()
        await asyncio.gather(self._sleeper, return_exceptions=True)
        wall, lags = time.monotonic() - self._start_s, sorted(self._lags)
        return HostLoad(
            load_1m_start=self._start_load_1m,
            load_1m_end=read_load_1m(),
            cpu_busy=_compute_busy_share(self._start_cpu_times, _read_cpu_times()),
            client_cpu=(time.process_time() - self._start_cpu_s) / wall if wall > 0 else None,
            lag_p50_s=_read_quantile(lags, 0.5),
            lag_p99_s=_read_quantile(lags, 0.99),
            lag_max_s=_read_quantile(lags, 1.0),
        )

    async def _sleep(self) -> None:
        while True:
            sleep_start_s, was_excluding = time.monotonic(), self._is_excluding
            await asyncio.sleep(LAG_INTERVAL_S)
            if not (was_excluding or self._is_excluding):
                self._lags.append(max(time.monotonic() - sleep_start_s - LAG_INTERVAL_S, 0.0))


def read_load_1m() -> float | None:
    """Return the one-minute load average."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def count_cpus() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def python_version() -> str:
    """Return the interpreter's version."""
    return platform.python_version()


def _read_quantile(sorted_lags: Sequence[float], share: float) -> float | None:
    return sorted_lags[min(int(share * len(sorted_lags)), len(sorted_lags) - 1)] if sorted_lags else None


def _read_cpu_times() -> tuple[int, int] | None:
    """Return busy and all jiffies of all CPUs since the start of this machine."""
    try:
        jiffies = [int(value) for value in PROC_STAT.read_text().split("\n", 1)[0].split()[1:][:FIRST_GUEST]]
    except (OSError, ValueError):
        return None
    return sum(jiffies) - sum(jiffies[IDLE]), sum(jiffies)


def _compute_busy_share(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    if before is None or after is None or after[1] <= before[1]:
        return None
    return round((after[0] - before[0]) / (after[1] - before[1]), 4)
