"""The Neuron devices of one pod, as the template its claim is made from.

Invariant: every variant of an experiment claims the same devices in the same way.
"""

from __future__ import annotations

from charts.manifest import Object, build_object, object_labels, sync_wave
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, ServingSettings

WAVE = 1
REQUEST = "neuron"
GROUP_ATTRIBUTE = "resource.aws.com/devicegroup{size}_id"  # aws-neuron-sdk deploy/eks/dra.rst, 2026-08-21


def build_claims(environment: Environment, experiment: Experiment, catalogue: Catalogue) -> list[Object]:
    """Return the ResourceClaimTemplate of one experiment."""
    instance_type, serving = environment.capacity.instance_type, experiment.serving
    spec = {"spec": {"devices": _build_device_requests(instance_type, serving, catalogue)}}
    return [
        build_object(
            "resource.k8s.io/v1", "ResourceClaimTemplate", template_name(instance_type, serving), {"spec": spec},
            namespace=names.experiment_namespace(experiment), labels=object_labels(experiment.name, "claim"),
            annotations=sync_wave(WAVE),
        )
    ]  # fmt: skip


def template_name(instance_type: str, serving: ServingSettings) -> str:
    """Return the template's name, which says all of its spec.

    A template's spec can never be changed after its creation, so another spec must be another name.
    """
    group = f"-group{serving.device_group}" if serving.device_group else ""
    return f"{names.CLAIM_TEMPLATE}-{instance_type}-{serving.devices}-lnc{serving.logical_neuron_core}{group}"


def device_selector(instance_type: str, driver: str) -> str:
    """Return the CEL expression that admits the chips of one instance type, and nothing but chips.

    Device names are never matched: the driver's documents and its published slices disagree on them.
    """
    device = f'device.attributes["{driver}"]'
    return f'{device}.resourceType == "neuron_device" && {device}.instanceType == "{instance_type}"'


def _build_device_requests(instance_type: str, serving: ServingSettings, catalogue: Catalogue) -> Object:
    chart = catalogue.dra_chart
    group = GROUP_ATTRIBUTE.format(size=serving.device_group)
    constraints = [{"requests": [REQUEST], "matchAttribute": group}] if serving.device_group else []
    return {
        "requests": [{
            "name": REQUEST,
            "exactly": {
                "deviceClassName": chart.device_class.value,
                "selectors": [{"cel": {"expression": device_selector(instance_type, chart.driver.value)}}],
                "allocationMode": "ExactCount",
                "count": serving.devices,
            },
        }],
        **({"constraints": constraints} if constraints else {}),
        "config": [{
            "requests": [REQUEST],
            "opaque": {
                "driver": chart.driver.value,
                "parameters": {
                    "apiVersion": f"{chart.driver.value}/v1",
                    "kind": "NeuronConfig",
                    "logicalNeuronCore": serving.logical_neuron_core,
                },
            },
        }],
    }  # fmt: skip
