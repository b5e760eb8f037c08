"""The pins of an environment that move together, and the file in which each stands.

Invariant: a pin is named with the value that is rendered or deployed; where nothing is pinned, it
says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment

PLATFORM = "tandem/declarations/data/platform"
RUNTIMES = "tandem/declarations/data/runtimes"
NO_PIN_TEXT = "not pinned"


@dataclass(frozen=True)
class VersionPin:
    """One version that is written down.

    Args:
        component: what has the version.
        value: the version.
        file: relative to the repository.
        key: where in it.
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
        environment: whose pins.
        experiments: those it hosts.
        catalogue: the data files.
    """
    version = environment.cluster.kubernetes
    kubernetes = catalogue.kubernetes
    yield VersionPin(
        "Kubernetes", version, f"environments/{environment.name}.yaml", "cluster.kubernetes"
    )
    minor = kubernetes.minors.get(version)
    platform = f"{PLATFORM}/kubernetes.yaml"
    if minor:
        release = environment.cluster.ami_release or minor.default_release
        text = f"{release or NO_PIN_TEXT}, Neuron driver {minor.find_driver(release) or 'unknown'}"
        yield VersionPin("node image", text, platform, f"minors.{version}.ami_releases")
        for name, addon in minor.addons.items():
            yield VersionPin(
                f"add-on {name}",
                addon.value or NO_PIN_TEXT,
                platform,
                f"minors.{version}.addons.{name}",
            )
    if environment.delivery.kind == "cdk":
        layer = f"pyproject.toml, stacks/kubectl.py, {platform}"
        yield VersionPin("kubectl layer", kubernetes.kubectl.value, layer, "kubectl")
    chart_file = f"{PLATFORM}/neuron-dra-chart.yaml"
    chart_key = "version, digest, images"
    yield VersionPin("Neuron DRA chart", catalogue.dra_chart.version.value, chart_file, chart_key)
    for name in dict.fromkeys(experiment.runtime for experiment in experiments):
        runtime = catalogue.runtimes.get(name)
        if runtime:
            file = f"{RUNTIMES}/{name}.yaml"
            key = "image.tag, versions, sources"
            yield VersionPin(f"runtime {name}", runtime.image.tag, file, key)
            digest = catalogue.digests.find_digest(runtime.image.reference)
            if digest:
                yield VersionPin(
                    f"digest of runtime {name}", digest, f"{PLATFORM}/digests.yaml", "digests"
                )
