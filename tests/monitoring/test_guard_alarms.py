"""Alarms on the fleet and on what stops it: what they read, that nothing mutes them, and series in
which they fire."""

from __future__ import annotations

import re
from itertools import pairwise

import alarmed
import pytest
from alarmed import MINUTE, START
from doubles.cloudwatch.alarm_state import compute_states, list_notifications
from doubles.cloudwatch.series_store import MetricKey, SeriesStore
from hosted import ENVIRONMENTS as NAMES
from hosted import watched

from tandem import metrics
from tandem.declarations import names
from tandem.monitoring.alarm import MetricAlarm
from tandem.monitoring.guard_alarms import build_guard_alarms
from tandem.monitoring.widget import MetricLine

HOME = "post-us-east-2"
ENVIRONMENTS = {name: watched(name).environment for name in NAMES}
ENVIRONMENT = ENVIRONMENTS[HOME]
FOUND = build_guard_alarms(ENVIRONMENT)
PASS = 5  # minutes
every_environment = pytest.mark.parametrize("name", ENVIRONMENTS)


def of(name: str) -> MetricAlarm:
    (found,) = [alarm for alarm in FOUND.alarms if alarm.name == f"{HOME}-{name}"]
    return found


def line(alarm: MetricAlarm) -> MetricLine:
    (found,) = alarm.lines
    assert isinstance(found, MetricLine)
    return found


def series(alarm: MetricAlarm, *values: float | None) -> SeriesStore:
    """One value a pass of what an alarm reads; None where nothing is sent."""
    read = line(alarm)
    found = SeriesStore()
    for at, value in enumerate(values):
        if value is not None:
            found.add(
                MetricKey.from_dimensions(read.namespace, read.metric, read.dimensions),
                START + MINUTE * PASS * at,
                {value: 1},
            )
    return found


def fired(alarm: MetricAlarm, *values: float | None, more: int = 0) -> list[int]:
    """The minutes after START in which it goes into alarm, by one value a pass; `more` passes bring
    nothing."""
    found = compute_states(
        alarm, series(alarm, *values), START, START + MINUTE * PASS * (len(values) + more)
    )
    times = sorted(found)
    return [
        (at - START) // MINUTE
        for before, at in pairwise(times)
        if found[at] == "ALARM" and found[before] != "ALARM"
    ]


@every_environment
def test_an_alarm_reads_what_its_publisher_sends_and_says_what_to_do(name):
    for alarm in build_guard_alarms(ENVIRONMENTS[name]).alarms:
        read = line(alarm)
        (publisher,) = (
            publisher for publisher, metric in metrics.CLOUDWATCH_METRICS if metric == read.metric
        )
        assert (
            tuple(dimension for dimension, _ in read.dimensions)
            in metrics.PUBLISHERS[publisher].dimensions
        )
        assert alarm.description.endswith(f"docs/{alarm.page}#{alarm.anchor}")
        assert len(alarm.description) <= alarmed.MAX_DESCRIPTION_CHARACTERS
        assert name in alarm.sentence
        assert alarm.sentence.endswith(".")
        assert re.search(r"[:;] ", alarm.reason)
        assert alarm.periods * alarm.period_s <= alarmed.MAX_EVALUATION_S


@every_environment
def test_each_alarm_notifies_by_one_composite_and_nothing_mutes_it(name):
    found = build_guard_alarms(ENVIRONMENTS[name])

    held = [child for composite in found.composites for child in composite.alarms]
    assert sorted(held) == sorted(alarm.name for alarm in found.alarms)
    assert {composite.suppressor for composite in found.composites} == {None}
    assert found.suppressor is None


def test_a_fleet_that_is_too_old_calls_while_its_nodes_count_as_parked():
    """No node logs anything: the suppressor of the others is in alarm, and EC2 lists an instance
    all the same."""
    alarm = of("too-old")
    store = series(alarm, *[ENVIRONMENT.guard.max_hours + 1.0] * 12)
    store.add(MetricKey.from_dimensions(f"Tandem/{HOME}", "accelerator_nodes", ()), START, {0: 1})

    told = list_notifications(FOUND, store, START, START + MINUTE * 60)

    assert f"{HOME}-notify-fleet" in {one.composite for one in told if one.state == "ALARM"}


def test_an_instance_beyond_the_most_hours_fires_once_the_reaper_had_its_time():
    limit = float(ENVIRONMENT.guard.max_hours)
    assert fired(of("too-old"), *[limit + 0.1] * 8) == [25]
    assert fired(of("too-old"), *[limit + 0.1] * 4, 0, 0, 0, 0) == []
    assert fired(of("too-old"), *[limit] * 12) == []


def test_a_fleet_that_is_too_old_stays_in_alarm_while_nobody_can_see_it():
    alarm = of("too-old")
    store = series(alarm, *[ENVIRONMENT.guard.max_hours + 1.0] * 8)
    assert (
        compute_states(alarm, store, START, START + MINUTE * 120)[START + MINUTE * 120] == "ALARM"
    )


def test_more_nodes_than_the_lease_is_for_fire_in_one_pass():
    assert fired(of("excess-nodes"), 0, 1, 0, 0) == [10]
    assert fired(of("excess-nodes"), *[0] * 12) == []
    assert fired(of("excess-nodes"), 0, more=20) == []


def test_a_paid_block_that_lies_idle_in_every_pass_fires_after_the_idle_minutes():
    minutes = ENVIRONMENT.guard.idle_minutes
    passes = -(-minutes // PASS)
    assert fired(of("idle-block"), *[5.0] * (passes + 4)) == [passes * PASS]
    assert fired(of("idle-block"), *([5.0] * (passes - 1) + [0.0]) * 3) == []


@pytest.mark.parametrize(
    ("values", "minutes"),
    [([0, 1, 0, 0, 0], []), ([0, 1, 1, 0, 0], [15]), ([0, 1, 0, 1, 0], [20]), ([0] * 5, [])],
)
def test_a_stop_that_fails_in_two_of_three_passes_fires(values, minutes):
    assert fired(of("stop-failed"), *values) == minutes


def test_a_reaper_that_is_silent_for_fifteen_minutes_fires():
    assert fired(of("guard-silent"), 0, 0, 0, 0, more=6) != []


def test_one_error_of_the_stop_function_fires_and_one_of_the_reaper_does_not():
    assert fired(of("guard-errors-stop"), 0, 1, 0, 0) == [10]
    assert fired(of("guard-errors-reap"), 0, 1, 0, 0) == []
    assert fired(of("guard-errors-reap"), 0, 1, 1, 0) == [15]


def test_one_call_that_was_given_up_fires_and_an_unused_queue_is_no_alarm():
    assert line(of("guard-gave-up")).dimensions == (
        ("QueueName", names.dead_letter_queue_name(ENVIRONMENT)),
    )
    assert fired(of("guard-gave-up"), 0, 1, 1) == [10]
    assert fired(of("guard-gave-up"), 0, more=20) == []
