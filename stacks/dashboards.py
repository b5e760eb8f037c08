"""Dashboards in CloudFormation: the CDK's widgets, made from the values of tandem.monitoring.

Invariant: a graph names its region, because a dashboard is global in its account. A caption stands
under each graph. All graphs of a row have one height, so the dashboard has no hole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.stack import TemplateLimitError
from tandem.monitoring import widget
from tandem.monitoring.widget import GraphWidget, MathExpression, MetricLine, TextWidget

# of a dashboard (CloudWatch user guide, "CloudWatch service quotas", read 2026-11-21)
MAX_WIDGETS = 500
MAX_METRICS = 2500
# Ours: no source gives CloudWatch's limit of a body's size. The template with the bodies may have
# 1 MB (CloudFormation quotas), and each quote in it is escaped, so three larger bodies would not
# fit.
MAX_BODY_BYTES = 250_000
ValuePatterns = Mapping[tuple[str, str], str]
"""A dimension and its chosen value -> the pattern for it in graphs that vary."""
_VARIABLE_LABELS = {"PromptClass": "Prompt class", "Concurrency": "Concurrency"}
# the text that the console replaces by the chosen value of a dimension; no real value looks like it
_PATTERN = "chosen_{}"
_MARK_COLOR = "#687078"  # visible on white and on dark, and the color of no arm


def add_dashboard(
    scope: Construct, dashboard: widget.Dashboard, region: str
) -> cloudwatch.Dashboard:
    """Add a dashboard to `scope`.

    Args:
        dashboard: to draw.
        region: of its metrics.

    Raises:
        TemplateLimitError: its body exceeds a limit of CloudWatch.
    """
    patterns = {
        (key, values[0]): _PATTERN.format(key) for key, values in dashboard.variables.items()
    }
    resource = cloudwatch.Dashboard(
        scope,
        dashboard.name,
        dashboard_name=dashboard.name,
        start=dashboard.start,
        # the graphs keep their periods in any time range
        period_override=cloudwatch.PeriodOverride.INHERIT,
        variables=[
            _build_variable(dimension, values) for dimension, values in dashboard.variables.items()
        ],
        widgets=[_build_row(row, region, patterns) for row in _fill_rows(dashboard.widgets)],
    )
    fault_texts = list(find_limit_faults(read_body(resource)))
    if fault_texts:
        raise TemplateLimitError(
            "; ".join(fault_texts),
            where=dashboard.name,
            change="host fewer experiments in this environment",
        )
    return resource


def read_body(dashboard: cloudwatch.Dashboard) -> dict[str, Any]:
    """Return the body of a dashboard as CloudWatch gets it."""
    resource = dashboard.node.default_child
    assert isinstance(resource, cloudwatch.CfnDashboard)
    body: dict[str, Any] = json.loads(Stack.of(dashboard).resolve(resource.dashboard_body))
    return body


def find_limit_faults(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each limit of CloudWatch that a body exceeds."""
    for amount, limit, noun in (
        (len(body["widgets"]), MAX_WIDGETS, "widgets, captions counted"),
        (
            sum(len(box["properties"].get("metrics", ())) for box in body["widgets"]),
            MAX_METRICS,
            "metrics",
        ),
        (len(json.dumps(body).encode()), MAX_BODY_BYTES, "bytes of JSON"),
    ):
        if amount > limit:
            yield f"{amount} {noun}; at most {limit}"


def _build_variable(dimension: str, values: Sequence[str]) -> cloudwatch.DashboardVariable:
    return cloudwatch.DashboardVariable(
        id=dimension,
        type=cloudwatch.VariableType.PATTERN,
        value=_PATTERN.format(dimension),
        input_type=cloudwatch.VariableInputType.SELECT,
        label=_VARIABLE_LABELS[dimension],
        default_value=cloudwatch.DefaultValue.value(values[0]),
        visible=True,
        values=cloudwatch.Values.from_values(
            *(cloudwatch.VariableValue(value=value, label=value) for value in values)
        ),
    )


def _fill_rows(widgets: Sequence[GraphWidget | TextWidget]) -> list[list[GraphWidget | TextWidget]]:
    """Return widgets row by row, from left to right in reading order."""
    rows: list[list[GraphWidget | TextWidget]] = [[]]
    for content in widgets:
        if rows[-1] and sum(member.width for member in rows[-1]) + content.width > widget.COLUMNS:
            rows.append([])
        rows[-1].append(content)
    return rows


def _build_row(
    row: Sequence[GraphWidget | TextWidget], region: str, patterns: ValuePatterns
) -> list[cloudwatch.IWidget]:
    """Return a row: equally high graphs over equally high captions, texts as high as both."""
    graphs = [content for content in row if isinstance(content, GraphWidget)]
    graph_height = max((graph.height for graph in graphs), default=0)
    caption_height = max(
        (widget.count_text_rows(build_caption(graph), graph.width) for graph in graphs), default=0
    )
    text_heights = [content.height for content in row if isinstance(content, TextWidget)]
    row_height = max(graph_height + caption_height, *text_heights, 0)

    boxes: list[cloudwatch.IWidget] = []
    for content in row:
        if isinstance(content, TextWidget):
            boxes.append(
                cloudwatch.TextWidget(
                    markdown=content.markdown, width=content.width, height=row_height
                )
            )
            continue
        caption = cloudwatch.TextWidget(
            markdown=build_caption(content), width=content.width, height=row_height - graph_height
        )
        graph = _build_graph(content, graph_height, region, patterns if content.varies else {})
        # the stubs of jsii forget what a Column inherits of IWidget
        boxes.append(cast("cloudwatch.IWidget", cloudwatch.Column(graph, caption)))
    return boxes


def build_caption(graph: GraphWidget) -> str:
    """Return the text under a graph: its sentence, and the publisher of its metrics."""
    return f"{graph.sentence} *Published by: {graph.publisher}.*"


def _build_graph(
    graph: GraphWidget, height: int, region: str, patterns: ValuePatterns
) -> cloudwatch.IWidget:
    metrics = _list_metrics(graph.lines, patterns)
    period = Duration.seconds(graph.period_s)
    if graph.view == "numbers":
        return cloudwatch.SingleValueWidget(
            title=graph.title,
            region=region,
            metrics=metrics,
            period=period,
            set_period_to_time_range=True,
            sparkline=False,
            width=graph.width,
            height=height,
        )
    levels = [
        cloudwatch.HorizontalAnnotation(label=mark.label, value=mark.value, color=_MARK_COLOR)
        for mark in graph.marks
        if mark.value is not None
    ]
    moments = [
        cloudwatch.VerticalAnnotation(label=mark.label, date=mark.moment, color=_MARK_COLOR)
        for mark in graph.marks
        if mark.moment is not None
    ]
    return cloudwatch.GraphWidget(
        title=graph.title,
        region=region,
        left=metrics,
        left_y_axis=cloudwatch.YAxisProps(label=graph.unit, min=0, show_units=False),
        left_annotations=levels,
        vertical_annotations=moments,
        legend_position=cloudwatch.LegendPosition.BOTTOM,
        period=period,
        stacked=False,
        width=graph.width,
        height=height,
    )


def _list_metrics(
    lines: Sequence[MetricLine | MathExpression], patterns: ValuePatterns
) -> list[cloudwatch.IMetric]:
    """Return what a graph draws; an expression brings the hidden lines it reads by their ids."""
    hidden_metrics = {
        str(line.id): _build_metric(line, patterns)
        for line in lines
        if isinstance(line, MetricLine) and not line.is_visible
    }
    drawn_metrics: list[cloudwatch.IMetric] = []
    for line in filter(lambda line: line.is_visible, lines):
        if isinstance(line, MetricLine):
            drawn_metrics.append(_build_metric(line, patterns))
        else:
            drawn_metrics.append(_build_expression(line, patterns, hidden_metrics))
    return drawn_metrics


def _build_metric(line: MetricLine, patterns: ValuePatterns) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=line.namespace,
        metric_name=line.metric,
        dimensions_map={pair[0]: patterns.get(pair, pair[1]) for pair in line.dimensions},
        statistic=line.statistic,
        label=line.label,
        color=line.color,
    )


def _build_expression(
    expression: MathExpression, patterns: ValuePatterns, metrics: Mapping[str, cloudwatch.IMetric]
) -> cloudwatch.MathExpression:
    text = expression.text
    for (dimension, value), pattern in patterns.items():
        text = text.replace(f'{dimension}="{value}"', f'{dimension}="{pattern}"')

    # whole words: the id m1 stands in m10 too, and m in nearly any text
    words = set(re.findall(r"\w+", expression.text))
    return cloudwatch.MathExpression(
        expression=text,
        using_metrics={id_: metric for id_, metric in metrics.items() if id_ in words},
        label=expression.label,
        color=expression.color,
    )
