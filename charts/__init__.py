"""Workloads of the cluster, declared once for `cdk deploy` and for the rendered manifests.

Invariant: a chart reads declared values and names only. No CDK token reaches it, no name carries a
hash, and no chart depends on another. Their order is data (`list_stages`), which each way of
delivery writes in its own form.
"""

from __future__ import annotations

import cdk8s

from charts.base import BaseChart
from charts.claims import ClaimsChart
from charts.compile import CompileChart
from charts.experiment import ExperimentChart
from charts.llmperf import LlmperfChart
from charts.measure import MeasureChart
from charts.quality import QualityChart
from charts.serve import ServeChart
from charts.stage import StageChart
from charts.storage import StorageChart
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.project_image import has_llmperf

# by their ids, in the order of application
CHARTS: dict[str, type[ExperimentChart]] = {
    "base": BaseChart,
    "claims": ClaimsChart,
    "storage": StorageChart,
    "stage": StageChart,
    "compile": CompileChart,
    "serve": ServeChart,
    "llmperf": LlmperfChart,
    "measure": MeasureChart,
    "quality": QualityChart,
}


def list_stages(experiment: Experiment) -> tuple[str, ...]:
    """Return the ids of an experiment's charts, in the order of application."""
    needs = {"llmperf": has_llmperf(experiment), "quality": bool(experiment.quality)}
    return tuple(stage for stage in CHARTS if needs.get(stage, True))


def build_charts(
    environment: Environment, experiment: Experiment, catalogue: Catalogue
) -> dict[str, cdk8s.Chart]:
    """Return the charts of an experiment by their ids, in the order of application."""
    app = cdk8s.App()
    return {
        stage: CHARTS[stage](
            app, stage, environment=environment, experiment=experiment, catalogue=catalogue
        )
        for stage in list_stages(experiment)
    }
