"""What a GitOps controller is told, for environments whose delivery is gitops.

Invariant: applied once by hand, it follows the repository from then on, itself included: a new experiment or a
new chart version is a commit.
"""

from __future__ import annotations

from typing import Any

import cdk8s

from charts.driver import build_driver_release
from charts.gitops.argocd import ArgoCdChart
from charts.gitops.flux import FluxChart
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment, GitopsDelivery
from tandem.spec.experiment import Experiment

FOLDER = "gitops"


def render_gitops(
    environment: Environment, experiments: list[Experiment], catalogue: Catalogue
) -> dict[str, list[dict[str, Any]]]:
    """Return the chosen tool's objects by the tool's name; nothing where the CDK delivers."""
    delivery = environment.delivery
    if not isinstance(delivery, GitopsDelivery):
        return {}
    chart = {"argocd": ArgoCdChart, "flux": FluxChart}[delivery.tool]
    tool_chart = chart(
        cdk8s.App(),
        delivery.tool,
        environment=environment,
        experiments=experiments,
        driver=build_driver_release(environment, catalogue),
    )
    return {delivery.tool: tool_chart.to_json()}
