"""Puts rendered manifests into a rehearsed cluster: objects in the store, roles in its users.

Left out: objects whose kind the store does not have. Quotas and network policies do not bind here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from rehearsal.cluster.server import ClusterUser
from rehearsal.cluster.store import KINDS, Object, ObjectStore

_PLURALS = {(kind.api_version, kind.kind): kind.plural for kind in KINDS.values()}
_ROLES = {"Role", "ClusterRole"}
_BINDINGS = {"RoleBinding", "ClusterRoleBinding"}
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_manifests(folder: Path) -> list[Object]:
    """Return every object below a folder, except kustomizations."""
    files = [path for path in sorted(folder.rglob("*.yaml")) if path.name != "kustomization.yaml"]
    documents = [body for path in files for body in yaml.load_all(path.read_text(), Loader=_Loader)]
    return [body for body in documents if body]


def apply_manifests(store: ObjectStore, bodies: Iterable[Object]) -> Counter[str]:
    """Put objects into a store; count those it cannot hold by kind, except roles and bindings."""
    skipped = Counter[str]()
    for body in bodies:
        plural = _PLURALS.get((body["apiVersion"], body["kind"]))
        if plural:
            namespace = body["metadata"].get("namespace", "")
            store.create_object(plural, namespace, body)
        elif body["kind"] not in _ROLES | _BINDINGS:
            skipped[body["kind"]] += 1
    return skipped


def build_users(bodies: Iterable[Object]) -> dict[str, ClusterUser]:
    """Return the user of each service account that has a binding, by its token."""
    rows = list(bodies)
    rules = {
        (body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"]): body[
            "rules"
        ]
        for body in rows
        if body["kind"] in _ROLES
    }
    cluster_rules: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    own_rules: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for body in (row for row in rows if row["kind"] in _BINDINGS):
        role = body["roleRef"]
        namespace = body["metadata"].get("namespace", "")
        admitted = rules.get(
            (role["kind"], namespace if role["kind"] == "Role" else "", role["name"]), []
        )
        for subject in body.get("subjects", []):
            account = subject.get("namespace", namespace), subject["name"]
            if subject["kind"] == "ServiceAccount" and body["kind"] == "ClusterRoleBinding":
                cluster_rules.setdefault(account, []).extend(admitted)
            elif subject["kind"] == "ServiceAccount":
                own_rules.setdefault(account, {}).setdefault(namespace, []).extend(admitted)
    return {
        account_token(*account): ClusterUser(
            f"system:serviceaccount:{':'.join(account)}",
            cluster_rules.get(account, []),
            own_rules.get(account, {}),
        )
        for account in {*cluster_rules, *own_rules}
    }


def account_token(namespace: str, account: str) -> str:
    """Return a service account's token if tokens are not bound, else its key among the users."""
    return f"rehearsed:{namespace}:{account}"
