"""The claim templates against the slices that the Neuron DRA driver publishes."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import celpy
import pytest
from celpy import celtypes
from chart_cases import ENVIRONMENTS, EXPERIMENTS, HOSTED, of_kind, stages

from charts.claims import template_name
from tandem.declarations.experiment import ServingSettings

# the group ids that drivers published for trn2.48xlarge: sha256 over the EFA addresses of the group
# (aws-neuron/connected-device-maps-over-efa-for-neuron lookup/lookup.go, 2026-11-21)
GROUPS = {
    "devicegroup4_id": [
        "13713e551cd37c19",
        "671622785349fddf",
        "237e3ef7b968b4d3",
        "b3d6ce1919d29f8f",
    ],
    "devicegroup8_id": ["3593812b8066a078", "614e16dab9ba2f1f"],
    "devicegroup16_id": ["821d14afaf11327d"],
}
HALVES = [list(range(8)), list(range(8, 16))]
Device = dict[str, Any]


def slice_of(instance_type: str) -> list[Device]:
    """The devices one node of the type publishes; the grid and its groups exist on the large type
    alone."""
    count = {"trn2.48xlarge": 16, "trn2.3xlarge": 1}[instance_type]
    devices = []
    for index in range(count):
        own = {"deviceId": index, "instanceType": instance_type, "resourceType": "neuron_device"}
        shared = (
            {name: ids[index * len(ids) // 16] for name, ids in GROUPS.items()}
            if count == 16
            else {}
        )
        devices.append(
            {
                "driver": "neuron.aws.com",
                "attributes": {"neuron.aws.com": own, "resource.aws.com": shared},
            }
        )
    return devices


def matches(expression: str, device: Device) -> bool:
    environment = celpy.Environment(annotations={"device": celtypes.MapType})
    program = environment.program(environment.compile(expression))
    return bool(program.evaluate({"device": celpy.json_to_cel(device)}))


def spec_of(environment: str, experiment: str) -> dict[str, Any]:
    (template,) = of_kind(
        stages(environment, experiment)["claims"], "ResourceClaimTemplate"
    ).values()
    return template["spec"]["spec"]["devices"]


def expression(environment: str, experiment: str) -> str:
    (request,) = spec_of(environment, experiment)["requests"]
    (selector,) = request["exactly"]["selectors"]
    return selector["cel"]["expression"]


def allocate(spec: dict[str, Any], free: list[Device]) -> list[Device] | None:
    """Choose devices as the scheduler does: as many as asked, all selected, equal in the attribute
    to match.

    A device that lacks the attribute can never satisfy the constraint (kubernetes.io,
    resource.k8s.io/v1 DeviceConstraint.matchAttribute).
    """
    (request,) = spec["requests"]
    claim = request["exactly"]
    devices = [
        device
        for device in free
        if all(matches(item["cel"]["expression"], device) for item in claim["selectors"])
    ]
    pools = [devices]
    for constraint in spec.get("constraints", []):
        domain, _, name = constraint["matchAttribute"].partition("/")
        values = {device["attributes"].get(domain, {}).get(name) for device in devices} - {None}
        pools = [
            [d for d in devices if d["attributes"].get(domain, {}).get(name) == value]
            for value in sorted(values)
        ]
    return next((list(pick) for pool in pools for pick in combinations(pool, claim["count"])), None)


def ids(devices: list[Device] | None) -> list[int]:
    assert devices is not None
    return [device["attributes"]["neuron.aws.com"]["deviceId"] for device in devices]


def without(devices: list[Device], taken: list[Device] | None) -> list[Device]:
    return [device for device in devices if device not in (taken or [])]


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_the_selector_admits_the_chips_of_the_environments_type_alone(
    environment: str, experiment: str
) -> None:
    own = ENVIRONMENTS[environment].capacity.instance_type
    (result,) = {"trn2.48xlarge", "trn2.3xlarge"} - {own}
    node = slice_of(own)[0]
    node["attributes"]["neuron.aws.com"]["resourceType"] = "neuron_node"

    admissions = [
        matches(expression(environment, experiment), device)
        for device in (*slice_of(own), *slice_of(result))
    ]
    assert admissions == [True] * len(slice_of(own)) + [False] * len(slice_of(result))
    assert not matches(expression(environment, experiment), node)


def test_two_servers_of_the_post_fill_a_node_half_each() -> None:
    spec = spec_of("post-us-east-2", "post")
    node = slice_of("trn2.48xlarge")
    first = allocate(spec, node)
    second = allocate(spec, without(node, first))
    assert sorted([ids(first), ids(second)]) == HALVES


def test_a_third_server_of_the_post_finds_nothing() -> None:
    spec = spec_of("post-us-east-2", "post")
    node = slice_of("trn2.48xlarge")
    rest = without(node, allocate(spec, node))
    assert allocate(spec, without(rest, allocate(spec, rest))) is None


@pytest.mark.parametrize(
    "change",
    [{"devices": 4}, {"device_group": None}, {"logical_neuron_core": 1}],
    ids=lambda change: next(iter(change)),
)
def test_another_spec_is_another_template_because_a_template_cannot_change(
    change: dict[str, Any],
) -> None:
    serving = EXPERIMENTS["post"].serving
    record = ServingSettings.model_validate(serving.model_dump() | change)
    assert template_name("trn2.48xlarge", record) != template_name("trn2.48xlarge", serving)
    assert template_name("trn2u.48xlarge", record) != template_name("trn2.48xlarge", record)
