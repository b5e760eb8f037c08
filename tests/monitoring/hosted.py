"""What the committed environments watch, and variations of it: scopes for tests of dashboards."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from shipped import ENVIRONMENTS, load_examples, load_shipped

from tandem.cli.monitoring_cost import build_scope
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.workspace import Workspace
from tandem.monitoring.dashboards import build_dashboards
from tandem.monitoring.scope import MonitoringScope
from tandem.monitoring.widget import Dashboard, GraphWidget, TextWidget

__all__ = ["ENVIRONMENTS", "ROOT"]
ROOT = Path(__file__).parents[2]


@cache
def watched(environment: str) -> MonitoringScope:
    """Return what a committed environment watches."""
    return build_hosted_scope(load_shipped(), environment)


def build_hosted_scope(workspace: Workspace, environment: str) -> MonitoringScope:
    """Return what an environment of a workspace watches."""
    record = workspace.environments[environment].record
    hosted_records = [workspace.experiments[name].record for name in record.experiments]
    return build_scope(record, hosted_records)


def changed(environment: str, **sections: dict[str, Any]) -> MonitoringScope:
    """Return an example's scope with some values of some sections changed."""
    result = build_hosted_scope(load_examples(), environment)
    values = result.environment.model_dump(mode="json")
    for section, given_section in sections.items():
        values[section] = {**(values[section] or {}), **given_section}
    record = Environment.model_validate_json(json.dumps(values))
    return MonitoringScope(environment=record, experiments=result.experiments)


def asking(environment: str, experiment: str, **given: Any) -> MonitoringScope:
    """Return the scope of one committed experiment with some of its values changed."""
    result = watched(environment)
    (value,) = [
        watching.experiment
        for watching in result.experiments
        if watching.experiment.name == experiment
    ]
    return build_scope(
        result.environment,
        [Experiment.model_validate_json(json.dumps(value.model_dump(mode="json") | given))],
    )


@cache
def drawn(environment: str) -> dict[str, Dashboard]:
    """Return the dashboards of a committed environment by the last part of their name."""
    return by_part(watched(environment))


def by_part(whole: MonitoringScope) -> dict[str, Dashboard]:
    """Return the dashboards of a scope by the last part of their name."""
    start = f"tandem-{whole.environment.name}-"
    return {dashboard.name.removeprefix(start): dashboard for dashboard in build_dashboards(whole)}


def graphs(dashboard: Dashboard) -> list[GraphWidget]:
    """Return the drawn widgets."""
    return [widget for widget in dashboard.widgets if isinstance(widget, GraphWidget)]


def graph(dashboard: Dashboard, title: str) -> GraphWidget:
    """Return the one graph whose title begins so."""
    (result,) = [item for item in graphs(dashboard) if item.title.startswith(title)]
    return result


def words(dashboard: Dashboard) -> str:
    """Return all that its text widgets say."""
    return "\n".join(
        widget.markdown for widget in dashboard.widgets if isinstance(widget, TextWidget)
    )
