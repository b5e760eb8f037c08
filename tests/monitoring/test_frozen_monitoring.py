"""Alarms and dashboards are those of the frozen templates, which need no CDK here."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hosted import ENVIRONMENTS, ROOT, drawn, graphs, watched

from tandem.monitoring.alarm import MetricAlarm
from tandem.monitoring.alarms import build_alarms
from tandem.monitoring.guard_alarms import build_guard_alarms
from tandem.monitoring.widget import Dashboard, MathExpression, MetricLine, TextWidget

Properties = dict[str, Any]
SIGNS = {"GreaterThanThreshold": "above", "LessThanThreshold": "below"}
VIEWS = {"timeSeries": "lines", "singleValue": "numbers"}
TEMPLATES = ROOT / "tests" / "frozen" / "templates"
FROZEN = [name for name in ENVIRONMENTS if (TEMPLATES / f"{name}-Guard.json").exists()]
every_environment = pytest.mark.parametrize("environment", FROZEN)
every_dashboard = pytest.mark.parametrize(
    ("environment", "part"), [(name, part) for name in FROZEN for part in drawn(name)]
)


@cache
def read_resources(environment: str, stack: str, kind: str) -> list[Properties]:
    resources = json.loads((TEMPLATES / f"{environment}-{stack}.json").read_text()).values()
    return [
        resource["Properties"]
        for resource in resources
        if isinstance(resource, dict) and resource.get("Type") == f"AWS::CloudWatch::{kind}"
    ]


def read_line(properties: Properties) -> tuple[Any, ...]:
    """Return a query of an alarm, or an alarm on one metric, as `describe_line` does."""
    if "Expression" in properties:
        return properties["Id"], properties["Expression"]
    statistic = properties.get("MetricStat", properties)
    metric = statistic.get("Metric", properties)
    return (
        properties.get("Id", "alone"),
        metric["Namespace"],
        metric["MetricName"],
        {row["Name"]: row["Value"] for row in metric.get("Dimensions", ())},
        statistic.get("Stat") or statistic.get("Statistic") or statistic["ExtendedStatistic"],
        statistic["Period"],
    )


def describe_line(line: MetricLine | MathExpression, alarm: MetricAlarm) -> tuple[Any, ...]:
    if isinstance(line, MathExpression):
        return line.id, line.text
    line_id = line.id if len(alarm.lines) > 1 else "alone"
    dimensions = dict(line.dimensions)
    return line_id, line.namespace, line.metric, dimensions, line.statistic, alarm.period_s


def read_alarm(properties: Properties) -> tuple[Any, ...]:
    return (
        properties["AlarmDescription"],
        SIGNS[properties["ComparisonOperator"]],
        properties["Threshold"],
        properties["EvaluationPeriods"],
        properties["DatapointsToAlarm"],
        properties["TreatMissingData"],
        properties.get("EvaluateLowSampleCountPercentile"),
        [read_line(query) for query in properties.get("Metrics", [properties])],
    )


def describe_alarm(alarm: MetricAlarm) -> tuple[Any, ...]:
    return (
        alarm.description,
        alarm.comparison,
        alarm.threshold,
        alarm.periods,
        alarm.datapoints,
        alarm.missing,
        alarm.low_samples,
        [describe_line(line, alarm) for line in alarm.lines],
    )


def list_alarm_sets(environment: str) -> list[tuple[str, Any]]:
    scope = watched(environment)
    return [
        ("Observability", build_alarms(scope)),
        ("Guard", build_guard_alarms(scope.environment)),
    ]


@every_environment
def test_alarms_are_as_frozen(environment: str) -> None:
    for stack, alarms in list_alarm_sets(environment):
        frozen = {
            properties["AlarmName"]: read_alarm(properties)
            for properties in read_resources(environment, stack, "Alarm")
        }
        metric_alarms = [alarm for alarm in (*alarms.alarms, alarms.suppressor) if alarm]
        assert {alarm.name: describe_alarm(alarm) for alarm in metric_alarms} == frozen


@every_environment
def test_composite_alarms_are_as_frozen(environment: str) -> None:
    for stack, alarms in list_alarm_sets(environment):
        frozen = {
            properties["AlarmName"]: (
                properties["AlarmDescription"],
                properties["AlarmRule"],
                properties.get("ActionsSuppressor"),
            )
            for properties in read_resources(environment, stack, "CompositeAlarm")
        }
        assert {
            composite.name: (composite.description, composite.rule, composite.suppressor)
            for composite in alarms.composites
        } == frozen


def read_body(environment: str, dashboard: Dashboard) -> Properties:
    """Return the frozen body of a dashboard with its first choices in place of their patterns."""
    (text,) = [
        properties["DashboardBody"]
        for properties in read_resources(environment, "Observability", "Dashboard")
        if properties["DashboardName"] == dashboard.name
    ]
    for dimension, values in dashboard.variables.items():
        text = text.replace(f"chosen_{dimension}", values[0])
    body: Properties = json.loads(text)
    return body


def read_metric(row: list[Any]) -> tuple[Any, ...]:
    *words, options = row
    drawn_as = (options.get("label"), options.get("color"))
    if not words:
        return (options["expression"], *drawn_as)
    dimensions = sorted(zip(words[2::2], words[3::2], strict=True))
    return (*words[:2], dimensions, options["stat"], *drawn_as)


def describe_metric(line: MetricLine | MathExpression) -> tuple[Any, ...]:
    drawn_as = (line.label, line.color)
    if isinstance(line, MathExpression):
        return (line.text, *drawn_as)
    return (line.namespace, line.metric, sorted(line.dimensions), line.statistic, *drawn_as)


@every_dashboard
def test_graphs_are_as_frozen(environment: str, part: str) -> None:
    dashboard = drawn(environment)[part]
    frozen = [
        (
            box["properties"]["title"],
            VIEWS[box["properties"]["view"]],
            box["properties"]["period"],
            (box["width"], box["height"]),
            sorted(map(repr, map(read_metric, box["properties"]["metrics"]))),
        )
        for box in read_body(environment, dashboard)["widgets"]
        if box["type"] == "metric"
    ]
    assert [
        (
            graph.title,
            graph.view,
            graph.period_s,
            (graph.width, graph.height),
            sorted(map(repr, map(describe_metric, graph.lines))),
        )
        for graph in graphs(dashboard)
    ] == frozen


@every_dashboard
def test_texts_are_as_frozen(environment: str, part: str) -> None:
    dashboard = drawn(environment)[part]
    frozen = {
        box["properties"]["markdown"]
        for box in read_body(environment, dashboard)["widgets"]
        if box["type"] == "text"
    }
    texts = {widget.markdown for widget in dashboard.widgets if isinstance(widget, TextWidget)}
    assert texts <= frozen
