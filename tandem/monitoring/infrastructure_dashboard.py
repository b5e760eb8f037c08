"""The dashboard of the machine: nodes, readiness, and each server's own metrics.

Invariant: a metric without a recorded sample, or one that is switched off, is a text and no graph.
Both arms of an experiment are in one graph, in the same colors as in every other dashboard.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from tandem import cloudwatch_metrics as metrics
from tandem.declarations import names
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.environment import Environment
from tandem.monitoring import widget
from tandem.monitoring.dashboard_arms import DashboardArms, build_metric_graph, build_search
from tandem.monitoring.scope import MetricSource, MonitoringScope
from tandem.monitoring.widget import (
    COLUMNS,
    PERIOD_S,
    GraphWidget,
    MathExpression,
    MetricLine,
    TextWidget,
)

THIRD = COLUMNS // 3
HALF = COLUMNS // 2
_V0 = "nxdi-v0"  # the runtime of vLLM's V0 engine; its metric of the cache's use has another name
_NODE_METRICS = (
    "node_cpu_utilization",
    "node_memory_utilization",
    "node_filesystem_utilization",
    "node_network_total_bytes",
)
_CLUSTER_METRICS = ("cluster_node_count", "cluster_failed_node_count")
_RESTARTS = "pod_number_of_container_restarts"
_CACHE_USE = "vllm:kv_cache_usage_perc"
_DRAFTS = "vllm:spec_decode_num_drafts_total"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"


def build_infrastructure_dashboard(scope: MonitoringScope) -> widget.Dashboard:
    """Return the dashboard of an environment's machine."""
    environment = scope.environment
    widgets: list[GraphWidget | TextWidget] = [widget.render_text("no_machine")]
    if environment.observability.container_insights:
        servers = [
            _list_server_widgets(DashboardArms(environment, member)) for member in scope.experiments
        ]
        widgets = [*_list_node_graphs(environment), *itertools.chain.from_iterable(servers)]
    header = widget.render_text(
        "machine_header",
        environment=environment,
        cluster=names.cluster_name(environment),
        insights=metrics.CONTAINER_INSIGHTS,
        scrape=metrics.VLLM_SCRAPE,
    )
    namespaces = ", ".join(
        f"`{names.experiment_namespace(member.experiment)}`" for member in scope.experiments
    )
    return widget.Dashboard(
        name=names.dashboard_name(environment, "machine"),
        widgets=(header, *widgets, widget.render_text("neuron_cores", namespaces=namespaces)),
    )


def _list_node_graphs(environment: Environment) -> Iterator[GraphWidget]:
    """Yield every existing node, system nodes included, and their number."""
    cluster = names.cluster_name(environment)
    namespace = metrics.format_namespace(metrics.CONTAINER_INSIGHTS, environment.name, cluster)
    for name in _NODE_METRICS:
        metric = metrics.CLOUDWATCH_METRICS[metrics.CONTAINER_INSIGHTS, name]
        dimensions = ("NodeName", "InstanceId", "ClusterName")
        search = build_search(
            namespace, dimensions, name, metric.statistic, {"ClusterName": cluster}
        )
        yield build_metric_graph(
            metric,
            MathExpression(text=search, label=widget.dimension_label("NodeName"), id="nodes"),
        )
    source = MetricSource(environment, metrics.CONTAINER_INSIGHTS, {"ClusterName": cluster})
    for name in _CLUSTER_METRICS:
        metric = metrics.CLOUDWATCH_METRICS[metrics.CONTAINER_INSIGHTS, name]
        line = source.line(name, metric.statistic, id="count", is_visible=True, label=metric.title)
        yield build_metric_graph(metric, line)


def _list_server_widgets(arms: DashboardArms) -> Iterator[GraphWidget | TextWidget]:
    """Yield an experiment's servers: readiness, their own metrics, reasons for missing graphs."""
    experiment = arms.experiment
    insights = metrics.CONTAINER_INSIGHTS
    scrape = metrics.VLLM_SCRAPE
    namespace = names.experiment_namespace(experiment)
    yield widget.render_text(
        "servers", experiment=experiment.name, namespace=namespace, overflow=arms.overflow_variants
    )
    yield _build_server_graph(
        arms, insights, {"m": "service_number_of_running_pods"}, "FILL(m{0}, 0)"
    )
    yield _build_pod_graph(arms)
    yield _build_server_graph(arms, insights, {"m": _RESTARTS})
    for name in (
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:num_preemptions_total",
    ):
        yield _build_server_graph(arms, scrape, {"m": name})
    if experiment.runtime == _V0:
        title = metrics.CLOUDWATCH_METRICS[scrape, _CACHE_USE].title
        yield widget.render_text("no_cache_use", HALF, title=title, runtime=_V0)
    else:
        yield _build_server_graph(arms, scrape, {"m": _CACHE_USE}, width=HALF)
    tokens_formula = f"m{{0}} / {PERIOD_S}"
    yield _build_server_graph(
        arms, scrape, {"m": "vllm:generation_tokens_total"}, tokens_formula, width=HALF
    )
    yield _build_server_graph(arms, scrape, {"m": "vllm:request_success_total"}, width=HALF)
    title = metrics.CLOUDWATCH_METRICS[scrape, _DRAFTS].title
    if all(variant.mode == "none" for variant in arms.visible_variants):
        yield widget.render_text("no_speculation", HALF, title=title, rest="")
    elif load_catalogue().runtimes[experiment.runtime].counters.speculation.value == "flat":
        yield widget.render_text("flat_counters", HALF, title=title, runtime=experiment.runtime)
    else:
        formula = "IF(d{0} > 0, 1 + a{0} / d{0})"
        yield _build_server_graph(arms, scrape, {"d": _DRAFTS, "a": _ACCEPTED}, formula, width=HALF)


def _locate_servers(arms: DashboardArms) -> dict[str, str]:
    namespace = names.experiment_namespace(arms.experiment)
    return {"ClusterName": names.cluster_name(arms.environment), "Namespace": namespace}


def _build_pod_graph(arms: DashboardArms) -> GraphWidget:
    """Return a graph of the experiment's running pods."""
    metric = metrics.CLOUDWATCH_METRICS[
        metrics.CONTAINER_INSIGHTS, "namespace_number_of_running_pods"
    ]
    source = MetricSource(arms.environment, metrics.CONTAINER_INSIGHTS, _locate_servers(arms))
    line = source.line(metric.name, metric.statistic, id="m", label=None)
    return build_metric_graph(
        metric, line, MathExpression(text="FILL(m, 0)", label=arms.experiment.name, id="r")
    )


def _build_server_graph(
    arms: DashboardArms,
    publisher: str,
    metric_names: Mapping[str, str],
    formula: str | None = None,
    width: int = THIRD,
) -> GraphWidget:
    """Return a graph of every server; acceptance has only servers that speculate.

    Args:
        metric_names: letter of the series' ids -> metric; the graph has the first one's title.
        formula: expression to draw instead of the series; `{0}` is the server's number.
    """
    drawn = [metrics.CLOUDWATCH_METRICS[publisher, name] for name in metric_names.values()]
    variants = [
        variant
        for variant in arms.visible_variants
        if "d" not in metric_names or variant.mode != "none"
    ]
    lines: list[MetricLine | MathExpression] = []
    for number, variant in enumerate(variants):
        visible = {"label": variant.name, "color": arms.color(variant), "is_visible": True}
        for letter, metric in zip(metric_names, drawn, strict=True):
            # Container Insights' name of a pod is that of its Deployment
            place = {"PodName" if metric.name == _RESTARTS else "Service": variant.name}
            source = MetricSource(arms.environment, publisher, _locate_servers(arms) | place)
            fields: dict[str, Any] = {"label": None} if formula else visible
            lines.append(
                source.line(metric.name, metric.statistic, id=f"{letter}{number}", **fields)
            )
        if formula:
            lines.append(arms.build_expression(formula.format(number), variant, f"r{number}"))
    return build_metric_graph(drawn[0], *lines, width=width)
