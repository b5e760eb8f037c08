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

STAGES = ("base", "claims", "storage", "stage", "compile", "serve", "llmperf", "measure", "quality")


def list_stages(experiment: Experiment) -> tuple[str, ...]:
    """Return the ids of an experiment's charts, in the order of application."""
    needs = {"llmperf": has_llmperf(experiment), "quality": bool(experiment.quality)}
    return tuple(stage for stage in STAGES if needs.get(stage, True))


def build_charts(
    environment: Environment, experiment: Experiment, catalogue: Catalogue
) -> dict[str, cdk8s.Chart]:
    """Return the charts of an experiment by their ids, in the order of application.

    The experiment must have passed the rules: its runtime can be rendered and its models are known.
    """
    app = cdk8s.App()
    charts = [
        BaseChart(app, "base", environment=environment, experiment=experiment, catalogue=catalogue),
        ClaimsChart(
            app, "claims", environment=environment, experiment=experiment, catalogue=catalogue
        ),
        StorageChart(
            app, "storage", environment=environment, experiment=experiment, catalogue=catalogue
        ),
        StageChart(
            app, "stage", environment=environment, experiment=experiment, catalogue=catalogue
        ),
        CompileChart(
            app, "compile", environment=environment, experiment=experiment, catalogue=catalogue
        ),
        ServeChart(
            app, "serve", environment=environment, experiment=experiment, catalogue=catalogue
        ),
    ]
    if has_llmperf(experiment):
        charts.append(LlmperfChart(app, "llmperf", environment=environment, experiment=experiment))
    charts.append(MeasureChart(app, "measure", environment=environment, experiment=experiment))
    if experiment.quality:
        charts.append(QualityChart(app, "quality", environment=environment, experiment=experiment))

    return dict(zip(list_stages(experiment), charts, strict=True))
