"""Every container image and chart an environment pulls, as published and as mirrored.

Invariant: a mirror replaces the registry host (or host/path) in front of a name and nothing else,
so that repository, tag, digest and the artifact key stay what the publisher made them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.project_image import list_hosted_images

# the name is None of a registry's root
PRIVATE_ECR = re.compile(
    r"(?P<host>(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?)(?:/(?P<name>[^:@]+)|$)"
)
OWN_IMAGE = "{} image"  # built in the account; what it stands on is pulled there


@dataclass(frozen=True)
class ImageUse:
    """One image or chart an environment needs.

    Args:
        kind: "image" or "chart".
        reference: `repository:tag` as published.
        mirrored: the same behind the environment's mirror; equal without one.
        digest: sha256:..., None until resolved; the chart's stands in its own data file, that of a
            base of ours in its Dockerfile.
        used_by: experiment names, "neuron-dra-driver", names of images of ours such as "tools
            image".
    """

    kind: str
    reference: str
    mirrored: str
    digest: str | None
    used_by: tuple[str, ...]

    @property
    def registry(self) -> str:
        """The host that publishes it."""
        return self.reference.partition("/")[0]

    @property
    def is_base(self) -> bool:
        """Whether only images of ours stand on it."""
        return all(user.endswith(OWN_IMAGE.format("")) for user in self.used_by)


def apply_mirror(name: str, mirrors: dict[str, str]) -> str:
    """Return `name` with the longest matching registry prefix replaced by its mirror."""
    for prefix in sorted(mirrors, key=len, reverse=True):
        if name == prefix or name.startswith(f"{prefix}/"):
            return mirrors[prefix] + name[len(prefix) :]
    return name


def list_image_uses(
    environment: Environment, experiments: Iterable[Experiment], catalogue: Catalogue
) -> list[ImageUse]:
    """List what an environment pulls, each once: runtimes, the DRA chart, its images, the bases.

    A base is pulled where an image of ours is built; what is built lies in the account's own
    registry.
    """
    users = defaultdict[tuple[str, str], list[str]](list)
    hosted = tuple(experiments)
    for experiment in hosted:
        image = catalogue.runtimes[experiment.runtime].image
        users["image", image.reference].append(experiment.name)
    chart = catalogue.dra_chart
    chart_reference = f"{chart.repository.removeprefix('oci://')}:{chart.version.value}"
    users["chart", chart_reference].append("neuron-dra-driver")
    for part in chart.images.value:
        users["image", f"{part.repository}:{part.tag}"].append("neuron-dra-driver")
    digests = {chart_reference: chart.digest.value}
    for project_image in list_hosted_images(hosted):
        base = project_image.base()
        users["image", base.reference].append(OWN_IMAGE.format(project_image.name))
        digests[base.reference] = base.digest

    uses = []
    for (kind, reference), names in users.items():
        mirrored = apply_mirror(reference, environment.registry_mirrors)
        digest = catalogue.digests.find_digest(reference) or digests.get(reference)
        uses.append(ImageUse(kind, reference, mirrored, digest, tuple(names)))
    return uses


def pull_name(reference: str, digest: str | None, mirrors: dict[str, str]) -> str:
    """Return what a pod pulls: behind the mirror, pinned by digest once one is known."""
    name = apply_mirror(reference, mirrors)
    return f"{name}@{digest}" if digest else name
