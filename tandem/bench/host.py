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
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from tandem.bench.manifest import HostInfo

LAG_INTERVAL_S = 0.02  # how often the lag is measured
LAG_QUANTILES = (0.5, 0.9, 0.99, 1.0)
MAX_LAG_S = 0.005  # at p99; a token of a fast server takes 10 ms
MAX_CLIENT_CPU = 0.8  # of one CPU: an event loop has no more than one
PROC_STAT = Path("/proc/stat")
IDLE = slice(3, 5)  # idle and iowait (proc_stat(5))
FIRST_GUEST = 8  # guest time is part of user time already


def list_warnings(host: HostInfo) -> list[str]:
    """Return what a reader of a run's figures must know of the machine that measured them, in sentences."""
    warnings, load_1m, lag_p99_s, client_cpu = [], host.load_1m_start or 0, host.lag_p99_s or 0, host.client_cpu or 0
    if load_1m > host.cpus:
        load = f"load {load_1m:.1f} on {host.cpus} CPUs"
        warnings.append(f"this machine was busy before the run began ({load}): run on an idle one")
    if lag_p99_s > MAX_LAG_S or client_cpu > MAX_CLIENT_CPU:
        cause = "" if client_cpu > MAX_CLIENT_CPU else "other work took the CPUs; "
        lag = f"{1000 * lag_p99_s:.1f} ms (p99 of the event loop's lag; at most {1000 * MAX_LAG_S:.0f})"
        change = "lower --concurrency, or measure from a machine with idle CPUs"
        client = f"this client took {client_cpu:.0%} of a CPU"
        warnings.append(f"times may be late by up to {lag}: {cause}{client}; {change}")
    return warnings


class HostSample(NamedTuple):
    """What was seen since the sample before; `HostInfo` says what the figures are.

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


class _SampleStart(NamedTuple):
    """Where a sample begins: on the monotonic clock, in this process's and in all CPUs' time, among the lags."""

    wall_s: float
    cpu_s: float
    cpu_times: tuple[int, int] | None
    lag_index: int


class HostWatch:
    """Watches from its making, or the last `start`, to `end`; meanwhile `sample` tells of its parts."""

    def __init__(self) -> None:
        self._sleeper: asyncio.Task[None] | None = None
        self._is_excluding = False
        self.start()

    def start(self) -> None:
        """Begin anew, for instance once a warm-up has ended; inside the event loop that is watched."""
        self._lags = array("d")
        self._start = self._sample_start = self._read_start()
        self._sleeper = self._sleeper or asyncio.create_task(self._sleep())

    @contextlib.contextmanager
    def exclude(self) -> Iterator[None]:
        """Leave out the lag, and what this process takes, while nothing is measured."""
        self._is_excluding, before = True, self._read_start()
        try:
            yield
        finally:
            self._is_excluding, after = False, self._read_start()
            wall_s, cpu_s = after.wall_s - before.wall_s, after.cpu_s - before.cpu_s
            self._start, self._sample_start = (
                start._replace(wall_s=start.wall_s + wall_s, cpu_s=start.cpu_s + cpu_s)
                for start in (self._start, self._sample_start)
            )

    def sample(self) -> HostSample:
        """Return what was seen since the last lap, or the start, and begin the next."""
        sample = self._sample_since(self._sample_start)
        self._sample_start = self._read_start()
        return sample

    async def end(self, host: HostInfo) -> HostInfo:
        """Stop watching and return `host` with what was seen."""
        assert self._sleeper is not None
        self._sleeper.cancel()
        await asyncio.gather(self._sleeper, return_exceptions=True)
        sample = self._sample_since(self._start)._asdict()
        figures = {name: value for name, value in sample.items() if name in HostInfo.__struct_fields__}
        return msgspec.structs.replace(host, load_1m_end=read_load_1m(), **figures)

    def _read_start(self) -> _SampleStart:
        return _SampleStart(time.monotonic(), time.process_time(), _read_cpu_times(), len(self._lags))

    def _sample_since(self, start: _SampleStart) -> HostSample:
        now, lags = self._read_start(), sorted(self._lags[start.lag_index :])
        wall_s, busy = now.wall_s - start.wall_s, None
        if start.cpu_times and now.cpu_times and now.cpu_times[1] > start.cpu_times[1]:
            worked, total = (after - before for before, after in zip(start.cpu_times, now.cpu_times, strict=True))
            busy = round(worked / total, 4)
        last = len(lags) - 1
        p50, p90, p99, most = (lags[min(int(share * len(lags)), last)] if lags else None for share in LAG_QUANTILES)
        client_cpu = (now.cpu_s - start.cpu_s) / wall_s if wall_s > 0 else None
        return HostSample(wall_s, busy, client_cpu, p50, p90, p99, most, len(lags))

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


def read_host() -> HostInfo:
    """Return what is known of this machine before anything is measured on it; of its CPUs those that may be used."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return HostInfo(cpus=cpus, python=platform.python_version(), load_1m_start=read_load_1m())


def _read_cpu_times() -> tuple[int, int] | None:
    """Return busy and all jiffies of all CPUs since the start of this machine."""
    try:
        jiffies = [int(value) for value in PROC_STAT.read_text().split("\n", 1)[0].split()[1:][:FIRST_GUEST]]
    except (OSError, ValueError):
        return None
    return sum(jiffies) - sum(jiffies[IDLE]), sum(jiffies)
