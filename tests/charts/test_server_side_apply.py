"""What is written is what the API server stores, so that no apply conflicts with another kind of
apply, or repeats.

Source: kubernetes.io docs/reference/using-api/server-side-apply: an atomic struct has one owner as
a whole, so a field of it that the server fills in belongs to whoever wrote the others; and a value
that the server drops is never owned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import pytest
from chart_cases import ENVIRONMENTS, everything

Object = dict[str, Any]
MINOR = "1.36"
# of atomic structs, the fields that the API server fills in where they are left out (k8s.io/api
# types.go, 1.36)
FILLED = {
    "io.k8s.api.core.v1.ObjectFieldSelector": {"apiVersion"},
    "io.k8s.api.core.v1.ResourceFieldSelector": {"divisor"},
    "io.k8s.api.rbac.v1.RoleRef": {"apiGroup"},
}
# empty, and stored all the same: a pointer that says "no class", and a selector of all pods, which
# is required
KEPT = {("PersistentVolumeClaim", "spec/storageClassName"), ("NetworkPolicy", "spec/podSelector")}


@cache
def definitions() -> dict[str, Any]:
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{MINOR}.0-local-strict"
    return json.loads((folder / "_definitions.json").read_text())["$defs"]


def definition(body: Object) -> str | None:
    """The name of an object's schema; None for those of the GitOps tools, which are stored as they
    are written."""
    group, _, version = body["apiVersion"].rpartition("/")
    own_kind = {"group": group, "kind": body["kind"], "version": version}
    kinds = (
        (name, item.get("x-kubernetes-group-version-kind", []))
        for name, item in definitions().items()
    )
    return next((name for name, served_kinds in kinds if own_kind in served_kinds), None)


def structs(value: Any, schema: Object) -> Iterator[tuple[str, Object]]:
    """Yield each struct of a value, with the name of its schema, unless the field is merged in
    spite of it."""
    name = schema.get("$ref", "").rpartition("/")[2]
    result = (
        definitions()[name] | {key: row for key, row in schema.items() if key != "$ref"}
        if name
        else schema
    )
    if isinstance(value, list):
        for item in value:
            yield from structs(item, result.get("items", {}))
    elif isinstance(value, dict):
        if result.get("x-kubernetes-map-type") == "atomic":
            yield name, value
        for key, inner in value.items():
            yield from structs(inner, result.get("properties", {}).get(key, {}))


def incomplete(body: Object) -> list[str]:
    """The fields that the API server would fill into an atomic struct of an object."""
    kind = definition(body)
    result = structs(body, {"$ref": kind}) if kind else ()
    return [
        f"{name}.{field}"
        for name, struct in result
        for field in FILLED.get(name, set()) - set(struct)
    ]


def dropped(value: Any, path: str = "") -> list[str]:
    """The paths of what is empty, which the API server stores as nothing; the core's API group is
    "" and stays."""
    if value in ("", None, [], {}) and not re.search(r"/apiGroups/\d+$", path):
        return [path]
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return []
    return [
        loss
        for key, inner in value.items()
        for loss in dropped(inner, f"{path}/{key}" if path else str(key))
    ]


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_what_is_written_is_what_the_server_stores(environment):
    for body in everything(environment):
        losses = dropped(body) if definition(body) else []
        assert incomplete(body) == []
        assert [path for path in losses if (body["kind"], path) not in KEPT] == []
