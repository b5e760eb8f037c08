"""Allowed traffic inside an experiment's namespace.

Invariant: one policy denies everything, and each of the others admits one thing.

A server needs no way out. Model and artifact are local files. The Mountpoint pod in its own
namespace reads them from S3. Its token is what the kubelet gives the CSI driver for this pod's
service account. The server calls neither S3 nor the Pod Identity agent (169.254.170.23), so neither
is admitted. That also keeps the account's credentials from anybody who breaks into an old vLLM.
Probes come from the node, which a network policy never stops.

Staging calls S3, Secrets Manager and the hub; compiling calls S3. Measuring calls the servers of
its namespace, S3 to store its figures, and CloudWatch to publish them. Each gets its role from the
agent. A policy of addresses cannot name any of these services. S3 answers from public ranges that
change, also behind a gateway endpoint. Neither an AWS prefix list nor a host name fits into a
NetworkPolicy. The VPC CNI knows host names on EKS Auto Mode alone
(docs.aws.amazon.com/eks/latest/userguide/auto-net-pol.html, 2026-11). So all three may open HTTPS
to any public address. The compile pod runs third-party code over the model. With a NAT gateway that
code can send any data that it sees to any listener on port 443. It cannot store data in somebody
else's bucket of the region. The S3 endpoint of a new network admits writes to this environment's
bucket alone (stacks/network.py). Without NAT (`network.nat: none`) nothing but the VPC's endpoints
answers.

A private address is admitted only if a service answers there. In a new network with interface
endpoints that is the VPC's range, for staging and the bench. Otherwise neither the Kubernetes API
nor any pod or node can be reached. In an existing network the ranges of `network.cidr` and
`network.secondary_cidrs` are admitted, for all three, because S3 too may answer from an interface
endpoint there. The operator's own hub may be at any address, so staging may call its port
everywhere but on the node.

The runner, in its own namespace, calls AWS, and the Kubernetes API, which answers inside the VPC at
addresses that EKS chooses. So it may open HTTPS in the VPC's ranges in every network. Nobody may
call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from cdk8s_plus_36 import k8s

from charts.chart import COMPONENT
from tandem.declarations.environment import Environment
from tandem.declarations.names import SERVER_PORT
from tandem.declarations.network_settings import ExistingNetwork

# component labels of pods
SERVER = "server"
BENCH = "bench"
STAGE = "stage"
COMPILE = "compile"
RUNNER = "runner"
METRICS_NAMESPACE = "amazon-cloudwatch"  # namespace of the add-on amazon-cloudwatch-observability
# every namespace has its own name; nobody else can write it
NAMESPACE_NAME = "kubernetes.io/metadata.name"
HTTPS = 443
ANYWHERE = "0.0.0.0/0"
# the Pod Identity agent on the pod's own node (EKS user guide, "Set up the Amazon EKS Pod Identity
# Agent")
AGENT = "169.254.170.23/32"
AGENT_PORT = 80
LINK_LOCAL = "169.254.0.0/16"  # the metadata service of the node, among others
# RFC 1918 and RFC 6598
PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")
# The Service of the Kubernetes API has the first address of the service range. EKS takes that from
# two ranges if none is named (EKS API reference, KubernetesNetworkConfigRequest). Whether a policy
# sees this address or the API's own behind it "is not defined" (kubernetes.io
# docs/concepts/services-networking/network-policies, ipBlock), so both are admitted.
API_SERVICES = ("10.100.0.1/32", "172.20.0.1/32")


def build_network_policies(environment: Environment) -> dict[str, k8s.NetworkPolicySpec]:
    """Return the policies of an experiment's namespace by name."""
    agent, https = _list_public_rules()
    services, s3 = _list_endpoint_rules(environment)
    hub = environment.hub.endpoint
    hub_rules = []
    if hub:
        public_addresses = [_select_address(ANYWHERE, [LINK_LOCAL])]
        hub_rules = [_allow_egress(public_addresses, urlsplit(hub).port or HTTPS)]
    servers = _allow_egress([_select_pods(SERVER)], SERVER_PORT)
    clients = sorted(environment.serving.allowed_namespaces)

    policies = {
        **_build_closed_policies(),
        "allow-bench": _build_server_ingress(_select_pods(BENCH)),
        "allow-metrics": _build_server_ingress(_select_namespaces([METRICS_NAMESPACE])),
        "allow-staging": _build_egress(STAGE, [agent, https, *services, *hub_rules]),
        "allow-benching": _build_egress(BENCH, [servers, agent, https, *services]),
        "allow-compiling": _build_egress(COMPILE, [agent, https, *s3]),
    }
    if clients:
        policies["allow-clients"] = _build_server_ingress(_select_namespaces(clients))
    return policies


def build_runner_policies(environment: Environment) -> dict[str, k8s.NetworkPolicySpec]:
    """Return the policies of the runner's namespace by name."""
    network = environment.network
    cidrs = network.cidrs if isinstance(network, ExistingNetwork) else (network.cidr,)
    api = _allow_egress([_select_address(cidr) for cidr in (*cidrs, *API_SERVICES)], HTTPS)
    return {
        **_build_closed_policies(),
        "allow-running": _build_egress(RUNNER, [*_list_public_rules(), api]),
    }


def _build_closed_policies() -> dict[str, k8s.NetworkPolicySpec]:
    """Return the policies that deny everything in a namespace except DNS."""
    resolver = k8s.NetworkPolicyPeer(
        namespace_selector=k8s.LabelSelector(match_labels={NAMESPACE_NAME: "kube-system"}),
        pod_selector=k8s.LabelSelector(match_labels={"k8s-app": "kube-dns"}),
    )
    return {
        "default-deny": k8s.NetworkPolicySpec(
            pod_selector=k8s.LabelSelector(), policy_types=["Ingress", "Egress"]
        ),
        "allow-dns": k8s.NetworkPolicySpec(
            pod_selector=k8s.LabelSelector(),
            policy_types=["Egress"],
            egress=[
                k8s.NetworkPolicyEgressRule(
                    to=[resolver], ports=[_allow_port(53, "UDP"), _allow_port(53)]
                )
            ],
        ),
    }


def _list_public_rules() -> list[k8s.NetworkPolicyEgressRule]:
    """Return the rules for the Pod Identity agent, and for every public address by HTTPS."""
    https = _allow_egress([_select_address(ANYWHERE, sorted([LINK_LOCAL, *PRIVATE]))], HTTPS)
    return [_allow_egress([_select_address(AGENT)], AGENT_PORT), https]


def _list_endpoint_rules(
    environment: Environment,
) -> tuple[list[k8s.NetworkPolicyEgressRule], list[k8s.NetworkPolicyEgressRule]]:
    """Return the rules that reach AWS services, and S3 alone, at private addresses.

    Only an existing network may have an interface endpoint of S3.
    """
    network = environment.network
    if isinstance(network, ExistingNetwork):
        rules = [_allow_egress([_select_address(cidr) for cidr in network.cidrs], HTTPS)]
        return rules, rules
    if network.has_interface_endpoints:
        return [_allow_egress([_select_address(network.cidr)], HTTPS)], []
    return [], []


def _build_egress(
    component: str, rules: Sequence[k8s.NetworkPolicyEgressRule]
) -> k8s.NetworkPolicySpec:
    return k8s.NetworkPolicySpec(
        pod_selector=k8s.LabelSelector(match_labels={COMPONENT: component}),
        policy_types=["Egress"],
        egress=rules,
    )


def _build_server_ingress(source: k8s.NetworkPolicyPeer) -> k8s.NetworkPolicySpec:
    return k8s.NetworkPolicySpec(
        pod_selector=k8s.LabelSelector(match_labels={COMPONENT: SERVER}),
        policy_types=["Ingress"],
        ingress=[k8s.NetworkPolicyIngressRule(from_=[source], ports=[_allow_port(SERVER_PORT)])],
    )


def _allow_egress(peers: Sequence[k8s.NetworkPolicyPeer], port: int) -> k8s.NetworkPolicyEgressRule:
    return k8s.NetworkPolicyEgressRule(to=peers, ports=[_allow_port(port)])


def _allow_port(number: int, protocol: str = "TCP") -> k8s.NetworkPolicyPort:
    return k8s.NetworkPolicyPort(port=k8s.IntOrString.from_number(number), protocol=protocol)


def _select_address(cidr: str, excluded_cidrs: Sequence[str] = ()) -> k8s.NetworkPolicyPeer:
    return k8s.NetworkPolicyPeer(ip_block=k8s.IpBlock(cidr=cidr, except_=excluded_cidrs or None))


def _select_pods(component: str) -> k8s.NetworkPolicyPeer:
    return k8s.NetworkPolicyPeer(
        pod_selector=k8s.LabelSelector(match_labels={COMPONENT: component})
    )


def _select_namespaces(namespaces: list[str]) -> k8s.NetworkPolicyPeer:
    expression = k8s.LabelSelectorRequirement(key=NAMESPACE_NAME, operator="In", values=namespaces)
    return k8s.NetworkPolicyPeer(
        namespace_selector=k8s.LabelSelector(match_expressions=[expression])
    )
