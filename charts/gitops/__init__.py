"""What a GitOps controller is told, for environments whose delivery is gitops.

Invariant: applied once by hand, it follows the repository from then on, itself included: a new experiment or a
new chart version is a commit.
"""

from __future__ import annotations

from charts.driver import build_driver_release
from charts.gitops.argocd import build_argocd
from charts.gitops.flux import build_flux
from charts.manifest import Object
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment, GitopsDelivery
from tandem.spec.experiment import Experiment

FOLDER = "gitops"


def render_gitops(
    environment: Environment, experiments: list[Experiment], catalogue: Catalogue
) -> dict[str, list[Object]]:
    """Return the chosen tool's objects by the tool's name; nothing where the CDK delivers."""
    delivery = environment.delivery
    if not isinstance(delivery, GitopsDelivery):
        return {}
    build = {"argocd": build_argocd, "flux": build_flux}[delivery.tool]
    return {delivery.tool: build(environment.name, delivery, experiments, build_driver_release(environment, catalogue))}
