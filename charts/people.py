"""What operator, engineer and viewer may do in the cluster, and what may run there as whom.

Invariant: each Role is rows of tandem/ops/people/cluster_rights.py and no more; nothing here gives rights to a program.
An admin needs none of it: EKS's own cluster-admin policy is his from the first deploy. The others can do nothing before
these objects are applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import cdk8s
from constructs import Construct

from charts.admission import API, COMMANDS_MAP, list_policies, summarize_commands
from charts.manifest import add_manifest, object_labels, sync_wave
from tandem.ops.people.cluster_rights import (
    CLUSTER_KINDS,
    CLUSTER_RIGHTS,
    ClusterKind,
    NamespaceScope,
    kubernetes_group,
)
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

FOLDER = "people"
CLUSTER = "cluster"
RBAC = "rbac.authorization.k8s.io"
RBAC_API = f"{RBAC}/v1"
WAVE = 0

Object = dict[str, Any]


def render_people(
    environment: Environment,
    experiments: Sequence[Experiment],
    charts_by_experiment: Mapping[str, Mapping[str, list[Object]]],
) -> dict[str, list[Object]]:
    """Return the objects of people's rights: those of the cluster, then those of each namespace.

    Args:
        charts_by_experiment: experiment -> chart -> its objects, of which the admission policies are made.
    """
    app = cdk8s.App()
    return {
        CLUSTER: ClusterRightsChart(app, CLUSTER, environment=environment).to_json(),
        **{
            namespace: ExperimentRightsChart(
                app, namespace, namespace=namespace, charts=charts_by_experiment[name]
            ).to_json()
            for name, namespace in (
                (experiment.name, names.experiment_namespace(experiment)) for experiment in experiments
            )
        },
    }


class ClusterRightsChart(cdk8s.Chart):
    """What people may do in all namespaces and with what is in none; and the admission policies."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(scope, id_, disable_resource_name_hashes=True)
        for kind in _list_kinds("everywhere"):
            name = kubernetes_group(kind)
            add_manifest(self, _build_object(RBAC_API, "ClusterRole", name, {"rules": _list_rules("everywhere", kind)}))
            add_manifest(self, _build_object(RBAC_API, "ClusterRoleBinding", name, _build_binding("ClusterRole", kind)))
        for body_kind, name, spec in list_policies(environment):
            add_manifest(self, _build_object(API, body_kind, name, {"spec": spec}))


class ExperimentRightsChart(cdk8s.Chart):
    """What people may do in one experiment's namespace, and the words of what may run there as a guarded account."""

    def __init__(self, scope: Construct, id_: str, *, namespace: str, charts: Mapping[str, Sequence[Object]]) -> None:
        super().__init__(scope, id_, disable_resource_name_hashes=True)
        for kind in _list_kinds("experiments"):
            name = kubernetes_group(kind)
            add_manifest(
                self, _build_object(RBAC_API, "Role", name, {"rules": _list_rules("experiments", kind)}, namespace)
            )
            add_manifest(self, _build_object(RBAC_API, "RoleBinding", name, _build_binding("Role", kind), namespace))
        commands = summarize_commands(body for bodies in charts.values() for body in bodies)
        add_manifest(self, _build_object("v1", "ConfigMap", COMMANDS_MAP, {"data": commands}, namespace))


def _list_kinds(scope: NamespaceScope) -> Iterator[ClusterKind]:
    """Yield the kinds of people that have a right in `scope` which no kind before them has."""
    return (kind for kind in CLUSTER_KINDS if _list_rules(scope, kind))


def _list_rules(scope: NamespaceScope, kind: ClusterKind) -> list[Object]:
    """Return the rules that begin with `kind`; those after it are bound to them as well."""
    return [
        {"apiGroups": [right.group], "resources": list(right.resources), "verbs": list(right.verbs)}
        for right in CLUSTER_RIGHTS
        if right.scope == scope and right.kinds[0] == kind
    ]


def _build_binding(role: str, kind: ClusterKind) -> Object:
    holders = CLUSTER_KINDS[CLUSTER_KINDS.index(kind) :]
    return {
        "roleRef": {"apiGroup": RBAC, "kind": role, "name": kubernetes_group(kind)},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": kubernetes_group(holder)} for holder in holders],
    }


def _build_object(api: str, kind: str, name: str, body: Object, namespace: str | None = None) -> Object:
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {
            "name": name,
            **({"namespace": namespace} if namespace else {}),
            "labels": object_labels(name, FOLDER),
            "annotations": sync_wave(WAVE),
        },
        **body,
    }
