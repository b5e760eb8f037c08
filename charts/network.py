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
a NAT gateway that code can send what it sees to anybody who listens on 443. It cannot store it in somebody else's
bucket of the region: the policy on the S3 endpoint of a new network admits writes to this environment's bucket alone
(stacks/network.py). Without NAT (`network.nat: none`) nothing but the VPC's endpoints answers.

No private address is admitted but where a service answers. In a new network that is the VPC's range, for staging and
the bench, where there are interface endpoints; else neither the Kubernetes API nor any pod or node is in their reach.
In an existing one the ranges of `network.cidr` and `network.secondary_cidrs` are, for all three, because S3 too may
answer from an interface endpoint there. A hub of the operator's own may be at any address, so staging may call its port
everywhere but on the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from charts.manifest import COMPONENT, Object
from tandem.spec.environment import Environment, ExistingNetwork, NewNetwork
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


def build_network_policies(environment: Environment) -> dict[str, Object]:
    """Return policy name to spec."""
    return {
        "default-deny": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
        "allow-dns": _dns_policy(),
        "allow-bench": _server_ingress_policy([{"podSelector": {"matchLabels": {COMPONENT: BENCH}}}]),
        "allow-metrics": _server_ingress_policy([_namespace_selector([METRICS_NAMESPACE])]),
        **_client_policies(sorted(environment.serving.allowed_namespaces)),
        "allow-staging": _egress_policy(
            STAGE, [_agent_rule(), _public_https_rule(), *_endpoint_rules(environment), *_own_hub_rules(environment)]
        ),
        "allow-benching": _egress_policy(
            BENCH, [_server_rule(), _agent_rule(), _public_https_rule(), *_endpoint_rules(environment)]
        ),
        "allow-compiling": _egress_policy(
            COMPILE, [_agent_rule(), _public_https_rule(), *_s3_endpoint_rules(environment)]
        ),
    }


def _own_hub_rules(environment: Environment) -> list[Object]:
    """Return the rule that reaches a hub of the operator's own, wherever it is."""
    endpoint = environment.hub.endpoint
    return [_build_https_rule([LINK_LOCAL], [urlsplit(endpoint).port or HTTPS])] if endpoint else []


def _public_https_rule() -> Object:
    return _build_https_rule(sorted([LINK_LOCAL, *PRIVATE]), [HTTPS])


def _endpoint_rules(environment: Environment) -> list[Object]:
    """Return the rule that reaches the interface endpoints of AWS services."""
    network = environment.network
    if isinstance(network, NewNetwork):
        return [_private_https_rule([network.cidr])] if network.has_interface_endpoints else []
    return _s3_endpoint_rules(environment)


def _s3_endpoint_rules(environment: Environment) -> list[Object]:
    """Return the rule that reaches S3 at a private address: only an existing network may have such an endpoint."""
    network = environment.network
    return [_private_https_rule(network.cidrs)] if isinstance(network, ExistingNetwork) else []


def _private_https_rule(cidrs: Sequence[str]) -> Object:
    return {
        "to": [{"ipBlock": {"cidr": cidr}} for cidr in cidrs], "ports": [{"protocol": "TCP", "port": HTTPS}],
    }  # fmt: skip


def _egress_policy(component: str, rules: list[Object]) -> Object:
    return {"podSelector": {"matchLabels": {COMPONENT: component}}, "policyTypes": ["Egress"], "egress": rules}


def _server_rule() -> Object:
    return {
        "to": [{"podSelector": {"matchLabels": {COMPONENT: SERVER}}}],
        "ports": [{"protocol": "TCP", "port": SERVER_PORT}],
    }


def _agent_rule() -> Object:
    return {"to": [{"ipBlock": {"cidr": AGENT}}], "ports": [{"protocol": "TCP", "port": AGENT_PORT}]}


def _build_https_rule(excluded_cidrs: list[str], ports: list[int]) -> Object:
    return {
        "to": [{"ipBlock": {"cidr": ANYWHERE, "except": excluded_cidrs}}],
        "ports": [{"protocol": "TCP", "port": port} for port in ports],
    }


def _client_policies(namespaces: list[str]) -> dict[str, Object]:
    return {"allow-clients": _server_ingress_policy([_namespace_selector(namespaces)])} if namespaces else {}


def _namespace_selector(namespaces: list[str]) -> Object:
    # every namespace carries its own name as this label; nobody else can write it
    expression = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}
    return {"namespaceSelector": {"matchExpressions": [expression]}}


def _server_ingress_policy(sources: list[Object]) -> Object:
    return {
        "podSelector": {"matchLabels": {COMPONENT: SERVER}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": sources, "ports": [{"protocol": "TCP", "port": SERVER_PORT}]}],
    }


def _dns_policy() -> Object:
    resolver = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    ports = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    return {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [resolver], "ports": ports}]}
