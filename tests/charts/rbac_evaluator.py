"""RBAC's judgement in small: whether the Roles bound to some groups allow a request.

Source: kubernetes.io docs/reference/access-authn-authz/rbac, and the fields of PolicyRule in the API reference. Rights
only add up; `*` stands for any group, verb or resource, `*/sub` for that subresource of any resource; a resource allows
none of its subresources; a rule with resourceNames allows no request without a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """A request for one resource: `namespace` None asks for all of them, or for what is in none."""

    verb: str
    group: str
    resource: str
    namespace: str | None
    name: str = ""


def allows(objects: Iterable[Object], groups: set[str], request: ApiRequest) -> bool:
    return any(_matches(rule, request) for rule in list_rules(list(objects), groups, request.namespace))


def list_rules(objects: list[Object], groups: set[str], namespace: str | None) -> Iterator[Object]:
    """Yield the rules that hold for members of `groups` in a namespace."""
    for binding in objects:
        here = binding["metadata"].get("namespace")
        if binding["kind"] != "ClusterRoleBinding" and (binding["kind"] != "RoleBinding" or here != namespace):
            continue
        if not any(subject["kind"] == "Group" and subject["name"] in groups for subject in binding["subjects"]):
            continue
        wanted = (binding["roleRef"]["kind"], binding["roleRef"]["name"])
        for role in objects:
            space = here if role["kind"] == "Role" else None
            if (role["kind"], role["metadata"]["name"]) == wanted and role["metadata"].get("namespace") == space:
                yield from role["rules"]


def _matches(rule: Object, request: ApiRequest) -> bool:
    _, _, subresource = request.resource.partition("/")
    resources = {"*", request.resource, *([f"*/{subresource}"] if subresource else [])}
    names = rule.get("resourceNames", [])
    return (
        bool({"*", request.verb} & set(rule["verbs"]))
        and bool({"*", request.group} & set(rule["apiGroups"]))
        and bool(resources & set(rule["resources"]))
        and (not names or request.name in names)
    )
