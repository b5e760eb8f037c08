"""Compiling: three containers in a row, the server's own devices and paths, no credential in the
middle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from chart_cases import (
    ENVIRONMENTS,
    EXPERIMENTS,
    HOSTED,
    build_stages,
    find_pod,
    flag,
    stages,
)

from charts.compile import TRANSFER_S
from tandem.artifacts.driver.program import LINGER_TIMEOUT_S
from tandem.declarations.experiment import CompileSettings, Experiment

Spec = dict[str, Any]
each_experiment = pytest.mark.parametrize(("environment", "experiment"), HOSTED)
HOME = ENVIRONMENTS["post-us-east-2"]


def steps(spec: Spec) -> dict[str, Spec]:
    return {item["name"]: item for item in (*spec["initContainers"], *spec["containers"])}


def jobs(environment: str, experiment: str) -> Iterator[tuple[Spec, Spec, str]]:
    """Yield each CronJob with its pod and the first variant that loads what it makes."""
    for body in stages(environment, experiment)["compile"]:
        yield body, find_pod(body), body["metadata"]["annotations"]["tandem/variants"].split(",")[0]


def variables(found: Spec) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in found["env"] if "value" in variable}


def with_settings(**settings: Any) -> Experiment:
    return EXPERIMENTS["post"].model_copy(update={"compile": CompileSettings(**settings)})


def made(spec: Experiment) -> list[Spec]:
    return [find_pod(item) for item in build_stages(HOME, spec)["compile"]]


def test_variants_that_share_an_artifact_share_its_compile():
    post = EXPERIMENTS["post"]
    control = post.variants[0].model_copy(update={"name": "control"})
    twins = post.model_copy(update={"variants": (*post.variants, control)})

    charts = build_stages(HOME, twins)

    assert [job["metadata"]["annotations"]["tandem/variants"] for job in charts["compile"]] == [
        "qwen-vllm,control",
        "qwen-sd-vllm",
    ]


def test_the_job_has_an_hour_beyond_the_compilers_and_its_lease_is_as_long():
    job, _ = build_stages(HOME, with_settings(deadline_hours=2))["compile"]
    assert job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 3 * 3600
    assert flag(steps(find_pod(job))["fetch"]["args"], "--lease-s") == str(3 * 3600)


@each_experiment
def test_each_wait_is_longer_than_what_it_waits_for(environment, experiment):
    """The kubelet waits 10, 20 and 40 s before the restarts that `backoffLimit` admits; then the
    pod is removed."""
    for _, spec, _ in jobs(environment, experiment):
        grace_s = int(flag(steps(spec)["compile"]["args"], "--grace-s"))
        # for what a program leaves behind, and for its last lines
        lingering_s = 2 * LINGER_TIMEOUT_S

        assert spec["terminationGracePeriodSeconds"] > grace_s + lingering_s
        assert (
            10 * (10 + 20 + 40)
            < int(flag(steps(spec)["upload"]["args"], "--patience-s"))
            < TRANSFER_S
        )


def test_a_compile_takes_what_a_server_takes_unless_told_otherwise():
    (plain, _), (result, _) = (
        made(EXPERIMENTS["post"]),
        made(with_settings(cpu=180, memory_gib=700)),
    )
    requests = [steps(spec)["compile"]["resources"]["requests"] for spec in (plain, result)]
    assert [(item["cpu"], item["memory"]) for item in requests] == [
        ("90", "256Gi"),
        ("180", "700Gi"),
    ]


def test_without_devices_nothing_is_claimed_and_the_artifact_says_so():
    spec, _ = made(with_settings(where="cpu"))
    result = steps(spec)

    assert "resourceClaims" not in spec
    assert "claims" not in result["compile"]["resources"]
    assert spec["nodeSelector"] == {"compile.tandem/experiment": "post"}
    assert variables(result["compile"])["NEURON_PLATFORM_TARGET_OVERRIDE"] == "trn2"
    assert flag(result["compile"]["args"], "--where") == "cpu"
    assert "without devices" in variables(result["upload"])["TANDEM_UNPROVEN"]
