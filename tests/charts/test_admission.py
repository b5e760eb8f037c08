"""The init container that stands between an artifact and its server."""

from __future__ import annotations

from typing import Any

from chart_cases import (
    ENVIRONMENTS,
    EXPERIMENTS,
    build_stages,
    server_of,
    templates,
)

from tandem.declarations.experiment import Experiment

Spec = dict[str, Any]


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


def test_an_artifact_is_copied_read_only_and_with_its_disk_where_the_experiment_asks_for_it():
    bodies = build_stages(ENVIRONMENTS["post-us-east-2"], copying("post"))["serve"]
    for template in templates(bodies).values():
        pod = template["spec"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        server = server_of(pod)

        assert "--copy" in admit(pod)["args"]
        assert mounts(server)["/artifact"] is True
        # twice 62 + 4 GiB of weights, all rounded up, and the graphs
        assert volumes["artifact"]["emptyDir"]["sizeLimit"] == "148Gi"
        assert server["resources"]["requests"]["ephemeral-storage"] == "148Gi"
