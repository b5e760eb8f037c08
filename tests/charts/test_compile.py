"""Compiling: three containers in a row, the server's own devices and paths, no credential in the middle."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chart_cases import (
    CATALOGUE,
    ENVIRONMENTS,
    EXPERIMENTS,
    HOSTED,
    container,
    key_reference,
    of_kind,
    stages,
    templates,
    variant,
)

from charts import render_workloads
from charts.compile import TRANSFER_S
from tandem.artifacts.driver.program import LINGER_TIMEOUT_S
from tandem.spec import names
from tandem.spec.compile_command import build_compile_command
from tandem.spec.experiment import CompileSettings, Experiment
from tandem.spec.project_image import TOOLS
from tandem.spec.variant_key import compute_artifact_key

Spec = dict[str, Any]
JOBS = [
    pytest.param(environment, experiment, name, id=f"{experiment}-{name}")
    for environment, experiment in HOSTED
    for name in of_kind(stages(environment, experiment)["compile"], "CronJob")
]
each_job = pytest.mark.parametrize(("environment", "experiment", "name"), JOBS)
HOME = ENVIRONMENTS["post-us-east-2"]


def body(environment: str, experiment: str, name: str) -> Spec:
    return of_kind(stages(environment, experiment)["compile"], "CronJob")[name]


def pod_of(found: Spec) -> Spec:
    return found["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def pod(environment: str, experiment: str, name: str) -> Spec:
    return pod_of(body(environment, experiment, name))


def steps(spec: Spec) -> dict[str, Spec]:
    return {each["name"]: each for each in (*spec["initContainers"], *spec["containers"])}


def serving(environment: str, experiment: str, name: str) -> list[str]:
    """The variants that load what the job makes."""
    return body(environment, experiment, name)["metadata"]["annotations"]["tandem/variants"].split(",")


def variables(found: Spec) -> dict[str, str]:
    return {each["name"]: each["value"] for each in found["env"] if "value" in each}


def with_settings(experiment: str, **settings: Any) -> Experiment:
    return EXPERIMENTS[experiment].model_copy(update={"compile": CompileSettings(**settings)})


def made(spec: Experiment) -> list[Spec]:
    return [pod_of(found) for found in render_workloads(HOME, spec, CATALOGUE)["compile"]]


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_there_is_one_compile_for_each_artifact(environment: str, experiment: str) -> None:
    spec = EXPERIMENTS[experiment]
    wanted = {compute_artifact_key(spec, each, CATALOGUE).name for each in spec.all_variants()}
    found = [each["metadata"]["annotations"]["tandem/artifact"] for each in stages(environment, experiment)["compile"]]

    assert sorted(found) == sorted(wanted)


def test_variants_that_share_an_artifact_share_its_compile() -> None:
    post = EXPERIMENTS["post"]
    control = post.variants[0].model_copy(update={"name": "control"})
    jobs = render_workloads(HOME, post.model_copy(update={"variants": (*post.variants, control)}), CATALOGUE)["compile"]

    assert [job["metadata"]["annotations"]["tandem/variants"] for job in jobs] == ["qwen-vllm,control", "qwen-sd-vllm"]


def test_every_window_of_a_sweep_has_a_compile_of_its_own() -> None:
    jobs = of_kind(stages("post-us-east-2", "post-drafts-windows")["compile"], "CronJob")

    assert len(jobs) == len(EXPERIMENTS["post-drafts-windows"].all_variants())


@each_job
def test_fetch_compile_and_upload_run_one_after_another(environment: str, experiment: str, name: str) -> None:
    spec = pod(environment, experiment, name)

    assert [[each["name"] for each in spec[kind]] for kind in ("initContainers", "containers")] == [
        ["fetch", "compile"],
        ["upload"],
    ]


@each_job
def test_the_runtimes_image_compiles_unmodified(environment: str, experiment: str, name: str) -> None:
    first = serving(environment, experiment, name)[0]
    found = steps(pod(environment, experiment, name))

    assert found["compile"]["image"] == container(stages(environment, experiment)["serve"], first)["image"]
    assert {found[each]["image"] for each in ("fetch", "upload")} == {TOOLS.reference(ENVIRONMENTS[environment])}


@each_job
def test_the_driver_runs_what_the_runtime_is_spelt_for(environment: str, experiment: str, name: str) -> None:
    spec = EXPERIMENTS[experiment]
    first = variant(spec, serving(environment, experiment, name)[0])
    how = build_compile_command(spec, first, CATALOGUE)
    found = steps(pod(environment, experiment, name))["compile"]
    at = found["args"].index("--")

    assert found["command"] == ["python", "/work/driver.pyz"]
    assert tuple(found["args"][at + 1 :]) == how.command + how.arguments
    assert variables(found) == how.environment


@each_job
def test_the_driver_waits_for_health_where_the_program_is_a_server(
    environment: str, experiment: str, name: str
) -> None:
    arguments = steps(pod(environment, experiment, name))["compile"]["args"]
    before = arguments[: arguments.index("--")]
    url = before[before.index("--until-healthy") + 1] if "--until-healthy" in before else None

    expected = {"native": "http://127.0.0.1:8000/health", "nxdi-v0": None}
    assert url == expected[EXPERIMENTS[experiment].runtime]


def test_the_driver_is_told_its_limits_and_its_files() -> None:
    (spec, _) = made(with_settings("post", deadline_hours=2, attempts=5))
    arguments = steps(spec)["compile"]["args"]

    assert arguments[: arguments.index("--")] == [
        "--skip-if", "/work/present", "--outcome", "/work/outcome.json", "--output", "/artifact/current",
        "--cache", "/work/compiler-cache", "--deadline-s", "7200", "--attempts", "5", "--where", "device",
        "--grace-s", "300", "--defer",
    ]  # fmt: skip


def test_the_job_has_an_hour_beyond_the_compilers_for_what_is_moved() -> None:
    (job, _) = render_workloads(HOME, with_settings("post", deadline_hours=2), CATALOGUE)["compile"]

    assert job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 3 * 3600


@each_job
def test_the_kubelet_waits_longer_than_the_driver_does_for_its_server(
    environment: str, experiment: str, name: str
) -> None:
    spec = pod(environment, experiment, name)
    arguments = steps(spec)["compile"]["args"]
    lingering = 2 * LINGER_TIMEOUT_S  # for what a program leaves behind, and for its last lines

    assert spec["terminationGracePeriodSeconds"] > int(arguments[arguments.index("--grace-s") + 1]) + lingering


@each_job
def test_a_compile_that_is_given_up_is_told_by_upload(environment: str, experiment: str, name: str) -> None:
    arguments = steps(pod(environment, experiment, name))["compile"]["args"]

    assert "--defer" in arguments[: arguments.index("--")]


def test_the_lease_is_as_long_as_the_job() -> None:
    job = next(iter(of_kind(stages("post-us-east-2", "post")["compile"], "CronJob").values()))
    arguments = steps(pod_of(job))["fetch"]["args"]

    assert arguments[arguments.index("--lease-s") + 1] == str(
        job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"]
    )


def test_fetch_is_told_the_models_and_where_they_go() -> None:
    spec = pod_of(render_workloads(HOME, EXPERIMENTS["post"], CATALOGUE)["compile"][1])

    assert steps(spec)["fetch"]["args"] == [
        "fetch", "--bucket", "tandem-post-us-east-2-111122223333",
        "--model", "Qwen/Qwen3-32B@9216db5781bf21249d130ec9da846c4624c16137",
        "--model", "Qwen/Qwen3-1.7B@70d244cc86ccca08cf5af4e1e306ecf908b1ad5e",
        "--models", "/models", "--work", "/work", "--lease-s", "18000",
    ]  # fmt: skip


def test_upload_is_told_where_the_artifact_lies() -> None:
    (spec, _) = made(EXPERIMENTS["post"])

    assert steps(spec)["upload"]["args"] == [
        "upload", "--bucket", "tandem-post-us-east-2-111122223333", "--artifact", "/artifact/current",
        "--work", "/work", "--patience-s", "1800",
    ]  # fmt: skip


@each_job
def test_fetch_and_upload_carry_the_key_that_the_server_is_held_against(
    environment: str, experiment: str, name: str
) -> None:
    first = serving(environment, experiment, name)[0]
    found = steps(pod(environment, experiment, name))
    (admit,) = templates(stages(environment, experiment)["serve"])[first]["spec"]["initContainers"]

    keys = [key_reference(each) for each in (found["fetch"], found["upload"], admit)]
    assert keys == [keys[0]] * 3


@each_job
def test_a_missing_model_can_be_told_with_the_command_that_stages_it(
    environment: str, experiment: str, name: str
) -> None:
    fetch = steps(pod(environment, experiment, name))["fetch"]
    asked = [fetch["args"][at + 1] for at, word in enumerate(fetch["args"]) if word == "--model"]

    assert list(json.loads(variables(fetch)["TANDEM_STAGE_JOBS"])) == asked


@each_job
def test_the_compiler_claims_the_devices_that_its_server_will(environment: str, experiment: str, name: str) -> None:
    spec = pod(environment, experiment, name)
    first = serving(environment, experiment, name)[0]

    assert (
        spec["resourceClaims"] == templates(stages(environment, experiment)["serve"])[first]["spec"]["resourceClaims"]
    )
    assert [each for each, found in steps(spec).items() if "claims" in found["resources"]] == ["compile"]


@each_job
def test_models_and_artifact_lie_where_the_server_will_find_them(environment: str, experiment: str, name: str) -> None:
    first = serving(environment, experiment, name)[0]
    server = container(stages(environment, experiment)["serve"], first)
    found = steps(pod(environment, experiment, name))["compile"]

    mine, theirs = ({mount["mountPath"] for mount in each["volumeMounts"]} for each in (found, server))
    assert {names.MODELS_MOUNT, names.ARTIFACT_MOUNT} <= mine & theirs


@each_job
def test_the_compiler_cannot_change_a_model(environment: str, experiment: str, name: str) -> None:
    mounts = steps(pod(environment, experiment, name))["compile"]["volumeMounts"]

    assert [mount.get("readOnly", False) for mount in mounts if mount["name"] == "models"] == [True]


@each_job
def test_the_compiler_is_left_without_the_pods_role(environment: str, experiment: str, name: str) -> None:
    template = body(environment, experiment, name)["spec"]["jobTemplate"]["spec"]["template"]

    assert template["metadata"]["annotations"] == {"eks.amazonaws.com/skip-containers": "compile"}
    assert not [each for each in variables(steps(template["spec"])["compile"]) if each.startswith(("AWS_", "TANDEM_"))]


@each_job
def test_compiling_runs_as_the_writer_of_artifacts(environment: str, experiment: str, name: str) -> None:
    assert pod(environment, experiment, name)["serviceAccountName"] == names.COMPILE_ACCOUNT


@each_job
def test_what_no_source_shows_is_told_to_the_manifest(environment: str, experiment: str, name: str) -> None:
    spec = EXPERIMENTS[experiment]
    how = build_compile_command(spec, variant(spec, serving(environment, experiment, name)[0]), CATALOGUE)
    upload = variables(steps(pod(environment, experiment, name))["upload"])

    assert json.loads(upload["TANDEM_UNPROVEN"]) == list(how.unproven)


@each_job
def test_the_disk_asked_for_is_what_the_volumes_may_hold(environment: str, experiment: str, name: str) -> None:
    spec = pod(environment, experiment, name)
    asked = steps(spec)["compile"]["resources"]["requests"]["ephemeral-storage"]
    held = [v["emptyDir"]["sizeLimit"] for v in spec["volumes"] if "medium" not in v["emptyDir"]]

    assert int(asked.removesuffix("Gi")) == sum(int(each.removesuffix("Gi")) for each in held)


def test_a_compile_takes_what_a_server_takes_unless_told_otherwise() -> None:
    (plain, _), (told, _) = made(EXPERIMENTS["post"]), made(with_settings("post", cpu=180, memory_gib=700))
    asked = [steps(spec)["compile"]["resources"]["requests"] for spec in (plain, told)]

    assert [(each["cpu"], each["memory"]) for each in asked] == [("90", "256Gi"), ("180", "700Gi")]


def test_without_devices_nothing_is_claimed_and_no_accelerator_is_taken() -> None:
    spec, _ = made(with_settings("post", where="cpu"))

    assert "resourceClaims" not in spec
    assert "claims" not in steps(spec)["compile"]["resources"]
    assert spec["nodeSelector"] == {"compile.tandem/experiment": "post"}


def test_without_devices_the_compiler_is_told_its_target() -> None:
    spec, _ = made(with_settings("post", where="cpu"))

    assert variables(steps(spec)["compile"])["NEURON_PLATFORM_TARGET_OVERRIDE"] == "trn2"


def test_an_artifact_made_without_devices_says_so() -> None:
    spec, _ = made(with_settings("post", where="cpu"))
    arguments = steps(spec)["compile"]["args"]

    assert arguments[arguments.index("--where") + 1] == "cpu"
    assert "without devices" in variables(steps(spec)["upload"])["TANDEM_UNPROVEN"]


def test_where_it_is_compiled_makes_no_other_artifact() -> None:
    post = EXPERIMENTS["post"]
    keys = {
        compute_artifact_key(spec, spec.variants[1], CATALOGUE).digest
        for spec in (post, with_settings("post", where="cpu", cpu=8, memory_gib=64, deadline_hours=9, attempts=1))
    }

    assert len(keys) == 1


@each_job
def test_an_upload_waits_for_s3_longer_than_restarts_would(environment: str, experiment: str, name: str) -> None:
    """The kubelet waits 10, 20 and 40 s before the restarts that `backoffLimit` admits; then the pod is removed."""
    upload = steps(pod(environment, experiment, name))["upload"]["args"]
    patience = int(upload[upload.index("--patience-s") + 1])

    assert 10 * (10 + 20 + 40) < patience < TRANSFER_S
