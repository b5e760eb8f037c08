"""A manifest with one object of each kind that kubectl's own list of what it prunes lacks."""

from __future__ import annotations

from named_cluster import Object

PRUNE_LABEL = "tandem.conform/withdrawn"
NAME = "tandem-withdrawn"
STRAY_NAMESPACE = (
    "tandem-undeclared"  # a namespace named as an experiment's, of which no manifest knows
)


def list_withdrawn() -> list[Object]:
    """Return the object that stays, and those that are withdrawn."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "name": NAME}
    rows = [
        ("v1", "ConfigMap", {}),
        ("v1", "ServiceAccount", {}),
        ("v1", "ResourceQuota", {"spec": {"hard": {"pods": "100"}}}),
        (
            "networking.k8s.io/v1",
            "NetworkPolicy",
            {"spec": {"podSelector": {"matchLabels": {"none": "none"}}}},
        ),
        ("rbac.authorization.k8s.io/v1", "Role", {"rules": []}),
        (
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            {"roleRef": {**role, "kind": "Role"}, "subjects": []},
        ),
        ("resource.k8s.io/v1", "ResourceClaimTemplate", {"spec": {"spec": {}}}),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", {"rules": []}),
        (
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            {"roleRef": {**role, "kind": "ClusterRole"}},
        ),
    ]
    bodies = []
    for version, kind, content in rows:
        metadata = {"name": NAME, "labels": {PRUNE_LABEL: ""}}
        if not kind.startswith("Cluster"):
            metadata["namespace"] = STRAY_NAMESPACE
        bodies.append({"apiVersion": version, "kind": kind, "metadata": metadata, **content})
    return bodies
