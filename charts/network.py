"""Who may talk to whom inside an experiment's namespace.

Invariant: one policy denies everything, and each of the others admits one thing.

A server needs no way out. Model and artifact are local files, and whoever reads them from S3 is the Mountpoint
pod in its own namespace, with a token that the kubelet gives the CSI driver for this pod's service account:
neither S3 nor the Pod Identity agent (169.254.170.23) is called from here, so neither is admitted. That also
keeps the account's credentials out of reach of whoever breaks into an old vLLM. Probes come from the
node, which a network policy never stops.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from charts.manifest import COMPONENT
from tandem.spec.names import SERVER_PORT

SERVER = "server"
BENCH = "bench"
METRICS_NAMESPACE = "amazon-cloudwatch"  # namespace of the add-on amazon-cloudwatch-observability

Spec = dict[str, Any]


def policies(allowed_namespaces: Iterable[str]) -> dict[str, Spec]:
    """Return policy name to spec.

    Args:
        allowed_namespaces: admitted to the servers besides the bench and the metrics agent.
    """
    return {
        "default-deny": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
        "allow-dns": _dns(),
        "allow-bench": _to_servers([{"podSelector": {"matchLabels": {COMPONENT: BENCH}}}]),
        "allow-metrics": _to_servers([_namespaces([METRICS_NAMESPACE])]),
        **_clients(sorted(allowed_namespaces)),
    }


def _clients(allowed: list[str]) -> dict[str, Spec]:
    return {"allow-clients": _to_servers([_namespaces(allowed)])} if allowed else {}


def _namespaces(allowed: list[str]) -> Spec:
    # every namespace carries its own name as this label; nobody else can write it
    expression = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": allowed}
    return {"namespaceSelector": {"matchExpressions": [expression]}}


def _to_servers(sources: list[Spec]) -> Spec:
    return {
        "podSelector": {"matchLabels": {COMPONENT: SERVER}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": sources, "ports": [{"protocol": "TCP", "port": SERVER_PORT}]}],
    }


def _dns() -> Spec:
    resolver = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    ports = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    return {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [resolver], "ports": ports}]}
