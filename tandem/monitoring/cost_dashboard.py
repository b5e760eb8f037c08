"""The dashboard of money and capacity: nodes that cost, what they cost so far, and when the last run was.

Invariant: USD are node-minutes that were seen, times the price that the environment states with its date; no bill is
read, and what nobody sends yet is said in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tandem.metrics import (
    ALL_VALUES,
    BENCH,
    BENCH_DIMENSIONS,
    CLOUDWATCH_METRICS,
    CONTAINER_INSIGHTS,
    GUARD,
    LOG_FILTER,
    CloudWatchMetric,
    find_metric,
)
from tandem.monitoring.dashboard_arms import PERIOD_S, VARIANT_COLORS
from tandem.monitoring.layout import COLUMNS, build_text
from tandem.monitoring.metric_source import MetricSource, is_published
from tandem.monitoring.scope import MonitoringScope
from tandem.monitoring.widget import Dashboard, GraphMark, GraphWidget, MathExpression, TextWidget
from tandem.spec import names
from tandem.spec.environment import CapacitySettings, Environment

TIME_RANGE = "-P7D"
_NODES = CLOUDWATCH_METRICS[LOG_FILTER, "accelerator_nodes"]
_RUNNING_SUM = "RUNNING_SUM(FILL(n, 0)) / 60"
_BILL_NOTES = {
    "capacity-block": "A Capacity Block is paid when it is bought, whether nodes run or not: USD below is what the "
    "hours that were used are worth, not the bill.",
    "reservation": "A reservation is paid whether nodes run or not: USD below is what the hours that were used are "
    "worth, not the bill.",
    "spot": "A spot price moves: USD below is at the stated one, not the bill.",
    "on-demand": "USD below is the nodes alone: control plane, system nodes, network and storage are not in it.",
}


def build_cost_dashboard(scope: MonitoringScope) -> Dashboard:
    """Return the dashboard of an environment's money and capacity."""
    environment = scope.environment
    has_node_counts = environment.observability.container_insights and is_published(LOG_FILTER, _NODES.name)
    absence_note = build_text(
        "**Nodes, hours and USD are not drawn**: they are counted in the log of Container Insights, and "
        "`observability.container_insights` is false in this environment. EC2's console shows what runs."
        f" (`{CONTAINER_INSIGHTS}`, `{LOG_FILTER}`)"
    )
    omission_note = build_text(
        "### What is not drawn\n"
        "- **The bill**: AWS Billing knows it, hours late.\n"
        "- **What watching itself costs** (metrics, dashboards, alarms, logs): `tandem check` computes it from the "
        f"catalogue and dated prices, and refuses more than {environment.observability.monthly_limit_usd:g} USD a "
        "month (`observability.monthly_limit_usd`)."
    )
    guard_figures = list(_list_guard_figures(environment))
    return Dashboard(
        name=names.dashboard_name(environment, "money"),
        title=f"{environment.name}: money and capacity",
        widgets=(
            _build_header(environment.capacity, environment.name),
            *(
                [_build_cost_graph(environment, figure) for figure in _list_node_figures(environment)]
                if has_node_counts
                else [absence_note]
            ),
            *(
                _build_cost_graph(environment, replace(figure, width=COLUMNS // len(guard_figures)))
                for figure in guard_figures
            ),
            _build_run_graph(scope),
            omission_note,
        ),
        start=TIME_RANGE,
    )


def _build_header(capacity: CapacitySettings, environment: str) -> TextWidget:
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
    return build_text(
        f"## Money and capacity of {environment}\n"
        f"{capacity.instance_type}, {capacity.kind}, at most {capacity.nodes} node{'s' * (capacity.nodes > 1)} in "
        f"{capacity.zone}. Price: {_format_price(capacity)} USD per node-hour, read on {capacity.usd_per_hour_date} "
        "and written in the environment's file; nothing here asks AWS for one. "
        f"{_BILL_NOTES[capacity.kind]} {block_note}"
    )


def _build_block_marks(capacity: CapacitySettings) -> tuple[GraphMark, ...]:
    if capacity.block is None:
        return ()
    return (
        GraphMark(label="block starts", moment=_format_moment(capacity.block.starts)),
        GraphMark(label="block ends", moment=_format_moment(capacity.block.ends)),
    )


def _format_moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _format_price(capacity: CapacitySettings) -> str:
    """Return the price as a plain decimal, which metric math and people both read."""
    return f"{capacity.usd_per_hour:.6f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class _CostFigure:
    """One graph of a metric: `formula` over its series, or the series itself, and what the graph says."""

    metric: CloudWatchMetric
    title: str
    unit: str
    sentence: str
    formula: str | None = None
    marks: tuple[GraphMark, ...] = ()
    is_number: bool = False
    width: int = COLUMNS // 3


def _list_node_figures(environment: Environment) -> tuple[_CostFigure, ...]:
    """Return the nodes, their hours and USD: as numbers over the range, and as they add up."""
    capacity = environment.capacity
    price, marks = _format_price(capacity), _build_block_marks(capacity)
    price_note = f"at {price} USD per node-hour of {capacity.usd_per_hour_date}"
    node_marks = (*marks, GraphMark(label="most nodes (capacity.nodes)", value=float(capacity.nodes)))
    budget_marks = (*marks, GraphMark(label="monthly budget (guard.budget_usd)", value=environment.guard.budget_usd))
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
    hours_title, cost_title = "Node-hours since the range began", f"Cost since the range began, {price_note}"
    half = COLUMNS // 2
    return (
        _CostFigure(_NODES, _NODES.title, _NODES.unit, _NODES.sentence, f"n / {PERIOD_S // 60}", node_marks),
        _CostFigure(_NODES, "Node-hours in the range", "hours", hours_sentence, "n / 60", is_number=True),
        _CostFigure(
            _NODES, f"Cost in the range, {price_note}", "USD", cost_sentence, f"n / 60 * {price}", is_number=True
        ),
        _CostFigure(_NODES, hours_title, "hours", hours_sum_sentence, _RUNNING_SUM, marks, width=half),
        _CostFigure(
            _NODES, cost_title, "USD", cost_sum_sentence, f"{_RUNNING_SUM} * {price}", budget_marks, width=half
        ),
    )


def _list_guard_figures(environment: Environment) -> Iterator[_CostFigure]:
    """Yield what each pass of the reaper saw by EC2's own word, Container Insights or not."""
    capacity, guard = environment.capacity, environment.guard
    marks = _build_block_marks(capacity)
    figures: dict[str, tuple[str | None, tuple[GraphMark, ...]]] = {
        "instances_alive": (None, marks),
        "oldest_instance_hours": (None, (GraphMark(label="guard.max_hours", value=float(guard.max_hours)),)),
        "idle_block_minutes": ("RUNNING_SUM(FILL(g, 0)) / 60", marks),
        "fleet_usd": (
            "RUNNING_SUM(FILL(g, 0)) / 1",
            (GraphMark(label="monthly budget (guard.budget_usd)", value=guard.budget_usd),),
        ),
    }
    for name, (formula, figure_marks) in figures.items():
        metric = CLOUDWATCH_METRICS[GUARD, name]
        if name != "idle_block_minutes" or capacity.kind == "capacity-block":
            sentence = metric.sentence.format(price=_format_price(capacity))
            unit = metric.drawn_unit or metric.unit
            yield _CostFigure(metric, metric.title, unit, sentence, formula, figure_marks)


def _build_cost_graph(environment: Environment, figure: _CostFigure) -> GraphWidget:
    metric, color = figure.metric, VARIANT_COLORS[0]
    id_ = "n" if metric is _NODES else "g"
    line = MetricSource(environment, metric.publisher).line(metric.name, metric.statistic, id_=id_, is_visible=True)
    label = figure.title.split(",")[0]
    return GraphWidget(
        title=f"{figure.title} [{figure.unit}]",
        sentence=figure.sentence,
        unit=figure.unit,
        publishers=(metric.publisher,),
        lines=(
            replace(line, label=None, is_visible=False),
            MathExpression(text=figure.formula, label=label, id="drawn", color=color),
        )
        if figure.formula
        else (replace(line, label=label, color=color),),
        marks=figure.marks,
        view="numbers" if figure.is_number else "lines",
        period_s=PERIOD_S,
        varies=False,
        width=figure.width,
    )


def _build_run_graph(scope: MonitoringScope) -> GraphWidget:
    """Return when each experiment was last measured: what its bench published."""
    namespace, unit = names.bench_namespace(scope.environment), find_metric("requests").unit
    searches = {
        member.experiment.name: f'SUM(SEARCH(\'{{"{namespace}",{",".join(BENCH_DIMENSIONS)}}} MetricName="requests" '
        f'Experiment="{member.experiment.name}" PromptClass="{ALL_VALUES}" '
        f"Concurrency=\"{ALL_VALUES}\"', 'Sum', {PERIOD_S}))"
        for member in scope.experiments
    }
    return GraphWidget(
        title=f"Last runs: requests published [{unit}]",
        sentence="Requests of every arm, by experiment, in 5 minutes. The right end of a line is when its last run "
        "ended or its publisher stopped; nodes alive above without a line here are nodes that nobody measures on, "
        "or a compile.",
        unit=unit,
        publishers=(BENCH,),
        lines=tuple(
            MathExpression(
                text=search,
                label=experiment,
                id=f"run{number}",
                color=VARIANT_COLORS[number] if number < len(VARIANT_COLORS) else None,
            )
            for number, (experiment, search) in enumerate(searches.items())
        ),
        period_s=PERIOD_S,
        varies=False,
        width=COLUMNS,
    )
