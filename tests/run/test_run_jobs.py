"""A run's Jobs: made of CronJobs that may be missing for a while, and told from Jobs that somebody
else made."""

from __future__ import annotations

import copy

import pytest
from virtual_world import MODELS, NAMESPACE, RUN, VirtualWorld, reach

from tandem.run.jobs import name_job
from tandem.run.run_keys import mark_jobs

MEASURE = "tandem-measure"
JUDGE = "tandem-judge"
LLMPERF = "qwen-llmperf"


def delete_cron_job(world, name):
    """Delete a CronJob; return what brings it back."""
    body = copy.deepcopy(next(row for row in world.rendered if row["metadata"]["name"] == name))
    world.store.delete_object("cronjobs", NAMESPACE, name)
    return lambda: world.store.create_object("cronjobs", NAMESPACE, body)


def look_for(world, minutes):
    for _ in range(2 * minutes):
        world.look()


def test_journal_names_the_jobs_of_each_step():
    world = VirtualWorld(stored=set())
    world.ask()
    world.live()

    cron_jobs = {
        row["step"]: {job.partition(mark_jobs(RUN))[0] for job in row["jobs"]}
        for row in world.read_steps()
    }

    assert cron_jobs["round-00001"] == {MEASURE}
    assert cron_jobs["judge"] == {JUDGE}
    assert cron_jobs["serve"] == set()
    assert len(cron_jobs["stage"]) == len(MODELS)


@pytest.mark.parametrize(("cron_job", "minutes"), [(MEASURE, 8), (JUDGE, 90)])
def test_step_goes_on_when_its_cron_job_is_back(cron_job, minutes):
    world = reach("round-00002")
    restore = delete_cron_job(world, cron_job)
    look_for(world, minutes)
    restore()
    assert world.live()["state"] == "judged"
    assert world.is_empty


def test_missing_judge_names_the_way_to_a_verdict():
    world = reach("round-00002")
    delete_cron_job(world, JUDGE)
    record = world.live()
    command = f"tandem results {RUN} --env post-us-east-2 --out DIR"
    assert record["state"] == "failed"
    assert world.is_empty
    assert (
        f"the measured rounds are kept: {command}, then tandem bench report DIR" in record["reason"]
    )


def test_missing_measure_job_is_paid_for_ten_minutes():
    world = reach("round-00001")
    paid_before_s = (world.account.now - world.account.machines[0].launch_time).total_seconds()
    delete_cron_job(world, MEASURE)
    record = world.live()
    assert record["state"] == "failed"
    assert f"lacks CronJob {MEASURE}" in record["reason"]
    assert record["node_s"] - paid_before_s < 20 * 60


def test_missing_optional_job_costs_its_step_alone():
    world = reach("round-00002", llmperf=True)
    delete_cron_job(world, LLMPERF)
    record = world.live()
    _, state, note = world.find_step("llmperf")
    assert (record["state"], state) == ("judged", "skipped")
    assert f"lacks CronJob {LLMPERF}" in note


@pytest.fixture
def foreign():
    """A run that meets a Job of its own first round which an admin made, and the run's record."""
    world = reach("ready")
    job = name_job(RUN, MEASURE, 1)
    cron_job = world.store.get_object("cronjobs", NAMESPACE, MEASURE)
    body = {
        "metadata": {"name": job, "labels": {"made": "by-hand"}},
        "spec": cron_job["spec"]["jobTemplate"]["spec"],
    }
    world.store.create_object("jobs", NAMESPACE, body)
    return world, job, world.live()


def test_foreign_job_of_a_name_of_the_run_ends_it(foreign):
    _, job, record = foreign
    reason = f"Job {NAMESPACE}/{job} exists and this run did not create it"
    assert record["state"] == "ended"
    assert record["reason"].startswith(reason)


def test_foreign_job_is_left_to_who_made_it(foreign):
    world, job, _ = foreign
    assert [row["metadata"]["name"] for row in world.store.list_objects("jobs")] == [job]
    assert not world.account.alive
