"""Staging: what its pod runs, on what, and what of the hub it is told."""

from __future__ import annotations

from typing import Any

import pytest
from chart_cases import (
    CATALOGUE,
    ENVIRONMENTS,
    EXPERIMENTS,
    HOSTED,
    build_stages,
    find_pod,
)

from charts.stage import DEADLINE_S
from tandem.declarations.disk import SYSTEM_NODE_ROOT_GIB
from tandem.declarations.environment import Environment, HubSettings

Spec = dict[str, Any]
HOME = ENVIRONMENTS["post-us-east-2"]
SYSTEM_GIB = 20  # at most of the node's own system and images


def pods(environment: Environment, experiment: str) -> dict[str, Spec]:
    jobs = build_stages(environment, EXPERIMENTS[experiment])["stage"]
    return {body["metadata"]["annotations"]["tandem/model"]: find_pod(body) for body in jobs}


def container(environment: Environment = HOME, model: str = "Qwen/Qwen3-32B") -> Spec:
    (result,) = pods(environment, "post")[CATALOGUE.models[model].full_id()]["containers"]
    return result


def variables(found: Spec) -> dict[str, str | None]:
    return {variable["name"]: variable.get("value") for variable in found["env"]}


def test_another_hub_and_its_tokens_secret_are_told_and_the_public_one_needs_no_word():
    hub = HubSettings(endpoint="https://hub.acme.dev", token_secret="tandem/hub")  # noqa: S106  # a name
    result = variables(container(HOME.model_copy(update={"hub": hub})))
    assert (result["HF_ENDPOINT"], result["TANDEM_HUB_TOKEN_SECRET"]) == (
        "https://hub.acme.dev",
        "tandem/hub",
    )
    assert {"HF_ENDPOINT", "TANDEM_HUB_TOKEN_SECRET"} & set(variables(container())) == set()


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_disk_of_a_staging_fits_a_system_node(environment, experiment):
    for spec in pods(ENVIRONMENTS[environment], experiment).values():
        (volume,) = spec["volumes"]
        (container,) = spec["containers"]
        disk = volume["emptyDir"]["sizeLimit"]
        assert container["resources"]["requests"]["ephemeral-storage"] == disk
        assert int(disk.removesuffix("Gi")) + SYSTEM_GIB < SYSTEM_NODE_ROOT_GIB


def test_the_largest_model_has_time_at_five_megabytes_a_second():
    sizes = [model.bytes.value or 0 for model in CATALOGUE.models.values()]
    assert max(sizes) / 5e6 < DEADLINE_S
