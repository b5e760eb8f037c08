"""What operator, engineer and viewer may do in the cluster, and what may run there as whom.

Invariant: each Role is rows of tandem/ops/people/cluster_rights.py and no more; nothing here gives rights to a program.
An admin needs none of it: EKS's own cluster-admin policy is his from the first deploy. The others can do nothing before
these objects are applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from charts.admission import API, COMMANDS_MAP, list_policies, summarize_commands
from charts.manifest import Object, build_object, object_labels, sync_wave
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


def render_people(
    environment: Environment,
    experiments: Sequence[Experiment],
    charts_by_experiment: Mapping[str, Mapping[str, list[Object]]],
) -> dict[str, list[Object]]:
    """Return the objects of people's rights: those of the cluster, then those of each namespace.

    Args:
        charts_by_experiment: experiment -> chart -> its objects, of which the admission policies are made.
    """
    bodies_by_namespace = {
        names.experiment_namespace(experiment): [
            body for bodies in charts_by_experiment[experiment.name].values() for body in bodies
        ]
        for experiment in experiments
    }
    return {
        CLUSTER: [
            *_build_roles("everywhere", None),
            *(_build_object(API, kind, name, {"spec": spec}) for kind, name, spec in list_policies(environment)),
        ],
        **{
            namespace: [
                *_build_roles("experiments", namespace),
                _build_object("v1", "ConfigMap", COMMANDS_MAP, {"data": summarize_commands(bodies)}, namespace),
            ]
            for namespace, bodies in bodies_by_namespace.items()
        },
    }


def _build_roles(scope: NamespaceScope, namespace: str | None) -> Iterator[Object]:
    """Yield the role and the binding of each kind of people that has a right in `scope` which no kind before has."""
    role = "Role" if namespace else "ClusterRole"
    for kind in CLUSTER_KINDS:
        rules = _list_rules(scope, kind)
        if rules:
            name = kubernetes_group(kind)
            yield _build_object(RBAC_API, role, name, {"rules": rules}, namespace)
            yield _build_object(RBAC_API, f"{role}Binding", name, _build_binding(role, kind), namespace)


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
    labels, annotations = object_labels(name, FOLDER), sync_wave(WAVE)
    return build_object(api, kind, name, body, namespace=namespace, labels=labels, annotations=annotations)
