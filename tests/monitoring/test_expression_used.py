"""Every expression that is deployed is one that the evaluator knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.cloudwatch.expression import evaluate_periods, evaluate_range
from rehearsal.cloudwatch.series_store import SeriesStore
from tandem.cli.inputs import read_inputs
from tandem.cli.monitoring_cost import build_scope
from tandem.cli.selection import Selection
from tandem.monitoring.alarms import build_alarms
from tandem.monitoring.dashboards import build_dashboards
from tandem.monitoring.widget import GraphWidget, MathExpression, MetricLine

ROOT = Path(__file__).resolve().parents[2]
START = 1_700_000_100


def deployed() -> dict[str, tuple[MetricLine | MathExpression, ...]]:
    """Graphs and alarms of every committed environment, by name."""
    inputs = read_inputs(Selection(environments=ROOT / "environments", experiments=ROOT / "experiments"))
    found: dict[str, tuple[MetricLine | MathExpression, ...]] = {}
    for environment in inputs.environments():
        watched = build_scope(environment, inputs.list_experiments(environment))
        for dashboard in build_dashboards(watched):
            found |= {
                f"{dashboard.name}/{graph.title}": graph.lines
                for graph in dashboard.widgets
                if isinstance(graph, GraphWidget)
            }
        every = build_alarms(watched)
        found |= {
            alarm.name: alarm.lines for alarm in (*every.alarms, *((every.suppressor,) if every.suppressor else ()))
        }
    return found


DEPLOYED = deployed()


@pytest.mark.parametrize("name", DEPLOYED)
def test_a_deployed_graph_or_alarm_is_evaluated(name: str) -> None:
    lines = DEPLOYED[name]

    over_time, whole = (
        evaluate_periods(lines, SeriesStore(), START, START + 3600, 300),
        evaluate_range(lines, SeriesStore(), START, START + 3600),
    )

    assert len(over_time) == len(whole) <= len([line for line in lines if line.is_visible])


def test_expressions_are_among_what_is_deployed() -> None:
    expressions = [line for lines in DEPLOYED.values() for line in lines if isinstance(line, MathExpression)]

    assert any("SEARCH(" in line.text for line in expressions)
    assert any("IF(" in line.text for line in expressions)
