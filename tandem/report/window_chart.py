"""The form of a chart by num_speculative_tokens: lines of drafts, and points with their intervals.

Invariant: speed-ups are relative to plain decoding, unlike the post's figure; a line at 1 marks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tandem.judge.text_format import shorten_text
from tandem.report.charts import VegaSpec, build_fit_spec, build_layer, encode_series
from tandem.report.colors import LINE_LOOKS

Rows = Sequence[Mapping[str, Any]]


def name_drafts(drafts: Sequence[str]) -> dict[str, str]:
    """Return the name in a chart of each draft, of as many as a chart can tell apart."""
    chosen_drafts = list(dict.fromkeys(drafts))[: len(LINE_LOOKS)]
    return {draft: shorten_text(draft.rpartition("/")[2]) for draft in chosen_drafts}


def build_window_spec(
    width: int, lines: Rows, points: Rows, names: Sequence[str], figure_format: str
) -> VegaSpec:
    """Return the specification of a chart by window.

    Args:
        width: pixels.
        lines: `series`, `window` and `value` of each place on a line, `low` and `high` of a band
            around it.
        points: `window`, `value`, `low` and `high` of each; with a `series`, it has its color.
        names: of the series.
        figure_format: of the values.
    """
    looks = dict(zip(names, LINE_LOOKS, strict=False))
    color, dash, _ = encode_series(looks, sort=None, title=None)
    x_axis = {"grid": False, "tickMinStep": 1, "format": "d", "title": "num_speculative_tokens"}
    x_scale = {"zero": False, "nice": False, "padding": 12}
    x = {"field": "window", "type": "quantitative", "scale": x_scale, "axis": x_axis}
    y_axis = {"title": None, "format": figure_format, "tickCount": 6}
    y = {"type": "quantitative", "scale": {"zero": False}, "axis": y_axis}
    value = {"x": x, "y": {**y, "field": "value"}}
    ends = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}

    point_color = {"color": {"value": "var(--text)"}}
    if any("series" in row for row in points):
        point_color = {"color": color}
    plain_style = {"color": "var(--text)", "strokeDash": [4, 3]}
    layers = [
        build_layer("area", {**ends, "color": color}, opacity=0.12),
        build_layer("line", {**value, "color": color, "strokeDash": dash}, strokeWidth=2),
        build_layer("rule", {"y": {**y, "field": "one"}}, [{"one": 1}], **plain_style),
        build_layer("rule", {**ends, **point_color}, points, strokeWidth=2),
        build_layer("point", {**value, **point_color}, points, filled=True, size=50, opacity=1),
    ]
    return build_fit_spec(width, 260, data={"values": lines}, layer=layers)
