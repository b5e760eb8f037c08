"""Rights in the cluster as RBAC: roles and bindings of people and of the runner's account.

Invariant: each role is rows of tandem/ops/people/cluster_rights.py and no more. What holds in one namespace stands in
that namespace, and is rendered with it: an API server refuses an object of a namespace that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from charts.manifest import Object, build_object, object_labels
from charts.network import RUNNER
from tandem.ops.people.cluster_rights import (
    CLUSTER_KINDS,
    CLUSTER_RIGHTS,
    RUNNER_ACCOUNT,
    RUNNER_CLUSTER_RIGHTS,
    RUNNER_NAMESPACE,
    ClusterRight,
    kubernetes_group,
)

RBAC = "rbac.authorization.k8s.io"
PEOPLE = "people"
RUNNER_ROLE = f"tandem-{RUNNER}"  # ClusterRoles share their names with everybody else's
WAVE = 0


def build_people_roles(namespace: str | None) -> list[Object]:
    """Return a role and its binding for each kind of people that adds a right; later kinds are bound to it too.

    Args:
        namespace: of an experiment; None for rights in the whole cluster.
    """
    rights = _select_rights(CLUSTER_RIGHTS, namespace)
    objects: list[Object] = []
    for index, kind in enumerate(CLUSTER_KINDS):
        own_rights = [right for right in rights if right.kinds[0] == kind]
        groups = [kubernetes_group(holder) for holder in CLUSTER_KINDS[index:]]
        subjects = [{"apiGroup": RBAC, "kind": "Group", "name": group} for group in groups]
        if own_rights:
            objects += _build_bound_role(groups[0], own_rights, subjects, namespace=namespace, component=PEOPLE)
    return objects


def build_runner_roles(namespace: str | None) -> list[Object]:
    """Return role and binding of the runner's account.

    Args:
        namespace: of an experiment; None for rights in the whole cluster.
    """
    rights = _select_rights(RUNNER_CLUSTER_RIGHTS, namespace)
    subject = {"kind": "ServiceAccount", "name": RUNNER_ACCOUNT, "namespace": RUNNER_NAMESPACE}
    return _build_bound_role(RUNNER_ROLE, rights, [subject], namespace=namespace, component=RUNNER)


def _select_rights(rights: Iterable[ClusterRight], namespace: str | None) -> list[ClusterRight]:
    scope = "experiments" if namespace else "everywhere"
    return [right for right in rights if right.scope == scope]


def _build_bound_role(
    name: str, rights: Iterable[ClusterRight], subjects: Sequence[Object], *, namespace: str | None, component: str
) -> list[Object]:
    kind = "Role" if namespace else "ClusterRole"
    rules = [
        {"apiGroups": [right.group], "resources": list(right.resources), "verbs": list(right.verbs)} for right in rights
    ]
    reference = {"apiGroup": RBAC, "kind": kind, "name": name}
    bodies: dict[str, Object] = {
        kind: {"rules": rules},
        f"{kind}Binding": {"roleRef": reference, "subjects": list(subjects)},
    }
    labels = object_labels(name, component)
    return [
        build_object(f"{RBAC}/v1", body_kind, name, body, namespace=namespace, labels=labels, wave=WAVE)
        for body_kind, body in bodies.items()
    ]
