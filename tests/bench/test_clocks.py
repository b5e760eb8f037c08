"""When a request was begun, by the clocks of a run that was resumed, suspended or moved to a machine started anew."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from measured import run_manifest

from tandem.bench.clocks import compute_utc_s
from tandem.bench.fault import BenchError
from tandem.bench.manifest import ClockReading

NOON = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
HOUR_S = 3600.0


def clock(monotonic_s: float, after_noon_s: float) -> ClockReading:
    """A clock that was read so long after noon."""
    utc = (NOON + dt.timedelta(seconds=after_noon_s)).isoformat()
    return ClockReading(source="monotonic", resolution_s=1e-9, monotonic_s=monotonic_s, utc=utc)


def after_noon(clocks: list[ClockReading], *requests: tuple[float, float]) -> list[float]:
    """Seconds after noon of requests that are stated as start and length, in the order of the file."""
    start_s, length_s = np.array(requests, float).reshape(-1, 2).T
    run = run_manifest(clock=clocks[0], resumed=tuple(clocks[1:]))
    return [float(value) for value in compute_utc_s(run, start_s, start_s + length_s) - NOON.timestamp()]


def test_a_request_is_as_long_after_the_clock_as_both_clocks_say() -> None:
    assert after_noon([clock(1000.0, 0)], (1000.0, 1), (1090.5, 1)) == [0.0, 90.5]


def test_a_moment_before_the_clock_was_read_lies_before_it() -> None:
    assert after_noon([clock(1000.0, 0)], (990.0, 1)) == [-10.0]


def test_a_resumed_run_goes_by_the_clock_that_was_read_when_it_was_resumed() -> None:
    clocks = [clock(1000.0, 0), clock(8200.0, 7200 + 3)]  # the calendar was set by 3 s meanwhile

    assert after_noon(clocks, (1010.0, 1), (8199.0, 1), (8201.0, 1)) == [10.0, 7199.0, 7204.0]


def test_a_machine_that_slept_before_it_resumed_has_another_zero() -> None:
    clocks = [clock(1000.0, 0), clock(1100.0, 5 * HOUR_S)]

    assert after_noon(clocks, (1010.0, 1), (1101.0, 1)) == [10.0, 5 * HOUR_S + 1]


def test_after_a_reboot_the_order_of_the_file_tells_the_clocks_apart() -> None:
    clocks = [clock(50_000.0, 0), clock(40.0, 2 * HOUR_S)]

    assert after_noon(clocks, (50_010.0, 1), (51_000.0, 1), (45.0, 1), (100.0, 1)) == [
        10.0, 1000.0, 2 * HOUR_S + 5, 2 * HOUR_S + 60,
    ]  # fmt: skip


def test_a_first_boot_that_ran_past_the_second_ones_clock_keeps_its_own() -> None:
    clocks = [clock(50.0, 0), clock(500.0, 2 * HOUR_S)]

    assert after_noon(clocks, (60.0, 1), (1000.0, 1), (501.0, 1), (1200.0, 1)) == [
        10.0, 950.0, 2 * HOUR_S + 1, 2 * HOUR_S + 700,
    ]  # fmt: skip


def test_a_second_boot_that_was_further_on_than_the_first_ever_was_has_its_own_clock() -> None:
    clocks = [clock(50.0, 0), clock(5000.0, 3 * HOUR_S)]

    assert after_noon(clocks, (60.0, 1), (5001.0, 1)) == [10.0, 3 * HOUR_S + 1]


def test_two_reboots_have_three_clocks() -> None:
    clocks = [clock(9000.0, 0), clock(80.0, HOUR_S), clock(70.0, 2 * HOUR_S)]

    assert after_noon(clocks, (9001.0, 1), (81.0, 1), (900.0, 1), (71.0, 1), (901.0, 1)) == [
        1.0, HOUR_S + 1, HOUR_S + 820, 2 * HOUR_S + 1, 2 * HOUR_S + 831,
    ]  # fmt: skip


def test_a_reboot_within_a_minute_is_one() -> None:
    clocks = [clock(30.0, 0), clock(20.0, 40)]

    assert after_noon(clocks, (40.0, 1), (21.0, 1), (35.0, 1)) == [10.0, 41.0, 55.0]


def test_the_clocks_of_two_reboots_are_never_taken_in_another_order() -> None:
    clocks = [clock(9000.0, 0), clock(80.0, HOUR_S), clock(70.0, 2 * HOUR_S)]

    assert after_noon(clocks, (9001.0, 1), (71.0, 30), (85.0, 1)) == [1.0, 2 * HOUR_S + 1, 2 * HOUR_S + 15]


def test_a_run_that_was_resumed_again_after_a_reboot_goes_on_by_the_latest_clock() -> None:
    clocks = [clock(9000.0, 0), clock(80.0, HOUR_S), clock(280.0, HOUR_S + 200 + 2)]

    assert after_noon(clocks, (9001.0, 1), (81.0, 1), (281.0, 1)) == [1.0, HOUR_S + 1, HOUR_S + 203]


def test_a_clock_whose_run_recorded_nothing_is_passed_over() -> None:
    clocks = [clock(9000.0, 0), clock(800.0, HOUR_S), clock(70.0, 2 * HOUR_S)]

    assert after_noon(clocks, (9001.0, 1), (75.0, 1)) == [1.0, 2 * HOUR_S + 5]


def test_requests_that_end_in_another_order_than_they_began_are_of_one_boot() -> None:
    clocks = [clock(1000.0, 0), clock(40.0, 9 * HOUR_S)]

    assert after_noon(clocks, (1050.0, 1), (1000.0, 60), (1051.0, 9)) == [50.0, 0.0, 51.0]


def test_no_step_in_the_file_is_a_reboot_where_no_clock_was_read_anew() -> None:
    assert after_noon([clock(10.0, 0)], (1000.0, 1), (20.0, 1)) == [990.0, 10.0]


def test_no_request_has_no_moment() -> None:
    assert after_noon([clock(10.0, 0)]) == []


def test_a_clock_that_shows_no_moment_is_refused() -> None:
    bad = ClockReading(source="monotonic", resolution_s=1e-9, monotonic_s=1.0, utc="noon")

    with pytest.raises(BenchError, match="'noon' is no moment"):
        after_noon([bad], (1.0, 1.0))


def test_a_first_run_that_recorded_nothing_before_the_reboot_leaves_all_to_the_second() -> None:
    clocks = [clock(1000.0, 0), clock(40.0, HOUR_S)]

    assert after_noon(clocks, (50.0, 1), (90.0, 1)) == [HOUR_S + 10, HOUR_S + 50]
