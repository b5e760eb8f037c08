"""Widgets as values: their content, their publisher, and their limits."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import jinja2

# CloudWatch keeps minutes for 15 days and five minutes for 63 (user guide, metrics retention)
PERIOD_S = 300
COLUMNS = 24
# CloudWatch gives no size of its grid in pixels. Assumed: a narrow console (a laptop's 1366 pixels)
# and its text of 14 pixels. A caption fits there, and has room on a wider one. A longer text
# scrolls in its widget.
CHARACTERS_PER_COLUMN = 8
ROW_PX = 48
LINE_PX = 21
PADDING_PX = 24
TABLE_LINES = 1.75  # lines of text in the height of a table's row
MAX_TEXT_ROWS = 12  # rows of a text; longer ones scroll
_TEXTS = jinja2.Environment(  # noqa: S701 - Markdown
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
).get_template("texts.md.j2")
# a paragraph's line: neither heading nor table row, and the next line is no heading, row or item
_WRAPPED_LINE = re.compile(r"^(?![#|])(.+)\n(?=[^\n#|-])", re.MULTILINE)

Dimensions = tuple[tuple[str, str], ...]
Statistic = str
"""As CloudWatch spells it: p50, p90, p99, Average, Sum, SampleCount, Minimum, Maximum."""


@dataclass(frozen=True, kw_only=True)
class MetricLine:
    """One metric with all its dimensions.

    Args:
        metric: its name in CloudWatch.
        namespace: its namespace, names put in.
        dimensions: name and value of each, in the publisher's order.
        statistic: the drawn one.
        label: in the legend; None for a line that only an expression reads.
        id: its name in expressions; starts with a small letter.
        is_visible: whether the line itself is drawn.
        color: `#rrggbb`; None leaves it to the renderer.
    """

    metric: str
    namespace: str
    dimensions: Dimensions
    statistic: Statistic
    label: str | None = None
    id: str | None = None
    is_visible: bool = True
    color: str | None = None


@dataclass(frozen=True, kw_only=True)
class MathExpression:
    """Metric math or a SEARCH over ids and metrics, in CloudWatch's language.

    Args:
        text: one of the forms that tandem.monitoring.dashboards lists.
        label: in the legend; that of a SEARCH holds the dimension that distinguishes its series,
            from `dimension_label`.
        id: as of a MetricLine.
        is_visible: whether the expression itself is drawn.
        color: of all its series; None leaves it to the renderer.
    """

    text: str
    label: str | None
    id: str
    is_visible: bool = True
    color: str | None = None


def dimension_label(dimension: str) -> str:
    """Return the placeholder in a SEARCH's label for each found metric's value of a dimension.

    CloudWatch's user guide, "Use dynamic labels": the label applies to every metric that the search
    returns.
    """
    return f"${{PROP('Dim.{dimension}')}}"


@dataclass(frozen=True, kw_only=True)
class GraphMark:
    """A level or a moment across a graph: exactly one of `value` (in the unit), `moment` (UTC)."""

    label: str
    value: float | None = None
    moment: str | None = None


@dataclass(frozen=True, kw_only=True)
class GraphWidget:
    """One drawn widget.

    Args:
        title: its subject, with the unit.
        sentence: what the graph means, and what it does not.
        unit: of the left axis, in the catalogue's words.
        publisher: of its metrics.
        lines: metrics and expressions, in the order of the legend.
        view: a line over time, or one number a line over the whole time range in view.
        period_s: of the statistics; whole minutes. Numbers have the whole time range for a period.
        varies: whether the dashboard's variables (class, concurrency) change the graph: then they
            replace the first value of their dimension in it.
        width, height: in the dashboard's columns and rows, without the caption.
    """

    title: str
    sentence: str
    unit: str
    publisher: str
    lines: tuple[MetricLine | MathExpression, ...]
    marks: tuple[GraphMark, ...] = ()
    view: Literal["lines", "numbers"] = "lines"
    period_s: int = PERIOD_S
    varies: bool = True
    width: int = COLUMNS // 2
    height: int = 6


@dataclass(frozen=True, kw_only=True)
class TextWidget:
    """A text widget, in Markdown; it gives the reason for a graph that cannot be drawn."""

    markdown: str
    width: int
    height: int


def build_text(markdown: str, width: int = COLUMNS) -> TextWidget:
    """Return a text widget of the height of its text."""
    return TextWidget(markdown=markdown, width=width, height=count_text_rows(markdown, width))


def render_text(name: str, width: int = COLUMNS, **values: object) -> TextWidget:
    """Return the text widget of a macro of templates/texts.md.j2, with its arguments `values`."""
    return build_text(render_markdown(name, **values), width)


def render_markdown(name: str, **values: object) -> str:
    """Return the text of a macro of templates/texts.md.j2, each paragraph in one line."""
    return _WRAPPED_LINE.sub(r"\1 ", getattr(_TEXTS.module, name)(**values).strip())


def count_text_rows(markdown: str, width: int) -> int:
    """Return how many rows a text of `width` columns takes."""
    row_characters = max(1, width * CHARACTERS_PER_COLUMN)
    lines = sum(
        TABLE_LINES if line.startswith("|") else max(1, math.ceil(len(line) / row_characters))
        for line in markdown.splitlines() or [""]
    )
    return min(MAX_TEXT_ROWS, max(1, math.ceil((lines * LINE_PX + PADDING_PX) / ROW_PX)))


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """One dashboard.

    Args:
        name: unique in the account: letters, digits, dash and underscore.
        widgets: in reading order; placed left to right, 24 columns; each graph has its sentence
            under it.
        variables: choices at its head, PromptClass or Concurrency -> values, the first chosen: it
            replaces the value of that dimension in every graph that varies.
        start: time range when opened, back from now: an ISO 8601 duration with a minus.
    """

    name: str
    widgets: tuple[GraphWidget | TextWidget, ...]
    variables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    start: str = "-PT12H"
