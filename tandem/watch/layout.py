"""Where each widget of a dashboard stands: 24 columns, row by row, each graph with its sentence under it.

Invariant: rows are filled from left to right in reading order, so no two boxes overlap; a row that does not fill its 24
columns, which would leave a hole, is a fault and never closed in silence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from tandem.watch.widget import Dashboard, Graph, Text

COLUMNS = 24
# CloudWatch publishes no size of its grid in pixels. Taken for a narrow console (a laptop's 1366 pixels) and its text
# of 14 pixels, so that a caption is whole there and has room on a wider one; a longer text scrolls in its widget.
CHARACTERS_PER_COLUMN = 8
ROW_PX = 48
LINE_PX = 21
PADDING_PX = 24
TABLE_LINES = 1.75  # lines that a row of a table is as high as
TALLEST = 12  # rows of a text; longer ones scroll


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A widget in its place, in columns and rows; a text may be a graph's caption."""

    x: int
    y: int
    width: int
    height: int
    content: Graph | str


def text(markdown: str, width: int = COLUMNS) -> Text:
    """Return a text widget as high as what it says."""
    return Text(markdown=markdown, width=width, height=rows_of(markdown, width))


def rows_of(markdown: str, width: int) -> int:
    """Return how many rows a text of `width` columns takes."""
    room = max(1, width * CHARACTERS_PER_COLUMN)
    lines = sum(
        TABLE_LINES if line.startswith("|") else max(1, math.ceil(len(line) / room))
        for line in markdown.splitlines() or [""]
    )
    return min(TALLEST, max(1, math.ceil((lines * LINE_PX + PADDING_PX) / ROW_PX)))


def caption(graph: Graph) -> str:
    """Return what stands under a graph: its sentence, and who publishes what it draws."""
    return f"{graph.sentence} *Published by: {', '.join(graph.publishers)}.*"


def boxes(dashboard: Dashboard) -> tuple[Box, ...]:
    """Return every widget in its place."""
    placed: list[Box] = []
    y = 0
    for row in _rows(dashboard.widgets):
        placed += _row(row, y)
        y = max(box.y + box.height for box in placed)
    return tuple(placed)


def _rows(widgets: Iterable[Graph | Text]) -> Iterator[list[Graph | Text]]:
    row: list[Graph | Text] = []
    for widget in widgets:
        if row and sum(other.width for other in row) + widget.width > COLUMNS:
            yield row
            row = []
        row.append(widget)
    if row:
        yield row


def _row(row: list[Graph | Text], y: int) -> Iterator[Box]:
    """Place a row: graphs of one height above captions of one height, and texts beside them as high as both."""
    graphs = [widget for widget in row if isinstance(widget, Graph)]
    drawn = max((graph.height for graph in graphs), default=0)
    said = max((rows_of(caption(graph), graph.width) for graph in graphs), default=0)
    whole = max([drawn + said, *(widget.height for widget in row if isinstance(widget, Text))])
    x = 0
    for widget in row:
        if isinstance(widget, Text):
            yield Box(x=x, y=y, width=widget.width, height=whole, content=widget.markdown)
        else:
            yield Box(x=x, y=y, width=widget.width, height=drawn, content=widget)
            yield Box(x=x, y=y + drawn, width=widget.width, height=whole - drawn, content=caption(widget))
        x += widget.width


def faults_of(placed: tuple[Box, ...]) -> Iterator[str]:
    """Yield what is wrong with places: outside the columns, on one another, or a hole between them."""
    for box in placed:
        if box.x < 0 or box.y < 0 or box.width < 1 or box.height < 1 or box.x + box.width > COLUMNS:
            yield f"{_named(box)} stands outside the {COLUMNS} columns"
    for one, other in combinations(placed, 2):
        if _overlap(one, other):
            yield f"{_named(one)} lies on {_named(other)}"
    filled = sum(box.width * box.height for box in placed)
    rows = max((box.y + box.height for box in placed), default=0)
    if filled != rows * COLUMNS:
        yield f"{rows * COLUMNS - filled} cells of {rows} rows of {COLUMNS} columns are empty, or taken twice"


def _overlap(one: Box, other: Box) -> bool:
    beside = one.x + one.width <= other.x or other.x + other.width <= one.x
    above = one.y + one.height <= other.y or other.y + other.height <= one.y
    return not (beside or above)


def _named(box: Box) -> str:
    what = f"graph {box.content.title!r}" if isinstance(box.content, Graph) else f"text {box.content[:40]!r}"
    return f"{what} at {box.x},{box.y}"
