"""Workloads of the cluster, declared once for both ways of delivery: `cdk deploy` and the rendered manifests.

Invariant: a chart reads declared values and names only. No CDK token reaches it, no name carries a hash, and no chart
depends on another. Their order is data (`STAGES`), which each way of delivery writes in its own form.
"""

from __future__ import annotations

from collections.abc import Callable

from charts.base import build_base, build_claims
from charts.compile import build_compile_jobs
from charts.llmperf import build_llmperf_job
from charts.manifest import Object
from charts.measure import build_bench_jobs
from charts.quality import build_quality_job
from charts.serve import build_servers
from charts.stage import build_stage_jobs
from charts.storage import build_storage
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.project_image import has_llmperf

BUILDERS: dict[str, Callable[[Environment, Experiment, Catalogue], list[Object]]] = {
    "base": build_base,
    "claims": build_claims,
    "storage": build_storage,
    "stage": build_stage_jobs,
    "compile": build_compile_jobs,
    "serve": build_servers,
    "llmperf": build_llmperf_job,
    "measure": build_bench_jobs,
    "quality": build_quality_job,
}
STAGES = tuple(BUILDERS)


def list_stages(experiment: Experiment) -> tuple[str, ...]:
    """Return the charts of an experiment, in the order of application."""
    needs = {"llmperf": has_llmperf(experiment), "quality": bool(experiment.quality)}
    return tuple(stage for stage in STAGES if needs.get(stage, True))


def render_workloads(environment: Environment, experiment: Experiment, catalogue: Catalogue) -> dict[str, list[Object]]:
    """Return the objects of `experiment` by chart, charts and objects in the order of application.

    The experiment must have passed the rules: its runtime can be rendered and its models are known.
    """
    return {stage: BUILDERS[stage](environment, experiment, catalogue) for stage in list_stages(experiment)}
