"""What the suspended CronJobs have in common: nothing starts them but a person, and no name is too long."""

from __future__ import annotations

import calendar
import re
import shlex
from typing import Any

import pytest
from chart_cases import CATALOGUE, ENVIRONMENTS, EXPERIMENTS, HOSTED, objects, of_kind, stages

from charts import render_workloads
from tandem.spec import names

Object = dict[str, Any]
JOBS = [
    pytest.param(body, id=f"{experiment}-{name}")
    for environment, experiment in HOSTED
    for name, body in of_kind(objects(environment, experiment), "CronJob").items()
]
each_job = pytest.mark.parametrize("body", JOBS)


def job(body: Object) -> Object:
    return body["spec"]["jobTemplate"]["spec"]


@each_job
def test_nothing_starts_by_itself(body: Object) -> None:
    assert body["spec"]["suspend"] is True


@each_job
def test_argo_cd_does_not_judge_what_waits_for_a_person(body: Object) -> None:
    assert body["metadata"]["annotations"]["argocd.argoproj.io/ignore-healthcheck"] == "true"


@each_job
def test_the_schedule_is_a_day_that_never_comes(body: Object) -> None:
    minute, hour, day, month, weekday = body["spec"]["schedule"].split()

    assert (minute, hour, weekday) == ("0", "0", "*")
    assert int(day) > max(calendar.monthrange(year, int(month))[1] for year in range(2026, 2034))


@each_job
def test_a_name_leaves_room_for_what_kubernetes_appends(body: Object) -> None:
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?", body["metadata"]["name"])


@each_job
def test_the_command_that_starts_it_stands_on_it(body: Object) -> None:
    name, space = body["metadata"]["name"], body["metadata"]["namespace"]

    words = shlex.split(body["metadata"]["annotations"]["tandem/start"])

    assert words == ["kubectl", "-n", space, "create", "job", f"--from=cronjob/{name}", f"{name}-1"]


@each_job
def test_the_jobs_that_the_command_makes_have_a_legal_name(body: Object) -> None:
    made = shlex.split(body["metadata"]["annotations"]["tandem/start"])[-1]

    assert len(made) <= 63  # the name is the value of a label too


@each_job
def test_a_job_ends_is_kept_for_a_week_and_holds_its_pod_alone(body: Object) -> None:
    spec = job(body)

    assert (spec["podReplacementPolicy"], spec["ttlSecondsAfterFinished"]) == ("Failed", 604800)
    assert spec["activeDeadlineSeconds"] > 0
    assert 0 < spec["backoffLimit"] <= 6
    assert spec["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert body["spec"]["concurrencyPolicy"] == "Forbid"


@each_job
def test_ten_jobs_of_each_end_are_kept(body: Object) -> None:
    limits = {key: value for key, value in body["spec"].items() if key.endswith("JobsHistoryLimit")}

    assert limits == {"successfulJobsHistoryLimit": 10, "failedJobsHistoryLimit": 10}


@each_job
def test_a_run_is_told_from_every_other_by_its_jobs_uid(body: Object) -> None:
    spec = job(body)["template"]["spec"]
    read = {
        (each["name"], each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"])
        for container in (*spec.get("initContainers", []), *spec["containers"])
        for each in container.get("env", ())
        if each["name"] in {"TANDEM_HOLDER", "JOB_NAME", "JOB_UID"}
    }

    assert read == {
        ("TANDEM_HOLDER", "$(JOB_NAME)-$(JOB_UID)"),
        ("JOB_NAME", "metadata.labels['batch.kubernetes.io/job-name']"),
        ("JOB_UID", "metadata.labels['batch.kubernetes.io/controller-uid']"),
    }


@each_job
def test_a_variable_stands_behind_those_it_is_made_of(body: Object) -> None:
    """Kubernetes expands $(NAME) from variables that stand before it."""
    spec = job(body)["template"]["spec"]
    orders = [
        [each["name"] for each in container.get("env", ()) if each["name"] in {"JOB_NAME", "JOB_UID", "TANDEM_HOLDER"}]
        for container in (*spec.get("initContainers", []), *spec["containers"])
    ]

    assert all(order in ([], ["JOB_NAME", "JOB_UID", "TANDEM_HOLDER"]) for order in orders)


@each_job
def test_every_mount_of_a_job_has_its_volume_of_local_disk(body: Object) -> None:
    spec = job(body)["template"]["spec"]
    containers = (*spec.get("initContainers", []), *spec["containers"])
    mounted = {mount["name"] for container in containers for mount in container["volumeMounts"]}

    assert mounted == {volume["name"] for volume in spec["volumes"]}
    assert all(set(volume) == {"name", "emptyDir"} and volume["emptyDir"]["sizeLimit"] for volume in spec["volumes"])


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_there_is_a_staging_for_each_model(environment: str, experiment: str) -> None:
    spec = EXPERIMENTS[experiment]
    staged = {
        body["metadata"]["annotations"]["tandem/model"]
        for body in of_kind(stages(environment, experiment)["stage"], "CronJob").values()
    }

    wanted = {spec.target} | {variant.draft for variant in spec.all_variants() if variant.draft}
    assert staged == {CATALOGUE.models[model].full_id() for model in wanted}


def test_two_models_of_one_name_and_two_commits_are_staged_apart() -> None:
    model = CATALOGUE.models["Qwen/Qwen3-32B"]
    other = model.model_copy(update={"revision": model.revision.model_copy(update={"value": "0" * 40})})

    assert names.stage_job_name(model) != names.stage_job_name(other)


def test_two_namespaces_name_the_same_models_job_alike() -> None:
    made = [
        set(of_kind(render_workloads(ENVIRONMENTS["post-us-east-2"], EXPERIMENTS[name], CATALOGUE)["stage"], "CronJob"))
        for name in ("post", "post-drafts-windows")
    ]

    assert made[0] <= made[1]
