"""A dashboard in CloudWatch's JSON, and which limits of CloudWatch it passes before anybody deploys it.

Invariant: the same dashboard and region give the same JSON.

CloudWatch's forms are those of "Dashboard Body Structure and Syntax" (docs.aws.amazon.com, AmazonCloudWatch, API
reference, read 2026-11-21) and of what the CDK renders (aws-cdk-lib 2.275.0, aws-cloudwatch/lib/variable.js).

A choice is a variable of type `pattern`, not of type `property`: a property variable rewrites its dimension everywhere,
inside of SEARCH expressions too (AWS's own aws/sagemaker-python-sdk, src/sagemaker/model_monitor/dashboards.py, relies
on that), so no graph could keep its class beside one that varies. A pattern stands only in the graphs that vary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tandem.monitoring.layout import place_widgets
from tandem.monitoring.widget import Dashboard, DashboardVariable, GraphMark, GraphWidget, MathExpression, MetricLine

# "CloudWatch service quotas" and "CloudWatch search expression syntax" (user guide, read 2026-11-21); GetMetricData
MAX_WIDGETS, MAX_METRICS = 500, 2500
MAX_EXPRESSION_CHARACTERS, MAX_SEARCH_CHARACTERS = 2048, 1024
MAX_NAME_CHARACTERS = 255
# No source gives a size that CloudWatch takes. The template that carries the bodies may have 1 MB (CloudFormation
# quotas), and each quote is escaped in it: of larger bodies not three would fit.
MAX_BODY_BYTES = 250_000
_PATTERN = "chosen_{}"  # stands for the chosen value of a dimension; no real value is written so
_MARK_COLOR = "#687078"  # of a vertical mark: seen on white and on dark, no arm's color


def build_body(dashboard: Dashboard, region: str) -> dict[str, Any]:
    """Return the dashboard's body, to be written as JSON.

    Args:
        dashboard: what is drawn.
        region: where its metrics are; dashboards are global in an account, so each graph says it.
    """
    variables = [_build_variable_json(variable) for variable in dashboard.variables]
    return {
        "start": dashboard.start,
        "periodOverride": "inherit",  # the periods of the graphs hold, whatever range is looked at
        **({"variables": variables} if variables else {}),
        "widgets": [
            {
                "type": "metric" if isinstance(box.content, GraphWidget) else "text",
                "x": box.x,
                "y": box.y,
                "width": box.width,
                "height": box.height,
                "properties": (
                    _build_graph_json(box.content, region, dashboard.variables)
                    if isinstance(box.content, GraphWidget)
                    else {"markdown": box.content}
                ),
            }
            for box in place_widgets(dashboard)
        ],
    }


def find_limit_faults(dashboard: Dashboard) -> Iterator[str]:
    """Yield each limit of CloudWatch that a dashboard passes, in a sentence."""
    lines = [line for widget in dashboard.widgets if isinstance(widget, GraphWidget) for line in widget.lines]
    texts = [line.text for line in lines if isinstance(line, MathExpression)]
    searches = [text for text in texts if "SEARCH(" in text]
    body_bytes = len(json.dumps(build_body(dashboard, "xx-xxxxxxxxx-0")).encode())
    for amount, limit, noun in (
        (len(dashboard.name), MAX_NAME_CHARACTERS, "characters of its name"),
        (len(place_widgets(dashboard)), MAX_WIDGETS, "widgets, captions counted"),
        (len(lines), MAX_METRICS, "metrics and expressions"),
        (max(map(len, texts), default=0), MAX_EXPRESSION_CHARACTERS, "characters of an expression"),
        (max(map(len, searches), default=0), MAX_SEARCH_CHARACTERS, "characters of a search"),
        (body_bytes, MAX_BODY_BYTES, "bytes of JSON"),
    ):
        if amount > limit:
            yield f"{amount} {noun}; at most {limit}"


def _build_variable_json(variable: DashboardVariable) -> dict[str, Any]:
    return {
        "type": "pattern",
        "pattern": _PATTERN.format(variable.dimension),
        "inputType": "select",
        "id": variable.dimension,
        "label": variable.label,
        "defaultValue": variable.values[0],
        "visible": True,
        "values": [{"value": value, "label": value} for value in variable.values],
    }


def _build_graph_json(graph: GraphWidget, region: str, variables: tuple[DashboardVariable, ...]) -> dict[str, Any]:
    graph_variables = variables if graph.varies else ()
    properties: dict[str, Any] = {
        "title": graph.title,
        "region": region,
        "view": "singleValue" if graph.view == "numbers" else "timeSeries",
        "metrics": [
            _build_line_json(line, graph_variables)
            if isinstance(line, MetricLine)
            else _build_expression_json(line, graph_variables, graph)
            for line in graph.lines
        ],
        "period": graph.period_s,
    }
    if graph.view == "numbers":
        return properties | {"setPeriodToTimeRange": True, "sparkline": False}
    return properties | {
        "stacked": False,
        "yAxis": {"left": {"label": graph.unit, "min": 0, "showUnits": False}},
        "legend": {"position": "bottom"},
        **({"annotations": _build_annotations(graph.marks)} if graph.marks else {}),
    }


def _build_line_json(line: MetricLine, variables: tuple[DashboardVariable, ...]) -> list[Any]:
    pattern_by_value = {
        (variable.dimension, variable.values[0]): _PATTERN.format(variable.dimension) for variable in variables
    }
    dimension_parts = [
        part for name, value in line.dimensions for part in (name, pattern_by_value.get((name, value), value))
    ]
    return [line.namespace, line.metric, *dimension_parts, {"stat": line.statistic, **_build_line_options(line)}]


def _build_expression_json(
    expression: MathExpression, variables: tuple[DashboardVariable, ...], graph: GraphWidget
) -> list[Any]:
    text = expression.text
    for variable in variables:
        text = text.replace(
            f'{variable.dimension}="{variable.values[0]}"',
            f'{variable.dimension}="{_PATTERN.format(variable.dimension)}"',
        )
    return [{"expression": text, "period": graph.period_s, **_build_line_options(expression)}]


def _build_line_options(line: MetricLine | MathExpression) -> dict[str, Any]:
    options = {"id": line.id, "label": line.label, "color": line.color, "visible": None if line.is_visible else False}
    return {name: value for name, value in options.items() if value is not None}


def _build_annotations(marks: tuple[GraphMark, ...]) -> dict[str, Any]:
    directions: dict[str, list[tuple[str, object]]] = {
        "horizontal": [(mark.label, mark.value) for mark in marks if mark.value is not None],
        "vertical": [(mark.label, mark.moment) for mark in marks if mark.moment is not None],
    }
    return {
        direction: [{"label": label, "value": value, "color": _MARK_COLOR} for label, value in values]
        for direction, values in directions.items()
        if values
    }
