"""The CronJobs of a round and of the verdict: the bench's account, a processor, and a task that the
runner fills in."""

from __future__ import annotations

from typing import Any

import pytest
from chart_cases import HOSTED, find_pod, of_kind, stages

from tandem.declarations.system_jobs import JUDGE_JOB, MEASURE_JOB
from tandem.run.jobs import name_job

Object = dict[str, Any]
each_experiment = pytest.mark.parametrize(("environment", "experiment"), HOSTED)


def cron_jobs(environment: str = "post-us-east-2", experiment: str = "post") -> dict[str, Object]:
    return of_kind(stages(environment, experiment)["measure"], "CronJob")


@each_experiment
def test_every_experiment_has_both_under_the_names_that_the_runner_knows(environment, experiment):
    assert {
        name: find_pod(body)["containers"][0]["args"]
        for name, body in cron_jobs(environment, experiment).items()
    } == {MEASURE_JOB: ["measure"], JUDGE_JOB: ["judge"]}


@each_experiment
def test_a_jobs_name_is_no_longer_than_a_label(environment, experiment):
    result = [
        name
        for bodies in stages(environment, experiment).values()
        for name in of_kind(bodies, "CronJob")
    ]
    assert max(len(name_job("r" * 40, name, 999)) for name in result) <= 63


def test_two_rounds_fit_into_the_step_that_tries_them():
    """As tandem/run/step_list.py has its steps: 8 hours for a round, which is tried twice, and 2 for
    the verdict."""
    limits = {
        name: body["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"]
        for name, body in cron_jobs().items()
    }
    assert limits == {"tandem-measure": 8 * 3600 / 2, "tandem-judge": 2 * 3600}
