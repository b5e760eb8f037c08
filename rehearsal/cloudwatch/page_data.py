"""Dashboards with their values put in: all that a page needs to draw them, as plain JSON.

Invariant: every number is what rehearsal.cloudwatch.expression evaluates from the series, to four digits; a graph whose
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

from rehearsal.cloudwatch.expression import LineResult, evaluate_periods, evaluate_range
from rehearsal.cloudwatch.series_store import MINUTE_S, SeriesStore
from tandem.metrics import ALL_VALUES
from tandem.monitoring.widget import (
    Dashboard,
    DashboardVariable,
    GraphWidget,
    MathExpression,
    MetricLine,
    TextWidget,
)

MAX_POINTS = 60_000  # about 0.8 MB of JSON: a page stays below 2 MB
PERIODS_S = (60, 300, 900, 3600, 21600, 86400)  # CloudWatch's own steps
SHORT_RANGE_S = 3600  # 12 points of five minutes
_COUNT_STATISTICS = ("Sum", "SampleCount")
_POINTS_PER_LINE = 7  # what a line without points takes in JSON, as points
_SIGNIFICANT_DIGITS = 4

Choice = tuple[str, ...]
"""One value of each variable of a dashboard, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSource:
    """What there is to draw from.

    Args:
        series: as CloudWatch would hold it.
        publishers: whose metrics the series can hold; graphs of any other are absent.
        absence_reasons: metric of these publishers that the series cannot hold -> why, to follow on "not in these
            records".
        start_s, end_s: of what is drawn, in seconds since 1970.
    """

    series: SeriesStore
    publishers: frozenset[str]
    absence_reasons: Mapping[str, str] = field(default_factory=dict)
    start_s: int
    end_s: int


def build_page_data(dashboards: Sequence[Dashboard], source: PageSource) -> dict[str, Any]:
    """Return what the page draws.

    Args:
        dashboards: in their order.
        source: what there is to draw from.

    Raises:
        ExpressionError: an expression of a graph is of no form that is evaluated.
    """
    hues = _HueTable()
    for period_s in PERIODS_S:
        dashboard_data = [_build_dashboard_data(dashboard, source, period_s, hues) for dashboard in dashboards]
        if _count_points(dashboard_data) <= MAX_POINTS:
            break
    return {
        "start_s": source.start_s,
        "end_s": source.end_s,
        "notes": list(_list_period_notes(dashboards, source, period_s)),
        "dashboards": dashboard_data,
    }


def _list_period_notes(dashboards: Sequence[Dashboard], source: PageSource, period_s: int) -> Iterator[str]:
    """Yield what a reader must know of periods that are not the dashboards' own."""
    graphs = [graph for dashboard in dashboards for graph in dashboard.widgets if isinstance(graph, GraphWidget)]
    dashboard_period_s = max((graph.period_s for graph in graphs if graph.view == "lines"), default=MINUTE_S)
    if period_s > dashboard_period_s:
        yield (
            f"The records are long: a point is {period_s // MINUTE_S} minutes in every graph, as CloudWatch thins a "
            f"long time range, where the dashboard's own is {dashboard_period_s // MINUTE_S}."
        )
    elif any(_find_shortest_period_s(graph, source) < graph.period_s for graph in graphs):
        yield (
            "The records are of less than an hour, so quantiles are drawn minute by minute; in the deployed dashboard "
            f"a point is {dashboard_period_s // MINUTE_S} minutes."
        )


def _count_points(dashboards: Iterable[dict[str, Any]]) -> int:
    return sum(
        len(line["values"]) + _POINTS_PER_LINE
        for dashboard in dashboards
        for widget in dashboard["widgets"]
        for lines in widget.get("lines", {}).values()
        for line in lines
    )


def _build_dashboard_data(dashboard: Dashboard, source: PageSource, period_s: int, hues: _HueTable) -> dict[str, Any]:
    measured_choices = _find_choices(dashboard.variables, source.series)
    choices = sorted(measured_choices, key=lambda choice: _order_choice(dashboard.variables, choice))
    return {
        "name": dashboard.name,
        "title": dashboard.title,
        "variables": [
            {
                "label": variable.label,
                "values": [
                    {"value": value, "listed": value in variable.values} for value in _list_values(variable, column)
                ],
            }
            for variable, column in _split_columns(dashboard.variables, measured_choices)
        ],
        "chosen": choices[0] if choices else [variable.values[0] for variable in dashboard.variables],
        "widgets": [
            _build_text_data(widget)
            if isinstance(widget, TextWidget)
            else _build_graph_data(widget, dashboard.variables, choices, (source, period_s, hues))
            for widget in dashboard.widgets
        ],
    }


def _find_choices(variables: Sequence[DashboardVariable], series: SeriesStore) -> set[Choice]:
    """Return the choices of which the series hold anything."""
    choices = set()
    for key in series.metrics():
        values = dict(key.dimensions)
        choice = tuple(values.get(variable.dimension, "") for variable in variables)
        is_pool = bool(variables) and all(value == ALL_VALUES for value in choice)  # what alarms read
        if all(choice) and not is_pool:
            choices.add(choice)
    return choices if variables else set()


def _split_columns(
    variables: Sequence[DashboardVariable], choices: Collection[Choice]
) -> Iterator[tuple[DashboardVariable, set[str]]]:
    for index, variable in enumerate(variables):
        yield variable, {choice[index] for choice in choices}


def _list_values(variable: DashboardVariable, column_values: Collection[str]) -> list[str]:
    """Return what is offered: the variable's own values, then what else was measured."""
    return [*variable.values, *sorted(set(column_values) - set(variable.values))]


def _order_choice(variables: Sequence[DashboardVariable], choice: Choice) -> list[tuple[int, str]]:
    def order_value(variable: DashboardVariable, value: str) -> tuple[int, str]:
        return (variable.values.index(value) if value in variable.values else len(variable.values), value)

    return [order_value(variable, value) for variable, value in zip(variables, choice, strict=True)]


def _build_text_data(text: TextWidget) -> dict[str, Any]:
    return {"kind": "text", "markdown": text.markdown, "width": text.width}


def _build_graph_data(
    graph: GraphWidget,
    variables: Sequence[DashboardVariable],
    choices: Sequence[Choice],
    context: tuple[PageSource, int, _HueTable],
) -> dict[str, Any]:
    source, period_s, hues = context
    graph_period_s = max(period_s, _find_shortest_period_s(graph, source))
    graph_data = {
        "kind": graph.view,
        "title": graph.title,
        "sentence": graph.sentence,
        "unit": graph.unit,
        "publishers": list(graph.publishers),
        "width": graph.width,
        "period_s": graph_period_s,
        "varies": graph.varies and bool(variables),
    }
    reason = _explain_absence(graph, source)
    if reason is not None:
        return graph_data | {"kind": "absent", "why": reason}
    marks = [{"label": mark.label, "value": mark.value, "at": mark.moment} for mark in graph.marks]
    graph_choices = choices if graph_data["varies"] else [()]
    lines = {
        "\n".join(choice): list(_build_line_data(_apply_choice(graph, variables, choice), source, graph_period_s, hues))
        for choice in graph_choices
    }
    return graph_data | {
        "marks": marks,
        "lines": {choice: choice_lines for choice, choice_lines in lines.items() if _has_points(choice_lines)},
    }


def _explain_absence(graph: GraphWidget, source: PageSource) -> str | None:
    """Return why nothing of a graph can be drawn, empty where its publisher says it all; None where it can."""
    if not source.publishers.issuperset(graph.publishers):
        return ""
    metrics = [line.metric for line in graph.lines if isinstance(line, MetricLine)]
    reasons = [source.absence_reasons[metric] for metric in metrics if metric in source.absence_reasons]
    return reasons[0] if reasons and len(reasons) == len(graph.lines) else None


def _find_shortest_period_s(graph: GraphWidget, source: PageSource) -> int:
    """Return the shortest period that says of these records what the graph says."""
    counts = any(
        line.statistic in _COUNT_STATISTICS
        if isinstance(line, MetricLine)
        else any(f"'{count}'" in line.text for count in _COUNT_STATISTICS)
        for line in graph.lines
    )
    return graph.period_s if counts or source.end_s - source.start_s > SHORT_RANGE_S else MINUTE_S


def _has_points(lines: Iterable[dict[str, Any]]) -> bool:
    return any(line["values"] or line["whole"] is not None for line in lines)


def _apply_choice(graph: GraphWidget, variables: Sequence[DashboardVariable], choice: Choice) -> GraphWidget:
    """Return the graph with the chosen values in the place of the variables' first."""
    lines = graph.lines
    for variable, value in zip(variables, choice, strict=False):
        lines = tuple(_replace_value(line, variable, value) for line in lines)
    return replace(graph, lines=lines)


def _replace_value(
    line: MetricLine | MathExpression, variable: DashboardVariable, value: str
) -> MetricLine | MathExpression:
    default_value = variable.values[0]
    if isinstance(line, MetricLine):
        dimensions = (
            (name, value if (name, current_value) == (variable.dimension, default_value) else current_value)
            for name, current_value in line.dimensions
        )
        return replace(line, dimensions=tuple(dimensions))
    escape_text = value.replace("\\", "\\\\").replace('"', '\\"')
    return replace(
        line, text=line.text.replace(f'{variable.dimension}="{default_value}"', f'{variable.dimension}="{escape_text}"')
    )


def _build_line_data(
    graph: GraphWidget, source: PageSource, period_s: int, hues: _HueTable
) -> Iterator[dict[str, Any]]:
    """Yield each shown line: its looks, its value over the whole time, and its points by number of the period."""
    dashes: dict[int, int] = {}
    for line in graph.lines:
        if not line.is_visible:
            continue
        isolated_lines = [sibling if sibling is line else replace(sibling, is_visible=False) for sibling in graph.lines]
        span = (source.series, source.start_s, source.end_s, period_s)
        period_results = evaluate_periods(isolated_lines, *span) if graph.view == "lines" else ()
        range_results = evaluate_range(isolated_lines, source.series, source.start_s, source.end_s)
        for index, result in enumerate(period_results or range_results):
            hue = hues.find_hue(line, result)
            dashes[hue] = dashes.get(hue, -1) + 1
            yield {
                "label": result.label,
                "hue": hue,
                "dash": dashes[hue],
                "whole": next((_round_value(value) for _, value in range_results[index].points), None),
                **_build_point_data(
                    result if period_results else LineResult("", ()),
                    source.start_s - source.start_s % period_s,
                    period_s,
                ),
            }


def _build_point_data(result: LineResult, start_s: int, period_s: int) -> dict[str, Any]:
    return {
        "periods": [(at_s - start_s) // period_s for at_s, _ in result.points],
        "values": [_round_value(value) for _, value in result.points],
    }


def _round_value(value: float) -> float:
    """Return a number to four digits: as exact as what is published, and short in JSON."""
    if not value:
        return 0
    short_value = round(value, _SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(value))))
    return int(short_value) if short_value.is_integer() else short_value


class _HueTable:
    """One hue for each arm, the same in all graphs; what is of no arm has one by its label."""

    def __init__(self) -> None:
        self._hue_by_name: dict[str, int] = {}

    def find_hue(self, line: MetricLine | MathExpression, result: LineResult) -> int:
        """Return the number of a line's hue, in the order in which hues are first met."""
        arm = dict(line.dimensions).get("Variant") if isinstance(line, MetricLine) else None
        return self._hue_by_name.setdefault(line.color or arm or result.label, len(self._hue_by_name))
