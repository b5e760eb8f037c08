"""When a request was begun, by the clocks of a run that was resumed, suspended or moved to a
machine started anew."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from measured import run_manifest

from tandem.bench.figures.clocks import compute_utc_s
from tandem.bench.records.manifest import ClockReading
from tandem.errors import InputError

NOON = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
HOUR_S = 3600.0


def clock(monotonic_s: float, after_noon_s: float) -> ClockReading:
    """A clock that was read so long after noon."""
    utc = (NOON + dt.timedelta(seconds=after_noon_s)).isoformat()
    return ClockReading(source="monotonic", resolution_s=1e-9, monotonic_s=monotonic_s, utc=utc)


def after_noon(clocks: list[ClockReading], *requests: tuple[float, float]) -> list[float]:
    """Seconds after noon of requests that are stated as start and length, in the order of the
    file."""
    start_s, length_s = np.array(requests, float).reshape(-1, 2).T
    run = run_manifest(clock=clocks[0], resumed=tuple(clocks[1:]))
    return [
        float(value) for value in compute_utc_s(run, start_s, start_s + length_s) - NOON.timestamp()
    ]


SLEPT = [clock(1000.0, 0), clock(1100.0, 5 * HOUR_S)]
REBOOTED = [clock(50_000.0, 0), clock(40.0, 2 * HOUR_S)]
TWICE = [clock(9000.0, 0), clock(80.0, HOUR_S), clock(70.0, 2 * HOUR_S)]
CASES = {
    "resumed, the calendar set by 3 s meanwhile": (
        [clock(1000.0, 0), clock(8200.0, 7203)],
        [(1010.0, 1), (8199.0, 1), (8201.0, 1)],
        [10.0, 7199.0, 7204.0],
    ),
    "a machine that slept": (SLEPT, [(1010.0, 1), (1101.0, 1)], [10.0, 5 * HOUR_S + 1]),
    "a reboot, told by the order of the file": (
        REBOOTED,
        [(50_010.0, 1), (51_000.0, 1), (45.0, 1), (100.0, 1)],
        [10.0, 1000.0, 2 * HOUR_S + 5, 2 * HOUR_S + 60],
    ),
    "two reboots": (
        TWICE,
        [(9001.0, 1), (81.0, 1), (900.0, 1), (71.0, 1), (901.0, 1)],
        [1.0, HOUR_S + 1, HOUR_S + 820, 2 * HOUR_S + 1, 2 * HOUR_S + 831],
    ),
    "a reboot within a minute": (
        [clock(30.0, 0), clock(20.0, 40)],
        [(40.0, 1), (21.0, 1), (35.0, 1)],
        [10.0, 41.0, 55.0],
    ),
    "ends in another order than begins": (
        [clock(1000.0, 0), clock(40.0, 9 * HOUR_S)],
        [(1050.0, 1), (1000.0, 60), (1051.0, 9)],
        [50.0, 0.0, 51.0],
    ),
    "no request": ([clock(10.0, 0)], [], []),
}


@pytest.mark.parametrize("case", CASES)
def test_a_request_is_put_on_the_calendar(case):
    clocks, requests, moments = CASES[case]
    assert after_noon(clocks, *requests) == moments


def test_a_clock_that_shows_no_moment_is_refused():
    bad = ClockReading(source="monotonic", resolution_s=1e-9, monotonic_s=1.0, utc="noon")
    with pytest.raises(InputError, match="'noon' is no moment"):
        after_noon([bad], (1.0, 1.0))
