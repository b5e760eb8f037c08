"""The chart library: Vega, out of vl-convert, which carries it whole and asks no network.

Invariant: one chart for all graphs of a page; its colors are CSS variables, so light, dark and paper need no second
drawing. The same version gives the same bytes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import vl_convert

# The wheel's documented snippet offers `vega`, which in 1.9.0.post1 is null: the module has no default export. The
# path below is the name under which the wheel itself holds the module; tests/monitoring/test_chart.py draws with it.
_SNIPPET = (
    "import {{parse, View, changeset}} from '/npm/vega@{version}/+esm'; window.vega = {{parse, View, changeset}};"
)
_DASHES = [[1, 0], [5, 3], [1.5, 2.5], [8, 3, 2, 3]]
_HUES = 6
_TICKS = 5


@cache
def load_vega_library() -> str:
    """Return Vega as one script of JavaScript, which sets `window.vega`."""
    return str(vl_convert.javascript_bundle(_SNIPPET.format(version=vl_convert.get_vega_version())))


@cache
def build_chart_specification() -> dict[str, Any]:
    """Return the Vega specification of a graph over time; its data sets are filled in by who draws.

    Signals: `first` and `last`, the ends of the time axis in ms since 1970; `clock`, how it writes a time, and
    `ticks`, at which; `top`, the end of the value axis, 0 for what the values need; `dot`, the area of one in pixels.
    Data: `points` (at in ms since 1970, value or null for a break, hue, dash, line), `levels` (value, label),
    `moments` (at, label), `cursor` (at).
    """
    return dict(vl_convert.vegalite_to_vega(_build_vega_lite()))


def _build_vega_lite() -> dict[str, Any]:
    """The chart in Vega-Lite: a faint line across gaps, a strong one between neighbors, a dot where a point is."""
    time_domain = {"domainMin": {"expr": "first"}, "domainMax": {"expr": "last"}}
    time_encoding = {"field": "at", "type": "temporal", "title": None, "scale": {"type": "utc", **time_domain}}
    value_scale = {"zero": True, "nice": _TICKS, "domainMax": {"expr": "top || null"}}
    value_encoding = {"field": "value", "type": "quantitative", "title": None, "scale": value_scale}
    time_axis = {"grid": False, "values": {"expr": "ticks"}, "labelExpr": "utcFormat(datum.value, clock)"}
    line_encoding = {
        "x": time_encoding | {"axis": time_axis},
        "y": value_encoding | {"axis": {"tickCount": _TICKS}},
        "color": {
            "field": "hue",
            "type": "nominal",
            "legend": None,
            "scale": {"domain": list(range(_HUES)), "range": [f"var(--hue-{hue})" for hue in range(_HUES)]},
        },
        "detail": {"field": "line", "type": "nominal"},
    }
    dash_encoding = line_encoding | {
        "strokeDash": {
            "field": "dash",
            "type": "nominal",
            "legend": None,
            "scale": {"domain": list(range(len(_DASHES))), "range": _DASHES},
        }
    }
    valid_filter = [{"filter": "isValid(datum.value)"}]
    rule_mark = {"type": "rule", "color": "var(--muted)", "strokeDash": [4, 3]}
    text_mark = {"type": "text", "color": "var(--muted)", "fontSize": 11, "align": "left", "dx": 4, "dy": -5}
    return {
        "width": 400,
        "height": 200,
        "autosize": {"type": "fit", "contains": "padding"},
        "background": None,
        "padding": {"left": 0, "right": 6, "top": 8, "bottom": 0},
        "params": [
            {"name": "first", "value": 0},
            {"name": "last", "value": 1},
            {"name": "top", "value": 0},
            {"name": "clock", "value": "%H:%M"},
            {"name": "ticks", "value": [0]},
            {"name": "dot", "value": 16},
        ],
        "data": {"name": "points", "values": []},
        "layer": [
            {
                "data": {"name": "cursor", "values": []},
                "mark": {"type": "rule", "color": "var(--faint)"},
                "encoding": {"x": time_encoding},
            },
            {
                "transform": valid_filter,
                "mark": {"type": "line", "strokeWidth": 1, "opacity": 0.3},
                "encoding": line_encoding,
            },
            {
                "mark": {"type": "line", "strokeWidth": 2, "invalid": "break-paths-show-domains", "strokeCap": "butt"},
                "encoding": dash_encoding,
            },
            {
                "transform": valid_filter,
                "mark": {"type": "circle", "size": {"expr": "dot"}, "opacity": 1},
                "encoding": line_encoding,
            },
            {
                "data": {"name": "levels", "values": []},
                "layer": [
                    {"mark": rule_mark, "encoding": {"y": value_encoding}},
                    {"mark": text_mark | {"x": 0}, "encoding": {"y": value_encoding, "text": {"field": "label"}}},
                ],
            },
            {
                "data": {"name": "moments", "values": []},
                "layer": [
                    {"mark": rule_mark, "encoding": {"x": time_encoding}},
                    {
                        "mark": text_mark | {"y": 0, "baseline": "top", "dy": 2},
                        "encoding": {"x": time_encoding, "text": {"field": "label"}},
                    },
                ],
            },
        ],
        "config": {
            "aria": False,
            "font": "system-ui, sans-serif",
            "view": {"stroke": None},
            "axis": {
                "labelColor": "var(--muted)",
                "labelFontSize": 11,
                "labelPadding": 6,
                "gridColor": "var(--grid)",
                "domain": False,
                "ticks": False,
            },
            "axisX": {"domain": True, "domainColor": "var(--faint)", "ticks": True, "tickColor": "var(--faint)"},
        },
    }
