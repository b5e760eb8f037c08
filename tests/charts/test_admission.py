"""The init container that stands between an artifact and its server."""

from __future__ import annotations

from typing import Any

import pytest
from chart_cases import (
    CATALOGUE,
    ENVIRONMENTS,
    EXPERIMENTS,
    HOSTED,
    carried_key,
    render_charts,
    server_of,
    stages,
    templates,
)

from charts import build_charts
from tandem.declarations import names
from tandem.declarations.experiment import Experiment
from tandem.declarations.variant_key import compute_artifact_key

each_experiment = pytest.mark.parametrize(("environment", "experiment"), HOSTED)
Spec = dict[str, Any]


def pods(environment: str, experiment: str) -> list[tuple[Any, Spec]]:
    """Each variant with its pod."""
    result = templates(stages(environment, experiment)["serve"])
    return [
        (variant, result[variant.name]["spec"])
        for variant in EXPERIMENTS[experiment].all_variants()
    ]


def copying(experiment: str) -> Experiment:
    spec = EXPERIMENTS[experiment]
    return spec.model_copy(
        update={"serving": spec.serving.model_copy(update={"copy_artifact": True})}
    )


def admit(spec: Spec) -> Spec:
    (init_container,) = (item for item in spec["initContainers"] if item["name"] == "admit")
    return init_container


def mounts(container: Spec) -> dict[str, bool]:
    """Path to whether it is read only."""
    return {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}


def option(container: Spec, name: str) -> list[str]:
    arguments = container["args"]
    return [arguments[at + 1] for at, word in enumerate(arguments) if word == name]


@each_experiment
def test_a_server_is_admitted_by_its_whole_key_and_its_models(
    environment: str, experiment: str
) -> None:
    spec = EXPERIMENTS[experiment]
    for variant, pod in pods(environment, experiment):
        key = compute_artifact_key(spec, variant, CATALOGUE)
        models = [CATALOGUE.models[item].full_id() for item in (spec.target, variant.draft) if item]
        claims = [
            volume["persistentVolumeClaim"]
            for volume in pod["volumes"]
            if volume["name"] == "stored"
        ]

        assert admit(pod)["args"][0] == "admit"
        assert carried_key(environment, experiment, admit(pod)) == key.as_fields()
        assert option(admit(pod), "--model") == models
        assert claims == [
            {
                "claimName": names.artifact_volume_name(ENVIRONMENTS[environment], spec, key),
                "readOnly": True,
            }
        ]


def test_an_artifact_is_copied_read_only_and_with_its_disk_where_the_experiment_asks_for_it() -> (
    None
):
    bodies = render_charts(
        build_charts(ENVIRONMENTS["post-us-east-2"], copying("post"), CATALOGUE)
    )["serve"]
    for template in templates(bodies).values():
        pod = template["spec"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        server = server_of(pod)

        assert "--copy" in admit(pod)["args"]
        assert mounts(server)["/artifact"] is True
        # twice 62 + 4 GiB of weights, all rounded up, and the graphs
        assert volumes["artifact"]["emptyDir"]["sizeLimit"] == "148Gi"
        assert server["resources"]["requests"]["ephemeral-storage"] == "148Gi"
