"""Widgets fill 24 columns, each graph above its sentence, without a hole and without an overlap."""

from __future__ import annotations

import pytest
from hosted import ENVIRONMENTS, drawn

from tandem.monitoring.dashboards import WidgetBox, build_caption, place_widgets
from tandem.monitoring.widget import (
    COLUMNS,
    Dashboard,
    GraphWidget,
    MetricLine,
    TextWidget,
    build_text,
)

EVERY = [(environment, part) for environment in ENVIRONMENTS for part in drawn(environment)]


def graph(width: int, sentence: str = "It says something.", height: int = 6) -> GraphWidget:
    line = MetricLine(metric="ttft_ms", namespace="Tandem/home", dimensions=(), statistic="p50", label="one")
    return GraphWidget(
        title="TTFT [ms]", sentence=sentence, unit="ms", publishers=("bench",), lines=(line,), width=width,
        height=height,
    )  # fmt: skip


def placed(*widgets: GraphWidget | TextWidget) -> tuple[WidgetBox, ...]:
    return place_widgets(Dashboard(name="one", title="One", widgets=widgets))


def places(found: tuple[WidgetBox, ...]) -> list[tuple[int, int, int, int]]:
    return [(box.x, box.y, box.width, box.height) for box in found]


@pytest.mark.parametrize(("environment", "part"), EVERY)
def test_no_committed_dashboard_has_a_hole_or_an_overlap(environment: str, part: str) -> None:
    cells = [
        (column, row)
        for one in place_widgets(drawn(environment)[part])
        for column in range(one.x, one.x + one.width)
        for row in range(one.y, one.y + one.height)
    ]
    rows = max(row for _, row in cells) + 1

    assert len(cells) == len(set(cells)) == rows * COLUMNS
    assert set(cells) == {(column, row) for column in range(COLUMNS) for row in range(rows)}


def test_a_graph_stands_above_its_sentence_and_its_publisher() -> None:
    drawn_box, said = placed(graph(24))
    assert isinstance(drawn_box.content, GraphWidget)
    assert said.content == "It says something. *Published by: bench.*" == build_caption(graph(24))
    assert (said.x, said.y, said.width) == (0, 6, 24)


def test_a_text_is_as_high_as_what_it_says() -> None:
    heights = [build_text("x" * length).height for length in (10, 400, 800, 1200)]
    assert heights == sorted(heights)
    assert len(set(heights)) > 2
