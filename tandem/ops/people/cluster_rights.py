"""What Kubernetes lets operator, engineer and viewer do in a cluster: one row a right, and what no row gives them.

Invariant: nothing is allowed but these rows; charts/people.py renders them as RBAC, docs/people.md shows them, and a
test evaluates every verb on every resource against the page. An admin has EKS's own cluster-admin policy instead.

Source of groups, resources and subresources: the Kubernetes API reference, 1.36.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ClusterKind = Literal["viewer", "engineer", "operator"]
CLUSTER_KINDS: tuple[ClusterKind, ...] = ("viewer", "engineer", "operator")
NamespaceScope = Literal["everywhere", "experiments", "nowhere"]
"""All namespaces and what is in none; the namespaces of the experiments alone; or no place, for a denied right."""

DELIVERY_GROUP = "tandem-delivery"  # of the function with which CloudFormation applies manifests
RUNNER_NAMESPACE = "runner-system"  # of the program that will start Jobs for people; nobody but an admin enters it
BENCH_JOB = "bench"  # the only Jobs whose pods people enter have this name, or it and a hyphen at their start


@dataclass(frozen=True, slots=True)
class ClusterRight:
    """Some verbs on some resources of one API group.

    Args:
        kinds: who has it; each kind has what the kinds before it have.
        scope: where.
        group: of the API, "" the core.
        resources: with their subresource after a slash.
        reason: who needs it, and the page that says so; of a denied one what it would open.
    """

    kinds: tuple[ClusterKind, ...]
    scope: NamespaceScope
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    reason: str


_READ, _WRITE = "get list watch", "create delete deletecollection patch update"
_STATE = "state and events of what runs: docs/runbook.md, docs/placement.md"
_JOB_REASON = "`kubectl create job --from=cronjob/...` stages and compiles: docs/artifacts.md"
_SCALE_REASON = "`kubectl scale` starts and parks servers: docs/run-by-hand.md"
_RENDERED_RESOURCES = "resourcequotas serviceaccounts nodes persistentvolumes persistentvolumeclaims namespaces"
_RBAC_GROUP, _WRITE_RBAC = "rbac.authorization.k8s.io", f"{_WRITE} bind escalate"
_POLICY_RESOURCES = "validatingadmissionpolicies validatingadmissionpolicybindings"
_JOBS_ALONE = "people make Jobs alone"
_ENTRY = (
    "`kubectl exec job/bench` measures: docs/run-by-hand.md; in pods of other names the admission policy refuses it"
)
_STATE_RESOURCES = (
    "events namespaces nodes persistentvolumeclaims persistentvolumes pods resourcequotas serviceaccounts services"
)


def _build_rights(
    kinds: tuple[ClusterKind, ...], scope: NamespaceScope, *rows: tuple[str, str, str, str]
) -> tuple[ClusterRight, ...]:
    """Return rows of group, resources, verbs and reason as rights; resources and verbs are words of one text."""
    return tuple(
        ClusterRight(kinds, scope, group, tuple(resources.split()), tuple(verbs.split()), reason)
        for group, resources, verbs, reason in rows
    )


CLUSTER_RIGHTS = (
    *_build_rights(
        CLUSTER_KINDS,
        "everywhere",
        ("", _STATE_RESOURCES, _READ, _STATE),
        ("apps", "daemonsets deployments replicasets", _READ, _STATE),
        ("batch", "cronjobs jobs", _READ, _STATE),
        ("discovery.k8s.io", "endpointslices", _READ, _STATE),
        ("events.k8s.io", "events", _READ, _STATE),
        ("networking.k8s.io", "networkpolicies", _READ, _STATE),
        ("resource.k8s.io", "deviceclasses resourceclaims resourceclaimtemplates resourceslices", _READ, _STATE),
    ),
    *_build_rights(
        ("engineer", "operator"),
        "experiments",
        ("", "pods/log", "get", "logs of servers and Jobs: docs/artifacts.md"),
        ("batch", "jobs", "create delete", _JOB_REASON),
        ("apps", "deployments/scale", "get patch update", _SCALE_REASON),
        ("", "pods", "delete", "restarts a server: docs/runbook.md"),
        ("", "pods/exec", "create get", _ENTRY),
    ),
    *_build_rights(
        ("operator",), "everywhere", ("", "pods/log", "get", "logs of drivers, agents and add-ons: docs/runbook.md")
    ),
)
DENIED_RIGHTS = _build_rights(
    (),
    "nowhere",
    ("", "pods/attach", "create get", "enters a running container"),
    ("", "pods/ephemeralcontainers", "patch update", "adds a container of any image to a pod that has a role"),
    ("", "serviceaccounts/token", "create", "a token of an account is the role of its pods"),
    ("", "pods/portforward pods/proxy services/proxy", "create get", "goes past the network policies"),
    ("", "pods replicationcontrollers", "create patch update", _JOBS_ALONE),
    ("apps", "daemonsets deployments replicasets statefulsets", _WRITE, f"{_JOBS_ALONE}; what serves is rendered"),
    ("batch", "cronjobs", _WRITE, "what a Job with a guarded account may run is read from the CronJobs"),
    ("", "secrets", f"{_READ} {_WRITE}", "nothing of Tandem's is one"),
    ("", "configmaps", _WRITE, "the rendered commands, which admission reads, are one"),
    ("networking.k8s.io", "networkpolicies", _WRITE, "they keep pods apart"),
    ("", _RENDERED_RESOURCES, _WRITE, "rendered, or EKS's"),
    (_RBAC_GROUP, "clusterroles clusterrolebindings roles rolebindings", _WRITE_RBAC, "rights are rendered"),
    ("admissionregistration.k8s.io", _POLICY_RESOURCES, _WRITE, "policies are rendered"),
    ("", "groups serviceaccounts users", "impersonate", "would be somebody else's rights"),
)


def kubernetes_group(kind: ClusterKind) -> str:
    """Return the Kubernetes group of one kind of people.

    The EKS user guide ("Create access entries") refuses names that begin with system:, eks:, aws:, amazon: or iam:.
    """
    return f"tandem-{kind}"
