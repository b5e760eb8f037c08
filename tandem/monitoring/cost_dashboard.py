"""The dashboard of money and capacity: nodes that cost, what they cost so far, and when the last run was.

Invariant: USD are node-minutes that were seen, times the price that the environment states with its date; no bill is
read, and what nobody sends yet is said in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tandem import metrics
from tandem.monitoring import widget
from tandem.monitoring.dashboard_arms import VARIANT_COLORS, build_metric_graph, build_search
from tandem.monitoring.scope import MetricSource, MonitoringScope
from tandem.monitoring.widget import COLUMNS, GraphMark, GraphWidget, MathExpression
from tandem.spec import names
from tandem.spec.environment import CapacitySettings, Environment

TIME_RANGE = "-P7D"
_NODES = metrics.CLOUDWATCH_METRICS[metrics.LOG_FILTER, "accelerator_nodes"]
_RUNNING_SUM = "RUNNING_SUM(FILL(n, 0)) / 60"
_BILL_NOTES = {
    "capacity-block": "A Capacity Block is paid when it is bought, whether nodes run or not: USD below is what the "
    "hours that were used are worth, not the bill.",
    "reservation": "A reservation is paid whether nodes run or not: USD below is what the hours that were used are "
    "worth, not the bill.",
    "spot": "A spot price moves: USD below is at the stated one, not the bill.",
    "on-demand": "USD below is the nodes alone: control plane, system nodes, network and storage are not in it.",
}


def build_cost_dashboard(scope: MonitoringScope) -> widget.Dashboard:
    """Return the dashboard of an environment's money and capacity."""
    environment = scope.environment
    node_widgets: list[GraphWidget | widget.TextWidget] = [
        widget.build_text(
            "**Nodes, hours and USD are not drawn**: they are counted in the log of Container Insights, and "
            "`observability.container_insights` is false in this environment. EC2's console shows what runs."
            f" (`{metrics.CONTAINER_INSIGHTS}`, `{metrics.LOG_FILTER}`)"
        )
    ]
    if environment.observability.container_insights:
        node_widgets = [*_list_node_graphs(environment)]
    omission_note = widget.build_text(
        "### What is not drawn\n"
        "- **The bill**: AWS Billing knows it, hours late.\n"
        "- **What watching itself costs** (metrics, dashboards, alarms, logs): `tandem check` computes it from the "
        f"catalogue and dated prices, and refuses more than {environment.observability.monthly_limit_usd:g} USD a "
        "month (`observability.monthly_limit_usd`)."
    )
    guard_graphs = list(_list_guard_graphs(environment))
    return widget.Dashboard(
        name=names.dashboard_name(environment, "money"),
        title=f"{environment.name}: money and capacity",
        widgets=(
            _build_header(environment.capacity, environment.name),
            *node_widgets,
            *(replace(graph, width=COLUMNS // len(guard_graphs)) for graph in guard_graphs),
            _build_run_graph(scope),
            omission_note,
        ),
        start=TIME_RANGE,
    )


def _build_header(capacity: CapacitySettings, environment: str) -> widget.TextWidget:
    if capacity.kind != "capacity-block":
        block_note = "There is no Capacity Block, so no start and no end are marked."
    elif capacity.awaits_reservation:
        block_note = "No Capacity Block is bought yet (`capacity.reservation_id`), so there are no nodes."
    elif capacity.block is None:
        block_note = "Start and end of the block are not stated (`capacity.block`), so nothing is marked."
    else:
        block_note = (
            f"Block {capacity.reservation_id}: from {_format_moment(capacity.block.starts)} to "
            f"{_format_moment(capacity.block.ends)}. EC2 ends its instances by itself. Both are marked where the range "
            "that is looked at holds them."
        )
    return widget.build_text(
        f"## Money and capacity of {environment}\n"
        f"{capacity.instance_type}, {capacity.kind}, at most {capacity.nodes} node{'s' * (capacity.nodes > 1)} in "
        f"{capacity.zone}. Price: {_format_price(capacity)} USD per node-hour, read on {capacity.usd_per_hour_date} "
        "and written in the environment's file; nothing here asks AWS for one. "
        f"{_BILL_NOTES[capacity.kind]} {block_note}"
    )


def _build_block_marks(capacity: CapacitySettings) -> tuple[GraphMark, ...]:
    block = capacity.block
    moments = {"block starts": block.starts, "block ends": block.ends} if block else {}
    return tuple(GraphMark(label=label, moment=_format_moment(moment)) for label, moment in moments.items())


def _format_moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _format_price(capacity: CapacitySettings) -> str:
    """Return the price as a plain decimal, which metric math and people both read."""
    return f"{capacity.usd_per_hour:.6f}".rstrip("0").rstrip(".")


def _list_node_graphs(environment: Environment) -> Iterator[GraphWidget]:
    """Yield the nodes, their hours and USD: as numbers over the range, and as they add up."""
    capacity, half = environment.capacity, {"width": COLUMNS // 2}
    price, marks = _format_price(capacity), _build_block_marks(capacity)
    price_note = f"at {price} USD per node-hour of {capacity.usd_per_hour_date}"
    node_mark = GraphMark(label="most nodes (capacity.nodes)", value=float(capacity.nodes))
    yield _build_graph(environment, _NODES, f"n / {widget.PERIOD_S // 60}", marks=(*marks, node_mark))
    hours_sentence = (
        "Minutes in which a node was seen, over the whole range that is looked at. Not the hours billed: EC2 bills "
        "from launch, before the agent writes."
    )
    cost_sentence = (
        "The node-hours beside it, times that price. Choose the range of one run to see what it cost. No bill is read, "
        "and nothing but accelerator nodes is in it."
    )
    hours_sum_sentence = (
        "The same hours as they add up from the left edge: flat is no node. A slope in hours in which nobody measures "
        "is money burnt."
    )
    cost_sum_sentence = (
        "Adds up from the left edge, so it meets the monthly budget's line only in a range of that month. It is no "
        "bill, and stops nothing."
    )
    cost_marks = (*marks, _build_budget_mark(environment))
    rows: list[tuple[str, str, str, str, dict[str, Any]]] = [
        ("Node-hours in the range", "hours", hours_sentence, "n / 60", {"view": "numbers"}),
        (f"Cost in the range, {price_note}", "USD", cost_sentence, f"n / 60 * {price}", {"view": "numbers"}),
        ("Node-hours since the range began", "hours", hours_sum_sentence, _RUNNING_SUM, {"marks": marks, **half}),
        (
            f"Cost since the range began, {price_note}", "USD", cost_sum_sentence, f"{_RUNNING_SUM} * {price}",
            {"marks": cost_marks, **half},
        ),
    ]  # fmt: skip
    for title, unit, sentence, formula, fields in rows:
        yield _build_graph(environment, _NODES, formula, title=title, unit=unit, sentence=sentence, **fields)


def _build_budget_mark(environment: Environment) -> GraphMark:
    return GraphMark(label="monthly budget (guard.budget_usd)", value=environment.guard.budget_usd)


def _list_guard_graphs(environment: Environment) -> Iterator[GraphWidget]:
    """Yield what each pass of the reaper saw by EC2's own word, Container Insights or not."""
    capacity, marks = environment.capacity, _build_block_marks(environment.capacity)
    age_mark = GraphMark(label="guard.max_hours", value=float(environment.guard.max_hours))
    rows: dict[str, tuple[str | None, tuple[GraphMark, ...]]] = {
        "instances_alive": (None, marks),
        "oldest_instance_hours": (None, (age_mark,)),
        "idle_block_minutes": ("RUNNING_SUM(FILL(g, 0)) / 60", marks),
        "fleet_usd": ("RUNNING_SUM(FILL(g, 0)) / 1", (_build_budget_mark(environment),)),
    }
    for name, (formula, figure_marks) in rows.items():
        metric = metrics.CLOUDWATCH_METRICS[metrics.GUARD, name]
        if name != "idle_block_minutes" or capacity.kind == "capacity-block":
            sentence = metric.sentence.format(price=_format_price(capacity))
            yield _build_graph(environment, metric, formula, marks=figure_marks, sentence=sentence)


def _build_graph(
    environment: Environment, metric: metrics.CloudWatchMetric, formula: str | None, **fields: Any
) -> GraphWidget:
    """Return the graph of a metric, or of a `formula` over its series; in the catalogue's words unless given."""
    title, unit = fields.pop("title", metric.title), fields.get("unit", metric.drawn_unit or metric.unit)
    id_, drawn = "n" if metric is _NODES else "g", {"label": title.split(",")[0], "color": VARIANT_COLORS[0]}
    visible: dict[str, Any] = {"label": None} if formula else {**drawn, "is_visible": True}
    line = MetricSource(environment, metric.publisher).line(metric.name, metric.statistic, id=id_, **visible)
    expressions = [MathExpression(text=formula, id="drawn", **drawn)] if formula else []
    return replace(build_metric_graph(metric, line, *expressions), title=f"{title} [{unit}]", **fields)


def _build_run_graph(scope: MonitoringScope) -> GraphWidget:
    """Return when each experiment was last measured: what its bench published."""
    namespace, unit = names.bench_namespace(scope.environment), metrics.find_metric("requests").unit
    lines = []
    for number, member in enumerate(scope.experiments):
        values = {
            "Experiment": member.experiment.name, "PromptClass": metrics.ALL_VALUES, "Concurrency": metrics.ALL_VALUES,
        }  # fmt: skip
        search = build_search(namespace, metrics.BENCH_DIMENSIONS, "requests", "Sum", values)
        color = VARIANT_COLORS[number] if number < len(VARIANT_COLORS) else None
        lines.append(
            MathExpression(text=f"SUM({search})", label=member.experiment.name, id=f"run{number}", color=color)
        )
    return GraphWidget(
        title=f"Last runs: requests published [{unit}]",
        sentence="Requests of every arm, by experiment, in 5 minutes. The right end of a line is when its last run "
        "ended or its publisher stopped; nodes alive above without a line here are nodes that nobody measures on, "
        "or a compile.",
        unit=unit,
        publisher=metrics.BENCH,
        lines=tuple(lines),
        varies=False,
        width=COLUMNS,
    )
