"""Which addresses a pod of each kind may call: staging the hub and AWS, compiling S3, servers
nothing."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from chart_cases import (
    ENVIRONMENTS,
    build_stages,
    of_kind,
    stages,
)

from tandem.declarations.environment import Environment, HubSettings
from tandem.declarations.network_settings import ExistingNetwork, ExistingSubnet

HOME = ENVIRONMENTS["post-us-east-2"]
AGENT = ("169.254.170.23", 80)
METADATA = ("169.254.169.254", 80)
PUBLIC = ("52.219.80.1", 443)  # S3 and a public hub answer from such addresses
VPC_ENDPOINT = ("10.42.3.4", 443)
API_SERVER = ("172.20.0.1", 443)
PEERED = ("192.168.7.7", 443)

EXISTING = ExistingNetwork(
    kind="existing",
    vpc_id="vpc-0123456789abcdef0",
    cidr="10.42.0.0/16",
    subnets=tuple(ExistingSubnet(id=f"subnet-{n}0000000", zone=f"use2-az{n}") for n in (1, 2, 3)),
)


def policies(environment: Environment = HOME) -> list[dict[str, Any]]:
    base = build_stages(environment)["base"]
    return [body["spec"] for body in of_kind(base, "NetworkPolicy").values()]


def reaches(specs: list[dict[str, Any]], component: str, to: tuple[str, int]) -> bool:
    """Whether the policies let a pod of a component send TCP to an address outside the cluster.

    Source: kubernetes.io docs/concepts/services-networking/network-policies, ipBlock.
    """
    labels = {"app.kubernetes.io/component": component}
    address = ip_address(to[0])
    port = {"protocol": "TCP", "port": to[1]}
    return any(
        port in rule["ports"]
        and address in ip_network(block["cidr"])
        and not any(address in ip_network(hole) for hole in block.get("except", []))
        for spec in specs
        if spec["podSelector"].get("matchLabels", {}).items() <= labels.items()
        and "Egress" in spec["policyTypes"]
        for rule in spec.get("egress", [])
        for block in (peer["ipBlock"] for peer in rule["to"] if "ipBlock" in peer)
    )


@pytest.mark.parametrize(
    ("component", "to", "expected"),
    [
        ("stage", AGENT, True),
        ("stage", PUBLIC, True),
        ("stage", VPC_ENDPOINT, False),
        ("stage", API_SERVER, False),
        ("stage", (PUBLIC[0], 80), False),
        ("stage", METADATA, False),
        ("stage", (METADATA[0], 443), False),
        ("compile", AGENT, True),
        ("compile", PUBLIC, True),
        ("compile", VPC_ENDPOINT, False),
        ("server", AGENT, False),
        ("server", PUBLIC, False),
        ("bench", AGENT, True),
        ("bench", PUBLIC, True),
        ("bench", PEERED, False),
    ],
    ids=str,
)
def test_who_calls_whom(component, to, *, expected):
    assert reaches(policies(), component, to) is expected


@pytest.mark.parametrize(("port", "expected"), [(443, False), (8443, True), (8080, False)])
def test_a_hub_on_a_port_of_its_own_is_reached_there(port, *, expected):
    own = HOME.model_copy(
        update={"hub": HubSettings(endpoint="https://hub.acme.dev:8443", token_secret=None)}
    )
    assert reaches(policies(own), "stage", ("10.9.9.9", port)) is expected


@pytest.mark.parametrize("component", ["bench", "stage"])
def test_interface_endpoints_are_reached_by_https_alone(component):
    network = HOME.network.model_copy(update={"interface_endpoints": True})
    specs = policies(HOME.model_copy(update={"network": network}))
    ports = [port for port in (80, 443) if reaches(specs, component, (VPC_ENDPOINT[0], port))]
    assert ports == [443]


@pytest.mark.parametrize("component", ["stage", "compile", "bench"])
def test_in_an_existing_network_its_ranges_alone_are_private_ways_out(component):
    network = EXISTING.model_copy(update={"secondary_cidrs": ("100.66.0.0/16",)})
    specs = policies(HOME.model_copy(update={"network": network}))
    addresses = (VPC_ENDPOINT, ("100.66.1.1", 443), PEERED)
    assert [reaches(specs, component, to) for to in addresses] == [True, True, False]


@pytest.mark.parametrize(
    ("chart", "component"),
    [
        ("stage", "stage"),
        ("compile", "compile"),
        ("serve", "server"),
        ("llmperf", "bench"),
        ("measure", "bench"),
    ],
)
def test_a_pod_wears_the_label_that_its_policy_selects(chart, component):
    bodies = stages("post-us-east-2", "post")[chart]
    specs = [
        body["spec"].get("jobTemplate", body)["spec"]
        for body in bodies
        if body["kind"] != "Service"
    ]
    assert {
        spec["template"]["metadata"]["labels"]["app.kubernetes.io/component"] for spec in specs
    } == {component}
