"""What the suspended CronJobs have in common: no schedule starts them, and no name is too long."""

from __future__ import annotations

import calendar
from typing import Any

import pytest
from chart_cases import HOSTED, objects, of_kind

Object = dict[str, Any]
JOBS = [
    pytest.param(body, id=f"{experiment}-{name}")
    for environment, experiment in HOSTED
    for name, body in of_kind(objects(environment, experiment), "CronJob").items()
]
each_job = pytest.mark.parametrize("body", JOBS)


@each_job
def test_no_schedule_starts_it(body):
    minute, hour, day, month, weekday = body["spec"]["schedule"].split()

    assert body["spec"]["suspend"] is True
    assert (minute, hour, weekday) == ("0", "0", "*")
    assert int(day) > max(calendar.monthrange(year, int(month))[1] for year in range(2026, 2034))
    assert body["metadata"]["annotations"]["argocd.argoproj.io/ignore-healthcheck"] == "true"
