"""A dashboard in CloudWatch's JSON; widgets fill 24 columns, each graph above its sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hosted import ENVIRONMENTS, REGION, drawn

from tandem.monitoring.dashboards import build_body
from tandem.monitoring.widget import COLUMNS, Dashboard, GraphMark, GraphWidget, MathExpression, MetricLine, build_text

SPACE = "Tandem/home"
CLASSES = {"PromptClass": ("json", "open", "all")}
SEARCH = f'SEARCH(\'{{"{SPACE}",Variant,PromptClass}} MetricName="ttft_ms" PromptClass="json"\', \'p50\', 300)'


def line(**given: Any) -> MetricLine:
    whole: dict[str, Any] = {
        "metric": "ttft_ms", "namespace": SPACE, "dimensions": (("Variant", "fast"), ("PromptClass", "json")),
        "statistic": "p50", "label": "fast",
    }  # fmt: skip
    return MetricLine(**whole | given)


def graph(**given: Any) -> GraphWidget:
    whole: dict[str, Any] = {
        "title": "TTFT, p50 [ms]", "sentence": "Until the first token.", "unit": "ms", "publisher": "bench",
        "lines": (line(),), "width": 24, "period_s": 300,
    }  # fmt: skip
    return GraphWidget(**whole | given)


def properties(one: GraphWidget, variables: dict[str, tuple[str, ...]] | None = None) -> dict[str, Any]:
    """The properties of the one metric widget of a dashboard."""
    whole = build_body(Dashboard(name="one", widgets=(one,), variables=variables or {}), REGION)
    (widget,) = [widget for widget in whole["widgets"] if widget["type"] == "metric"]
    found: dict[str, Any] = widget["properties"]
    return found


def strings(value: Any) -> Iterator[str]:
    """Every string of a JSON value."""
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(part)


def test_a_graph_over_time_has_its_region_period_unit_and_a_scale_from_zero() -> None:
    assert properties(graph()) == {
        "title": "TTFT, p50 [ms]", "region": REGION, "view": "timeSeries",
        "metrics": [[SPACE, "ttft_ms", "Variant", "fast", "PromptClass", "json", {"stat": "p50", "label": "fast"}]],
        "period": 300, "stacked": False, "yAxis": {"left": {"label": "ms", "min": 0, "showUnits": False}},
        "legend": {"position": "bottom"},
    }  # fmt: skip


def test_a_hidden_line_is_read_and_not_drawn() -> None:
    lines = (
        line(id="a", is_visible=False, label=None),
        MathExpression(text="a / 60", label="hours", id="b", color="#112233"),
    )

    assert [metric[-1] for metric in properties(graph(lines=lines))["metrics"]] == [
        {"stat": "p50", "id": "a", "visible": False},
        {"expression": "a / 60", "period": 300, "id": "b", "label": "hours", "color": "#112233"},
    ]


def test_levels_and_moments_are_marked() -> None:
    marks = (GraphMark(label="budget", value=2000.0), GraphMark(label="block ends", moment="2026-12-08T11:30:00Z"))
    found = properties(graph(marks=marks))["annotations"]
    assert [(mark["label"], mark["value"]) for mark in found["horizontal"]] == [("budget", 2000.0)]
    assert [(mark["label"], mark["value"]) for mark in found["vertical"]] == [("block ends", "2026-12-08T11:30:00Z")]


def test_a_choice_stands_in_the_lines_and_searches_of_a_graph_that_varies() -> None:
    lines = (line(), MathExpression(text=SEARCH, label="", id="every"))
    first, second = properties(graph(lines=lines), CLASSES)["metrics"]
    assert first[4:6] == ["PromptClass", "chosen_PromptClass"]
    assert 'PromptClass="chosen_PromptClass"' in second[0]["expression"]


def test_the_body_is_json_without_anything_that_is_null() -> None:
    for dashboard in drawn("post-us-east-2").values():
        assert '": null' not in json.dumps(build_body(dashboard, REGION), allow_nan=False)


@pytest.mark.parametrize(("environment", "part"), [(name, part) for name in ENVIRONMENTS for part in drawn(name)])
def test_no_committed_dashboard_has_a_hole_or_an_overlap(environment: str, part: str) -> None:
    cells = [
        (column, row)
        for box in build_body(drawn(environment)[part], REGION)["widgets"]
        for column in range(box["x"], box["x"] + box["width"])
        for row in range(box["y"], box["y"] + box["height"])
    ]
    rows = max(row for _, row in cells) + 1

    assert len(cells) == len(set(cells)) == rows * COLUMNS
    assert set(cells) == {(column, row) for column in range(COLUMNS) for row in range(rows)}


def test_a_text_is_as_high_as_what_it_says() -> None:
    heights = [build_text("x" * length).height for length in (10, 400, 800, 1200)]
    assert heights == sorted(heights)
    assert len(set(heights)) > 2
