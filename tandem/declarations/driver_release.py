"""The Neuron DRA chart an environment installs by CDK or GitOps: address, version, mirrors applied.

Invariant: with a mirror set, neither the chart nor an image of it comes from its published
registry.

The release belongs to kube-system: the chart brings the driver's namespace as an object of its own,
and a namespace made beforehand by the installing tool would not be the chart's to own.
"""

from __future__ import annotations

import copy
from typing import Any

from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.images import apply_mirror
from tandem.declarations.platform import DraChart

RELEASE = "neuron-helm-chart"
RELEASE_NAMESPACE = "kube-system"
SCHEME = "oci://"


def build_driver_release(environment: Environment, catalogue: Catalogue) -> DraChart:
    """Return the Neuron DRA chart for `environment`, mirrors applied to its address and its values.

    Raises:
        ValueError: a mirror moves an image that the chart has no value for.
    """
    chart = catalogue.dra_chart
    mirrors = environment.registry_mirrors
    values: dict[str, Any] = copy.deepcopy(chart.values.value)
    for image in chart.images.value:
        mirror_name = apply_mirror(image.repository, mirrors)
        if mirror_name == image.repository:
            continue
        if image.repository_value is None:
            raise ValueError(
                f"the chart has no value that moves {image.repository} to {mirror_name}"
            )
        *parents, leaf_key = image.repository_value.split(".")
        part = values
        for parent in parents:
            part = part.setdefault(parent, {})
        part[leaf_key] = mirror_name
    repository = SCHEME + apply_mirror(chart.repository.removeprefix(SCHEME), mirrors)
    values_figure = chart.values.model_copy(update={"value": values})
    return chart.model_copy(update={"repository": repository, "values": values_figure})
