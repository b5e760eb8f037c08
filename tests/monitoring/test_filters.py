"""The filter counts the events of accelerator nodes, and none of the other events that such a node writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from recorded import events, sample, sent

from tandem.metrics import CONTAINER_INSIGHTS, LOG_FILTER
from tandem.monitoring.agent import LogFilter, build_log_filters
from tandem.spec.environment import Environment
from tandem.spec.workspace import load_workspace

ROOT = Path(__file__).parent.parent.parent
TERM = re.compile(r'\(\$\.(\w+) = "([^"]*)"\)')


@pytest.fixture(scope="module")
def environment() -> Environment:
    """The committed environment of the post."""
    found = load_workspace(ROOT / "environments", ROOT / "experiments", ("post-us-east-2",)).environments[
        "post-us-east-2"
    ]
    assert found.environment
    return found.environment


@pytest.fixture(scope="module")
def nodes(environment: Environment) -> LogFilter:
    """The one filter there is."""
    (found,) = build_log_filters(environment)
    return found


def matches(pattern: str, event: dict[str, Any]) -> bool:
    """Evaluate `{ ($.A = "x") && ($.B = "y") }`, all that the filters say, against an event."""
    terms = TERM.findall(pattern)
    assert " && ".join(f'($.{key} = "{value}")' for key, value in terms) == pattern.strip("{} ")
    return all(event.get(key) == value for key, value in terms)


def test_it_counts_the_event_of_an_accelerator_node(nodes: LogFilter) -> None:
    (event,) = events(CONTAINER_INSIGHTS, "Node")
    assert matches(nodes.pattern, {**event, "InstanceType": "trn2.48xlarge"})


@pytest.mark.parametrize("kind", ["NodeFS", "NodeNet", "Pod", "Cluster", "ClusterService", "ClusterNamespace"])
def test_it_counts_no_other_event_that_such_a_node_writes(kind: str, nodes: LogFilter) -> None:
    (event,) = events(CONTAINER_INSIGHTS, kind)
    assert not matches(nodes.pattern, {**event, "InstanceType": "trn2.48xlarge"})


def test_its_metric_is_the_recorded_one_without_dimensions(nodes: LogFilter) -> None:
    (metric,) = sent(LOG_FILTER)
    assert (metric.name, metric.dimensions, metric.unit) == (nodes.name, frozenset(), nodes.unit)
    assert sample(LOG_FILTER)["read"] == "container-insights.json"
    assert nodes.namespace == "Tandem/post-us-east-2"


def test_without_container_insights_there_is_nothing_to_filter(environment: Environment) -> None:
    blind = environment.observability.model_copy(update={"container_insights": False})
    assert build_log_filters(environment.model_copy(update={"observability": blind})) == ()
