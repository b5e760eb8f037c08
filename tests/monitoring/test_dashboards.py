"""What is drawn is published, and what is published is drawn."""

from __future__ import annotations

import json

import pytest
from doubles.cloudwatch.expression import evaluate_periods
from doubles.cloudwatch.series_store import SeriesStore
from hosted import ENVIRONMENTS, REGION, asking, by_part, drawn, graphs, publishers, reads
from recorded import sends

from tandem.metrics import CATALOGUE, CLOUDWATCH_METRICS, GUARD, LAMBDA, SQS, list_published_metrics
from tandem.monitoring.dashboards import build_body, find_limit_faults
from tandem.monitoring.widget import Dashboard, GraphWidget, MathExpression, MetricLine

EVERY = [(environment, part) for environment in ENVIRONMENTS for part in drawn(environment)]
ARMS = [(environment, part) for environment, part in EVERY if part not in {"machine", "money"}]
every_dashboard = pytest.mark.parametrize(("environment", "part"), EVERY)
WINDOWS = tuple(range(1, 65))


def enormous() -> dict[str, Dashboard]:
    """The committed sweep with two drafts at 64 windows: 129 arms beside the baseline."""
    sweep = {"prefix": "qwen-sd", "mode": "fused", "drafts": ["Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B"]}
    extra = {"name": "qwen-control", "mode": "none"}
    return by_part(
        asking(
            "post-us-east-2", "post-drafts-windows", sweep=sweep | {"num_speculative_tokens": WINDOWS},
            variants=[{"name": "qwen-vllm", "mode": "none"}, extra],
        )
    )  # fmt: skip


@pytest.mark.parametrize("dashboards", [*map(drawn, ENVIRONMENTS), enormous()], ids=[*ENVIRONMENTS, "enormous"])
def test_every_dashboard_keeps_cloudwatchs_limits(dashboards: dict[str, Dashboard]) -> None:
    """CloudWatch's search expression syntax: an expression has 2,048 characters, a search 1,024; a name 255."""
    for dashboard in dashboards.values():
        assert list(find_limit_faults(build_body(dashboard, "us-east-2"))) == []
        assert len(dashboard.name) <= 255
        for line in (line for graph in graphs(dashboard) for line in graph.lines):
            text = line.text if isinstance(line, MathExpression) else ""
            assert len(text) <= (1024 if "SEARCH(" in text else 2048)


@every_dashboard
def test_all_that_is_drawn_stands_in_a_recording_of_a_publisher_that_its_graph_names(
    environment: str, part: str
) -> None:
    named = {graph.publisher for graph in graphs(drawn(environment)[part])}
    for read in reads(drawn(environment)[part]):
        recorded = [one for one in publishers(read) if sends(one, read.metric, read.dimensions)]
        assert set(recorded) & named, read


@pytest.mark.parametrize(("environment", "part"), ARMS)
def test_all_that_the_bench_publishes_is_drawn_for_every_experiment(environment: str, part: str) -> None:
    seen = {read.metric for read in reads(drawn(environment)[part])}
    assert seen == {metric.name for metric in list_published_metrics()}


def test_all_that_is_watched_of_others_is_drawn_somewhere() -> None:
    seen = {
        (publisher, read.metric)
        for environment, part in EVERY
        for read in reads(drawn(environment)[part])
        for publisher in publishers(read)
    }

    alarmed_on = {key for key in CLOUDWATCH_METRICS if key[0] in {LAMBDA, SQS}} | {
        (GUARD, "stop_failures"), (GUARD, "excess_nodes"),
    }  # fmt: skip  # no figure of a run
    assert seen >= CLOUDWATCH_METRICS.keys() - alarmed_on


@every_dashboard
def test_every_graph_says_its_unit_its_publisher_and_what_it_does_not(environment: str, part: str) -> None:
    """The sentence stands in a text widget under the graph, since CloudWatch has no caption."""
    widgets = build_body(drawn(environment)[part], REGION)["widgets"]
    captions = {(box["x"], box["y"]): box["properties"] for box in widgets if box["type"] == "text"}
    metrics = [box for box in widgets if box["type"] == "metric"]

    for box, graph in zip(metrics, graphs(drawn(environment)[part]), strict=True):
        said = captions[box["x"], box["y"] + box["height"]]["markdown"]
        assert said.startswith(graph.sentence)
        assert f"Published by: {graph.publisher}." in said
        assert box["properties"]["title"].endswith(f"[{graph.unit}]")


def test_what_is_not_drawn_of_130_variants_is_named_and_found_in_one_graph() -> None:
    dashboard = enormous()["post-drafts-windows"]
    said = json.dumps(build_body(dashboard, REGION)["widgets"])
    arms = [
        "qwen-vllm",
        "qwen-control",
        *(f"qwen-sd-{draft}-k{k}" for draft in ("qwen3-0-6b", "qwen3-1-7b") for k in WINDOWS),
    ]
    (whole,) = [graph for graph in graphs(dashboard) if graph.title.startswith("TPOT of every arm")]

    assert len(arms) == 130
    assert [arm for arm in arms if arm not in said] == []
    assert "121 arms that are not drawn" in said
    assert isinstance(whole, GraphWidget)
    assert "Variant=" not in whole.lines[0].text  # type: ignore[union-attr]


@every_dashboard
def test_every_expression_is_evaluated_without_cloudwatch(environment: str, part: str) -> None:
    for graph in graphs(drawn(environment)[part]):
        evaluate_periods(graph.lines, SeriesStore(), 0, 3600, graph.period_s)


@every_dashboard
def test_a_drawn_metric_has_the_unit_of_its_graph(environment: str, part: str) -> None:
    for graph in graphs(drawn(environment)[part]):
        for line in graph.lines:
            if isinstance(line, MetricLine) and line.is_visible:
                watched = CLOUDWATCH_METRICS.get((graph.publisher, line.metric))
                assert graph.unit == (watched.unit if watched else CATALOGUE[line.metric].unit)
