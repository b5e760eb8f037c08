"""What the suspended CronJobs have in common: nothing starts them but a person, and no name is too long."""

from __future__ import annotations

import calendar
import re
import shlex
from typing import Any

import pytest
from chart_cases import CATALOGUE, EXPERIMENTS, HOSTED, objects, of_kind, stages

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


def containers(body: Object) -> list[Object]:
    spec = job(body)["template"]["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


@each_job
def test_a_person_alone_starts_it_by_the_command_that_stands_on_it(body: Object) -> None:
    name, space = body["metadata"]["name"], body["metadata"]["namespace"]
    minute, hour, day, month, weekday = body["spec"]["schedule"].split()
    notes = body["metadata"]["annotations"]

    assert body["spec"]["suspend"] is True
    assert (minute, hour, weekday) == ("0", "0", "*")
    assert int(day) > max(calendar.monthrange(year, int(month))[1] for year in range(2026, 2034))
    assert notes["argocd.argoproj.io/ignore-healthcheck"] == "true"
    assert shlex.split(notes["tandem/start"]) == [
        "kubectl", "-n", space, "create", "job", f"--from=cronjob/{name}", f"{name}-1",
    ]  # fmt: skip


@each_job
def test_names_leave_room_for_what_kubernetes_appends(body: Object) -> None:
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?", body["metadata"]["name"])


@each_job
def test_a_job_ends_is_kept_for_a_week_and_holds_its_pod_alone(body: Object) -> None:
    spec = job(body)

    assert (spec["podReplacementPolicy"], spec["ttlSecondsAfterFinished"]) == ("Failed", 604800)
    assert spec["activeDeadlineSeconds"] > 0
    assert 0 < spec["backoffLimit"] <= 6
    assert spec["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert body["spec"]["concurrencyPolicy"] == "Forbid"
    assert {body["spec"][f"{end}JobsHistoryLimit"] for end in ("successful", "failed")} == {10}


@each_job
def test_a_run_is_told_from_every_other_by_its_jobs_uid(body: Object) -> None:
    """Kubernetes expands $(NAME) from variables that stand before it."""
    wanted = {
        "JOB_NAME": "metadata.labels['batch.kubernetes.io/job-name']",
        "JOB_UID": "metadata.labels['batch.kubernetes.io/controller-uid']",
        "TANDEM_HOLDER": "$(JOB_NAME)-$(JOB_UID)",
    }
    read = [
        {
            each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"]
            for each in container.get("env", ())
            if each["name"] in wanted
        }
        for container in containers(body)
    ]

    held = [found for found in read if found]
    assert held
    assert all(found == wanted and list(found) == list(wanted) for found in held)


@each_job
def test_every_mount_of_a_job_has_its_volume_of_local_disk(body: Object) -> None:
    volumes = job(body)["template"]["spec"]["volumes"]
    mounted = {mount["name"] for container in containers(body) for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in volumes}
    assert all(set(volume) == {"name", "emptyDir"} and volume["emptyDir"]["sizeLimit"] for volume in volumes)


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_there_is_a_staging_for_each_model(environment: str, experiment: str) -> None:
    spec = EXPERIMENTS[experiment]
    found = stages(environment, experiment)["stage"]

    wanted = {spec.target} | {variant.draft for variant in spec.all_variants() if variant.draft}
    assert {body["metadata"]["annotations"]["tandem/model"] for body in found} == {
        CATALOGUE.models[model].full_id() for model in wanted
    }


def test_two_models_of_one_name_and_two_commits_are_staged_apart() -> None:
    model = CATALOGUE.models["Qwen/Qwen3-32B"]
    other = model.model_copy(update={"revision": model.revision.model_copy(update={"value": "0" * 40})})
    assert names.stage_job_name(model) != names.stage_job_name(other)
