"""Dashboards with their values put in: all that a page needs to draw them, as plain JSON.

Invariant: every number is what tandem.watch.expression evaluates from the series, to four digits; a graph whose
publisher sent nothing is said to be absent and never drawn empty.

A page has room for so many points. Where the records have more at a graph's own period, every graph has a longer one:
each point then is the statistic of all values of that time, as CloudWatch shows a longer time range. Records of less
than an hour are drawn minute by minute where a graph counts nothing: a quantile of a minute is one as much as that of
five, a count of a minute is another number.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tandem.metrics import EVERY
from tandem.watch.expression import Result, evaluate, overall
from tandem.watch.series import MINUTE_S, Series
from tandem.watch.widget import Dashboard, Expression, Graph, Line, Text, Variable

MOST_POINTS = 60_000  # about 0.8 MB of JSON: a page stays below 2 MB
PERIODS_S = (60, 300, 900, 3600, 21600, 86400)  # CloudWatch's own steps
SHORT_S = 3600  # 12 points of five minutes
_COUNTS = ("Sum", "SampleCount")
_POINTS_OF_A_LINE = 7  # what a line without points takes in JSON, as points
_DIGITS = 4

Choice = tuple[str, ...]
"""One value of each variable of a dashboard, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What there is to draw from.

    Args:
        series: as CloudWatch would hold it.
        publishers: whose metrics the series can hold; graphs of any other are absent.
        elsewhere: metric of these publishers that the series cannot hold -> why, to follow on "not in these records".
        start_s, end_s: of what is drawn, in seconds since 1970.
    """

    series: Series
    publishers: frozenset[str]
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    start_s: int
    end_s: int


def picture(dashboards: Sequence[Dashboard], held: Held) -> dict[str, Any]:
    """Return what the page draws.

    Args:
        dashboards: in their order.
        held: what there is to draw from.

    Raises:
        ExpressionError: an expression of a graph is of no form that is evaluated.
    """
    hues = _Hues()
    for period_s in PERIODS_S:
        drawn = [_dashboard(dashboard, held, period_s, hues) for dashboard in dashboards]
        if _points(drawn) <= MOST_POINTS:
            break
    return {
        "start_s": held.start_s,
        "end_s": held.end_s,
        "notes": list(_notes(dashboards, held, period_s)),
        "dashboards": drawn,
    }


def _notes(dashboards: Sequence[Dashboard], held: Held, period_s: int) -> Iterator[str]:
    """Yield what a reader must know of periods that are not the dashboards' own."""
    graphs = [graph for dashboard in dashboards for graph in dashboard.widgets if isinstance(graph, Graph)]
    own = max((graph.period_s for graph in graphs if graph.view == "lines"), default=MINUTE_S)
    if period_s > own:
        yield (
            f"The records are long: a point is {period_s // MINUTE_S} minutes in every graph, as CloudWatch thins a "
            f"long time range, where the dashboard's own is {own // MINUTE_S}."
        )
    elif any(_finest_s(graph, held) < graph.period_s for graph in graphs):
        yield (
            "The records are of less than an hour, so quantiles are drawn minute by minute; in the deployed dashboard "
            f"a point is {own // MINUTE_S} minutes."
        )


def _points(dashboards: Iterable[dict[str, Any]]) -> int:
    return sum(
        len(line["values"]) + _POINTS_OF_A_LINE
        for dashboard in dashboards
        for widget in dashboard["widgets"]
        for lines in widget.get("lines", {}).values()
        for line in lines
    )


def _dashboard(dashboard: Dashboard, held: Held, period_s: int, hues: _Hues) -> dict[str, Any]:
    measured = _measured(dashboard.variables, held.series)
    choices = sorted(measured, key=lambda choice: _place(dashboard.variables, choice))
    return {
        "name": dashboard.name,
        "title": dashboard.title,
        "variables": [
            {
                "label": variable.label,
                "values": [{"value": value, "listed": value in variable.values} for value in _values(variable, column)],
            }
            for variable, column in _columns(dashboard.variables, measured)
        ],
        "chosen": choices[0] if choices else [variable.values[0] for variable in dashboard.variables],
        "widgets": [
            _text(widget)
            if isinstance(widget, Text)
            else _graph(widget, dashboard.variables, choices, (held, period_s, hues))
            for widget in dashboard.widgets
        ],
    }


def _measured(variables: Sequence[Variable], series: Series) -> set[Choice]:
    """Return the choices of which the series hold anything."""
    found = set()
    for key in series.metrics():
        values = dict(key.dimensions)
        choice = tuple(values.get(variable.dimension, "") for variable in variables)
        pools_all = bool(variables) and all(value == EVERY for value in choice)  # what alarms read
        if all(choice) and not pools_all:
            found.add(choice)
    return found if variables else set()


def _columns(variables: Sequence[Variable], measured: Collection[Choice]) -> Iterator[tuple[Variable, set[str]]]:
    for place, variable in enumerate(variables):
        yield variable, {choice[place] for choice in measured}


def _values(variable: Variable, measured: Collection[str]) -> list[str]:
    """Return what is offered: the variable's own values, then what else was measured."""
    return [*variable.values, *sorted(set(measured) - set(variable.values))]


def _place(variables: Sequence[Variable], choice: Choice) -> list[tuple[int, str]]:
    def place(variable: Variable, value: str) -> tuple[int, str]:
        return (variable.values.index(value) if value in variable.values else len(variable.values), value)

    return [place(variable, value) for variable, value in zip(variables, choice, strict=True)]


def _text(text: Text) -> dict[str, Any]:
    return {"kind": "text", "markdown": text.markdown, "width": text.width}


def _graph(
    graph: Graph, variables: Sequence[Variable], choices: Sequence[Choice], context: tuple[Held, int, _Hues]
) -> dict[str, Any]:
    held, period_s, hues = context
    longest_s = max(period_s, _finest_s(graph, held))
    said = {
        "kind": graph.view,
        "title": graph.title,
        "sentence": graph.sentence,
        "unit": graph.unit,
        "publishers": list(graph.publishers),
        "width": graph.width,
        "period_s": longest_s,
        "varies": graph.varies and bool(variables),
    }
    why = _absent(graph, held)
    if why is not None:
        return said | {"kind": "absent", "why": why}
    marks = [{"label": mark.label, "value": mark.value, "at": mark.at} for mark in graph.marks]
    wanted = choices if said["varies"] else [()]
    lines = {
        "\n".join(choice): list(_lines(_with(graph, variables, choice), held, longest_s, hues)) for choice in wanted
    }
    return said | {"marks": marks, "lines": {choice: drawn for choice, drawn in lines.items() if _any(drawn)}}


def _absent(graph: Graph, held: Held) -> str | None:
    """Return why nothing of a graph can be drawn, empty where its publisher says it all; None where it can."""
    if not held.publishers.issuperset(graph.publishers):
        return ""
    metrics = [line.metric for line in graph.lines if isinstance(line, Line)]
    reasons = [held.elsewhere[metric] for metric in metrics if metric in held.elsewhere]
    return reasons[0] if reasons and len(reasons) == len(graph.lines) else None


def _finest_s(graph: Graph, held: Held) -> int:
    """Return the shortest period that says of these records what the graph says."""
    counts = any(
        line.statistic in _COUNTS if isinstance(line, Line) else any(f"'{count}'" in line.text for count in _COUNTS)
        for line in graph.lines
    )
    return graph.period_s if counts or held.end_s - held.start_s > SHORT_S else MINUTE_S


def _any(lines: Iterable[dict[str, Any]]) -> bool:
    return any(line["values"] or line["whole"] is not None for line in lines)


def _with(graph: Graph, variables: Sequence[Variable], choice: Choice) -> Graph:
    """Return the graph with the chosen values in the place of the variables' first."""
    lines = graph.lines
    for variable, value in zip(variables, choice, strict=False):
        lines = tuple(_chosen(line, variable, value) for line in lines)
    return replace(graph, lines=lines)


def _chosen(line: Line | Expression, variable: Variable, value: str) -> Line | Expression:
    first = variable.values[0]
    if isinstance(line, Line):
        named = ((name, value if (name, old) == (variable.dimension, first) else old) for name, old in line.dimensions)
        return replace(line, dimensions=tuple(named))
    wanted = value.replace("\\", "\\\\").replace('"', '\\"')
    return replace(line, text=line.text.replace(f'{variable.dimension}="{first}"', f'{variable.dimension}="{wanted}"'))


def _lines(graph: Graph, held: Held, period_s: int, hues: _Hues) -> Iterator[dict[str, Any]]:
    """Yield each shown line: its looks, its value over the whole time, and its points by number of the period."""
    dashes: dict[int, int] = {}
    for line in graph.lines:
        if not line.shown:
            continue
        alone = [other if other is line else replace(other, shown=False) for other in graph.lines]
        span = (held.series, held.start_s, held.end_s, period_s)
        drawn = evaluate(alone, *span) if graph.view == "lines" else ()
        whole = overall(alone, held.series, held.start_s, held.end_s)
        for place, result in enumerate(drawn or whole):
            hue = hues.of(line, result)
            dashes[hue] = dashes.get(hue, -1) + 1
            yield {
                "label": result.label,
                "hue": hue,
                "dash": dashes[hue],
                "whole": next((_short(value) for _, value in whole[place].points), None),
                **_written(result if drawn else Result("", ()), held.start_s - held.start_s % period_s, period_s),
            }


def _written(result: Result, start_s: int, period_s: int) -> dict[str, Any]:
    return {
        "periods": [(at_s - start_s) // period_s for at_s, _ in result.points],
        "values": [_short(value) for _, value in result.points],
    }


def _short(value: float) -> float:
    """Return a number to four digits: as exact as what is published, and short in JSON."""
    if not value:
        return 0
    rounded = round(value, _DIGITS - 1 - math.floor(math.log10(abs(value))))
    return int(rounded) if rounded.is_integer() else rounded


class _Hues:
    """One hue for each arm, the same in all graphs; what is of no arm has one by its label."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def of(self, line: Line | Expression, result: Result) -> int:
        """Return the number of a line's hue, in the order in which hues are first met."""
        arm = dict(line.dimensions).get("Variant") if isinstance(line, Line) else None
        return self._seen.setdefault(line.color or arm or result.label, len(self._seen))
