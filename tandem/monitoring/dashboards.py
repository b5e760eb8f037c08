"""Every dashboard of an environment: one that compares the arms of each experiment, one for the machine, one for money.

Invariant: a function of the scope alone. Every drawn metric is published, and every figure of the bench is drawn.

Expressions are few, so that the tests can evaluate each of them without CloudWatch. An ID is a line's or an
expression's id, a NUMBER a plain decimal:

    IF(ID * ID > 0, ID / ID)            speed-up, absent where one of the two has no point: alone it would be 0 there
    ID / NUMBER                         node-minutes of a period -> nodes, or hours; tokens of a period -> a second's
    ID / NUMBER * NUMBER                node-minutes -> USD
    100 * ID / ID                       a share in percent
    IF(ID > 0, 1 + ID / ID)             acceptance length by the server's counters
    FILL(ID, 0)                         a missing value counts as none
    RUNNING_SUM(FILL(ID, 0)) / NUMBER
    RUNNING_SUM(FILL(ID, 0)) / NUMBER * NUMBER
    SEARCH('{"NAMESPACE",DIM,DIM,...} MetricName="NAME" DIM="VALUE" ...', 'STATISTIC', PERIOD_S)
    SUM(SEARCH(...))                    one series: the sum of the found series, period by period

A SEARCH finds the metrics of its namespace that have exactly the named dimensions and, if a value is given, exactly
that value. Each found metric is a series, whose label holds the values of its dimensions as `${PROP('Dim.NAME')}`.

A graph whose view is `numbers` has one period: the whole time range in view (CloudWatch's
setPeriodToTimeRange), for its lines and for its expressions.

A choice is a variable of type `pattern`, not of type `property`: a property variable rewrites its dimension everywhere,
also inside of SEARCH expressions (AWS's own aws/sagemaker-python-sdk, src/sagemaker/model_monitor/dashboards.py, relies
on that), so no graph could keep its class next to one that varies. A pattern is only in the graphs that vary.

CloudWatch's forms are from "Dashboard Body Structure and Syntax" (docs.aws.amazon.com, AmazonCloudWatch, API
reference, read 2026-11-21) and from the CDK's output (aws-cdk-lib 2.275.0, aws-cloudwatch/lib/variable.js).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tandem.monitoring import widget
from tandem.monitoring.cost_dashboard import build_cost_dashboard
from tandem.monitoring.experiment_dashboard import build_experiment_dashboard
from tandem.monitoring.infrastructure_dashboard import build_infrastructure_dashboard
from tandem.monitoring.scope import MonitoringScope
from tandem.monitoring.widget import Dashboard, GraphMark, GraphWidget, MathExpression, MetricLine, TextWidget

# "CloudWatch service quotas" (user guide, read 2026-11-21); GetMetricData
MAX_WIDGETS, MAX_METRICS = 500, 2500
# No source gives CloudWatch's limit of a body's size. The template with the bodies may have 1 MB (CloudFormation
# quotas), and each quote in it is escaped: of larger bodies fewer than three would fit.
MAX_BODY_BYTES = 250_000
ValuePatterns = Mapping[tuple[str, str], str]
"""A dimension and its chosen value -> the pattern for it in graphs that vary."""
_VARIABLE_LABELS = {"PromptClass": "Prompt class", "Concurrency": "Concurrency"}
_PATTERN = "chosen_{}"  # the pattern for the chosen value of a dimension; no real value is written so
_MARK_COLOR = "#687078"  # of a vertical mark: visible on white and on dark, no arm's color


def build_dashboards(scope: MonitoringScope) -> tuple[Dashboard, ...]:
    """Return every dashboard of an environment: its experiments in its order, then the machine, then money."""
    experiments = (build_experiment_dashboard(scope.environment, member) for member in scope.experiments)
    return (*experiments, build_infrastructure_dashboard(scope), build_cost_dashboard(scope))


def build_body(dashboard: Dashboard, region: str) -> dict[str, Any]:
    """Return the dashboard's body, to be written as JSON.

    Args:
        dashboard: to draw.
        region: of its metrics; dashboards are global in an account, so each graph names the region.
    """
    patterns = {(key, values[0]): _PATTERN.format(key) for key, values in dashboard.variables.items()}
    variables = [
        {
            "type": "pattern",
            "pattern": _PATTERN.format(dimension),
            "inputType": "select",
            "id": dimension,
            "label": _VARIABLE_LABELS[dimension],
            "defaultValue": values[0],
            "visible": True,
            "values": [{"value": value, "label": value} for value in values],
        }
        for dimension, values in dashboard.variables.items()
    ]
    rows: list[list[GraphWidget | TextWidget]] = [[]]  # filled from left to right in reading order: no boxes overlap
    for content in dashboard.widgets:
        if rows[-1] and sum(member.width for member in rows[-1]) + content.width > widget.COLUMNS:
            rows.append([])
        rows[-1].append(content)
    boxes: list[dict[str, Any]] = []
    for row in rows:
        y = max((box["y"] + box["height"] for box in boxes), default=0)
        boxes += _place_row(row, y, region, patterns)
    return {
        "start": dashboard.start,
        "periodOverride": "inherit",  # the graphs keep their periods in any time range
        **({"variables": variables} if variables else {}),
        "widgets": boxes,
    }


def _place_row(
    row: Sequence[GraphWidget | TextWidget], y: int, region: str, patterns: ValuePatterns
) -> Iterator[dict[str, Any]]:
    """Yield a row: graphs of one height above captions of one height, and texts next to them as high as both."""
    graphs = [content for content in row if isinstance(content, GraphWidget)]
    graph_height = max((graph.height for graph in graphs), default=0)
    caption_height = max((widget.count_text_rows(build_caption(graph), graph.width) for graph in graphs), default=0)
    text_heights = [content.height for content in row if isinstance(content, TextWidget)]
    row_height = max(graph_height + caption_height, *text_heights, 0)
    x = 0
    for content in row:
        place = {"x": x, "y": y, "width": content.width}
        text_place = {**place, "height": row_height}
        if isinstance(content, GraphWidget):
            properties = _build_graph_json(content, region, patterns if content.varies else {})
            yield {"type": "metric", **place, "height": graph_height, "properties": properties}
            text_place |= {"y": y + graph_height, "height": row_height - graph_height}
        text = build_caption(content) if isinstance(content, GraphWidget) else content.markdown
        yield {"type": "text", **text_place, "properties": {"markdown": text}}
        x += content.width


def build_caption(graph: GraphWidget) -> str:
    """Return the text under a graph: its sentence, and the publisher of its metrics."""
    return f"{graph.sentence} *Published by: {graph.publisher}.*"


def find_limit_faults(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each limit of CloudWatch that a body exceeds, e.g. because of many experiments."""
    for amount, limit, noun in (
        (len(body["widgets"]), MAX_WIDGETS, "widgets, captions counted"),
        (sum(len(box["properties"].get("metrics", ())) for box in body["widgets"]), MAX_METRICS, "metrics"),
        (len(json.dumps(body).encode()), MAX_BODY_BYTES, "bytes of JSON"),
    ):
        if amount > limit:
            yield f"{amount} {noun}; at most {limit}"


def _build_graph_json(graph: GraphWidget, region: str, patterns: ValuePatterns) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "title": graph.title,
        "region": region,
        "view": "singleValue" if graph.view == "numbers" else "timeSeries",
        "metrics": [_build_line_json(line, patterns, graph.period_s) for line in graph.lines],
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


def _build_line_json(line: MetricLine | MathExpression, patterns: ValuePatterns, period_s: int) -> list[Any]:
    values = {"id": line.id, "label": line.label, "color": line.color, "visible": None if line.is_visible else False}
    options = {name: value for name, value in values.items() if value is not None}
    if isinstance(line, MetricLine):
        dimensions = [part for pair in line.dimensions for part in (pair[0], patterns.get(pair, pair[1]))]
        return [line.namespace, line.metric, *dimensions, {"stat": line.statistic, **options}]
    text = line.text
    for (dimension, value), pattern in patterns.items():
        text = text.replace(f'{dimension}="{value}"', f'{dimension}="{pattern}"')
    return [{"expression": text, "period": period_s, **options}]


def _build_annotations(marks: tuple[GraphMark, ...]) -> dict[str, Any]:
    rows = {
        direction: [
            {"label": mark.label, "value": getattr(mark, name), "color": _MARK_COLOR}
            for mark in marks
            if getattr(mark, name) is not None
        ]
        for direction, name in (("horizontal", "value"), ("vertical", "moment"))
    }
    return {direction: values for direction, values in rows.items() if values}
