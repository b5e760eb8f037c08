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
    CONTAINER_INSIGHTS,
    GUARD,
    LOG_FILTER,
    find_metric,
)
from tandem.monitoring.dashboard_arms import PERIOD_S, VARIANT_COLORS
from tandem.monitoring.layout import COLUMNS, build_text
from tandem.monitoring.metric_source import MetricSource, is_published
from tandem.monitoring.scope import MonitoringScope
from tandem.monitoring.widget import (
    Dashboard,
    GraphMark,
    GraphWidget,
    MathExpression,
    MetricLine,
    TextWidget,
)
from tandem.spec import names
from tandem.spec.environment import CapacitySettings, Environment

TIME_RANGE = "-P7D"
_NODES = "accelerator_nodes"


def build_cost_dashboard(scope: MonitoringScope) -> Dashboard:
    """Return the dashboard of an environment's money and capacity."""
    environment = scope.environment
    has_node_counts = environment.observability.container_insights and is_published(LOG_FILTER, _NODES)
    return Dashboard(
        name=names.dashboard_name(environment, "money"),
        title=f"{environment.name}: money and capacity",
        widgets=(
            _build_header(environment.capacity, environment.name),
            *(_build_cost_graphs(environment) if has_node_counts else (_build_absence_note(),)),
            *_build_guard_graphs(environment),
            *_build_run_graphs(scope),
            _build_omission_note(environment),
        ),
        start=TIME_RANGE,
    )


def _build_header(capacity: CapacitySettings, environment: str) -> TextWidget:
    payment_note = {
        "capacity-block": "A Capacity Block is paid when it is bought, whether nodes run or not: USD below is what the "
        "hours that were used are worth, not the bill.",
        "reservation": "A reservation is paid whether nodes run or not: USD below is what the hours that were used are "
        "worth, not the bill.",
        "spot": "A spot price moves: USD below is at the stated one, not the bill.",
        "on-demand": "USD below is the nodes alone: control plane, system nodes, network and storage are not in it.",
    }[capacity.kind]
    return build_text(
        f"## Money and capacity of {environment}\n"
        f"{capacity.instance_type}, {capacity.kind}, at most {capacity.nodes} node{'s' * (capacity.nodes > 1)} in "
        f"{capacity.zone}. Price: {_format_price(capacity)} USD per node-hour, read on "
        f"{capacity.usd_per_hour_date} and "
        f"written in the environment's file; nothing here asks AWS for one. {payment_note} {_describe_block(capacity)}"
    )


def _describe_block(capacity: CapacitySettings) -> str:
    if capacity.kind != "capacity-block":
        return "There is no Capacity Block, so no start and no end are marked."
    if capacity.awaits_reservation:
        return "No Capacity Block is bought yet (`capacity.reservation_id`), so there are no nodes."
    if capacity.block is None:
        return "Start and end of the block are not stated (`capacity.block`), so nothing is marked."
    return (
        f"Block {capacity.reservation_id}: from {_format_moment(capacity.block.starts)} to "
        f"{_format_moment(capacity.block.ends)}. "
        "EC2 ends its instances by itself. Both are marked where the range that is looked at holds them."
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _CostFigure:
    """One graph of the accelerator nodes: `formula` over `n`, their minutes in a period, and what it says."""

    title: str
    unit: str
    formula: str
    sentence: str
    marks: tuple[GraphMark, ...] = ()
    is_number: bool = False
    width: int = COLUMNS // 3


def _build_cost_graphs(environment: Environment) -> tuple[GraphWidget, ...]:
    """Return the nodes, their hours and USD: as numbers over the range, and as they add up."""
    return tuple(_build_cost_graph(environment, figure) for figure in _list_cost_figures(environment))


def _list_cost_figures(environment: Environment) -> tuple[_CostFigure, ...]:
    capacity = environment.capacity
    price, marks = _format_price(capacity), _build_block_marks(capacity)
    price_note = f"at {price} USD per node-hour of {capacity.usd_per_hour_date}"
    hours_formula = "RUNNING_SUM(FILL(n, 0)) / 60"
    return (
        _CostFigure(
            title="Accelerator nodes alive",
            unit="nodes",
            formula=f"n / {PERIOD_S // 60}",
            sentence="Nodes whose agent wrote its event, mean of 5 minutes: 0.8 is one node that missed a "
            "minute. A node "
            "whose agent is dead costs money and is not seen: EC2's console is the last word.",
            marks=(*marks, GraphMark(label="most nodes (capacity.nodes)", value=float(capacity.nodes))),
        ),
        _CostFigure(
            title="Node-hours in the range",
            unit="hours",
            formula="n / 60",
            sentence="Minutes in which a node was seen, over the whole range that is looked at. Not the hours "
            "billed: EC2 "
            "bills from launch, before the agent writes.",
            is_number=True,
        ),
        _CostFigure(
            title=f"Cost in the range, {price_note}",
            unit="USD",
            formula=f"n / 60 * {price}",
            sentence="The node-hours beside it, times that price. Choose the range of one run to see what it "
            "cost. No bill "
            "is read, and nothing but accelerator nodes is in it.",
            is_number=True,
        ),
        _CostFigure(
            title="Node-hours since the range began",
            unit="hours",
            formula=hours_formula,
            sentence="The same hours as they add up from the left edge: flat is no node. A slope in hours in "
            "which nobody "
            "measures is money burnt.",
            marks=marks,
            width=COLUMNS // 2,
        ),
        _CostFigure(
            title=f"Cost since the range began, {price_note}",
            unit="USD",
            formula=f"{hours_formula} * {price}",
            sentence="Adds up from the left edge, so it meets the monthly budget's line only in a range of that "
            "month. It "
            "is no bill, and stops nothing.",
            marks=(*marks, GraphMark(label="monthly budget (guard.budget_usd)", value=environment.guard.budget_usd)),
            width=COLUMNS // 2,
        ),
    )


def _build_cost_graph(environment: Environment, figure: _CostFigure) -> GraphWidget:
    return GraphWidget(
        title=f"{figure.title} [{figure.unit}]",
        sentence=figure.sentence,
        unit=figure.unit,
        publishers=(LOG_FILTER,),
        lines=(
            replace(MetricSource(environment, LOG_FILTER, {}).line(_NODES, "Sum", id_="n"), label=None),
            MathExpression(text=figure.formula, label=figure.title.split(",")[0], id="drawn", color=VARIANT_COLORS[0]),
        ),
        marks=figure.marks,
        view="numbers" if figure.is_number else "lines",
        period_s=PERIOD_S,
        varies=False,
        width=figure.width,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _GuardFigure:
    """One graph of what the guard sent: the metric, or `formula` over `g`, and what it says."""

    title: str
    unit: str
    metric: str
    statistic: str
    sentence: str
    formula: str | None = None
    marks: tuple[GraphMark, ...] = ()


def _build_guard_graphs(environment: Environment) -> tuple[GraphWidget, ...]:
    """Return what each pass of the reaper saw by EC2's own word, Container Insights or not."""
    figures = tuple(_list_guard_figures(environment))
    width = COLUMNS // len(figures)
    return tuple(_build_guard_graph(environment, figure, width) for figure in figures)


def _list_guard_figures(environment: Environment) -> Iterator[_GuardFigure]:
    capacity, guard = environment.capacity, environment.guard
    yield _GuardFigure(
        title="Instances that EC2 lists",
        unit="instances",
        metric="instances_alive",
        statistic="Maximum",
        sentence="What the reaper counted, every 5 minutes; also nodes that never joined the cluster. A gap is "
        "a reaper "
        "that did not run or could not see.",
        marks=_build_block_marks(capacity),
    )
    yield _GuardFigure(
        title="Age of the oldest instance",
        unit="hours",
        metric="oldest_instance_hours",
        statistic="Maximum",
        sentence="Since its launch. At the line the reaper stops the fleet.",
        marks=(GraphMark(label="guard.max_hours", value=float(guard.max_hours)),),
    )
    if capacity.kind == "capacity-block":
        yield _GuardFigure(
            title="Idle hours of the block since the range began",
            unit="hours",
            metric="idle_block_minutes",
            statistic="Maximum",
            formula="RUNNING_SUM(FILL(g, 0)) / 60",
            sentence="Paid for, and nothing ran under a lease. Adds up from the left edge.",
            marks=_build_block_marks(capacity),
        )
    yield _GuardFigure(
        title="Cost of what EC2 listed since the range began",
        unit="USD",
        metric="fleet_usd",
        statistic="Maximum",
        formula="RUNNING_SUM(FILL(g, 0)) / 1",
        sentence=f"Instances of each pass, 5 minutes at {_format_price(capacity)} USD an hour. Adds up from the "
        "left edge; no "
        "bill.",
        marks=(GraphMark(label="monthly budget (guard.budget_usd)", value=guard.budget_usd),),
    )


def _build_guard_graph(environment: Environment, figure: _GuardFigure, width: int) -> GraphWidget:
    line = MetricSource(environment, GUARD, {}).line(
        figure.metric, figure.statistic, id_="g", is_visible=figure.formula is None
    )
    lines: tuple[MetricLine | MathExpression, ...] = (replace(line, label=figure.title, color=VARIANT_COLORS[0]),)
    if figure.formula:
        lines = (
            replace(line, label=None),
            MathExpression(text=figure.formula, label=figure.title, id="drawn", color=VARIANT_COLORS[0]),
        )
    return GraphWidget(
        title=f"{figure.title} [{figure.unit}]",
        sentence=figure.sentence,
        unit=figure.unit,
        publishers=(GUARD,),
        lines=lines,
        marks=figure.marks,
        period_s=PERIOD_S,
        varies=False,
        width=width,
    )


def _build_absence_note() -> TextWidget:
    return build_text(
        "**Nodes, hours and USD are not drawn**: they are counted in the log of Container Insights, and "
        "`observability.container_insights` is false in this environment. EC2's console shows what runs."
        f" (`{CONTAINER_INSIGHTS}`, `{LOG_FILTER}`)"
    )


def _build_run_graphs(scope: MonitoringScope) -> tuple[GraphWidget, ...]:
    """Return when each experiment was last measured: what its bench published."""
    bench_namespace = names.bench_namespace(scope.environment)
    unit = find_metric("requests").unit
    searches = {
        experiment_scope.experiment.name: f'SUM(SEARCH(\'{{"{bench_namespace}",{",".join(BENCH_DIMENSIONS)}}} '
        'MetricName="requests" '
        f'Experiment="{experiment_scope.experiment.name}" PromptClass="{ALL_VALUES}" '
        f"Concurrency=\"{ALL_VALUES}\"', 'Sum', "
        f"{PERIOD_S}))"
        for experiment_scope in scope.experiments
    }
    return (
        GraphWidget(
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
        ),
    )


def _build_omission_note(environment: Environment) -> TextWidget:
    limit_usd = f"{environment.observability.monthly_limit_usd:g}"
    return build_text(
        "### What is not drawn\n"
        "- **The bill**: AWS Billing knows it, hours late.\n"
        "- **What watching itself costs** (metrics, dashboards, alarms, logs): `tandem check` computes it from the "
        f"catalogue and dated prices, and refuses more than {limit_usd} USD a month "
        "(`observability.monthly_limit_usd`)."
    )
