"""What an environment costs while parked: worked by hand, by part, and a lower bound where a price
is not known."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hosted import changed, watched

from tandem.declarations.catalogue import load_catalogue
from tandem.monitoring.cost import compute_monitoring_cost
from tandem.monitoring.scope import MonitoringScope
from tandem.monitoring.standing_cost import ParkedCost, compute_parked_cost, list_unpriced

POST = "post-us-east-2"
DEV = "dev-trn2-3xlarge"


def parked(scope: MonitoringScope) -> ParkedCost:
    return compute_parked_cost(compute_monitoring_cost(scope), load_catalogue())


def parts(scope: MonitoringScope) -> dict[str, float | None]:
    return {part.name: part.usd for part in parked(scope).parts}


def test_a_case_worked_by_hand():
    scope = changed(POST, cluster={"system_nodes": {"instance_type": "m7i.large", "count": 2}})

    result = parts(scope)

    watching = result.pop("watching")
    assert result == pytest.approx(
        {
            "EKS control plane": 73.0,
            "its logs": 15 * 0.50 + 45 * 0.03,
            "key of its secrets": 1.0,
            "system nodes": 2 * 0.1008 * 730,
            "their volumes": 2 * 50 * 0.08,
            "NAT gateways": 32.85,
            "their public addresses": 3.65,
            "images of ours": 0.21,
        }
    )
    assert watching == pytest.approx(compute_monitoring_cost(scope).parked_usd)


def test_what_has_no_price_is_named_and_left_out_of_the_sum():
    cost = parked(watched(DEV))

    assert list_unpriced(cost.parts) == ("nodes", "NAT")
    assert list_unpriced(cost.start_parts) == ("staging through NAT",)
    known_usd = {part.name: part.usd for part in cost.parts if part.usd is not None}
    assert set(known_usd) == {
        "EKS control plane",
        "its logs",
        "key of its secrets",
        "images of ours",
        "watching",
    }
    assert cost.usd == pytest.approx(sum(known_usd.values()))


def test_a_price_that_was_read_in_another_region_says_so():
    cost = parked(watched(DEV))

    part_names = {
        part.name
        for part in (*cost.parts, *cost.start_parts)
        if part.explanation.endswith(", at prices of us-east-1")
    }
    assert part_names == {
        "its logs",
        "key of its secrets",
        "images of ours",
        "watching",
        "builds of images",
    }


def test_what_is_paid_once_is_no_part_of_a_month():
    cost = parked(watched(POST))

    assert [part.name for part in cost.start_parts] == ["builds of images", "staging through NAT"]
    assert cost.start_usd == pytest.approx(4 * 8 * 0.005 + 71.1 * 0.045, rel=0.01)


def test_an_existing_network_is_paid_by_its_owner():
    subnets = [{"id": f"subnet-{index}0000000", "zone": f"use2-az{index}"} for index in (1, 3)]
    network = {
        "kind": "existing",
        "vpc_id": "vpc-0123456789abcdef0",
        "cidr": "10.9.0.0/16",
        "subnets": subnets,
    }
    scope = watched(POST)
    values = scope.environment.model_dump(mode="json") | {"network": network}
    place = type(scope.environment).model_validate_json(json.dumps(values))
    cost = parked(replace(scope, environment=place))

    assert {"NAT gateways", "interface endpoints"} & {part.name for part in cost.parts} == set()
    assert [part.name for part in cost.start_parts] == ["builds of images"]
