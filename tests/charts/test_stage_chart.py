"""Staging: what its pod runs, on what, and what of the hub it is told."""

from __future__ import annotations

from typing import Any

import pytest
from chart_cases import CATALOGUE, ENVIRONMENTS, EXPERIMENTS, HOSTED, of_kind, stages

from charts import render_workloads
from charts.stage import DEADLINE_S
from tandem.spec import names
from tandem.spec.disk import SYSTEM_NODE_ROOT_GIB
from tandem.spec.environment import Environment, HubSettings

Spec = dict[str, Any]
HOME = ENVIRONMENTS["post-us-east-2"]


def pods(environment: Environment, experiment: str) -> dict[str, Spec]:
    made = render_workloads(environment, EXPERIMENTS[experiment], CATALOGUE)["stage"]
    return {
        body["metadata"]["annotations"]["tandem/model"]: body["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        for body in of_kind(made, "CronJob").values()
    }


def container(environment: Environment = HOME, experiment: str = "post", model: str = "Qwen/Qwen3-32B") -> Spec:
    (found,) = pods(environment, experiment)[CATALOGUE.models[model].full_id()]["containers"]
    return found


def variables(found: Spec) -> dict[str, str | None]:
    return {each["name"]: each.get("value") for each in found["env"]}


def with_hub(**hub: str) -> Environment:
    return HOME.model_copy(update={"hub": HubSettings(**hub)})


def test_staging_is_told_the_bucket_the_model_and_its_commit() -> None:
    assert container()["args"] == [
        "stage",
        "--bucket", "tandem-post-us-east-2-111122223333",
        "--model", "Qwen/Qwen3-32B",
        "--revision", "9216db5781bf21249d130ec9da846c4624c16137",
        "--work", "/work",
    ]  # fmt: skip


def test_the_images_own_entrypoint_is_what_runs() -> None:
    assert "command" not in container()


def test_the_public_hub_needs_no_word() -> None:
    assert {"HF_ENDPOINT", "TANDEM_HUB_TOKEN_SECRET"} & set(variables(container())) == set()


def test_another_hub_is_told_by_its_endpoint() -> None:
    assert variables(container(with_hub(endpoint="https://hub.acme.dev")))["HF_ENDPOINT"] == "https://hub.acme.dev"


def test_a_token_is_told_by_the_name_of_its_secret() -> None:
    name = "tandem/hub"

    assert variables(container(with_hub(token_secret=name)))["TANDEM_HUB_TOKEN_SECRET"] == name


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_no_manifest_holds_a_value_of_a_secret(environment: str, experiment: str) -> None:
    """Kubernetes' own secrets have no place here either."""
    env = [
        each
        for spec in pods(ENVIRONMENTS[environment], experiment).values()
        for found in spec["containers"]
        for each in found["env"]
    ]

    assert [each for each in env if "secretKeyRef" in each.get("valueFrom", {}) or each["name"].endswith("TOKEN")] == []


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_staging_runs_as_the_writer_of_models(environment: str, experiment: str) -> None:
    assert {spec["serviceAccountName"] for spec in pods(ENVIRONMENTS[environment], experiment).values()} == {
        names.STAGE_ACCOUNT
    }


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_what_staging_holds_of_a_model_fits_beside_what_a_small_node_holds(environment: str, experiment: str) -> None:
    for spec in pods(ENVIRONMENTS[environment], experiment).values():
        (found,) = spec["containers"]
        (volume,) = spec["volumes"]

        assert found["resources"]["requests"]["ephemeral-storage"] == volume["emptyDir"]["sizeLimit"]
        taken_gib = 20  # by the system and its images, at most
        assert int(volume["emptyDir"]["sizeLimit"].removesuffix("Gi")) + taken_gib < SYSTEM_NODE_ROOT_GIB


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_staging_takes_under_half_a_gibibyte_of_memory(environment: str, experiment: str) -> None:
    limits = [
        found["resources"]["limits"]["memory"]
        for spec in pods(ENVIRONMENTS[environment], experiment).values()
        for found in spec["containers"]
    ]

    assert all(int(limit.removesuffix("Mi")) < 512 for limit in limits)


def test_staging_leaves_the_small_node_to_the_cluster() -> None:
    assert container()["resources"]["limits"]["cpu"] == "1"


def test_the_largest_model_has_time_at_five_megabytes_a_second() -> None:
    sizes = [model.bytes.value or 0 for model in CATALOGUE.models.values()]

    assert max(sizes) / 5e6 < DEADLINE_S


def test_a_small_model_asks_for_less_disk_than_a_large_one() -> None:
    small = container(experiment="post", model="Qwen/Qwen3-1.7B")["resources"]["requests"]["ephemeral-storage"]
    large = container()["resources"]["requests"]["ephemeral-storage"]

    assert (small, large) == ("6Gi", "12Gi")


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_staging_claims_no_device(environment: str, experiment: str) -> None:
    bodies = of_kind(stages(environment, experiment)["stage"], "CronJob").values()

    assert not any("resourceClaims" in body["spec"]["jobTemplate"]["spec"]["template"]["spec"] for body in bodies)
