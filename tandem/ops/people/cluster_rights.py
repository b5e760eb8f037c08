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
NamespaceScope = Literal["everywhere", "experiments"]
"""All namespaces and what is in none; or the namespaces of the experiments alone."""

READ_VERBS = ("get", "list", "watch")
DELIVERY_GROUP = "tandem-delivery"  # of the function with which CloudFormation applies manifests
RUNNER_NAMESPACE = "runner-system"  # of the program that will start Jobs for people; nobody but an admin enters it
BENCH_JOB = "bench"  # the only Jobs whose pods people enter have this name, or it and a hyphen at their start


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRight:
    """Some verbs on some resources of one API group.

    Args:
        kinds: who has it; each kind has what the kinds before it have.
        scope: where. group: of the API, "" the core. resources: with their subresource after a slash.
        reason: who needs it, and the page that says so.
    """

    kinds: tuple[ClusterKind, ...]
    scope: NamespaceScope
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeniedRight:
    """What neither viewer, engineer nor operator may do anywhere, where a reader would look for it."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    reason: str


_OPERATING_KINDS: tuple[ClusterKind, ...] = ("engineer", "operator")
_STATE_REASON = "state and events of what runs: docs/runbook.md, docs/placement.md"

CLUSTER_RIGHTS = (
    ClusterRight(
        kinds=CLUSTER_KINDS,
        scope="everywhere",
        group="",
        verbs=READ_VERBS,
        reason=_STATE_REASON,
        resources=(
            "events",
            "namespaces",
            "nodes",
            "persistentvolumeclaims",
            "persistentvolumes",
            "pods",
            "resourcequotas",
            "serviceaccounts",
            "services",
        ),
    ),
    ClusterRight(
        kinds=CLUSTER_KINDS,
        scope="everywhere",
        group="apps",
        verbs=READ_VERBS,
        reason=_STATE_REASON,
        resources=("daemonsets", "deployments", "replicasets"),
    ),
    ClusterRight(
        kinds=CLUSTER_KINDS,
        scope="everywhere",
        group="batch",
        verbs=READ_VERBS,
        reason=_STATE_REASON,
        resources=("cronjobs", "jobs"),
    ),
    ClusterRight(
        kinds=CLUSTER_KINDS,
        scope="everywhere",
        group="discovery.k8s.io",
        verbs=READ_VERBS,
        reason=_STATE_REASON,
        resources=("endpointslices",),
    ),
    ClusterRight(
        kinds=CLUSTER_KINDS,
        scope="everywhere",
        group="events.k8s.io",
        verbs=READ_VERBS,
        reason=_STATE_REASON,
        resources=("events",),
    ),
    ClusterRight(
        kinds=CLUSTER_KINDS,
        scope="everywhere",
        group="networking.k8s.io",
        verbs=READ_VERBS,
        reason=_STATE_REASON,
        resources=("networkpolicies",),
    ),
    ClusterRight(
        kinds=CLUSTER_KINDS,
        scope="everywhere",
        group="resource.k8s.io",
        verbs=READ_VERBS,
        reason=_STATE_REASON,
        resources=("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"),
    ),
    ClusterRight(
        kinds=_OPERATING_KINDS,
        scope="experiments",
        group="",
        resources=("pods/log",),
        verbs=("get",),
        reason="logs of servers and Jobs: docs/artifacts.md",
    ),
    ClusterRight(
        kinds=_OPERATING_KINDS,
        scope="experiments",
        group="batch",
        resources=("jobs",),
        verbs=("create", "delete"),
        reason="`kubectl create job --from=cronjob/...` stages and compiles: docs/artifacts.md",
    ),
    ClusterRight(
        kinds=_OPERATING_KINDS,
        scope="experiments",
        group="apps",
        resources=("deployments/scale",),
        verbs=("get", "patch", "update"),
        reason="`kubectl scale` starts and parks servers: docs/run-by-hand.md",
    ),
    ClusterRight(
        kinds=_OPERATING_KINDS,
        scope="experiments",
        group="",
        resources=("pods",),
        verbs=("delete",),
        reason="restarts a server: docs/runbook.md",
    ),
    ClusterRight(
        kinds=_OPERATING_KINDS,
        scope="experiments",
        group="",
        resources=("pods/exec",),
        verbs=("create", "get"),
        reason="`kubectl exec job/bench` measures: docs/run-by-hand.md; in pods of other names the "
        "admission policy refuses it",
    ),
    ClusterRight(
        kinds=("operator",),
        scope="everywhere",
        group="",
        resources=("pods/log",),
        verbs=("get",),
        reason="logs of drivers, agents and add-ons: docs/runbook.md",
    ),
)

_WRITE_VERBS = ("create", "delete", "deletecollection", "patch", "update")
DENIED_RIGHTS = (
    DeniedRight(group="", resources=("pods/attach",), verbs=("create", "get"), reason="enters a running container"),
    DeniedRight(
        group="",
        resources=("pods/ephemeralcontainers",),
        verbs=("patch", "update"),
        reason="adds a container of any image to a pod that has a role",
    ),
    DeniedRight(
        group="",
        resources=("serviceaccounts/token",),
        verbs=("create",),
        reason="a token of an account is the role of its pods",
    ),
    DeniedRight(
        group="",
        resources=("pods/portforward", "pods/proxy", "services/proxy"),
        verbs=("create", "get"),
        reason="goes past the network policies",
    ),
    DeniedRight(
        group="",
        resources=("pods", "replicationcontrollers"),
        verbs=("create", "patch", "update"),
        reason="people make Jobs alone",
    ),
    DeniedRight(
        group="apps",
        resources=("daemonsets", "deployments", "replicasets", "statefulsets"),
        verbs=_WRITE_VERBS,
        reason="people make Jobs alone; what serves is rendered",
    ),
    DeniedRight(
        group="batch",
        resources=("cronjobs",),
        verbs=_WRITE_VERBS,
        reason="what a Job with a guarded account may run is read from the CronJobs",
    ),
    DeniedRight(
        group="", resources=("secrets",), verbs=(*READ_VERBS, *_WRITE_VERBS), reason="nothing of Tandem's is one"
    ),
    DeniedRight(
        group="",
        resources=("configmaps",),
        verbs=_WRITE_VERBS,
        reason="the rendered commands, which admission reads, are one",
    ),
    DeniedRight(
        group="networking.k8s.io", resources=("networkpolicies",), verbs=_WRITE_VERBS, reason="they keep pods apart"
    ),
    DeniedRight(
        group="",
        resources=(
            "resourcequotas",
            "serviceaccounts",
            "nodes",
            "persistentvolumes",
            "persistentvolumeclaims",
            "namespaces",
        ),
        verbs=_WRITE_VERBS,
        reason="rendered, or EKS's",
    ),
    DeniedRight(
        group="rbac.authorization.k8s.io",
        verbs=(*_WRITE_VERBS, "bind", "escalate"),
        reason="rights are rendered",
        resources=("clusterroles", "clusterrolebindings", "roles", "rolebindings"),
    ),
    DeniedRight(
        group="admissionregistration.k8s.io",
        verbs=_WRITE_VERBS,
        reason="policies are rendered",
        resources=("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
    ),
    DeniedRight(
        group="",
        resources=("groups", "serviceaccounts", "users"),
        verbs=("impersonate",),
        reason="would be somebody else's rights",
    ),
)


def kubernetes_group(kind: ClusterKind) -> str:
    """Return the Kubernetes group of one kind of people.

    The EKS user guide ("Create access entries") refuses names that begin with system:, eks:, aws:, amazon: or iam:.
    """
    return f"tandem-{kind}"
