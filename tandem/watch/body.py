"""A dashboard in CloudWatch's JSON, and what is wrong with one before anybody deploys it.

Invariant: the same dashboard and region give the same JSON. Nothing is drawn that a publisher with a recorded sample
does not send, by name, namespace and dimensions.

CloudWatch's forms are those of "Dashboard Body Structure and Syntax" (docs.aws.amazon.com, AmazonCloudWatch, API
reference, read 2026-11-21) and of what the CDK renders (aws-cdk-lib 2.275.0, aws-cloudwatch/lib/variable.js).

A choice is a variable of type `pattern`, not of type `property`: a property variable rewrites its dimension everywhere,
inside of SEARCH expressions too (AWS's own aws/sagemaker-python-sdk, src/sagemaker/model_monitor/dashboards.py, relies
on that), so no graph could keep its class beside one that varies. A pattern stands only in the graphs that vary.
"""

from __future__ import annotations

import json
from typing import Any

from tandem.watch.faults import faults_of_widgets
from tandem.watch.layout import boxes
from tandem.watch.widget import Dashboard, Expression, Graph, Line, Mark, Variable

# No source gives a size that CloudWatch takes. The template that carries the bodies may have 1 MB (CloudFormation
# quotas), and each quote is escaped in it: of larger bodies not three would fit.
BODY_BYTES = 250_000
_MOMENT = "#687078"  # of a vertical mark: seen on white and on dark, no arm's color


def body(dashboard: Dashboard, region: str) -> dict[str, Any]:
    """Return the dashboard's body, to be written as JSON.

    Args:
        dashboard: what is drawn.
        region: where its metrics are; dashboards are global in an account, so each graph says it.
    """
    variables = [_variable(variable) for variable in dashboard.variables]
    return {
        "start": dashboard.start,
        "periodOverride": "inherit",  # the periods of the graphs hold, whatever range is looked at
        **({"variables": variables} if variables else {}),
        "widgets": [
            {
                "type": "metric" if isinstance(box.content, Graph) else "text",
                "x": box.x,
                "y": box.y,
                "width": box.width,
                "height": box.height,
                "properties": (
                    _graph(box.content, region, dashboard.variables)
                    if isinstance(box.content, Graph)
                    else {"markdown": box.content}
                ),
            }
            for box in boxes(dashboard)
        ],
    }


def faults(dashboard: Dashboard) -> list[str]:
    """Return what is wrong with a dashboard, each in a sentence; nothing where it is sound."""
    found = list(faults_of_widgets(dashboard))
    if all(variable.values for variable in dashboard.variables):  # else it has no JSON
        size = len(json.dumps(body(dashboard, "xx-xxxxxxxxx-0")).encode())
        found += [f"its body has {size} bytes; more than {BODY_BYTES} are not deployed"] if size > BODY_BYTES else []
    return found


def pattern(variable: Variable) -> str:
    """Return what stands for the chosen value in CloudWatch's JSON; no real value is written so."""
    return f"chosen_{variable.dimension}"


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "type": "pattern",
        "pattern": pattern(variable),
        "inputType": "select",
        "id": variable.dimension,
        "label": variable.label,
        "defaultValue": variable.values[0],
        "visible": True,
        "values": [{"value": value, "label": value} for value in variable.values],
    }


def _graph(graph: Graph, region: str, variables: tuple[Variable, ...]) -> dict[str, Any]:
    chosen = variables if graph.varies else ()
    properties: dict[str, Any] = {
        "title": graph.title,
        "region": region,
        "view": "singleValue" if graph.view == "numbers" else "timeSeries",
        "metrics": [
            _line(line, chosen) if isinstance(line, Line) else _expression(line, chosen, graph) for line in graph.lines
        ],
        "period": graph.period_s,
    }
    if graph.view == "numbers":
        return properties | {"setPeriodToTimeRange": True, "sparkline": False}
    return properties | {
        "stacked": False,
        "yAxis": {"left": {"label": graph.unit, "min": 0, "showUnits": False}},
        "legend": {"position": "bottom"},
        **({"annotations": _annotations(graph.marks)} if graph.marks else {}),
    }


def _line(line: Line, variables: tuple[Variable, ...]) -> list[Any]:
    replaced = {(variable.dimension, variable.values[0]): pattern(variable) for variable in variables}
    named = [part for name, value in line.dimensions for part in (name, replaced.get((name, value), value))]
    return [line.namespace, line.metric, *named, {"stat": line.statistic, **_options(line)}]


def _expression(line: Expression, variables: tuple[Variable, ...], graph: Graph) -> list[Any]:
    text = line.text
    for variable in variables:
        text = text.replace(
            f'{variable.dimension}="{variable.values[0]}"', f'{variable.dimension}="{pattern(variable)}"'
        )
    return [{"expression": text, "period": graph.period_s, **_options(line)}]


def _options(line: Line | Expression) -> dict[str, Any]:
    options = {"id": line.id, "label": line.label, "color": line.color, "visible": None if line.shown else False}
    return {name: value for name, value in options.items() if value is not None}


def _annotations(marks: tuple[Mark, ...]) -> dict[str, Any]:
    levels = [{"label": mark.label, "value": mark.value, "color": _MOMENT} for mark in marks if mark.value is not None]
    moments = [{"label": mark.label, "value": mark.at, "color": _MOMENT} for mark in marks if mark.at is not None]
    return {
        **({"horizontal": levels} if levels else {}),
        **({"vertical": moments} if moments else {}),
    }
