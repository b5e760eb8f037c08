"""Objects for a GitOps controller, for environments whose delivery is gitops.

Invariant: after they are applied once by hand, the controller follows the repository, and updates
these objects too. A new experiment or a new chart version is a commit.
"""

from __future__ import annotations

from collections.abc import Sequence

import cdk8s

from charts.argocd import ArgocdChart
from charts.chart import GITOPS
from charts.flux import FluxChart
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.driver_release import build_driver_release
from tandem.declarations.environment import Environment, GitopsDelivery
from tandem.declarations.experiment import Experiment

FOLDER = GITOPS
CHARTS = {"argocd": ArgocdChart, "flux": FluxChart}


def build_gitops_charts(
    environment: Environment, experiments: Sequence[Experiment], catalogue: Catalogue
) -> dict[str, cdk8s.Chart]:
    """Return the chosen tool's chart by the tool's name; nothing if the CDK delivers."""
    delivery = environment.delivery
    if not isinstance(delivery, GitopsDelivery):
        return {}
    chart = CHARTS[delivery.tool](
        cdk8s.App(),
        delivery.tool,
        environment_name=environment.name,
        delivery=delivery,
        experiments=experiments,
        driver=build_driver_release(environment, catalogue),
    )
    return {delivery.tool: chart}
