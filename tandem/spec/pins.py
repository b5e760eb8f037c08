"""The pins of an environment that move together, and the file in which each stands.

Invariant: a pin is named with the value that is rendered or deployed; where nothing is pinned, it says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

PLATFORM, RUNTIMES = "tandem/spec/data/platform", "tandem/spec/data/runtimes"
NO_PIN_TEXT = "not pinned"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPin:
    """One version that is written down.

    Args:
        component: what has the version. value: the version.
        file: relative to the repository. key: where in it.
    """

    component: str
    value: str
    file: str
    key: str


def list_pins(
    environment: Environment, experiments: Iterable[Experiment], catalogue: Catalogue
) -> Iterator[VersionPin]:
    """Yield the pins of an environment, from the cluster to the runtimes.

    Args:
        experiments: those it hosts.
    """
    version, kubernetes = environment.cluster.kubernetes, catalogue.kubernetes
    yield VersionPin(
        component="Kubernetes", value=version, file=f"environments/{environment.name}.yaml", key="cluster.kubernetes"
    )
    minor, platform = kubernetes.minors.get(version), f"{PLATFORM}/kubernetes.yaml"
    if minor:
        minor_key = f"minors.{version}"
        release, driver = minor.ami_release.value or NO_PIN_TEXT, minor.neuron_driver.value or "unknown"
        yield VersionPin(
            component="node image",
            value=f"{release}, Neuron driver {driver}",
            file=platform,
            key=f"{minor_key}.ami_release",
        )
        for name, addon in minor.addons.items():
            yield VersionPin(
                component=f"add-on {name}",
                value=addon.value or NO_PIN_TEXT,
                file=platform,
                key=f"{minor_key}.addons.{name}",
            )
    if environment.delivery.kind == "cdk":
        layer = f"requirements.in, stacks/kubectl.py, {platform}"
        yield VersionPin(component="kubectl layer", value=kubernetes.kubectl.value, file=layer, key="kubectl")
    chart = catalogue.dra_chart
    yield VersionPin(
        component="Neuron DRA chart", value=chart.version.value, file=f"{PLATFORM}/neuron-dra-chart.yaml",
        key="version, digest, images",
    )  # fmt: skip
    for name in dict.fromkeys(experiment.runtime for experiment in experiments):
        runtime = catalogue.runtimes.get(name)
        if runtime:
            yield VersionPin(
                component=f"runtime {name}", value=runtime.image.tag, file=f"{RUNTIMES}/{name}.yaml",
                key="image.tag, versions, sources",
            )  # fmt: skip
            digest = catalogue.digests.find_digest(runtime.image.reference)
            if digest:
                yield VersionPin(
                    component=f"digest of runtime {name}", value=digest, file=f"{PLATFORM}/digests.yaml", key="digests"
                )
