"""Which pods the alarms of serving read, and from where on they are left out."""

from __future__ import annotations

import pytest
from alarmed import BASELINE, DRAFTING, watched

from tandem.monitoring.scope import MonitoringScope
from tandem.monitoring.serving_alarms import (
    build_serving_alarms,
    build_suppressor,
    count_server_slots,
)
from tandem.monitoring.widget import MetricLine

SCOPE = watched(only=["post"])
(POST,) = SCOPE.experiments


def test_a_server_takes_its_devices_on_one_node():
    capacity = SCOPE.environment.capacity.model_copy(update={"nodes": 3})
    three_nodes = SCOPE.environment.model_copy(update={"capacity": capacity})
    serving = POST.experiment.serving.model_copy(update={"devices": 6})
    experiment = POST.experiment.model_copy(update={"serving": serving})

    # 16 devices of a node hold two servers of 6; 48 devices of one would hold eight
    assert count_server_slots(three_nodes, experiment) == 3 * 2


def test_a_server_that_runs_nothing_is_held_against_its_siblings():
    (alarm,) = [
        alarm
        for alarm in build_serving_alarms(SCOPE)
        if alarm.anchor == "not-started" and BASELINE in alarm.name
    ]
    pods = {
        line.id: dict(line.dimensions)["PodName"]
        for line in alarm.lines
        if isinstance(line, MetricLine)
    }

    assert pods == {"restarts": BASELINE, "s0": DRAFTING}


@pytest.mark.parametrize(("experiments", "idle_alarms"), [(9, 1), (10, 0)])
def test_idle_nodes_are_watched_for_nine_experiments_at_most(experiments, idle_alarms):
    scope = MonitoringScope(environment=SCOPE.environment, experiments=(POST,) * experiments)
    anchors = [alarm.anchor for alarm in build_serving_alarms(scope)]

    assert anchors.count("nothing-runs") == idle_alarms


def test_a_fleet_is_parked_after_three_minutes_below_one_node():
    suppressor = build_suppressor(SCOPE)

    assert (suppressor.comparison, suppressor.threshold) == ("below", 1)
    assert suppressor.datapoints * suppressor.period_s == 3 * 60
