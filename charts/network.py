"""Who may talk to whom inside an experiment's namespace.

Invariant: one policy denies everything, and each of the others admits one thing.

A server needs no way out. Model and artifact are local files, and whoever reads them from S3 is the Mountpoint
pod in its own namespace, with a token that the kubelet gives the CSI driver for this pod's service account:
neither S3 nor the Pod Identity agent (169.254.170.23) is called from here, so neither is admitted. That also
keeps the account's credentials out of reach of whoever breaks into an old vLLM. Probes come from the
node, which a network policy never stops.

Staging calls S3, Secrets Manager and the hub; compiling calls S3; measuring calls the servers of its namespace and,
to keep and to publish what it measured, S3 and CloudWatch; each asks the agent for its role. A policy of
addresses cannot name any of these services: S3 answers from public ranges that change, also behind a gateway
endpoint, and neither an AWS prefix list nor a host name fits into a NetworkPolicy (the VPC CNI knows host names
on EKS Auto Mode alone: docs.aws.amazon.com/eks/latest/userguide/auto-net-pol.html, 2026-11). So all three may open
HTTPS to any public address. What it means for the compile pod, which runs third-party code over the model: with
a NAT gateway that code can send what it sees to anybody who listens on 443, or store it in somebody else's bucket.
Without NAT (`network.nat: none`) nothing but the VPC's endpoints answers, and a policy on the S3 endpoint can then
name the buckets; that is the way to close it. In a network of Tandem's own no private address is admitted to the
compile pod, so neither the Kubernetes API nor any other pod, node or endpoint is within its reach. CloudWatch answers
there from an interface endpoint, at an address in the VPC that is not known before it exists: so the bench, and
llmperf with it, may open HTTPS within the VPC's range where there are such endpoints. Neither runs a model's code.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from charts.manifest import COMPONENT
from tandem.spec.environment import Environment, NewNetwork
from tandem.spec.names import SERVER_PORT

SERVER = "server"
BENCH = "bench"
STAGE = "stage"
COMPILE = "compile"
METRICS_NAMESPACE = "amazon-cloudwatch"  # namespace of the add-on amazon-cloudwatch-observability
HTTPS = 443
ANYWHERE = "0.0.0.0/0"
# the Pod Identity agent on the pod's own node (EKS user guide, "Set up the Amazon EKS Pod Identity Agent")
AGENT, AGENT_PORT = "169.254.170.23/32", 80
LINK_LOCAL = "169.254.0.0/16"  # the metadata service of the node, among others
PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")  # RFC 1918 and RFC 6598

Spec = dict[str, Any]


def policies(environment: Environment) -> dict[str, Spec]:
    """Return policy name to spec."""
    return {
        "default-deny": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
        "allow-dns": _dns(),
        "allow-bench": _to_servers([{"podSelector": {"matchLabels": {COMPONENT: BENCH}}}]),
        "allow-metrics": _to_servers([_namespaces([METRICS_NAMESPACE])]),
        **_clients(sorted(environment.serving.allowed_namespaces)),
        "allow-staging": _out(STAGE, [_agent(), _https([LINK_LOCAL], _hub_ports(environment))]),
        "allow-benching": _out(
            BENCH, [_servers(), _agent(), _https(_not_s3(environment), [HTTPS]), *_endpoints(environment)]
        ),
        "allow-compiling": _out(COMPILE, [_agent(), _https(_not_s3(environment), [HTTPS])]),
    }


def _hub_ports(environment: Environment) -> list[int]:
    endpoint = environment.hub.endpoint
    port = urlsplit(endpoint).port if endpoint else None
    return sorted({HTTPS, port or HTTPS})


def _not_s3(environment: Environment) -> list[str]:
    """Return the ranges where S3 is not: in a new network it is behind a gateway endpoint, at public addresses.

    In an existing network its owner may have given S3 an interface endpoint, at an address that only he knows.
    """
    return sorted([LINK_LOCAL, *(PRIVATE if isinstance(environment.network, NewNetwork) else ())])


def _endpoints(environment: Environment) -> list[Spec]:
    """Return the rule that reaches the interface endpoints of a new network; an existing one's are admitted already."""
    network = environment.network
    if not (isinstance(network, NewNetwork) and network.has_interface_endpoints):
        return []
    return [{"to": [{"ipBlock": {"cidr": network.cidr}}], "ports": [{"protocol": "TCP", "port": HTTPS}]}]


def _out(component: str, rules: list[Spec]) -> Spec:
    return {"podSelector": {"matchLabels": {COMPONENT: component}}, "policyTypes": ["Egress"], "egress": rules}


def _servers() -> Spec:
    return {
        "to": [{"podSelector": {"matchLabels": {COMPONENT: SERVER}}}],
        "ports": [{"protocol": "TCP", "port": SERVER_PORT}],
    }


def _agent() -> Spec:
    return {"to": [{"ipBlock": {"cidr": AGENT}}], "ports": [{"protocol": "TCP", "port": AGENT_PORT}]}


def _https(but: list[str], ports: list[int]) -> Spec:
    return {
        "to": [{"ipBlock": {"cidr": ANYWHERE, "except": but}}],
        "ports": [{"protocol": "TCP", "port": port} for port in ports],
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
