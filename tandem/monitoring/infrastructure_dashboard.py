"""The dashboard of the machine: nodes, whether each arm's server is ready, and what each server says of itself.

Invariant: what has no recorded sample, or is switched off, is said in words and not drawn.
"""

from __future__ import annotations

from dataclasses import replace

from tandem.metrics import CONTAINER_INSIGHTS, NEURON, PUBLISHERS, VLLM_SCRAPE, format_namespace
from tandem.monitoring.dashboard_arms import PERIOD_S, DashboardArms
from tandem.monitoring.layout import build_text
from tandem.monitoring.metric_figure import MetricFigure
from tandem.monitoring.metric_source import MetricSource
from tandem.monitoring.scope import MonitoringScope
from tandem.monitoring.server_widgets import build_server_widgets
from tandem.monitoring.widget import Dashboard, GraphWidget, MathExpression, TextWidget, dimension_label
from tandem.spec import names
from tandem.spec.environment import Environment

_NODE_FIGURES = (
    MetricFigure(
        metric="node_cpu_utilization",
        publisher=CONTAINER_INSIGHTS,
        title="CPU of each node",
        sentence="Share of a node's processors in use. High on an accelerator node in a run: the host slows "
        "both arms, and "
        "TPOT is not the chip's alone. Says nothing of NeuronCores.",
        statistic="Average",
    ),
    MetricFigure(
        metric="node_memory_utilization",
        publisher=CONTAINER_INSIGHTS,
        title="Memory of each node",
        sentence="Working set, of a node's memory. Loading weights raises it for a while. The accelerators' own "
        "memory is "
        "not in it.",
        statistic="Maximum",
    ),
    MetricFigure(
        metric="node_filesystem_utilization",
        publisher=CONTAINER_INSIGHTS,
        title="Disk of each node",
        sentence="Fullest filesystem of a node; its local disks are one. A compile fails when it is full. Local "
        "disks are "
        "empty again on a new node.",
        statistic="Maximum",
    ),
    MetricFigure(
        metric="node_network_total_bytes",
        publisher=CONTAINER_INSIGHTS,
        title="Network of each node",
        sentence="Bytes per second in and out. High in a run: a load of weights or an upload beside the "
        "measurement. EFA "
        "is not in it.",
        statistic="Average",
    ),
)
_CLUSTER_FIGURES = (
    MetricFigure(
        metric="cluster_node_count",
        publisher=CONTAINER_INSIGHTS,
        title="Nodes known",
        sentence="Nodes that Kubernetes knows, system nodes included; a dead one stays known for minutes. What "
        "costs money "
        "is on the dashboard of money.",
        statistic="Maximum",
    ),
    MetricFigure(
        metric="cluster_failed_node_count",
        publisher=CONTAINER_INSIGHTS,
        title="Nodes under pressure",
        sentence="Nodes short of memory, disk or processes, or without network. A node that is merely not Ready is not "
        "counted.",
        statistic="Maximum",
    ),
)


def build_infrastructure_dashboard(scope: MonitoringScope) -> Dashboard:
    """Return the dashboard of an environment's machine."""
    environment = scope.environment
    widgets: tuple[GraphWidget | TextWidget, ...] = (_build_absence_note(),)
    if environment.observability.container_insights:
        experiment_widgets = (
            build_server_widgets(environment, DashboardArms(environment, experiment_scope))
            for experiment_scope in scope.experiments
        )
        widgets = (
            *_build_node_graphs(environment),
            *(widget for server_widgets in experiment_widgets for widget in server_widgets),
        )
    return Dashboard(
        name=names.dashboard_name(environment, "machine"),
        title=f"{environment.name}: the machine",
        widgets=(_build_header(environment), *widgets, _build_core_note(scope)),
    )


def _build_header(environment: Environment) -> TextWidget:
    return build_text(
        f"## The machine under {environment.name}\n"
        f"EKS cluster `{names.cluster_name(environment)}`, {environment.capacity.instance_type} in "
        f"{environment.capacity.zone}. Nodes and readiness come from `{CONTAINER_INSIGHTS}`, the servers' own figures "
        f"from `{VLLM_SCRAPE}`, each once a minute: a node's line ends with the node, a server's with its pod. One "
        "color is one arm, as on the experiments' dashboards. What to do when something is wrong: docs/runbook.md."
    )


def _build_absence_note() -> TextWidget:
    return build_text(
        "**Nothing of nodes and servers is drawn**: `observability.container_insights` is false in this environment, "
        "so no agent runs that would send it."
    )


def _build_node_graphs(environment: Environment) -> tuple[GraphWidget, ...]:
    """Return every node that exists, system nodes included, and how many there are."""
    cluster = names.cluster_name(environment)
    cluster_source = MetricSource(environment, CONTAINER_INSIGHTS, {"ClusterName": cluster})
    metric_namespace = format_namespace(CONTAINER_INSIGHTS, environment.name, cluster)
    return (
        *(
            figure.graph(
                (
                    MathExpression(
                        text=_build_node_search(figure, metric_namespace, cluster),
                        label=dimension_label("NodeName"),
                        id="nodes",
                    ),
                )
            )
            for figure in _NODE_FIGURES
        ),
        *(
            figure.graph(
                (
                    replace(
                        cluster_source.line(figure.metric, figure.statistic, id_="count", is_visible=True),
                        label=figure.title,
                    ),
                )
            )
            for figure in _CLUSTER_FIGURES
        ),
    )


def _build_node_search(figure: MetricFigure, metric_namespace: str, cluster: str) -> str:
    """Return the SEARCH that finds a figure of every node of a cluster."""
    return (
        f'SEARCH(\'{{"{metric_namespace}",NodeName,InstanceId,ClusterName}} MetricName="{figure.metric}" '
        f"ClusterName=\"{cluster}\"', '{figure.statistic}', {PERIOD_S})"
    )


def _build_core_note(scope: MonitoringScope) -> TextWidget:
    namespaces = ", ".join(
        f"`{names.experiment_namespace(experiment_scope.experiment)}`" for experiment_scope in scope.experiments
    )
    return build_text(
        "### NeuronCores by devices 0-7 and 8-15\n"
        f"Not drawn: nobody sends it here. {PUBLISHERS[NEURON].source}. Which server holds which devices is the "
        f"claims' to say: `kubectl get resourceclaims -o yaml` in {namespaces}."
    )
