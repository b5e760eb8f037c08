"""Rights in the cluster as RBAC: roles and bindings of people and of the runner's account.

Invariant: each role is rows of tandem/ops/people/cluster_rights.py and no more. What holds in one
namespace stands in that namespace, and is rendered with it. An API server refuses an object of a
namespace that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cdk8s_plus_36 import k8s

from charts.chart import TandemChart
from charts.network import RUNNER
from tandem.ops.people.cluster_rights import (
    CLUSTER_KINDS,
    CLUSTER_RIGHTS,
    RUNNER_ACCOUNT,
    RUNNER_CLUSTER_RIGHTS,
    RUNNER_NAMESPACE,
    ClusterRight,
    NamespaceScope,
    kubernetes_group,
)

RBAC = "rbac.authorization.k8s.io"
PEOPLE = "people"
RUNNER_ROLE = f"tandem-{RUNNER}"  # ClusterRoles share their names with everybody else's


def add_people_roles(chart: TandemChart, *, scope: NamespaceScope) -> None:
    """Add a role and binding per kind of people that adds a right; bind later kinds to it too.

    Args:
        chart: which gets the objects.
        scope: the rights in the namespace of an experiment, which is the chart's, or those in the
            whole cluster.
    """
    rights = [right for right in CLUSTER_RIGHTS if right.scope == scope]
    for index, kind in enumerate(CLUSTER_KINDS):
        own_rights = [right for right in rights if right.kinds[0] == kind]
        groups = [kubernetes_group(holder) for holder in CLUSTER_KINDS[index:]]
        subjects = [k8s.Subject(api_group=RBAC, kind="Group", name=group) for group in groups]
        if own_rights:
            _add_bound_role(chart, groups[0], PEOPLE, own_rights, subjects, scope=scope)


def add_runner_role(chart: TandemChart, *, scope: NamespaceScope) -> None:
    """Add role and binding of the runner's account.

    Args:
        chart: which gets the objects.
        scope: the rights in the namespace of an experiment, which is the chart's, or those in the
            whole cluster.
    """
    subject = k8s.Subject(kind="ServiceAccount", name=RUNNER_ACCOUNT, namespace=RUNNER_NAMESPACE)
    rights = [right for right in RUNNER_CLUSTER_RIGHTS if right.scope == scope]
    _add_bound_role(chart, RUNNER_ROLE, RUNNER, rights, [subject], scope=scope)


def _add_bound_role(
    chart: TandemChart,
    name: str,
    component: str,
    rights: Iterable[ClusterRight],
    subjects: Sequence[k8s.Subject],
    *,
    scope: NamespaceScope,
) -> None:
    is_clusterwide = scope == "everywhere"
    metadata = chart.build_metadata(name, component, is_clusterwide=is_clusterwide)
    rules = [
        k8s.PolicyRule(
            api_groups=[right.group], resources=list(right.resources), verbs=list(right.verbs)
        )
        for right in rights
    ]
    role_id = f"role-{name}"
    binding_id = f"binding-{name}"
    if is_clusterwide:
        role = k8s.RoleRef(api_group=RBAC, kind="ClusterRole", name=name)
        k8s.KubeClusterRole(chart, role_id, metadata=metadata, rules=rules)
        k8s.KubeClusterRoleBinding(
            chart, binding_id, metadata=metadata, role_ref=role, subjects=subjects
        )
    else:
        role = k8s.RoleRef(api_group=RBAC, kind="Role", name=name)
        k8s.KubeRole(chart, role_id, metadata=metadata, rules=rules)
        k8s.KubeRoleBinding(chart, binding_id, metadata=metadata, role_ref=role, subjects=subjects)
