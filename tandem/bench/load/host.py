"""The load of the measuring machine, and whether the client itself was the bottleneck.

Invariant: nothing here blocks; a figure that this system does not give is None.

A sleeping task measures the lag of the event loop: the delay of its wake-up is the possible delay
of a chunk's time. The times of chunks have this error, so the manifest has the lag of the run, and
rounds.jsonl the lag of each round: one line when a round ends or is cut; a resumed round has a line
for each part. `tandem.judge.controls` reads the figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import time
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tandem.bench.records.json_file import read_json_lines
from tandem.bench.records.manifest import HostInfo

FILE = "rounds.jsonl"

LAG_INTERVAL_S = 0.02  # between two measurements of the lag
LAG_QUANTILES = (0.5, 0.9, 0.99, 1.0)
MAX_LAG_S = 0.005  # at p99; a token of a fast server takes 10 ms
MAX_CLIENT_CPU = 0.8  # of one CPU: an event loop uses at most one
PROC_STAT = Path("/proc/stat")
IDLE = slice(3, 5)  # idle and iowait (proc_stat(5))
FIRST_GUEST = 8  # user time already includes guest time


def list_warnings(host: HostInfo) -> list[str]:
    """Return warnings about the measuring machine, in sentences for a reader of the figures."""
    warnings = []
    load_1m = host.load_1m_start or 0
    lag_p99_s = host.lag_p99_s or 0
    client_cpu = host.client_cpu or 0
    if load_1m > host.cpus:
        load = f"load {load_1m:.1f} on {host.cpus} CPUs"
        warnings.append(f"this machine was busy before the run began ({load}): run on an idle one")
    if lag_p99_s > MAX_LAG_S or client_cpu > MAX_CLIENT_CPU:
        cause = "" if client_cpu > MAX_CLIENT_CPU else "the machine was busy; "
        lag = (
            f"{1000 * lag_p99_s:.1f} ms (p99 of the event loop's lag; at most"
            f" {1000 * MAX_LAG_S:.0f})"
        )
        change = "lower the concurrency, or measure from a machine with idle CPUs"
        client = f"this client took {client_cpu:.0%} of a CPU"
        warnings.append(f"times may be late by up to {lag}: {cause}{client}; {change}")
    return warnings


class RoundLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The measuring machine during one round, or one part of it.

    Args:
        round: number of the round, from 0.
        wall_s: length of the watch.
        cpu_busy: busy share of all CPUs, 0 to 1.
        client_cpu: CPUs used by the measuring process; 1 is one whole CPU.
        lag_p50_s, lag_p90_s, lag_p99_s, lag_max_s: delay of the event loop's wake-ups.
        wakes: number of these wake-ups.
    """

    round: int
    wall_s: float
    cpu_busy: float | None = None
    client_cpu: float | None = None
    lag_p50_s: float | None = None
    lag_p90_s: float | None = None
    lag_p99_s: float | None = None
    lag_max_s: float | None = None
    wakes: int = 0


class HostWatch:
    """Watch on a run's rounds, without the time between, in the loop that sends requests."""

    def __init__(self) -> None:
        self._total_times = [0.0] * 4
        self._total_lags = array("d")

    def begin_round(self) -> None:
        """Start the watch of a round."""
        self._lags = array("d")
        self._start_times = _read_times()
        self._sleeper = asyncio.create_task(self._sleep())

    def end_round(self, number: int) -> RoundLoad:
        """Stop the watch and return the load of round `number`."""
        self._sleeper.cancel()
        times = [
            after - before for before, after in zip(self._start_times, _read_times(), strict=True)
        ]
        self._total_times = [
            total + part for total, part in zip(self._total_times, times, strict=True)
        ]
        self._total_lags += self._lags
        return _summarize_load(number, times, self._lags)

    def complete_host(self, host: HostInfo) -> HostInfo:
        """Return `host` with the figures of all rounds."""
        figures = msgspec.structs.asdict(_summarize_load(0, self._total_times, self._total_lags))
        figures = {
            name: value for name, value in figures.items() if name in HostInfo.__struct_fields__
        }
        return msgspec.structs.replace(host, load_1m_end=read_load_1m(), **figures)

    async def _sleep(self) -> None:
        while True:
            sleep_start_s = time.monotonic()
            await asyncio.sleep(LAG_INTERVAL_S)
            self._lags.append(max(time.monotonic() - sleep_start_s - LAG_INTERVAL_S, 0.0))


def _summarize_load(number: int, times: Sequence[float], lags: Sequence[float]) -> RoundLoad:
    wall_s, cpu_s, busy, jiffies = times
    ordered = sorted(lags)
    quantiles_s: list[float | None] = [None] * len(LAG_QUANTILES)
    if ordered:
        places = (min(int(share * len(ordered)), len(ordered) - 1) for share in LAG_QUANTILES)
        quantiles_s = [ordered[place] for place in places]
    p50_s, p90_s, p99_s, max_s = quantiles_s
    return RoundLoad(
        round=number,
        wall_s=wall_s,
        cpu_busy=round(busy / jiffies, 4) if jiffies else None,
        client_cpu=cpu_s / wall_s if wall_s else None,
        lag_p50_s=p50_s,
        lag_p90_s=p90_s,
        lag_p99_s=p99_s,
        lag_max_s=max_s,
        wakes=len(lags),
    )


def read_round_loads(folder: Path) -> Iterator[RoundLoad]:
    """Yield the recorded loads; none if the file does not exist. A torn last line is skipped.

    Raises:
        InputError: the file cannot be read, or a line is no load of a round.
    """
    path = folder / FILE
    if path.exists():
        change = "see that it may be read, or remove it: then no round is marked"
        yield from read_json_lines(path, RoundLoad, label="the load of the rounds", change=change)


def read_load_1m() -> float | None:
    """Return the one-minute load average; None if the system gives none."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def read_host() -> HostInfo:
    """Return the facts of this machine before a run; `cpus`: those this process may use."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return HostInfo(cpus=cpus, python=platform.python_version(), load_1m_start=read_load_1m())


def _read_times() -> tuple[float, float, int, int]:
    """Return the monotonic clock, our CPU time, busy and all jiffies of all CPUs (0: unknown)."""
    jiffies = [0]
    with contextlib.suppress(OSError, ValueError):
        first_line = PROC_STAT.read_text().partition("\n")[0]
        jiffies = [int(word) for word in first_line.split()[1 : 1 + FIRST_GUEST]]
    return time.monotonic(), time.process_time(), sum(jiffies) - sum(jiffies[IDLE]), sum(jiffies)
