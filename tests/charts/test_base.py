"""The namespace: who may enter it, who may leave it, what may run in it."""

from __future__ import annotations

from typing import Any

import pytest
from chart_cases import (
    ENVIRONMENTS,
    build_stages,
    of_kind,
)

from tandem.declarations.environment import ServingAccess

SERVER = {"app.kubernetes.io/component": "server"}
BENCH = {"app.kubernetes.io/component": "bench"}
OWN = "tandem-post"
Peer = tuple[str, dict[str, str]]


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    expressions = selector.get("matchExpressions", [])
    assert all(expression["operator"] == "In" for expression in expressions)
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(expression["key"]) in expression["values"] for expression in expressions
    )


def admitted(
    policies: list[dict[str, Any]],
    direction: str,
    pod: dict[str, str],
    peer: Peer,
    port: tuple[str, int],
) -> bool:
    """Whether the policies of one namespace let a pod there receive from, or send to, a peer.

    Source: kubernetes.io docs/concepts/services-networking/network-policies: once a policy selects
    a pod for a direction, only what some policy admits passes; a peer without namespaceSelector is
    of the own namespace.
    """
    rules, side = {"Ingress": ("ingress", "from"), "Egress": ("egress", "to")}[direction]
    bound = [policy["spec"] for policy in policies if selects(policy["spec"]["podSelector"], pod)]
    bound = [spec for spec in bound if direction in spec["policyTypes"]]
    space = {"kubernetes.io/metadata.name": peer[0]}
    return not bound or any(
        port in {(item["protocol"], item["port"]) for item in rule["ports"]}
        and any(
            "ipBlock" not in source  # of addresses outside the cluster
            and (
                selects(source["namespaceSelector"], space)
                if "namespaceSelector" in source
                else peer[0] == OWN
            )
            and selects(source.get("podSelector", {}), peer[1])
            for source in rule[side]
        )
        for spec in bound
        for rule in spec.get(rules, [])
    )


def policies(**serving: Any) -> list[dict[str, Any]]:
    environment = ENVIRONMENTS["post-us-east-2"].model_copy(
        update={"serving": ServingAccess(**serving)}
    )
    base = build_stages(environment)["base"]
    return list(of_kind(base, "NetworkPolicy").values())


HTTP = ("TCP", 8000)


@pytest.mark.parametrize(
    ("peer", "port", "expected"),
    [
        pytest.param((OWN, BENCH), HTTP, True, id="bench"),
        pytest.param((OWN, BENCH), ("TCP", 22), False, id="bench-on-another-port"),
        pytest.param(("tandem-other", BENCH), HTTP, False, id="bench-of-another-experiment"),
        pytest.param((OWN, SERVER), HTTP, False, id="another-server"),
        pytest.param((OWN, {}), HTTP, False, id="anything-else-in-the-namespace"),
        pytest.param(
            ("amazon-cloudwatch", {"app.kubernetes.io/name": "cloudwatch-agent"}),
            HTTP,
            True,
            id="metrics",
        ),
        pytest.param(("default", {}), HTTP, False, id="a-stranger"),
    ],
)
def test_who_reaches_a_server(peer, port, *, expected):
    assert admitted(policies(), "Ingress", SERVER, peer, port) is expected


def test_an_allowed_namespace_reaches_a_server():
    specs = policies(allowed_namespaces=("shop", "chat"))
    callers = [
        name
        for name in ("shop", "chat", "other")
        if admitted(specs, "Ingress", SERVER, (name, {}), HTTP)
    ]
    assert callers == ["shop", "chat"]


@pytest.mark.parametrize(
    ("peer", "port"),
    [
        (("kube-system", {}), ("TCP", 443)),
        (("default", {}), ("TCP", 443)),
        ((OWN, SERVER), HTTP),
        (("kube-system", {}), ("UDP", 53)),
    ],
    ids=["kube-system", "default", "another-server", "no-resolver"],
)
def test_a_server_sends_nowhere_else(peer, port):
    assert not admitted(policies(), "Egress", SERVER, peer, port)


@pytest.mark.parametrize(
    ("peer", "port", "expected"),
    [
        ((OWN, SERVER), HTTP, True),
        ((OWN, SERVER), ("TCP", 22), False),
        (("tandem-other", SERVER), HTTP, False),
        ((OWN, {}), HTTP, False),
    ],
    ids=["servers", "another-port", "another-experiment", "anything-else"],
)
def test_a_bench_calls_the_servers_of_its_own_experiment(peer, port, *, expected):
    assert admitted(policies(), "Egress", BENCH, peer, port) is expected
