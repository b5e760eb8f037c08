"""A dashboard in CloudWatch's JSON; widgets fill 24 columns, each graph above its sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from assemblies import Templates, resources
from hosted import ENVIRONMENTS, drawn, graphs
from recorded import sends

from tandem.cloudwatch_metrics import PUBLISHERS
from tandem.metrics import list_published_metrics
from tandem.monitoring.widget import (
    COLUMNS,
)

pytestmark = pytest.mark.cdk

SEARCHED = re.compile(
    r"SEARCH\('\{\"([^\"]+)\",?([^}]*)\} MetricName=\"([^\"]+)\"((?: \w+=\"[^\"]*\")*)', '(\w+)'"
)
EVERY = [(name, part) for name in ENVIRONMENTS for part in drawn(name)]
EXPERIMENTS = [(name, part) for name, part in EVERY if part not in {"machine", "money"}]
every_dashboard = pytest.mark.parametrize(("name", "part"), EVERY)

Body = dict[str, Any]


class MetricRead(NamedTuple):
    """One metric that a body reads, by a line or by a search."""

    namespace: str
    metric: str
    dimensions: frozenset[str]


def body_of(stacks: Templates, name: str, part: str) -> Body:
    """Return the body of a dashboard of a committed environment."""
    bodies = {
        dashboard["DashboardName"]: json.loads(dashboard["DashboardBody"])
        for dashboard in resources(stacks[f"{name}-Observability"], "AWS::CloudWatch::Dashboard")
    }
    return bodies[drawn(name)[part].name]


def list_reads(body: Body) -> Iterator[MetricRead]:
    """Yield every metric that a dashboard reads."""
    for box in body["widgets"]:
        for metric in box["properties"].get("metrics", ()):
            *named_value, options = metric if isinstance(metric[-1], dict) else [*metric, {}]
            if named_value:
                yield MetricRead(named_value[0], named_value[1], frozenset(named_value[2::2]))
            for space, dimensions, metric_name, *_ in SEARCHED.findall(
                options.get("expression", "")
            ):
                yield MetricRead(space, metric_name, frozenset(filter(None, dimensions.split(","))))


def list_publishers(read: MetricRead) -> list[str]:
    """Return the publishers whose namespace and dimensions these are."""
    return [
        name
        for name, publisher in PUBLISHERS.items()
        if read.dimensions in map(frozenset, publisher.dimensions)
        and re.fullmatch(re.sub(r"\{\w+\}", "[a-z0-9-]+", publisher.namespace), read.namespace)
    ]


@every_dashboard
def test_no_committed_dashboard_has_a_hole_or_an_overlap(stacks, name, part):
    cells = [
        (column, row)
        for box in body_of(stacks, name, part)["widgets"]
        for column in range(box["x"], box["x"] + box["width"])
        for row in range(box["y"], box["y"] + box["height"])
    ]
    rows = max(row for _, row in cells) + 1

    assert len(cells) == len(set(cells)) == rows * COLUMNS
    assert set(cells) == {(column, row) for column in range(COLUMNS) for row in range(rows)}


@every_dashboard
def test_all_that_is_drawn_stands_in_a_recording_of_a_publisher_that_its_graph_names(
    stacks, name, part
):
    named_publishers = {content.publisher for content in graphs(drawn(name)[part])}

    for read in list_reads(body_of(stacks, name, part)):
        publishers = list_publishers(read)
        recorded_publishers = [
            publisher for publisher in publishers if sends(publisher, read.metric, read.dimensions)
        ]
        assert set(recorded_publishers) & named_publishers, read


@pytest.mark.parametrize(("name", "part"), EXPERIMENTS)
def test_all_that_the_bench_publishes_is_drawn_for_every_experiment(stacks, name, part):
    metrics = {read.metric for read in list_reads(body_of(stacks, name, part))}
    assert metrics == {metric.name for metric in list_published_metrics()}


@pytest.mark.parametrize(
    ("within", "beyond", "limit"),
    [((500, 5), (501, 4), "500"), ((1, 2500), (1, 2501), "2500")],
    ids=["widgets", "metrics"],
)
def test_a_body_is_refused_beyond_a_limit(within, beyond, limit):
    assert list_faults(*within) == []
    (fault,) = list_faults(*beyond)
    assert fault.endswith(f"at most {limit}")


def test_a_body_that_no_template_could_carry_is_refused():
    (fault,) = list_faults(250, 10, namespace="n" * 250)
    assert fault.endswith("at most 250000")


def list_faults(widgets: int, metrics: int, namespace: str = "n") -> list[str]:
    """Return what is wrong with a body of so many widgets of so many metrics each."""
    from stacks.dashboards import find_limit_faults  # noqa: PLC0415

    box = {"type": "metric", "properties": {"metrics": [[namespace, "m"]] * metrics}}
    return list(find_limit_faults({"widgets": [box] * widgets}))
