"""The form of a chart with named rows: marks over one value axis, and figures as text on the right.

Invariant: long names are cut, and a browser's letters, which may be wider than vl-convert's, have
room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tandem.report.charts import VegaSpec, build_fit_spec, build_layer, is_narrow

# of a row's name
_NAME_PX = 210
_NARROW_NAME_PX = 100
_LETTER_PX = 6.8  # of a letter of a row's name, on average

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class RowMark:
    """Marks of one kind, one a row.

    Args:
        kind: Vega-Lite's name of the mark.
        begin: field of a row: the value, or where the mark begins.
        end: field where it ends; empty for a mark of one value.
        style: of all of them.
        channels: further encodings, such as the color by a field.
        rows: of its own; None for the chart's.
        is_across: whether it spans all rows, as a line at 1 does.
    """

    kind: str
    begin: str
    end: str = ""
    style: Mapping[str, Any] = field(default_factory=dict)
    channels: Mapping[str, Any] = field(default_factory=dict)
    rows: Rows | None = None
    is_across: bool = False


@dataclass(frozen=True, kw_only=True)
class ValueAxis:
    """The axis of the values.

    Args:
        title: of it.
        first, last: its ends.
        figure_px: the room on its right.
        is_log: whether it is logarithmic.
        ticks: further properties of it.
    """

    title: str
    first: float
    last: float
    figure_px: int
    is_log: bool = False
    ticks: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> dict[str, Any]:
        """Return its channel."""
        scale = {
            "type": "log" if self.is_log else "linear",
            "nice": False,
            "domain": [self.first, self.last],
            "range": [0, {"expr": f"width - {self.figure_px}"}],
            "clamp": True,
        }
        axis = {"grid": True, "orient": "bottom", "tickSize": 4, "title": self.title, **self.ticks}
        return {"type": "quantitative", "scale": scale, "axis": axis, "stack": None}


@dataclass(frozen=True, kw_only=True)
class RowChart:
    """A chart with named rows.

    Args:
        rows: each with its name under `row`.
        axis: of the values.
        marks: from the bottom up.
        figures: fields that are text, with the pixels from the right edge of each.
        figure_style, figure_channels: of these.
        look: channels of all marks and figures of a row.
        step_px: pixels of a row, or of an arm in it.
    """

    rows: Rows
    axis: ValueAxis
    marks: Sequence[RowMark]
    figures: Sequence[tuple[str, int]]
    step_px: int
    figure_style: Mapping[str, Any] = field(default_factory=dict)
    figure_channels: Mapping[str, Any] = field(default_factory=dict)
    look: Mapping[str, Any] = field(default_factory=dict)

    def build_spec(self, width: int) -> VegaSpec:
        """Return the specification for a width in pixels."""
        place = {"y": self._encode_names(width), **self.look}
        layers = []
        for mark in self.marks:
            encoding = {"x": self.axis.encode() | {"field": mark.begin}, **mark.channels}
            if mark.end:
                encoding["x2"] = {"field": mark.end}
            if not mark.is_across:
                encoding = place | encoding
            layers.append(build_layer(mark.kind, encoding, mark.rows, **mark.style))
        for name, right_px in self.figures:
            style = {"align": "right", "baseline": "middle", **self.figure_style}
            style["x"] = {"expr": f"width - {right_px}"}
            encoding = {**place, **self.figure_channels, "text": {"field": name}}
            layers.append(build_layer("text", encoding, **style))
        step = {"step": self.step_px}
        return build_fit_spec(width, step, data={"values": self.rows}, layer=layers)

    def _encode_names(self, width: int) -> dict[str, Any]:
        names = [row["row"] for row in self.rows]
        limit = _NARROW_NAME_PX if is_narrow(width) else _NAME_PX
        axis = {
            "title": None,
            "grid": False,
            "labelColor": "var(--text)",
            "labelLimit": limit,
            "labelPadding": 10,
            "minExtent": min(limit, round(_LETTER_PX * max(map(len, names), default=0))),
        }
        domain = list(dict.fromkeys(names))
        return {
            "field": "row",
            "type": "nominal",
            "sort": None,
            "scale": {"domain": domain},
            "axis": axis,
        }


def mark_one(color: str, **style: Any) -> RowMark:
    """Return the line at 1."""
    return RowMark(
        "rule", "one", rows=[{"one": 1}], is_across=True, style={"color": color, **style}
    )


def encode_arms(arm_colors: Mapping[str, str], **legend: Any) -> dict[str, Any]:
    """Return the channels of a chart with a bar or box for each arm in a row."""
    scale = {"domain": list(arm_colors)}
    color_scale = {**scale, "range": list(arm_colors.values())}
    arm = {"field": "arm", "type": "nominal"}
    legend = {"symbolType": "square", "columnPadding": 30, **legend}
    return {
        "yOffset": {**arm, "scale": scale},
        "color": {**arm, "scale": color_scale, "legend": legend},
    }
