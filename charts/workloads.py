"""All objects of one experiment, chart by chart, as the plain dicts that both doors take.

Invariant: the result depends on its arguments alone, and its keys stand in the order of application.
"""

from __future__ import annotations

from typing import Any

import cdk8s

from charts.base import BaseChart
from charts.claims import ClaimsChart
from charts.compile import CompileChart
from charts.llmperf import LlmperfChart
from charts.serve import ServeChart
from charts.stage import StageChart
from charts.storage import StorageChart
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.project_image import has_llmperf

AnyChart = (
    type[BaseChart]
    | type[ClaimsChart]
    | type[StorageChart]
    | type[StageChart]
    | type[CompileChart]
    | type[ServeChart]
    | type[LlmperfChart]
)
CHARTS: dict[str, AnyChart] = {
    "base": BaseChart,
    "claims": ClaimsChart,
    "storage": StorageChart,
    "stage": StageChart,
    "compile": CompileChart,
    "serve": ServeChart,
    "llmperf": LlmperfChart,
}
STAGES = tuple(CHARTS)


def list_stages(experiment: Experiment) -> tuple[str, ...]:
    """Return the charts that an experiment has, in the order of application."""
    return tuple(stage for stage in STAGES if stage != "llmperf" or has_llmperf(experiment))


def render_workloads(
    environment: Environment, experiment: Experiment, catalogue: Catalogue
) -> dict[str, list[dict[str, Any]]]:
    """Return the objects of `experiment` by chart, charts and objects in the order of application.

    The experiment must have passed the rules: its runtime is rendered and its models are known.
    """
    app = cdk8s.App()
    return {
        stage: CHARTS[stage](app, stage, environment=environment, experiment=experiment, catalogue=catalogue).to_json()
        for stage in list_stages(experiment)
    }
