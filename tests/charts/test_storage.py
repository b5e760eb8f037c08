"""The bucket as volumes: one per prefix, read only, each bound to its own claim."""

from __future__ import annotations

import json

import pytest
from chart_cases import (
    CATALOGUE,
    EXPERIMENTS,
    HOSTED,
    objects,
    of_kind,
)

from tandem.declarations.variant_key import compute_artifact_key

each_experiment = pytest.mark.parametrize(("environment", "experiment"), HOSTED)


@each_experiment
def test_each_artifacts_key_stands_once_and_never_changes(environment, experiment):
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
