"""The dashboard of money and capacity: nodes that cost, what they cost so far, and when the last run was.

Invariant: USD are node-minutes that were seen, times the price that the environment states with its date; no bill is
read, and what nobody sends yet is said in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tandem.metrics import BENCH, BENCH_DIMENSIONS, CONTAINER_INSIGHTS, EVERY, GUARD, LOG_FILTER, metric
from tandem.spec import names
from tandem.spec.environment import Capacity, Environment
from tandem.watch.compared import PERIOD_S, VARIANT_COLORS
from tandem.watch.layout import COLUMNS, text
from tandem.watch.scope import Scope
from tandem.watch.source import Cell, sent
from tandem.watch.widget import Dashboard, Expression, Graph, Line, Mark, Text

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
            *_guarded(environment),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """One graph of what the guard sent: the metric, or `formula` over `g`, and what it says."""

    title: str
    unit: str
    metric: str
    statistic: str
    says: str
    formula: str | None = None
    marks: tuple[Mark, ...] = ()


def _guarded(environment: Environment) -> tuple[Graph, ...]:
    """Return what each pass of the reaper saw by EC2's own word, Container Insights or not."""
    looks = tuple(_looks(environment))
    width = COLUMNS // len(looks)
    return tuple(_look(environment, look, width) for look in looks)


def _looks(environment: Environment) -> Iterator[_Look]:
    capacity, guard = environment.capacity, environment.guard
    yield _Look(
        title="Instances that EC2 lists",
        unit="instances",
        metric="instances_alive",
        statistic="Maximum",
        says="What the reaper counted, every 5 minutes; also nodes that never joined the cluster. A gap is a reaper "
        "that did not run or could not see.",
        marks=_marks(capacity),
    )
    yield _Look(
        title="Age of the oldest instance",
        unit="hours",
        metric="oldest_instance_hours",
        statistic="Maximum",
        says="Since its launch. At the line the reaper stops the fleet.",
        marks=(Mark(label="guard.max_hours", value=float(guard.max_hours)),),
    )
    if capacity.kind == "capacity-block":
        yield _Look(
            title="Idle hours of the block since the range began",
            unit="hours",
            metric="idle_block_minutes",
            statistic="Maximum",
            formula="RUNNING_SUM(FILL(g, 0)) / 60",
            says="Paid for, and nothing ran under a lease. Adds up from the left edge.",
            marks=_marks(capacity),
        )
    yield _Look(
        title="Cost of what EC2 listed since the range began",
        unit="USD",
        metric="fleet_usd",
        statistic="Maximum",
        formula="RUNNING_SUM(FILL(g, 0)) / 1",
        says=f"Instances of each pass, 5 minutes at {_price(capacity)} USD an hour. Adds up from the left edge; no "
        "bill.",
        marks=(Mark(label="monthly budget (guard.budget_usd)", value=guard.budget_usd),),
    )


def _look(environment: Environment, look: _Look, width: int) -> Graph:
    line = Cell(environment, GUARD, {}).line(look.metric, look.statistic, id_="g", shown=look.formula is None)
    drawn: tuple[Line | Expression, ...] = (replace(line, label=look.title, color=VARIANT_COLORS[0]),)
    if look.formula:
        drawn = (
            replace(line, label=None),
            Expression(text=look.formula, label=look.title, id="drawn", color=VARIANT_COLORS[0]),
        )
    return Graph(
        title=f"{look.title} [{look.unit}]",
        sentence=look.says,
        unit=look.unit,
        publishers=(GUARD,),
        lines=drawn,
        marks=look.marks,
        period_s=PERIOD_S,
        varies=False,
        width=width,
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
        "- **The bill**: AWS Billing knows it, hours late.\n"
        "- **What watching itself costs** (metrics, dashboards, alarms, logs): `tandem check` computes it from the "
        f"catalogue and dated prices, and refuses more than {limit} USD a month "
        "(`observability.monthly_limit_usd`)."
    )
