"""The bucket as volumes: one per prefix, read only, each bound to its own claim."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chart_cases import (
    CATALOGUE,
    EXPERIMENTS,
    HOSTED,
    objects,
    of_kind,
    stages,
    templates,
)

from tandem.declarations.variant_key import compute_artifact_key

each_experiment = pytest.mark.parametrize(("environment", "experiment"), HOSTED)


def claims(environment: str, experiment: str) -> dict[str, dict[str, Any]]:
    return of_kind(stages(environment, experiment)["storage"], "PersistentVolumeClaim")


@each_experiment
def test_every_claim_is_mounted_and_every_mounted_claim_is_there(
    environment: str, experiment: str
) -> None:
    used = {
        volume["persistentVolumeClaim"]["claimName"]
        for template in templates(stages(environment, experiment)["serve"]).values()
        for volume in template["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }

    assert used == set(claims(environment, experiment))


@each_experiment
def test_each_artifacts_key_stands_once_and_never_changes(
    environment: str, experiment: str
) -> None:
    spec = EXPERIMENTS[experiment]
    keys = {
        compute_artifact_key(spec, variant, CATALOGUE).digest for variant in spec.all_variants()
    }
    bodies = objects(environment, experiment)
    maps = of_kind(bodies, "ConfigMap")

    assert {name.removeprefix("key-") for name in maps} == keys
    assert all(body["immutable"] for body in maps.values())
    assert "kv_cache_quantization" not in json.dumps(
        [body for body in bodies if body["kind"] != "ConfigMap"]
    )
