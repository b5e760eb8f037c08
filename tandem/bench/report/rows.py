"""Rows of a chart: a class at a load each, its name on the left where there is room, above its marks on a phone.

Invariant: a chart has no more rows than can be read; which are left out is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tandem.bench.judge.words import short

_SIGN = 7.0  # pixels of a character of 12 px, on average; a name that is wider is cut with an ellipsis
_WIDER = 0.88  # vl-convert measures with narrower letters than some browsers have
_MOST_NAME = 230
_ABOVE = 16  # pixels that a name above its marks takes
_NAME_AT = 11  # from the top of its row to its middle
_NARROW = 500


@dataclass(frozen=True, kw_only=True)
class Layout:
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
    def above(self) -> float:
        """How far above the middle of a row, so below 0, the middle of a name lies that stands over its marks."""
        return -0.5 + _NAME_AT / self.step

    def y(self, number: int) -> dict[str, Any]:
        """Return the scale of rows 0 to number - 1, as Vega-Lite has it; a row is 1 high."""
        return {"type": "linear", "domain": [number - 0.5, -0.5], "nice": False, "zero": False}


def is_narrow(width: int) -> bool:
    """Return whether a chart of so many pixels has its names above its marks."""
    return width < _NARROW


def layout(width: int, names: list[str], *, beside: int, step: int) -> Layout:
    """Return where the parts lie.

    Args:
        width: of the chart, pixels.
        names: of the rows.
        beside: room on the right for figures; none on a phone.
        step: height of a row's marks.
    """
    if is_narrow(width):
        whole = step + _ABOVE
        return Layout(width=width, narrow=True, name=int(width * 0.48), first=6, last=width - 10, step=whole,
                      shift=(_ABOVE - 4) / 2 / whole)  # fmt: skip
    name = min(_MOST_NAME, int(max(map(len, names), default=0) * _SIGN) + 8)
    return Layout(width=width, narrow=False, name=name, first=name + 12, last=width - beside, step=step, shift=0.0)


def named(places: Layout, names: list[str]) -> list[dict[str, Any]]:
    """Return the layers of the rows' names."""
    at = places.above if places.narrow else 0.0
    return legible({
        "data": {"values": [{"row": row + at, "name": short(name)} for row, name in enumerate(names)]},
        "mark": {"type": "text", "x": 0, "align": "left", "baseline": "middle", "limit": places.name * _WIDER,
                 "fontWeight": "bold" if places.narrow else "normal"},
        "encoding": {"y": {"field": "row", "type": "quantitative"}, "text": {"field": "name"}},
    }, places)  # fmt: skip


def legible(text: dict[str, Any], places: Layout) -> list[dict[str, Any]]:
    """Return a layer of text with a ground of its own under it where lines may cross it: on a phone."""
    if not places.narrow:
        return [text]
    ground = text["mark"] | {"stroke": "var(--card)", "strokeWidth": 4, "strokeJoin": "round", "color": "var(--card)"}
    encoding = {channel: told for channel, told in text["encoding"].items() if channel != "color"}
    return [text | {"mark": ground, "encoding": encoding}, text]
