"""The claim templates against the slices that the Neuron DRA driver publishes."""

from __future__ import annotations

from typing import Any

import celpy
import pytest
from celpy import celtypes
from chart_cases import ENVIRONMENTS, EXPERIMENTS, HOSTED, of_kind, stages

from charts.claims import template_name
from tandem.declarations.experiment import ServingSettings

Device = dict[str, Any]


def slice_of(instance_type: str) -> list[Device]:
    """The devices that one node of the type publishes."""
    count = {"trn2.48xlarge": 16, "trn2.3xlarge": 1}[instance_type]
    return [
        {
            "driver": "neuron.aws.com",
            "attributes": {
                "neuron.aws.com": {
                    "deviceId": index,
                    "instanceType": instance_type,
                    "resourceType": "neuron_device",
                }
            },
        }
        for index in range(count)
    ]


def matches(expression: str, device: Device) -> bool:
    environment = celpy.Environment(annotations={"device": celtypes.MapType})
    program = environment.program(environment.compile(expression))
    return bool(program.evaluate({"device": celpy.json_to_cel(device)}))


def expression(environment: str, experiment: str) -> str:
    (template,) = of_kind(
        stages(environment, experiment)["claims"], "ResourceClaimTemplate"
    ).values()
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    (selector,) = request["exactly"]["selectors"]
    return selector["cel"]["expression"]


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_the_selector_admits_the_chips_of_the_environments_type_alone(environment, experiment):
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


@pytest.mark.parametrize(
    "change",
    [{"devices": 4}, {"device_group": None}, {"logical_neuron_core": 1}],
    ids=lambda change: next(iter(change)),
)
def test_another_spec_is_another_template_because_a_template_cannot_change(change):
    serving = EXPERIMENTS["post"].serving
    record = ServingSettings.model_validate(serving.model_dump() | change)
    assert template_name("trn2.48xlarge", record) != template_name("trn2.48xlarge", serving)
    assert template_name("trn2u.48xlarge", record) != template_name("trn2.48xlarge", record)
