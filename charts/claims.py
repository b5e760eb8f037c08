"""How every variant of an experiment claims devices.

Invariant: every variant of an experiment claims the same devices in the same way.
"""

from __future__ import annotations

from cdk8s_plus_36 import k8s

from charts.experiment import ExperimentChart
from tandem.declarations import names
from tandem.declarations.experiment import ServingSettings

REQUEST = "neuron"
# aws-neuron-sdk deploy/eks/dra.rst, 2026-08-21
GROUP_ATTRIBUTE = "resource.aws.com/devicegroup{size}_id"


class ClaimsChart(ExperimentChart):
    """The ResourceClaimTemplate of one experiment: chips of one instance type, and nothing else.

    Device names are never matched: the driver's documents and its published slices disagree on
    them.
    """

    sync_wave = 1

    def add_objects(self) -> None:
        """Add the objects, in the order of their application."""
        instance_type = self.environment.capacity.instance_type
        serving = self.experiment.serving
        driver = self.catalogue.dra_chart.driver.value
        device = f'device.attributes["{driver}"]'
        selector = (
            f'{device}.resourceType == "neuron_device" && {device}.instanceType =='
            f' "{instance_type}"'
        )
        group = k8s.DeviceConstraint(
            requests=[REQUEST], match_attribute=GROUP_ATTRIBUTE.format(size=serving.device_group)
        )

        k8s.KubeResourceClaimTemplate(
            self,
            "template",
            metadata=self.build_metadata(
                template_name(instance_type, serving), "claim", application=self.experiment.name
            ),
            spec=k8s.ResourceClaimTemplateSpec(
                spec=k8s.ResourceClaimSpec(
                    devices=k8s.DeviceClaim(
                        requests=[
                            k8s.DeviceRequest(
                                name=REQUEST,
                                exactly=k8s.ExactDeviceRequest(
                                    device_class_name=self.catalogue.dra_chart.device_class.value,
                                    selectors=[
                                        k8s.DeviceSelector(
                                            cel=k8s.CelDeviceSelector(expression=selector)
                                        )
                                    ],
                                    allocation_mode="ExactCount",
                                    count=serving.devices,
                                ),
                            )
                        ],
                        constraints=[group] if serving.device_group else None,
                        config=[
                            k8s.DeviceClaimConfiguration(
                                requests=[REQUEST],
                                opaque=k8s.OpaqueDeviceConfiguration(
                                    driver=driver,
                                    parameters={
                                        "apiVersion": f"{driver}/v1",
                                        "kind": "NeuronConfig",
                                        "logicalNeuronCore": serving.logical_neuron_core,
                                    },
                                ),
                            )
                        ],
                    )
                )
            ),
        )


def template_name(instance_type: str, serving: ServingSettings) -> str:
    """Return the template's name, which encodes all of its spec.

    A template's spec cannot be changed after its creation, so another spec needs another name.
    """
    group = f"-group{serving.device_group}" if serving.device_group else ""
    devices = f"{serving.devices}-lnc{serving.logical_neuron_core}{group}"
    return f"{names.CLAIM_TEMPLATE}-{instance_type}-{devices}"
