"""Kubernetes rights of operator, engineer, viewer and the runner in a cluster: one row a right.

Invariant: only these rows are allowed, and people only read: the runner makes Jobs and scales
servers, and a request to it needs the AWS API. charts/roles.py renders the rows as RBAC;
docs/people.md shows them, and the rights that nobody has. A test evaluates every verb on every
resource against the page. An admin has EKS's cluster-admin policy instead.

Source of groups, resources and subresources: the Kubernetes API reference, 1.36.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ClusterKind = Literal["viewer", "engineer", "operator"]
CLUSTER_KINDS: tuple[ClusterKind, ...] = ("viewer", "engineer", "operator")
NamespaceScope = Literal["everywhere", "experiments"]
"""All namespaces and cluster-wide objects; or the namespaces of the experiments alone."""

# of the program that starts Jobs for people; only an admin enters it
RUNNER_NAMESPACE = "runner-system"
RUNNER_ACCOUNT = "runner"


@dataclass(frozen=True)
class ClusterRight:
    """Some verbs on some resources of one API group.

    Args:
        kinds: that have the right; each kind has the rights of the kinds before it; none: the
            runner alone.
        scope: of the right.
        group: of the API, "" for the core.
        resources: with a slash before their subresource.
        reason: the person who needs the right, and the page that says so.
    """

    kinds: tuple[ClusterKind, ...]
    scope: NamespaceScope
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    reason: str


_READ = "get list watch"
_STATE = "state and events of what runs: docs/runbook.md, docs/placement.md"
_STATE_RESOURCES = (
    "events namespaces nodes persistentvolumeclaims persistentvolumes pods resourcequotas"
    " serviceaccounts services"
)


def _build_rights(
    kinds: tuple[ClusterKind, ...], scope: NamespaceScope, *rows: tuple[str, str, str, str]
) -> tuple[ClusterRight, ...]:
    """Return rows of group, resources, verbs and reason as rights; texts hold several words."""
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
        (
            "resource.k8s.io",
            "deviceclasses resourceclaims resourceclaimtemplates resourceslices",
            _READ,
            _STATE,
        ),
    ),
    *_build_rights(
        ("engineer", "operator"),
        "experiments",
        ("", "pods/log", "get", "logs of servers and Jobs: docs/artifacts.md"),
        ("apps", "deployments/scale", "get", "how many pods the runner wants of a server"),
    ),
    *_build_rights(
        ("operator",),
        "everywhere",
        ("", "pods/log", "get", "logs of drivers, agents and add-ons: docs/runbook.md"),
    ),
)

RUNNER_CLUSTER_RIGHTS = (
    *_build_rights(
        (),
        "experiments",
        (
            "batch",
            "jobs",
            "create delete get list",
            "makes Jobs of rendered CronJobs, looks at them, takes them away",
        ),
        ("batch", "cronjobs", "get", "what a Job is made of"),
        ("apps", "deployments", "get", "whether every server is deployed"),
        ("apps", "deployments/scale", "patch", "starts, parks and restarts servers"),
        (
            "",
            "pods",
            "list",
            "whether a pod runs as declared, and is the one that was there before a round",
        ),
        ("", "pods/log", "get", "the last lines of a Job, stored at its step's end"),
        ("discovery.k8s.io", "endpointslices", "list", "one ready endpoint of each Service"),
        ("resource.k8s.io", "resourceclaims", "list", "which half of a node a server has"),
    ),
    *_build_rights(
        (),
        "everywhere",
        (
            "",
            "nodes",
            "list",
            "whether the node came, with its labels; no label is set here: `relabel` asks EKS",
        ),
        (
            "resource.k8s.io",
            "resourceslices",
            "list",
            "whether every device of the node is published",
        ),
    ),
)


def kubernetes_group(kind: ClusterKind) -> str:
    """Return the Kubernetes group of one kind of people.

    The EKS user guide ("Create access entries") refuses names that begin with system:, eks:, aws:,
    amazon: or iam:.
    """
    return f"tandem-{kind}"
