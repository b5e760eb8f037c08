"""Every expression that is deployed is one that the evaluator knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.commands.inputs import read
from tandem.commands.selection import Selection
from tandem.commands.watching import scope
from tandem.watch.alarms import alarms
from tandem.watch.dashboards import dashboards
from tandem.watch.expression import evaluate, overall
from tandem.watch.series import Series
from tandem.watch.widget import Expression, Graph, Line

ROOT = Path(__file__).resolve().parents[2]
START = 1_700_000_100


def deployed() -> dict[str, tuple[Line | Expression, ...]]:
    """Graphs and alarms of every committed environment, by name."""
    inputs = read(Selection(environments=ROOT / "environments", experiments=ROOT / "experiments"))
    found: dict[str, tuple[Line | Expression, ...]] = {}
    for environment in inputs.environments():
        watched = scope(environment, inputs.hosted(environment))
        for dashboard in dashboards(watched):
            found |= {
                f"{dashboard.name}/{graph.title}": graph.lines
                for graph in dashboard.widgets
                if isinstance(graph, Graph)
            }
        every = alarms(watched)
        found |= {alarm.name: alarm.lines for alarm in (*every.alarms, *((every.parked,) if every.parked else ()))}
    return found


DEPLOYED = deployed()


@pytest.mark.parametrize("name", DEPLOYED)
def test_a_deployed_graph_or_alarm_is_evaluated(name: str) -> None:
    lines = DEPLOYED[name]

    over_time, whole = (
        evaluate(lines, Series(), START, START + 3600, 300),
        overall(lines, Series(), START, START + 3600),
    )

    assert len(over_time) == len(whole) <= len([line for line in lines if line.shown])


def test_expressions_are_among_what_is_deployed() -> None:
    expressions = [line for lines in DEPLOYED.values() for line in lines if isinstance(line, Expression)]

    assert any("SEARCH(" in line.text for line in expressions)
    assert any("IF(" in line.text for line in expressions)
