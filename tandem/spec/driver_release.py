"""The Neuron DRA chart as an environment installs it, by the CDK or a GitOps tool: address, version, mirrors applied.

Invariant: with a mirror set, neither the chart nor an image of it comes from its published registry.

The release belongs to kube-system: the chart brings the driver's namespace as an object of its own, and a
namespace made beforehand by the installing tool would not be the chart's to own.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.images import apply_mirror

RELEASE = "neuron-helm-chart"
RELEASE_NAMESPACE = "kube-system"
SCHEME = "oci://"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverRelease:
    """One installation of the chart.

    Args:
        repository: oci:// URL of the chart, behind the mirror where one is set.
        version: the chart's version, pinned. digest: sha256:..., None until resolved.
        namespace: where the chart puts the driver's pods. values: the chart's values.
    """

    repository: str
    version: str
    digest: str | None
    namespace: str
    values: dict[str, Any]


def build_driver_release(environment: Environment, catalogue: Catalogue) -> DriverRelease:
    """Return the Neuron DRA chart for `environment`.

    Raises:
        ValueError: a mirror moves an image that the chart has no value for.
    """
    chart, mirrors = catalogue.dra_chart, environment.registry_mirrors
    values: dict[str, Any] = copy.deepcopy(chart.values.value)
    for image in chart.images.value:
        mirror_name = apply_mirror(image.repository, mirrors)
        if mirror_name == image.repository:
            continue
        if image.repository_value is None:
            raise ValueError(f"the chart has no value that moves {image.repository} to {mirror_name}")
        *parents, leaf_key = image.repository_value.split(".")
        part = values
        for parent in parents:
            part = part.setdefault(parent, {})
        part[leaf_key] = mirror_name
    return DriverRelease(
        repository=SCHEME + apply_mirror(chart.repository.removeprefix(SCHEME), mirrors),
        version=chart.version.value,
        digest=chart.digest.value,
        namespace=chart.namespace.value,
        values=values,
    )
