"""Dashboards as values: their expressions, units and sizes."""

from __future__ import annotations

import pytest
from hosted import ENVIRONMENTS, asking, by_part, drawn, graphs, words

from tandem.cloudwatch_metrics import CLOUDWATCH_METRICS
from tandem.metrics import CATALOGUE
from tandem.monitoring.widget import Dashboard, MathExpression, MetricLine, build_text

EVERY = [(environment, part) for environment in ENVIRONMENTS for part in drawn(environment)]
every_dashboard = pytest.mark.parametrize(("environment", "part"), EVERY)
WINDOWS = tuple(range(1, 65))


def enormous() -> dict[str, Dashboard]:
    """The committed sweep with two drafts at 64 windows: 129 arms beside the baseline."""
    sweep = {"prefix": "qwen-sd", "mode": "fused", "drafts": ["Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B"]}
    extra = {"name": "qwen-control", "mode": "none"}
    return by_part(
        asking(
            "post-us-east-2",
            "post-drafts-windows",
            sweep=sweep | {"num_speculative_tokens": WINDOWS},
            variants=[{"name": "qwen-vllm", "mode": "none"}, extra],
        )
    )


@pytest.mark.parametrize(
    "dashboards", [*map(drawn, ENVIRONMENTS), enormous()], ids=[*ENVIRONMENTS, "enormous"]
)
def test_every_dashboard_keeps_cloudwatchs_limits(dashboards):
    """CloudWatch's search expression syntax: an expression has 2,048 characters, a search 1,024; a
    name 255."""
    for dashboard in dashboards.values():
        assert len(dashboard.name) <= 255
        for line in (line for graph in graphs(dashboard) for line in graph.lines):
            text = line.text if isinstance(line, MathExpression) else ""
            assert len(text) <= (1024 if "SEARCH(" in text else 2048)


@every_dashboard
def test_a_drawn_metric_has_the_unit_of_its_graph(environment, part):
    for graph in graphs(drawn(environment)[part]):
        for line in graph.lines:
            if isinstance(line, MetricLine) and line.is_visible:
                watched_cloudwatch_metric = CLOUDWATCH_METRICS.get((graph.publisher, line.metric))
                assert graph.unit == (
                    watched_cloudwatch_metric.unit
                    if watched_cloudwatch_metric
                    else CATALOGUE[line.metric].unit
                )


def test_one_graph_of_130_variants_finds_those_that_have_no_line():
    (result,) = [
        graph
        for graph in graphs(enormous()["post-drafts-windows"])
        if graph.title.startswith("TPOT of every")
    ]
    (line,) = result.lines
    assert isinstance(line, MathExpression)
    assert "Variant=" not in line.text


def test_arms_that_are_not_drawn_are_counted():
    assert "121 arms that are not drawn" in words(enormous()["post-drafts-windows"])


def test_a_text_is_as_high_as_what_it_says():
    heights = [build_text("x" * length).height for length in (10, 400, 800, 1200)]
    assert heights == sorted(heights)
    assert len(set(heights)) > 2
