"""Alarms on the fleet and on what stops it: what they read, and that nothing mutes them."""

from __future__ import annotations

import re

import alarmed
import pytest
from hosted import ENVIRONMENTS as NAMES
from hosted import watched

from tandem import metrics
from tandem.monitoring.alarm import MetricAlarm
from tandem.monitoring.guard_alarms import build_guard_alarms
from tandem.monitoring.widget import MetricLine

ENVIRONMENTS = {name: watched(name).environment for name in NAMES}
every_environment = pytest.mark.parametrize("name", ENVIRONMENTS)


def line(alarm: MetricAlarm) -> MetricLine:
    (found,) = alarm.lines
    assert isinstance(found, MetricLine)
    return found


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
