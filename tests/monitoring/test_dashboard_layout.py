"""Widgets fill 24 columns, each graph above its sentence, without a hole and without an overlap."""

from __future__ import annotations

import pytest
from hosted import ENVIRONMENTS, REGION, drawn

from tandem.monitoring.dashboards import build_body
from tandem.monitoring.widget import COLUMNS, build_text

EVERY = [(environment, part) for environment in ENVIRONMENTS for part in drawn(environment)]


@pytest.mark.parametrize(("environment", "part"), EVERY)
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
