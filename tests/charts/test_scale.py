"""Who owns the number of pods: whoever runs the experiment, through every further apply."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from chart_cases import GITOPS, HOSTED, controller, of_kind, stages

Object = dict[str, Any]
Path = tuple[str, ...]
SERVERS = [
    pytest.param(body, id=f"{experiment}-{name}")
    for environment, experiment in HOSTED
    for name, body in of_kind(stages(environment, experiment)["serve"], "Deployment").items()
]


def three_way(last: Object, wanted: Object, live: Object) -> Object:
    """`kubectl apply`: delete what the last manifest had and this one lacks, set what this one says.

    Source: kubernetes.io docs/tasks/manage-kubernetes-objects/declarative-config, how apply calculates
    differences and merges changes. Lists are replaced whole; no list holds the field in question.
    """
    merged = {key: value for key, value in live.items() if key in wanted or key not in last}
    for key, value in wanted.items():
        known, present = last.get(key, {}), live.get(key)
        nested = isinstance(value, dict) and isinstance(present, dict)
        merged[key] = three_way(known if isinstance(known, dict) else {}, value, present) if nested else value
    return merged


def created(manifest: Object) -> Object:
    """What the API server makes of a first apply: it defaults the number of pods to one."""
    live = copy.deepcopy(manifest)
    live["spec"].setdefault("replicas", 1)
    return live


def leaves(body: Object, at: Path = ()) -> dict[Path, Any]:
    found: dict[Path, Any] = {}
    for key, value in body.items():
        inner = isinstance(value, dict) and value
        found |= leaves(value, (*at, key)) if inner else {(*at, key): value}
    return found


class Cluster:
    """One object under server-side apply: every field's value and who owns it.

    Source: kubernetes.io docs/reference/using-api/server-side-apply: a manager that applies owns what it says,
    a forced apply takes ownership, and a field that its last owner stops saying is removed.
    """

    def __init__(self) -> None:
        self.values: dict[Path, Any] = {}
        self.owners: dict[Path, set[str]] = {}

    def apply(self, manager: str, manifest: Object) -> None:
        said = leaves(manifest)
        for path in [path for path, owners in self.owners.items() if manager in owners and path not in said]:
            self.owners[path].discard(manager)
            if not self.owners[path]:
                del self.values[path], self.owners[path]
        for path, value in said.items():
            agreed = self.values.get(path) == value
            self.owners[path] = self.owners.get(path, set()) | {manager} if agreed else {manager}
            self.values[path] = value
        self.values.setdefault(("spec", "replicas"), 1)  # the default belongs to nobody

    def scale(self, manager: str, replicas: int) -> None:
        """An update of the scale subresource."""
        self.values["spec", "replicas"] = replicas
        self.owners["spec", "replicas"] = {manager}


@pytest.mark.parametrize("replicas", [0, 1, 2])
@pytest.mark.parametrize("server", SERVERS)
def test_a_second_kubectl_apply_leaves_the_scale(server: Object, replicas: int) -> None:
    live = created(server)
    live["spec"]["replicas"] = replicas
    assert three_way(server, server, live)["spec"]["replicas"] == replicas


@pytest.mark.parametrize("server", SERVERS)
def test_a_second_server_side_apply_leaves_the_scale(server: Object) -> None:
    cluster = Cluster()
    cluster.apply("kustomize-controller", server)
    cluster.scale("runner", 0)

    cluster.apply("kustomize-controller", server)

    assert cluster.values["spec", "replicas"] == 0


@pytest.mark.parametrize("environment", [name for name in GITOPS if of_kind(controller(name), "ApplicationSet")])
def test_argo_cd_neither_reports_nor_applies_a_difference_in_the_scale(environment: str) -> None:
    (found,) = of_kind(controller(environment), "ApplicationSet").values()
    spec = found["spec"]["template"]["spec"]

    ignored = {"group": "apps", "kind": "Deployment", "jsonPointers": ["/spec/replicas"]}
    assert ignored in spec["ignoreDifferences"]
    assert "RespectIgnoreDifferences=true" in spec["syncPolicy"]["syncOptions"]
