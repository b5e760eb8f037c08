"""Where each widget of a dashboard stands: 24 columns, row by row, each graph with its sentence under it.

Invariant: rows are filled from left to right in reading order, so no two boxes overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tandem.monitoring.widget import Dashboard, GraphWidget, TextWidget

COLUMNS = 24
# CloudWatch publishes no size of its grid in pixels. Taken for a narrow console (a laptop's 1366 pixels) and its text
# of 14 pixels, so that a caption is whole there and has room on a wider one; a longer text scrolls in its widget.
CHARACTERS_PER_COLUMN = 8
ROW_PX = 48
LINE_PX = 21
PADDING_PX = 24
TABLE_LINES = 1.75  # lines that a row of a table is as high as
MAX_TEXT_ROWS = 12  # rows of a text; longer ones scroll


@dataclass(frozen=True, slots=True, kw_only=True)
class WidgetBox:
    """A widget in its place, in columns and rows; a text may be a graph's caption."""

    x: int
    y: int
    width: int
    height: int
    content: GraphWidget | str


def build_text(markdown: str, width: int = COLUMNS) -> TextWidget:
    """Return a text widget as high as what it says."""
    return TextWidget(markdown=markdown, width=width, height=count_text_rows(markdown, width))


def count_text_rows(markdown: str, width: int) -> int:
    """Return how many rows a text of `width` columns takes."""
    row_characters = max(1, width * CHARACTERS_PER_COLUMN)
    lines = sum(
        TABLE_LINES if line.startswith("|") else max(1, math.ceil(len(line) / row_characters))
        for line in markdown.splitlines() or [""]
    )
    return min(MAX_TEXT_ROWS, max(1, math.ceil((lines * LINE_PX + PADDING_PX) / ROW_PX)))


def build_caption(graph: GraphWidget) -> str:
    """Return what stands under a graph: its sentence, and who publishes what it draws."""
    return f"{graph.sentence} *Published by: {', '.join(graph.publishers)}.*"


def place_widgets(dashboard: Dashboard) -> tuple[WidgetBox, ...]:
    """Return every widget in its place."""
    widget_boxes: list[WidgetBox] = []
    row: list[GraphWidget | TextWidget] = []
    y = 0
    for widget in (*dashboard.widgets, None):
        if row and (widget is None or sum(member.width for member in row) + widget.width > COLUMNS):
            widget_boxes += _place_row(row, y)
            y = max(box.y + box.height for box in widget_boxes)
            row = []
        if widget is not None:
            row.append(widget)
    return tuple(widget_boxes)


def _place_row(row: list[GraphWidget | TextWidget], y: int) -> Iterator[WidgetBox]:
    """Place a row: graphs of one height above captions of one height, and texts beside them as high as both."""
    graphs = [widget for widget in row if isinstance(widget, GraphWidget)]
    graph_height = max((graph.height for graph in graphs), default=0)
    caption_height = max((count_text_rows(build_caption(graph), graph.width) for graph in graphs), default=0)
    text_heights = [widget.height for widget in row if isinstance(widget, TextWidget)]
    row_height = max(graph_height + caption_height, *text_heights, 0)
    x = 0
    for widget in row:
        if isinstance(widget, TextWidget):
            yield WidgetBox(x=x, y=y, width=widget.width, height=row_height, content=widget.markdown)
        else:
            yield WidgetBox(x=x, y=y, width=widget.width, height=graph_height, content=widget)
            yield WidgetBox(
                x=x, y=y + graph_height, width=widget.width, height=row_height - graph_height,
                content=build_caption(widget),
            )  # fmt: skip
        x += widget.width
