"""What a section and a chart are, and how a chart becomes SVG, and PNG for slides, by vl-convert.

Invariant: text is text, and colors are CSS variables, so light, dark and paper share one drawing; a
screen reader reads the title and the caption of a chart, and the figures in the table under it. No
script, no font, no outside reference. A chart is drawn twice, wide and narrow, because a phone
cannot show a wide one. A section without content gives the reason; only sections on speculation and
on the post are left out, where nobody says that an arm speculates or no figure is known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import vl_convert
from markupsafe import Markup

from tandem.judge.text_format import shorten_text
from tandem.report.colors import LIGHT
from tandem.report.markup import clean_value, render_template

VegaSpec = dict[str, Any]
NARROW_PX = 330  # pixels: a phone's 390 without the page's and the card's edges
HALF_PX = 540
FULL_PX = 1030
_NARROW_LIMIT_PX = 500
# a browser's letters may be wider than vl-convert's
_FIT_PADDING = {"left": 10, "right": 8, "top": 4, "bottom": 2}
_SPANS = {NARROW_PX: "third", HALF_PX: "half", FULL_PX: "whole"}
SLIDE_PX = 1600  # pixels of a PNG
_SLIDE_CHART_PX = 800  # of the chart on it, which is drawn twice as large
_SLIDE_MARGIN_PX = 24  # of it, empty on all sides
_VARIABLE = re.compile(r"var\(--([a-z0-9-]+)\)")
_IDENTIFIER = re.compile(r'(\bid="|url\(#)')
_SIZE = re.compile(r'^<svg ([^>]*?)width="(\d+(?:\.\d+)?)" height="(\d+(?:\.\d+)?)"')


@dataclass(frozen=True, kw_only=True)
class ReportChart:
    """One chart.

    Args:
        name: of its file and of its id in the page: lower case and hyphens.
        title: above the chart.
        caption: content of the chart and how to read it, in a sentence or two.
        spec: returns its Vega-Lite specification for a width in pixels.
        table: the same figures.
        width_px: pixels on a desktop: FULL_PX, HALF_PX, or NARROW_PX, for which one drawing is
            enough.
        has_slide: whether the chart also gets a PNG.
    """

    name: str
    title: str
    caption: str
    spec: Callable[[int], VegaSpec]
    table: Markup
    width_px: int = FULL_PX
    has_slide: bool = True


@dataclass(frozen=True, kw_only=True)
class ReportSection:
    """One section of the page.

    Args:
        name: target of links: lower case and hyphens.
        short: title in the list of sections.
        title: heading.
        parts: HTML and charts, in their order.
    """

    name: str
    short: str
    title: str
    parts: tuple[Markup | ReportChart, ...]

    def list_slides(self) -> list[ReportChart]:
        """Return the charts that also get a PNG."""
        return [part for part in self.parts if isinstance(part, ReportChart) and part.has_slide]

    def render_parts(self) -> list[Markup]:
        """Return the HTML of the parts."""
        return [
            render_figure(part) if isinstance(part, ReportChart) else part for part in self.parts
        ]


def encode_nominal(field: str, scale: Mapping[Any, Any], **channel: Any) -> dict[str, Any]:
    """Return a channel that shows a word as a color, shape or dash, by `scale`."""
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": list(scale), "range": list(scale.values())},
        **channel,
    }


def encode_series(looks: Mapping[str, Sequence[Any]], **channel: Any) -> list[dict[str, Any]]:
    """Return the channels of color, dash and shape, which tell series apart."""
    return [
        encode_nominal("series", {name: look[place] for name, look in looks.items()}, **channel)
        for place in range(3)
    ]


def build_layer(
    mark: str,
    encoding: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]] | None = None,
    **style: Any,
) -> dict[str, Any]:
    """Return a layer of a chart: marks of one kind and style, for its rows or for `rows`."""
    layer = {"mark": {"type": mark, **style}, "encoding": encoding}
    if rows is None:
        return layer
    return {"data": {"values": rows}, **layer}


def build_line_spec(
    width: int,
    points: Sequence[Mapping[str, Any]],
    axes: Mapping[str, Any],
    looks: Mapping[str, Sequence[Any]],
    legend: Mapping[str, Any],
) -> VegaSpec:
    """Return the specification of lines through points, each with its color, dash and shape.

    Args:
        width: pixels.
        points: each with its `series`; with a `part` too, the line breaks between parts.
        axes: the channels x and y.
        looks: color, dash and shape of each series.
        legend: its layout.
    """
    color, dash, shape = encode_series(looks, sort=None, title=None, legend=legend)
    layers = [
        build_layer("line", {"strokeDash": dash, "detail": {"field": "part"}}, strokeWidth=2),
        build_layer("point", {"shape": shape}, filled=True, size=38, opacity=1),
    ]
    return build_fit_spec(
        width, 230, data={"values": points}, encoding={**axes, "color": color}, layer=layers
    )


def build_fit_spec(width: int, height: int | dict[str, int], **spec: Any) -> VegaSpec:
    """Return the specification of a chart that fits its axes into its width."""
    fit = {"type": "fit-x", "contains": "padding"}
    return {"width": width, "height": height, "autosize": fit, "padding": _FIT_PADDING, **spec}


def is_narrow(width: int) -> bool:
    """Return whether a chart of this width in pixels is for a phone."""
    return width < _NARROW_LIMIT_PX


def render_figure(chart: ReportChart) -> Markup:
    """Return a chart with its title, its caption and its table."""
    if chart.width_px == NARROW_PX:
        drawings = [_render_svg(chart, NARROW_PX, "any")]
    else:
        drawings = [
            _render_svg(chart, chart.width_px, "wide"),
            _render_svg(chart, NARROW_PX, "narrow"),
        ]
    return render_template("figure", chart=chart, drawings=drawings, span=_SPANS[chart.width_px])


def write_png(chart: ReportChart, folder: Path, band: str | None) -> Path:
    """Write the PNG of a chart, and return its path; `band` is the text under its title."""
    path = folder / f"{chart.name}.png"
    slide = json.dumps(compose_slide(chart, band))
    spec_json = _VARIABLE.sub(lambda match: LIGHT[match[1]], slide)
    path.write_bytes(vl_convert.vegalite_to_png(spec_json, scale=SLIDE_PX / _SLIDE_CHART_PX))
    return path


def compose_slide(chart: ReportChart, band: str | None) -> VegaSpec:
    """Return the specification of a chart's PNG."""
    spec = _apply_theme(chart.spec(_SLIDE_CHART_PX - 2 * _SLIDE_MARGIN_PX))
    # edges included
    spec |= {"background": LIGHT["card"], "padding": _SLIDE_MARGIN_PX, "width": _SLIDE_CHART_PX}
    title = {"anchor": "start", "fontSize": 17, "offset": 14, "color": LIGHT["text"]}
    spec["title"] = {"text": shorten_text(chart.title, 240), **title}
    if band is not None:
        style = {"subtitleFontSize": 15, "subtitleFontWeight": "bold", "subtitlePadding": 6}
        spec["title"] |= {"subtitle": band, "subtitleColor": LIGHT["caution-text"], **style}
    return spec


def _render_svg(chart: ReportChart, width: int, kind: str) -> Markup:
    """Return the drawing as an image with a name and a description."""
    svg = vl_convert.vegalite_to_svg(_apply_theme(chart.spec(width)))
    name = f"{chart.name}-{kind}"
    size_match = _SIZE.match(svg)
    assert size_match is not None, "vl-convert writes the size of an SVG first"
    svg_body = _IDENTIFIER.sub(rf"\g<1>{name}-", svg[size_match.end() :])
    description = Markup('<title id="{0}-t">{1}</title><desc id="{0}-d">{2}</desc>').format(
        name, clean_value(chart.title), clean_value(chart.caption)
    )
    tag_end = svg_body.index(">") + 1
    return Markup(  # noqa: S704 - Vega escapes what it draws
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="{name}-t"'
        f' aria-describedby="{name}-d" class="{kind}"'
        f' style="max-width:{size_match[2]}px"{svg_body[:tag_end]}{description}{svg_body[tag_end:]}'
    )


def _apply_theme(spec: VegaSpec) -> VegaSpec:
    """Return a specification with the common theme: no frame, quiet axes, the page's text size."""
    axis_text = {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelPadding": 5,
    }
    axis_color = {
        "labelColor": "var(--muted)",
        "titleColor": "var(--muted)",
        "gridColor": "var(--grid)",
    }
    axis_lines = {"domainColor": "var(--faint)", "tickColor": "var(--faint)"}
    legend_text = {
        "labelColor": "var(--text)",
        "labelFontSize": 12,
        "labelLimit": 300,
        "title": None,
    }
    legend = {"orient": "top", "direction": "horizontal", "symbolSize": 90, "offset": 10}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": None,
        **spec,
        "config": {
            "aria": False,
            "font": "system-ui, sans-serif",
            "view": {"stroke": None},
            "axis": axis_text | axis_color | axis_lines,
            "axisY": {"domain": False, "ticks": False},
            "legend": legend | legend_text,
            "text": {"fontSize": 12, "color": "var(--text)"},
        },
    }
