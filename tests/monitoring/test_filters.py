"""The filter counts the events of accelerator nodes, and none of the other events that such a node writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from recorded import events

from tandem.metrics import CONTAINER_INSIGHTS
from tandem.monitoring.agent import build_node_pattern
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
    return found.record


@pytest.fixture(scope="module")
def pattern(environment: Environment) -> str:
    return build_node_pattern(environment)


def matches(pattern: str, event: dict[str, Any]) -> bool:
    """Evaluate `{ ($.A = "x") && ($.B = "y") }`, all that the filters say, against an event."""
    terms = TERM.findall(pattern)
    assert " && ".join(f'($.{key} = "{value}")' for key, value in terms) == pattern.strip("{} ")
    return all(event.get(key) == value for key, value in terms)


def test_it_counts_the_event_of_an_accelerator_node(pattern: str) -> None:
    (event,) = events(CONTAINER_INSIGHTS, "Node")
    assert matches(pattern, {**event, "InstanceType": "trn2.48xlarge"})


@pytest.mark.parametrize("kind", ["NodeFS", "NodeNet", "Pod", "Cluster", "ClusterService", "ClusterNamespace"])
def test_it_counts_no_other_event_that_such_a_node_writes(kind: str, pattern: str) -> None:
    (event,) = events(CONTAINER_INSIGHTS, kind)
    assert not matches(pattern, {**event, "InstanceType": "trn2.48xlarge"})
