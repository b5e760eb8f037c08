"""The one table writer: heads, blanks between columns, and what gives way."""

from __future__ import annotations

import pytest

from tandem.bench.records.terminal_table import format_table

WIDE_ROW = ["a class of the suite", "1.0", "2.0"]


def test_short_heads_stand_at_the_bottom():
    assert format_table(["class", "TTFT\nms"], [["chat", "12"]], numbers=(1,)) == [
        "       TTFT",
        "class    ms",
        "chat     12",
    ]


@pytest.mark.parametrize(("width", "line"), [(40, "x  1"), (3, "x 1")])
def test_columns_move_together_where_room_is_scarce(width, line):
    assert format_table([], [["x", "1"]], numbers=(1,), width=width) == [line]


@pytest.mark.parametrize(("folds", "first"), [(False, "a cla… 1.0 2.0"), (True, "a     1.0  2.0")])
def test_the_flexible_column_is_cut_or_folded(folds, first):
    lines = format_table([], [WIDE_ROW], numbers=(1, 2), folds=folds, width=14)
    assert (lines[0], max(map(len, lines)) <= 14) == (first, True)
