"""The init container that stands between an artifact and its server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chart_cases import (
    CATALOGUE,
    ENVIRONMENTS,
    EXPERIMENTS,
    HOSTED,
    carried_key,
    objects,
    of_kind,
    stages,
    templates,
    variant,
)

from charts import render_workloads
from tandem.spec import names
from tandem.spec.experiment import Experiment
from tandem.spec.variant_key import compute_artifact_key

SERVERS = [
    pytest.param(environment, experiment, each.name, id=f"{experiment}-{each.name}")
    for environment, experiment in HOSTED
    for each in EXPERIMENTS[experiment].all_variants()
]
each_server = pytest.mark.parametrize(("environment", "experiment", "name"), SERVERS)
Spec = dict[str, Any]


def pod(environment: str, experiment: str, name: str) -> Spec:
    return templates(stages(environment, experiment)["serve"])[name]["spec"]


def copying(experiment: str) -> Experiment:
    spec = EXPERIMENTS[experiment]
    return spec.model_copy(update={"serving": spec.serving.model_copy(update={"copy_artifact": True})})


def admit(spec: Spec) -> Spec:
    (found,) = spec["initContainers"]
    return found


def variables(container: Spec) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def mounts(container: Spec) -> dict[str, bool]:
    """Path to whether it is read only."""
    return {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}


def option(container: Spec, name: str) -> list[str]:
    arguments = container["args"]
    return [arguments[at + 1] for at, word in enumerate(arguments) if word == name]


def copied(spec: Spec) -> bool:
    return "--copy" in admit(spec)["args"]


@each_server
def test_every_server_is_admitted_before_it_starts(environment: str, experiment: str, name: str) -> None:
    assert [each["args"][0] for each in pod(environment, experiment, name)["initContainers"]] == ["admit"]


@each_server
def test_the_whole_key_of_the_server_is_what_the_artifact_is_held_against(
    environment: str, experiment: str, name: str
) -> None:
    spec = EXPERIMENTS[experiment]
    key = compute_artifact_key(spec, variant(spec, name), CATALOGUE)

    assert carried_key(environment, experiment, admit(pod(environment, experiment, name))) == key.as_fields()


@each_server
def test_the_models_that_the_server_loads_are_looked_at_too(environment: str, experiment: str, name: str) -> None:
    spec = EXPERIMENTS[experiment]
    draft = variant(spec, name).draft
    loaded = [CATALOGUE.models[each].full_id() for each in (spec.target, draft) if each]

    assert option(admit(pod(environment, experiment, name)), "--model") == loaded


@each_server
def test_a_refusal_can_name_a_compile_that_is_there(environment: str, experiment: str, name: str) -> None:
    command = variables(admit(pod(environment, experiment, name)))["TANDEM_COMPILE_JOB"].split()
    made = of_kind(objects(environment, experiment), "CronJob")
    (source,) = [word.removeprefix("--from=cronjob/") for word in command if word.startswith("--from=")]

    assert command[:3] == ["kubectl", "-n", names.experiment_namespace(EXPERIMENTS[experiment])]
    assert source in made


@each_server
def test_a_refusal_can_name_the_staging_of_each_model(environment: str, experiment: str, name: str) -> None:
    told = admit(pod(environment, experiment, name))
    commands = json.loads(variables(told)["TANDEM_STAGE_JOBS"])
    made = of_kind(objects(environment, experiment), "CronJob")
    sources = [
        word.removeprefix("--from=cronjob/") for said in commands.values() for word in said.split() if "--from=" in word
    ]

    assert list(commands) == option(told, "--model")
    assert len(sources) == len(commands)
    assert set(sources) <= set(made)


@each_server
def test_the_admission_reads_mounts_and_writes_local_disk(environment: str, experiment: str, name: str) -> None:
    assert mounts(admit(pod(environment, experiment, name))) == {
        "/models": True,
        "/stored": True,
        "/artifact": False,
        "/work": False,
    }


@each_server
def test_the_stored_artifact_is_the_one_of_the_servers_key(environment: str, experiment: str, name: str) -> None:
    spec = EXPERIMENTS[experiment]
    key = compute_artifact_key(spec, variant(spec, name), CATALOGUE)
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]
        for volume in pod(environment, experiment, name)["volumes"]
        if "persistentVolumeClaim" in volume
    }

    assert claims["stored"] == {
        "claimName": names.artifact_volume_name(ENVIRONMENTS[environment], spec, key),
        "readOnly": True,
    }


@each_server
def test_the_server_is_told_the_folder_that_the_admission_makes(environment: str, experiment: str, name: str) -> None:
    spelling = CATALOGUE.runtimes[EXPERIMENTS[experiment].runtime].spelling
    assert spelling is not None
    spec = pod(environment, experiment, name)
    (mount,) = option(admit(spec), "--artifact")
    (server,) = spec["containers"]

    assert variables(server)[spelling.artifact_variable] == f"{mount}/current"
    assert mount in mounts(server)


@each_server
def test_a_cache_is_copied_because_the_mount_has_no_locks(environment: str, experiment: str, name: str) -> None:
    spelling = CATALOGUE.runtimes[EXPERIMENTS[experiment].runtime].spelling
    assert spelling is not None

    assert copied(pod(environment, experiment, name)) == spelling.artifact_is_cache


@each_server
def test_only_a_cache_may_be_written_by_its_server(environment: str, experiment: str, name: str) -> None:
    spelling = CATALOGUE.runtimes[EXPERIMENTS[experiment].runtime].spelling
    assert spelling is not None
    (server,) = pod(environment, experiment, name)["containers"]

    assert mounts(server)["/artifact"] is not spelling.artifact_is_cache


@each_server
def test_a_link_into_the_mount_leads_to_the_same_path_in_the_server(
    environment: str, experiment: str, name: str
) -> None:
    spec = pod(environment, experiment, name)
    (server,) = spec["containers"]

    assert mounts(server).get("/stored") == (None if copied(spec) else True)


@each_server
def test_the_models_lie_at_the_same_path_in_both(environment: str, experiment: str, name: str) -> None:
    spec = pod(environment, experiment, name)

    assert {mounts(each)["/models"] for each in (*spec["containers"], admit(spec))} == {True}


def test_an_artifact_is_copied_where_the_experiment_asks_for_it() -> None:
    bodies = render_workloads(ENVIRONMENTS["post-us-east-2"], copying("post"), CATALOGUE)["serve"]

    assert [copied(template["spec"]) for template in templates(bodies).values()] == [True, True]


def test_a_copied_artifact_is_read_only_still() -> None:
    bodies = render_workloads(ENVIRONMENTS["post-us-east-2"], copying("post"), CATALOGUE)["serve"]
    servers = [template["spec"]["containers"][0] for template in templates(bodies).values()]

    assert [mounts(server)["/artifact"] for server in servers] == [True, True]


def test_a_copy_asks_for_the_disk_it_takes_in_both_arms() -> None:
    bodies = render_workloads(ENVIRONMENTS["post-us-east-2"], copying("post"), CATALOGUE)["serve"]
    pods = [template["spec"] for template in templates(bodies).values()]
    sizes = [
        volume["emptyDir"]["sizeLimit"] for spec in pods for volume in spec["volumes"] if volume["name"] == "artifact"
    ]
    asked = [spec["containers"][0]["resources"]["requests"]["ephemeral-storage"] for spec in pods]

    assert sizes == asked == ["148Gi", "148Gi"]  # twice 62 + 4 GiB of weights, all rounded up, and the graphs


def test_to_copy_is_no_other_artifact() -> None:
    post = EXPERIMENTS["post"]

    keys = [compute_artifact_key(spec, spec.variants[1], CATALOGUE).digest for spec in (post, copying("post"))]

    assert keys[0] == keys[1]
