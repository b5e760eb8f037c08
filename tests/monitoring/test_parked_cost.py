"""What an environment costs while parked: worked by hand, by part, and a lower bound where a price is not known."""

from __future__ import annotations

import json

import pytest
from hosted import changed, watched

from tandem.monitoring.cost import compute_monitoring_cost
from tandem.monitoring.scope import MonitoringScope
from tandem.monitoring.standing_cost import ParkedCost, compute_parked_cost
from tandem.spec.catalogue import load_catalogue

POST, DEV = "post-us-east-2", "dev-trn2-3xlarge"
PRICES = load_catalogue().standing_prices


def parked(scope: MonitoringScope) -> ParkedCost:
    return compute_parked_cost(scope.environment, compute_monitoring_cost(scope), PRICES)


def parts(scope: MonitoringScope) -> dict[str, float | None]:
    return {part.name: part.usd for part in parked(scope).parts}


def test_a_case_worked_by_hand() -> None:
    scope = changed(POST, cluster={"system_nodes": {"instance_type": "m7i.large", "count": 2}})

    found = parts(scope)

    watching = found.pop("watching")
    assert found == pytest.approx({
        "EKS control plane": 73.0, "system nodes": 2 * 0.1008 * 730, "their volumes": 2 * 50 * 0.08,
        "NAT gateways": 32.85, "their public addresses": 3.65,
    })  # fmt: skip
    assert watching == pytest.approx(compute_monitoring_cost(scope).parked_usd)


def test_an_unknown_price_makes_the_total_a_lower_bound() -> None:
    found = parked(watched(DEV))
    assert found.is_lower_bound
    assert found.usd == pytest.approx(73.0 + compute_monitoring_cost(watched(DEV)).parked_usd)


def test_a_region_without_prices_knows_no_part() -> None:
    elsewhere = changed(DEV, capacity={"zone": "sae1-az1"})
    place = elsewhere.environment.model_copy(update={"region": "sa-east-1"})
    found = compute_parked_cost(place, compute_monitoring_cost(elsewhere), PRICES)
    assert {part.name for part in found.parts if part.usd is not None} == {"watching"}


def test_an_existing_network_is_paid_by_its_owner() -> None:
    subnets = [{"id": f"subnet-{index}0000000", "zone": f"use2-az{index}"} for index in (1, 3)]
    network = {"kind": "existing", "vpc_id": "vpc-0123456789abcdef0", "cidr": "10.9.0.0/16", "subnets": subnets}
    scope = watched(POST)
    values = scope.environment.model_dump(mode="json") | {"network": network}
    place = type(scope.environment).model_validate_json(json.dumps(values))

    found = compute_parked_cost(place, compute_monitoring_cost(scope), PRICES)

    assert [part.name for part in found.parts] == ["EKS control plane", "system nodes", "their volumes", "watching"]
