"""The dashboard of money and capacity: paid nodes, their cost so far, and the time of the last run.

Invariant: USD are observed node-minutes times the price that the environment states with its date.
No bill is read, and a text names each metric that nobody sends yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tandem import cloudwatch_metrics, metrics
from tandem.declarations import names
from tandem.declarations.budgets import compute_budget_usd
from tandem.declarations.environment import CapacitySettings, Environment
from tandem.monitoring import widget
from tandem.monitoring.dashboard_arms import (
    VARIANT_COLORS,
    build_bench_graph,
    build_metric_graph,
    build_search,
)
from tandem.monitoring.scope import MetricSource, MonitoringScope
from tandem.monitoring.widget import COLUMNS, GraphMark, GraphWidget, MathExpression

TIME_RANGE = "-P7D"
_NODES = cloudwatch_metrics.CLOUDWATCH_METRICS[cloudwatch_metrics.LOG_FILTER, "accelerator_nodes"]
_RUNNING_SUM = "RUNNING_SUM(FILL(n, 0)) / 60"


def build_cost_dashboard(scope: MonitoringScope) -> widget.Dashboard:
    """Return the dashboard of an environment's money and capacity."""
    environment = scope.environment
    capacity = scope.environment.capacity
    starts, ends = (
        (mark.moment for mark in _build_block_marks(capacity)) if capacity.block else (None, None)
    )
    no_nodes = widget.render_text(
        "no_nodes",
        insights=cloudwatch_metrics.CONTAINER_INSIGHTS,
        log_filter=cloudwatch_metrics.LOG_FILTER,
    )
    has_insights = environment.observability.container_insights
    guard_graphs = list(_list_guard_graphs(environment))
    return widget.Dashboard(
        name=names.dashboard_name(environment, "money"),
        widgets=(
            widget.render_text(
                "money_header",
                environment=environment.name,
                capacity=capacity,
                price=_format_price(capacity),
                block_starts=starts,
                block_ends=ends,
            ),
            *(_list_node_graphs(environment) if has_insights else [no_nodes]),
            *(replace(graph, width=COLUMNS // len(guard_graphs)) for graph in guard_graphs),
            _build_run_graph(scope),
            widget.render_text(
                "money_omissions", limit_usd=f"{environment.observability.monthly_limit_usd:g}"
            ),
        ),
        start=TIME_RANGE,
    )


def _build_block_marks(capacity: CapacitySettings) -> tuple[GraphMark, ...]:
    block = capacity.block
    moments = {"block starts": block.starts, "block ends": block.ends} if block else {}
    return tuple(
        GraphMark(label=label, moment=f"{moment:%Y-%m-%dT%H:%M:%SZ}")
        for label, moment in moments.items()
    )


def _format_price(capacity: CapacitySettings) -> str:
    """Return the price as a plain decimal, for metric math and for people."""
    return f"{capacity.usd_per_hour:.6f}".rstrip("0").rstrip(".")


def _list_node_graphs(environment: Environment) -> Iterator[GraphWidget]:
    """Yield the nodes, their hours and USD: as numbers over the range, and cumulative."""
    capacity = environment.capacity
    half = {"width": COLUMNS // 2}
    price = _format_price(capacity)
    marks = _build_block_marks(capacity)
    price_note = f"at {price} USD per node-hour of {capacity.usd_per_hour_date}"
    node_mark = GraphMark(label="most nodes (capacity.nodes)", value=float(capacity.nodes))
    yield _build_graph(
        environment, _NODES, f"n / {widget.PERIOD_S // 60}", marks=(*marks, node_mark)
    )
    cost_marks = (*marks, _build_budget_mark(environment))
    rows: list[tuple[str, str, str, str, dict[str, Any]]] = [
        ("Node-hours in the range", "hours", "node_hours", "n / 60", {"view": "numbers"}),
        (
            f"Cost in the range, {price_note}",
            "USD",
            "node_cost",
            f"n / 60 * {price}",
            {"view": "numbers"},
        ),
        (
            "Node-hours since the range began",
            "hours",
            "node_hours_sum",
            _RUNNING_SUM,
            {"marks": marks, **half},
        ),
        (
            f"Cost since the range began, {price_note}",
            "USD",
            "node_cost_sum",
            f"{_RUNNING_SUM} * {price}",
            {"marks": cost_marks, **half},
        ),
    ]
    for title, unit, macro, formula, fields in rows:
        sentence = widget.render_markdown(macro)
        yield _build_graph(
            environment, _NODES, formula, title=title, unit=unit, sentence=sentence, **fields
        )


def _build_budget_mark(environment: Environment) -> GraphMark:
    return GraphMark(
        label="monthly budget (guard.budget_usd)", value=compute_budget_usd(environment)
    )


def _list_guard_graphs(environment: Environment) -> Iterator[GraphWidget]:
    """Yield the reaper's count of each pass by EC2's list, with or without Container Insights."""
    capacity = environment.capacity
    marks = _build_block_marks(environment.capacity)
    age_mark = GraphMark(label="guard.max_hours", value=float(environment.guard.max_hours))
    rows = {
        "instances_alive": (None, marks),
        "oldest_instance_hours": (None, (age_mark,)),
        "idle_block_minutes": ("RUNNING_SUM(FILL(g, 0)) / 60", marks),
        "fleet_usd": ("RUNNING_SUM(FILL(g, 0)) / 1", (_build_budget_mark(environment),)),
    }
    for name, (formula, figure_marks) in rows.items():
        metric = cloudwatch_metrics.CLOUDWATCH_METRICS[cloudwatch_metrics.GUARD, name]
        if name != "idle_block_minutes" or capacity.kind == "capacity-block":
            sentence = metric.sentence.format(price=_format_price(capacity))
            yield _build_graph(environment, metric, formula, marks=figure_marks, sentence=sentence)


def _build_graph(
    environment: Environment,
    metric: cloudwatch_metrics.CloudWatchMetric,
    formula: str | None,
    **fields: Any,
) -> GraphWidget:
    """Return the graph of a metric, or of a `formula`, with the catalogue's texts by default."""
    title = fields.pop("title", metric.title)
    unit = fields.get("unit", metric.drawn_unit or metric.unit)
    drawn: dict[str, Any] = {"label": title.split(",")[0], "color": VARIANT_COLORS[0]}
    expressions = []
    visible = {**drawn, "is_visible": True}
    if formula:
        expressions = [MathExpression(text=formula, id="drawn", **drawn)]
        visible = {"label": None}
    id_ = "n" if metric is _NODES else "g"
    source = MetricSource(environment, metric.publisher)
    line = source.line(metric.name, metric.statistic, id=id_, **visible)
    graph = build_metric_graph(metric, line, *expressions)
    return replace(graph, title=f"{title} [{unit}]", **fields)


def _build_run_graph(scope: MonitoringScope) -> GraphWidget:
    """Return a graph of the times at which each experiment was measured."""
    namespace = names.bench_namespace(scope.environment)
    unit = metrics.find_metric("requests").unit
    lines = []
    for number, member in enumerate(scope.experiments):
        values = {
            "Experiment": member.experiment.name,
            "PromptClass": cloudwatch_metrics.ALL_VALUES,
            "Concurrency": cloudwatch_metrics.ALL_VALUES,
        }
        search = build_search(
            namespace, cloudwatch_metrics.BENCH_DIMENSIONS, "requests", "Sum", values
        )
        color = VARIANT_COLORS[number] if number < len(VARIANT_COLORS) else None
        lines.append(
            MathExpression(
                text=f"SUM({search})", label=member.experiment.name, id=f"run{number}", color=color
            )
        )
    title = "Last runs: requests published"
    sentence = widget.render_markdown("last_runs")
    return build_bench_graph(title, unit, sentence, lines, varies=False, width=COLUMNS)
