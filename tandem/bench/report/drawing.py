"""A chart as SVG for the page and as PNG for slides, both by Vega out of vl-convert.

Invariant: text is text, and colors are CSS variables, so light, dark and paper are one drawing; a screen reader hears
the title and what the chart shows, and reads the figures in the table under it. No script, no font, no outside
reference. A chart is drawn twice, wide and narrow, because a wide one cannot be read on a phone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import vl_convert

from tandem.bench.judge.words import short
from tandem.bench.report.colors import LIGHT
from tandem.bench.report.markup import Html, folded, tag, text

Spec = dict[str, Any]
NARROW = 330  # pixels: a phone's 390 without the page's and the card's edges
HALF = 540
FULL = 1030
_SPANS = {NARROW: "third", HALF: "half", FULL: "whole"}
SLIDE = 1600  # pixels of a PNG
_SLIDE_WIDTH = 800  # of the chart on it, which is drawn twice as large
_EDGE = 24  # of it, empty on all sides
_VARIABLE = re.compile(r"var\(--([a-z0-9-]+)\)")
_IDENTIFIER = re.compile(r'(\bid="|url\(#)')
_SIZE = re.compile(r'^<svg ([^>]*?)width="(\d+(?:\.\d+)?)" height="(\d+(?:\.\d+)?)"')


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart.

    Args:
        name: of its file and of its place in the page: lower case and hyphens.
        title: above it.
        says: what it shows and how to read it, in a sentence or two.
        spec: makes its Vega-Lite specification, so many pixels wide.
        table: the same figures.
        wide: pixels on a desktop: FULL, HALF, or NARROW, of which one drawing does for all.
        slide: whether there is a PNG of it.
    """

    name: str
    title: str
    says: str
    spec: Callable[[int], Spec]
    table: Html
    wide: int = FULL
    slide: bool = True


def figure(chart: Chart) -> Html:
    """Return a chart with its title, what it shows and its table."""
    head = f"{chart.name}-title"
    sizes = ((NARROW, "any"),) if chart.wide == NARROW else ((chart.wide, "wide"), (NARROW, "narrow"))
    drawings = [_svg(chart, width, kind) for width, kind in sizes]
    return tag(
        "figure",
        tag("h3", chart.title, id=head),
        *drawings,
        tag("figcaption", tag("p", chart.says, class_="says"), folded("The figures as a table", chart.table)),
        aria_labelledby=head,
        id=chart.name,
        class_=f"card {_SPANS[chart.wide]}",
    )


def picture(chart: Chart, folder: Path, band: str | None = None) -> Path:
    """Write the PNG of a chart, and return its path; `band` stands under its title."""
    path = folder / f"{chart.name}.png"
    colored = _VARIABLE.sub(lambda found: LIGHT[found[1]], json.dumps(compose_slide(chart, band)))
    path.write_bytes(vl_convert.vegalite_to_png(colored, scale=SLIDE / _SLIDE_WIDTH))
    return path


def compose_slide(chart: Chart, band: str | None) -> Spec:
    """Return the specification of a chart's PNG."""
    spec = {**_framed(chart.spec(_SLIDE_WIDTH - 2 * _EDGE)), "background": LIGHT["card"], "padding": _EDGE}
    if "autosize" in spec:
        spec["width"] = _SLIDE_WIDTH  # it fits its edges in too
    spec["title"] = {
        "text": short(chart.title, 240),
        "anchor": "start",
        "fontSize": 17,
        "offset": 14,
        "color": LIGHT["text"],
    }
    if band is not None:
        spec["title"] |= {
            "subtitle": band,
            "subtitleColor": LIGHT["caution-text"],
            "subtitleFontSize": 15,
            "subtitleFontWeight": "bold",
            "subtitlePadding": 6,
        }
    return spec


def _svg(chart: Chart, width: int, kind: str) -> Html:
    """Return the drawing as an image that has a name and a description."""
    drawn = vl_convert.vegalite_to_svg(_framed(chart.spec(width)))
    name = f"{chart.name}-{kind}"
    sized = _SIZE.match(drawn)
    assert sized is not None, "vl-convert writes the size of an SVG first"
    whole = _IDENTIFIER.sub(rf"\g<1>{name}-", drawn[sized.end() :])
    said = f'<title id="{name}-t">{text(chart.title)}</title><desc id="{name}-d">{text(chart.says)}</desc>'
    edge = whole.index(">") + 1
    return Html(
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="{name}-t" aria-describedby="{name}-d" '
        f'class="{kind}" style="max-width:{sized[2]}px"{whole[:edge]}{said}{whole[edge:]}'
    )


def _framed(spec: Spec) -> Spec:
    """Return a specification with what all have: no frame, quiet axes, text of the page's size."""
    quiet = {
        "labelColor": "var(--muted)", "titleColor": "var(--muted)", "titleFontWeight": "normal", "labelFontSize": 12,
        "titleFontSize": 12, "gridColor": "var(--grid)", "domainColor": "var(--faint)", "tickColor": "var(--faint)",
        "labelPadding": 5,
    }  # fmt: skip
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": None,
        "padding": {"left": 2, "right": 2, "top": 4, "bottom": 2},
        **spec,
        "config": {
            "aria": False,
            "font": "system-ui, sans-serif",
            "view": {"stroke": None},
            "axis": quiet,
            "axisY": {"domain": False, "ticks": False},
            "legend": {
                "orient": "top", "direction": "horizontal", "title": None, "labelColor": "var(--text)",
                "labelFontSize": 12, "labelLimit": 300, "symbolSize": 90, "offset": 10,
            },
            "text": {"fontSize": 12, "color": "var(--text)"},
        },
    }  # fmt: skip
