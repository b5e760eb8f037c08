"""Rows of a chart: a class at a load each, its name on the left where there is room, above its marks on a phone.

Invariant: a chart has no more rows than can be read; which are left out is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tandem.judge.text_format import shorten_text
from tandem.report.charts import VegaSpec, build_layer

_CHARACTER_PX = 7.0  # pixels of a character of 12 px, on average; a name that is wider is cut with an ellipsis
_WIDTH_FACTOR = 0.88  # vl-convert measures with narrower letters than some browsers have
_MAX_NAME_PX = 230
_NAME_ROW_PX = 16  # pixels that a name above its marks takes
_NAME_CENTER_PX = 11  # from the top of its row to its middle
_NARROW_LIMIT_PX = 500


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """Where the parts of a row lie, in pixels.

    Args:
        width: of the chart.
        narrow: whether names stand above marks.
        name: room for a name.
        first, last: of the value axis.
        step: height of a row.
        shift: how far marks lie below the middle of their row.
    """

    width: int
    narrow: bool
    name: int
    first: int
    last: int
    step: int
    shift: float

    @property
    def name_offset(self) -> float:
        """How far above the middle of a row, so below 0, the middle of a name lies that stands over its marks."""
        return -0.5 + _NAME_CENTER_PX / self.step

    def encode_rows(self, row_count: int) -> dict[str, Any]:
        """Return the vertical channel of rows 0 to number - 1, as Vega-Lite has it; a row is 1 high."""
        scale = {"type": "linear", "domain": [row_count - 0.5, -0.5], "nice": False, "zero": False}
        return {"field": "row", "type": "quantitative", "axis": None, "scale": scale}

    def encode_values(self, kind: str, first: float, last: float, **scale: Any) -> dict[str, Any]:
        """Return the horizontal channel of a value axis from `first` to `last`; `kind` is linear or log."""
        ends = {"domain": [first, last], "range": [self.first, self.last]}
        return {"type": "quantitative", "scale": {"type": kind, "nice": False, **ends, **scale}}


def is_narrow(width: int) -> bool:
    """Return whether a chart of so many pixels has its names above its marks."""
    return width < _NARROW_LIMIT_PX


def compute_row_layout(width: int, names: Sequence[str], *, figure_px: int, step: int) -> RowLayout:
    """Return where the parts lie.

    Args:
        width: of the chart, pixels.
        names: of the rows.
        figure_px: room on the right for figures; none on a phone.
        step: height of a row's marks.
    """
    if is_narrow(width):
        row_px = step + _NAME_ROW_PX
        shift = (_NAME_ROW_PX - 4) / 2 / row_px
        return RowLayout(
            width=width, narrow=True, name=int(width * 0.48), first=6, last=width - 10, step=row_px, shift=shift
        )
    name = min(_MAX_NAME_PX, int(max(map(len, names), default=0) * _CHARACTER_PX) + 8)
    return RowLayout(
        width=width, narrow=False, name=name, first=name + 12, last=width - figure_px, step=step, shift=0.0
    )


def build_row_spec(
    row_layout: RowLayout, names: Sequence[str], values: list[dict[str, Any]], layers: list[dict[str, Any]]
) -> VegaSpec:
    """Return the specification of a chart of rows: its own layers, then the rows' names."""
    name_offset = row_layout.name_offset if row_layout.narrow else 0.0
    rows = [{"row": row + name_offset, "name": shorten_text(name)} for row, name in enumerate(names)]
    encoding = {"y": {"field": "row", "type": "quantitative"}, "text": {"field": "name"}}
    weight = "bold" if row_layout.narrow else "normal"
    style = {"x": 0, "align": "left", "baseline": "middle", "limit": row_layout.name * _WIDTH_FACTOR}
    name_layers = add_text_halo(build_layer("text", encoding, rows, fontWeight=weight, **style), row_layout)
    return {
        "width": row_layout.width,
        "height": row_layout.step * len(names),
        "data": {"values": values},
        "layer": [*layers, *name_layers],
    }


def add_text_halo(text: dict[str, Any], row_layout: RowLayout) -> list[dict[str, Any]]:
    """Return a layer of text with a ground of its own under it where lines may cross it: on a phone."""
    if not row_layout.narrow:
        return [text]
    halo = text["mark"] | {"stroke": "var(--card)", "strokeWidth": 4, "strokeJoin": "round", "color": "var(--card)"}
    encoding = {channel: value for channel, value in text["encoding"].items() if channel != "color"}
    return [text | {"mark": halo, "encoding": encoding}, text]
