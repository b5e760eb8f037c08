"""A chart with named rows, looked at in its specification."""

from __future__ import annotations

import pytest

from tandem.report.charts import FULL_PX, NARROW_PX
from tandem.report.row_chart import RowChart, RowMark, ValueAxis, mark_one


def build_chart(*names: str, marks: tuple[RowMark, ...] = ()) -> RowChart:
    return RowChart(
        rows=[{"row": name, "value": 2.0} for name in names],
        axis=ValueAxis(title="Times", first=0.5, last=4.0, figure_px=90),
        marks=(RowMark("point", "value"), *marks),
        figures=(("text", 40),),
        step_px=20,
    )


@pytest.mark.parametrize(
    ("name", "width", "room_px"),
    # 6.8 pixels a letter, up to 210, and on a phone up to 100
    [("repeating", FULL_PX, 61), ("r" * 40, FULL_PX, 210), ("r" * 40, NARROW_PX, 100)],
)
def test_names_have_the_room_of_the_longest_up_to_a_limit(name, width, room_px):
    spec = build_chart("a", name).build_spec(width)
    assert spec["layer"][0]["encoding"]["y"]["axis"]["minExtent"] == room_px


def test_the_line_at_1_spans_all_rows():
    spec = build_chart("a", "b", marks=(mark_one("red"),)).build_spec(FULL_PX)
    points, line, _ = spec["layer"]
    assert line["data"]["values"] == [{"one": 1}]
    assert ["y" in layer["encoding"] for layer in (points, line)] == [True, False]
