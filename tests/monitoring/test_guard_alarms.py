"""Alarms on the fleet and on what stops it: what they read, and that nothing mutes them."""

from __future__ import annotations

import alarmed
import pytest
from hosted import ENVIRONMENTS as NAMES
from hosted import watched

from tandem import cloudwatch_metrics as metrics
from tandem.monitoring.alarm import MetricAlarm
from tandem.monitoring.guard_alarms import build_guard_alarms
from tandem.monitoring.widget import MetricLine

ENVIRONMENTS = {name: watched(name).environment for name in NAMES}
every_environment = pytest.mark.parametrize("name", ENVIRONMENTS)


def line(alarm: MetricAlarm) -> MetricLine:
    (result,) = alarm.lines
    assert isinstance(result, MetricLine)
    return result


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
        alarmed.hold_texts(alarm, name)
        assert alarm.periods * alarm.period_s <= alarmed.MAX_EVALUATION_S


@every_environment
def test_each_alarm_notifies_by_one_composite_and_nothing_mutes_it(name):
    guard_alarms = build_guard_alarms(ENVIRONMENTS[name])

    held_childs = [child for composite in guard_alarms.composites for child in composite.alarms]
    assert sorted(held_childs) == sorted(alarm.name for alarm in guard_alarms.alarms)
    assert {composite.suppressor for composite in guard_alarms.composites} == {None}
    assert guard_alarms.suppressor is None
