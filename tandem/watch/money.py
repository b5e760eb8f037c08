"""The dashboard of money and capacity: nodes that cost, what they cost so far, and when the last run was.

Invariant: USD are node-minutes that were seen, times the price that the environment states with its date; no bill is
read, and what nobody sends yet is said in words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tandem.metrics import BENCH, BENCH_DIMENSIONS, CONTAINER_INSIGHTS, EVERY, LOG_FILTER, metric
from tandem.spec import names
from tandem.spec.environment import Capacity, Environment
from tandem.watch.compared import PERIOD_S, VARIANT_COLORS
from tandem.watch.layout import COLUMNS, text
from tandem.watch.scope import Scope
from tandem.watch.source import Cell, sent
from tandem.watch.widget import Dashboard, Expression, Graph, Mark, Text

START = "-P7D"
_NODES = "accelerator_nodes"


def dashboard(scope: Scope) -> Dashboard:
    """Return the dashboard of an environment's money and capacity."""
    environment = scope.environment
    counted = environment.observability.container_insights and sent(LOG_FILTER, _NODES)
    return Dashboard(
        name=names.dashboard(environment, "money"),
        title=f"{environment.name}: money and capacity",
        widgets=(
            _head(environment.capacity, environment.name),
            *(_spent(environment) if counted else (_uncounted(),)),
            *_runs(scope),
            _unsaid(environment),
        ),
        start=START,
    )


def _head(capacity: Capacity, environment: str) -> Text:
    bought = {
        "capacity-block": "A Capacity Block is paid when it is bought, whether nodes run or not: USD below is what the "
        "hours that were used are worth, not the bill.",
        "reservation": "A reservation is paid whether nodes run or not: USD below is what the hours that were used are "
        "worth, not the bill.",
        "spot": "A spot price moves: USD below is at the stated one, not the bill.",
        "on-demand": "USD below is the nodes alone: control plane, system nodes, network and storage are not in it.",
    }[capacity.kind]
    return text(
        f"## Money and capacity of {environment}\n"
        f"{capacity.instance_type}, {capacity.kind}, at most {capacity.nodes} node{'s' * (capacity.nodes > 1)} in "
        f"{capacity.zone}. Price: {_price(capacity)} USD per node-hour, read on {capacity.usd_per_hour_date} and "
        f"written in the environment's file; nothing here asks AWS for one. {bought} {_block(capacity)}"
    )


def _block(capacity: Capacity) -> str:
    if capacity.kind != "capacity-block":
        return "There is no Capacity Block, so no start and no end are marked."
    if capacity.awaits_reservation:
        return "No Capacity Block is bought yet (`capacity.reservation_id`), so there are no nodes."
    if capacity.block is None:
        return "Start and end of the block are not stated (`capacity.block`), so nothing is marked."
    return (
        f"Block {capacity.reservation_id}: from {_moment(capacity.block.starts)} to {_moment(capacity.block.ends)}. "
        "EC2 ends its instances by itself. Both are marked where the range that is looked at holds them."
    )


def _marks(capacity: Capacity) -> tuple[Mark, ...]:
    if capacity.block is None:
        return ()
    return (
        Mark(label="block starts", at=_moment(capacity.block.starts)),
        Mark(label="block ends", at=_moment(capacity.block.ends)),
    )


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _price(capacity: Capacity) -> str:
    """Return the price as a plain decimal, which metric math and people both read."""
    return f"{capacity.usd_per_hour:.6f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    """One graph of the accelerator nodes: `formula` over `n`, their minutes in a period, and what it says."""

    title: str
    unit: str
    formula: str
    says: str
    marks: tuple[Mark, ...] = ()
    numbers: bool = False
    width: int = COLUMNS // 3


def _spent(environment: Environment) -> tuple[Graph, ...]:
    """Return the nodes, their hours and USD: as numbers over the range, and as they add up."""
    return tuple(_graph(environment, figure) for figure in _figures(environment))


def _figures(environment: Environment) -> tuple[_Figure, ...]:
    capacity = environment.capacity
    price, marks = _price(capacity), _marks(capacity)
    at = f"at {price} USD per node-hour of {capacity.usd_per_hour_date}"
    hours = "RUNNING_SUM(FILL(n, 0)) / 60"
    return (
        _Figure(
            title="Accelerator nodes alive",
            unit="nodes",
            formula=f"n / {PERIOD_S // 60}",
            says="Nodes whose agent wrote its event, mean of 5 minutes: 0.8 is one node that missed a minute. A node "
            "whose agent is dead costs money and is not seen: EC2's console is the last word.",
            marks=(*marks, Mark(label="most nodes (capacity.nodes)", value=float(capacity.nodes))),
        ),
        _Figure(
            title="Node-hours in the range",
            unit="hours",
            formula="n / 60",
            says="Minutes in which a node was seen, over the whole range that is looked at. Not the hours billed: EC2 "
            "bills from launch, before the agent writes.",
            numbers=True,
        ),
        _Figure(
            title=f"Cost in the range, {at}",
            unit="USD",
            formula=f"n / 60 * {price}",
            says="The node-hours beside it, times that price. Choose the range of one run to see what it cost. No bill "
            "is read, and nothing but accelerator nodes is in it.",
            numbers=True,
        ),
        _Figure(
            title="Node-hours since the range began",
            unit="hours",
            formula=hours,
            says="The same hours as they add up from the left edge: flat is no node. A slope in hours in which nobody "
            "measures is money burnt.",
            marks=marks,
            width=COLUMNS // 2,
        ),
        _Figure(
            title=f"Cost since the range began, {at}",
            unit="USD",
            formula=f"{hours} * {price}",
            says="Adds up from the left edge, so it meets the monthly budget's line only in a range of that month. It "
            "is no bill, and stops nothing.",
            marks=(*marks, Mark(label="monthly budget (guard.budget_usd)", value=environment.guard.budget_usd)),
            width=COLUMNS // 2,
        ),
    )


def _graph(environment: Environment, figure: _Figure) -> Graph:
    return Graph(
        title=f"{figure.title} [{figure.unit}]",
        sentence=figure.says,
        unit=figure.unit,
        publishers=(LOG_FILTER,),
        lines=(
            replace(Cell(environment, LOG_FILTER, {}).line(_NODES, "Sum", id_="n"), label=None),
            Expression(text=figure.formula, label=figure.title.split(",")[0], id="drawn", color=VARIANT_COLORS[0]),
        ),
        marks=figure.marks,
        view="numbers" if figure.numbers else "lines",
        period_s=PERIOD_S,
        varies=False,
        width=figure.width,
    )


def _uncounted() -> Text:
    return text(
        "**Nodes, hours and USD are not drawn**: they are counted in the log of Container Insights, and "
        "`observability.container_insights` is false in this environment. EC2's console shows what runs."
        f" (`{CONTAINER_INSIGHTS}`, `{LOG_FILTER}`)"
    )


def _runs(scope: Scope) -> tuple[Graph, ...]:
    """Return when each experiment was last measured: what its bench published."""
    space = names.bench_namespace(scope.environment)
    unit = metric("requests").unit
    found = {
        watching.experiment.name: f'SUM(SEARCH(\'{{"{space}",{",".join(BENCH_DIMENSIONS)}}} MetricName="requests" '
        f'Experiment="{watching.experiment.name}" PromptClass="{EVERY}" Concurrency="{EVERY}"\', \'Sum\', '
        f"{PERIOD_S}))"
        for watching in scope.experiments
    }
    return (
        Graph(
            title=f"Last runs: requests published [{unit}]",
            sentence="Requests of every arm, by experiment, in 5 minutes. The right end of a line is when its last run "
            "ended or its publisher stopped; nodes alive above without a line here are nodes that nobody measures on, "
            "or a compile.",
            unit=unit,
            publishers=(BENCH,),
            lines=tuple(
                Expression(
                    text=search,
                    label=experiment,
                    id=f"run{number}",
                    color=VARIANT_COLORS[number] if number < len(VARIANT_COLORS) else None,
                )
                for number, (experiment, search) in enumerate(found.items())
            ),
            period_s=PERIOD_S,
            varies=False,
            width=COLUMNS,
        ),
    )


def _unsaid(environment: Environment) -> Text:
    limit = f"{environment.observability.monthly_limit_usd:g}"
    return text(
        "### What is not drawn\n"
        "- **Age of the fleet, and blocks that lie idle**: nobody sends them yet.\n"
        "- **The bill**: AWS Billing knows it, hours late.\n"
        "- **What watching itself costs** (metrics, dashboards, alarms, logs): `tandem check` computes it from the "
        f"catalogue and dated prices, and refuses more than {limit} USD a month "
        "(`observability.monthly_limit_usd`)."
    )
