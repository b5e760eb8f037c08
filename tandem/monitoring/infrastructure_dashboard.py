"""The dashboard of the machine: nodes, whether each arm's server is ready, and what each server says of itself.

Invariant: what has no recorded sample, or is switched off, is said in words and not drawn. Both arms of an experiment
stand in one graph, in their colors of every other dashboard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tandem import metrics
from tandem.monitoring import widget
from tandem.monitoring.dashboard_arms import DashboardArms, build_metric_graph, build_search
from tandem.monitoring.scope import MetricSource, MonitoringScope
from tandem.monitoring.widget import COLUMNS, PERIOD_S, GraphWidget, MathExpression, MetricLine, TextWidget
from tandem.spec import names
from tandem.spec.catalogue import load_catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Variant

HALF_WIDTH = COLUMNS // 2
_V0 = "nxdi-v0"  # the runtime of vLLM's V0 engine, which has another name for the use of its cache
_NODE_METRICS = (
    "node_cpu_utilization",
    "node_memory_utilization",
    "node_filesystem_utilization",
    "node_network_total_bytes",
)
_CLUSTER_METRICS = ("cluster_node_count", "cluster_failed_node_count")
_RESTARTS = "pod_number_of_container_restarts"


def build_infrastructure_dashboard(scope: MonitoringScope) -> widget.Dashboard:
    """Return the dashboard of an environment's machine."""
    environment = scope.environment
    cluster = names.cluster_name(environment)
    widgets: tuple[GraphWidget | TextWidget, ...] = (
        widget.build_text(
            "**Nothing of nodes and servers is drawn**: `observability.container_insights` is false in this "
            "environment, so no agent runs that would send it."
        ),
    )
    if environment.observability.container_insights:
        servers = [_ServerWidgets(DashboardArms(environment, member)).build() for member in scope.experiments]
        widgets = (*_build_node_graphs(environment), *(content for members in servers for content in members))
    header = widget.build_text(
        f"## The machine under {environment.name}\n"
        f"EKS cluster `{cluster}`, {environment.capacity.instance_type} in {environment.capacity.zone}. Nodes and "
        f"readiness come from `{metrics.CONTAINER_INSIGHTS}`, the servers' own figures from "
        f"`{metrics.VLLM_SCRAPE}`, each once a minute: a node's line ends with the node, a server's with its pod. One "
        "color is one arm, as on the "
        "experiments' dashboards. What to do when something is wrong: docs/runbook.md."
    )
    namespaces = ", ".join(f"`{names.experiment_namespace(member.experiment)}`" for member in scope.experiments)
    core_note = widget.build_text(
        "### NeuronCores by devices 0-7 and 8-15\n"
        f"Not drawn: nobody sends it here. {metrics.PUBLISHERS[metrics.NEURON].source}. Which server holds "
        f"which devices is the claims' to say: `kubectl get resourceclaims -o yaml` in {namespaces}."
    )
    return widget.Dashboard(
        name=names.dashboard_name(environment, "machine"),
        title=f"{environment.name}: the machine",
        widgets=(header, *widgets, core_note),
    )


def _build_node_graphs(environment: Environment) -> Iterator[GraphWidget]:
    """Yield every node that exists, system nodes included, and how many there are."""
    cluster = names.cluster_name(environment)
    namespace = metrics.format_namespace(metrics.CONTAINER_INSIGHTS, environment.name, cluster)
    for name in _NODE_METRICS:
        metric = metrics.CLOUDWATCH_METRICS[metrics.CONTAINER_INSIGHTS, name]
        dimensions = ("NodeName", "InstanceId", "ClusterName")
        search = build_search(namespace, dimensions, name, metric.statistic, {"ClusterName": cluster})
        yield build_metric_graph(
            metric, MathExpression(text=search, label=widget.dimension_label("NodeName"), id="nodes")
        )
    source = MetricSource(environment, metrics.CONTAINER_INSIGHTS, {"ClusterName": cluster})
    for name in _CLUSTER_METRICS:
        metric = metrics.CLOUDWATCH_METRICS[metrics.CONTAINER_INSIGHTS, name]
        line = source.line(name, metric.statistic, id_="count", is_visible=True)
        yield build_metric_graph(metric, replace(line, label=metric.title))


class _ServerWidgets:
    """The servers of one experiment, one an arm: ready or not, and what each says of itself."""

    def __init__(self, arms: DashboardArms) -> None:
        self._environment, self._arms, self._experiment = arms.environment, arms, arms.experiment
        self._location = {
            "ClusterName": names.cluster_name(arms.environment),
            "Namespace": names.experiment_namespace(arms.experiment),
        }

    def build(self) -> tuple[GraphWidget | TextWidget, ...]:
        """Return what is known of every drawn server."""
        return (
            self._build_header(),
            self._build_graph(metrics.CONTAINER_INSIGHTS, "service_number_of_running_pods", formula="FILL(m{}, 0)"),
            self._build_pod_graph(),
            self._build_graph(metrics.CONTAINER_INSIGHTS, _RESTARTS),
            self._build_graph(metrics.VLLM_SCRAPE, "vllm:num_requests_running"),
            self._build_graph(metrics.VLLM_SCRAPE, "vllm:num_requests_waiting"),
            self._build_graph(metrics.VLLM_SCRAPE, "vllm:num_preemptions_total"),
            self._build_cache_widget(),
            self._build_graph(metrics.VLLM_SCRAPE, "vllm:generation_tokens_total", HALF_WIDTH, f"m{{}} / {PERIOD_S}"),
            self._build_graph(metrics.VLLM_SCRAPE, "vllm:request_success_total", HALF_WIDTH),
            self._build_acceptance_widget(),
        )

    def _build_header(self) -> TextWidget:
        """Return the experiment's heading, and which of its servers are not drawn."""
        overflow = self._arms.overflow_variants
        overflow_note = (
            f" {len(overflow)} further arms are not drawn, from {overflow[0].name} to {overflow[-1].name} (all are "
            "named on the experiment's dashboard); their figures are in CloudWatch's metrics, by Service."
            if overflow
            else ""
        )
        return widget.build_text(
            f"### Servers of {self._experiment.name}\nNamespace `{self._location['Namespace']}`, a Service for each "
            f"arm.{overflow_note}"
        )

    def _build_graph(
        self, publisher: str, name: str, width: int = COLUMNS // 3, formula: str | None = None
    ) -> GraphWidget:
        """Return a metric of every server, or a formula over its series, which stands for `m{}`."""
        metric = metrics.CLOUDWATCH_METRICS[publisher, name]
        lines: list[MetricLine | MathExpression] = []
        for number, variant in enumerate(self._arms.visible_variants):
            line = self._line(metric, variant, f"m{number}")
            if formula is None:
                lines.append(replace(line, label=variant.name, color=self._arms.color(variant), is_visible=True))
            else:
                lines += [line, self._arms.build_expression(formula.format(number), variant, f"r{number}")]
        return build_metric_graph(metric, *lines, width=width)

    def _build_pod_graph(self) -> GraphWidget:
        """Return how many pods of the experiment run at all."""
        metric = metrics.CLOUDWATCH_METRICS[metrics.CONTAINER_INSIGHTS, "namespace_number_of_running_pods"]
        source = MetricSource(self._environment, metrics.CONTAINER_INSIGHTS, self._location)
        line = replace(source.line(metric.name, metric.statistic, id_="m"), label=None)
        return build_metric_graph(metric, line, MathExpression(text="FILL(m, 0)", label=self._experiment.name, id="r"))

    def _build_cache_widget(self) -> GraphWidget | TextWidget:
        """Return the use of the KV cache, or why it is not known."""
        name = "vllm:kv_cache_usage_perc"
        title = metrics.CLOUDWATCH_METRICS[metrics.VLLM_SCRAPE, name].title
        if self._experiment.runtime == _V0:
            return widget.build_text(
                f"**{title}**: not drawn. vLLM's V0 engine, which {_V0} serves with, has another name for it, and "
                "nobody has recorded what it sends.",
                HALF_WIDTH,
            )
        return self._build_graph(metrics.VLLM_SCRAPE, name, HALF_WIDTH)

    def _build_acceptance_widget(self) -> GraphWidget | TextWidget:
        """Return the acceptance length by the servers' own counters, or why it is not known."""
        drafts = metrics.CLOUDWATCH_METRICS[metrics.VLLM_SCRAPE, "vllm:spec_decode_num_drafts_total"]
        accepted = metrics.CLOUDWATCH_METRICS[metrics.VLLM_SCRAPE, "vllm:spec_decode_num_accepted_tokens_total"]
        speculative_arms = [variant for variant in self._arms.visible_variants if variant.mode != "none"]
        if not speculative_arms:
            return widget.build_text(f"**{drafts.title}**: no arm of this experiment speculates.", HALF_WIDTH)
        if load_catalogue().runtimes[self._experiment.runtime].counters.speculation.value == "flat":
            return widget.build_text(
                f"**{drafts.title}**: not drawn. On {self._experiment.runtime} vLLM's spec_decode counters stay 0. "
                "The bench's acceptance length, from decode steps, is on the experiment's dashboard.",
                HALF_WIDTH,
            )
        lines: list[MetricLine | MathExpression] = []
        for number, variant in enumerate(speculative_arms):
            formula = f"IF(d{number} > 0, 1 + a{number} / d{number})"
            lines += [
                self._line(drafts, variant, f"d{number}"),
                self._line(accepted, variant, f"a{number}"),
                self._arms.build_expression(formula, variant, f"r{number}"),
            ]
        return build_metric_graph(drafts, *lines, width=HALF_WIDTH)

    def _line(self, metric: metrics.CloudWatchMetric, variant: Variant, id_: str) -> MetricLine:
        """Return a server's series of a metric, hidden; Container Insights names a pod by its Deployment."""
        dimension = "PodName" if metric.name == _RESTARTS else "Service"
        source = MetricSource(self._environment, metric.publisher, self._location | {dimension: variant.name})
        return replace(source.line(metric.name, metric.statistic, id_=id_), label=None)
