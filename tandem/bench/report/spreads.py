"""How the figures of single requests are spread: TTFT, TPOT and E2E, baseline against variant, per class.

Invariant: requests as they were measured, not pairs: what is drawn here shows the spread and decides nothing.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tandem.bench.judge import words
from tandem.bench.judge.form import Verdict
from tandem.bench.judge.observations import Observations
from tandem.bench.report import chosen, colors
from tandem.bench.report.drawing import FULL, Chart, Spec
from tandem.bench.report.markup import Html, table, tag
from tandem.bench.report.rows import Layout, is_narrow, layout, legible, named
from tandem.bench.report.section import Section

METRICS = ("e2e_ms", "tpot_ms", "ttft_ms")
MOST_ROWS = 10
MOST_DOTS = 480
"""Requests of a chart that are drawn one by one; of more, the boxes alone."""

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BOX = 17  # pixels of an arm in a row
_BETWEEN = 14  # and of what parts rows
_EDGE = 1.05  # beyond the ends of a logarithmic axis
_MANY = 100.0  # largest over smallest from which on a phone has powers of ten alone
_FAR = 30.0  # largest over smallest from which on the axis is logarithmic
_DEEPEST = 1e9  # times the shortest that an axis reaches down to: a nanosecond beside a second


class _Box(NamedTuple):
    """One arm in one row."""

    row: int
    arm: int
    n: int
    quantiles: tuple[float, ...]
    values: tuple[float, ...]


class _Drawn(NamedTuple):
    """What one chart draws."""

    metric: str
    names: list[str]
    short: list[str]
    arms: tuple[str, ...]
    boxes: list[_Box]

    @property
    def dotted(self) -> bool:
        """Whether single requests are drawn."""
        return sum(box.n for box in self.boxes) <= MOST_DOTS


def section(verdict: Verdict, seen: Observations) -> Section:
    """Return the section."""
    spots, of = chosen.spots(verdict, seen, MOST_ROWS)
    arms, good = chosen.arms(seen), chosen.good(verdict, seen)
    masks = {
        (row, arm): chosen.at(seen, spot) & good & seen.of_arm(name)
        for row, spot in enumerate(spots)
        for arm, name in enumerate(arms)
    }
    names, short = (
        [chosen.spot_name(spot, loads=len(seen.loads), short=short) for spot in spots] for short in (False, True)
    )
    left = f" Drawn are {len(spots)} of {of:,} classes at loads; the records have all." if len(spots) < of else ""
    charts = []
    for metric in METRICS:
        boxes = [
            _box(row, arm, chosen.figures(seen, metric, there))
            for (row, arm), there in masks.items()
            if np.isfinite(seen.figures.get(metric, np.empty(0))[there]).any()
        ]
        if boxes:
            charts.append(_chart(_Drawn(metric, names, short, arms, boxes), left))
    said = "Single requests, all prompts and rounds together; the verdict pairs each prompt with itself instead."
    nothing = "No request of this run has these figures: none succeeded."
    return Section(
        name="spread", short="Distributions", title="Distributions",
        parts=(tag("p", said if charts else nothing, class_="says"), *charts),
    )  # fmt: skip


def _box(row: int, arm: int, values: Any) -> _Box:
    return _Box(
        row=row, arm=arm, n=len(values), quantiles=tuple(float(each) for each in np.quantile(values, _QUANTILES)),
        values=tuple(values.tolist()) if len(values) <= MOST_DOTS else (),
    )  # fmt: skip


def _chart(drawn: _Drawn, left: str) -> Chart:
    name = words.short_metric(drawn.metric)
    dots = " Each tick is a request." if drawn.dotted else ""
    return Chart(
        name=f"spread-{drawn.metric.replace('_', '-')}",
        title=f"{name} of single requests, {words.unit(drawn.metric)}",
        says="The box holds the middle half of the requests, the line in it is the median, which stands on the right "
        f"as a figure; the thin line runs from p5 to p95.{dots}{left}",
        spec=lambda width: _spec(drawn, width),
        table=_table(drawn),
        wide=FULL,
    )


def _table(drawn: _Drawn) -> Html:
    heads = ("Class", "Arm", "Requests", "p5", "p25", "Median", "p75", "p95")
    rows = (
        (drawn.names[box.row], drawn.arms[box.arm], f"{box.n:,}", *(words.number(each) for each in box.quantiles))
        for box in drawn.boxes
    )
    return table(f"{words.short_metric(drawn.metric)}, {words.unit(drawn.metric)}", heads, rows, numbers=range(2, 8))


def _spec(drawn: _Drawn, width: int) -> Spec:
    names = drawn.short if is_narrow(width) else drawn.names
    places = layout(width, names, beside=80, step=_BOX * len(drawn.arms) + _BETWEEN)
    values = [_values(box, drawn, places) for box in drawn.boxes]
    dots = [
        {"at": each, "row": told["row"], "arm": told["arm"]}
        for box, told in zip(drawn.boxes, values, strict=True)
        for each in box.values
        if drawn.dotted
    ]
    low = min(box.quantiles[0] for box in drawn.boxes)
    high = max([*(box.quantiles[-1] for box in drawn.boxes), *(each["at"] for each in dots)])
    low = max(low, high / _DEEPEST) if low > 0 else low
    x = {"type": "quantitative", "scale": _scale(low, high, places)}
    ticks = (
        {"values": _powers(low, high, few=places.narrow)}
        if _is_far(low, high)
        else {"tickCount": 4 if places.narrow else 8}
    )
    axis = {"grid": True, "tickSize": 4, "labelExpr": "format(datum.value, ',')", **ticks,
            "title": f"{words.short_metric(drawn.metric)}, {words.unit(drawn.metric)}"}  # fmt: skip
    y = {"field": "row", "type": "quantitative", "axis": None, "scale": places.y(len(drawn.names))}
    arms = [words.short(name) for name in drawn.arms]
    color = {
        "field": "arm", "type": "nominal", "legend": {"symbolType": "square", "columnPadding": 30},
        "scale": {"domain": arms, "range": [colors.arm(place) for place in range(len(arms))]},
    }  # fmt: skip
    quiet = color | {"legend": None}

    def line(first: str, last: str, legend: dict[str, Any] = quiet, **mark: Any) -> dict[str, Any]:
        return {
            "mark": {"type": "rule", **mark},
            "encoding": {"x": x | {"field": first}, "x2": {"field": last}, "y": y, "color": legend},
        }

    return {
        "width": width,
        "height": places.step * len(drawn.names),
        "data": {"values": values},
        "layer": [
            line("p5", "p95", strokeWidth=1.5)
            | {"encoding": {"x": x | {"field": "p5", "axis": axis}, "x2": {"field": "p95"}, "y": y, "color": color}},
            line("p25", "p75", strokeWidth=11, opacity=0.35),
            {"data": {"values": dots}, "mark": {"type": "tick", "size": 11, "thickness": 1, "opacity": 0.55},
             "encoding": {"x": x | {"field": "at"}, "y": y, "color": quiet}},
            {"mark": {"type": "tick", "size": 15, "thickness": 3, "opacity": 1},
             "encoding": {"x": x | {"field": "p50"}, "y": y, "color": quiet}},
            *_medians(places, y, quiet, drawn),
            *named(places, names),
        ],
    }  # fmt: skip


def _values(box: _Box, drawn: _Drawn, places: Layout) -> dict[str, Any]:
    among = (box.arm - (len(drawn.arms) - 1) / 2) * _BOX / places.step
    names = ("p5", "p25", "p50", "p75", "p95")
    return {
        "row": box.row + places.shift + among, "arm": words.short(drawn.arms[box.arm]),
        "median": words.number(box.quantiles[2]), **dict(zip(names, box.quantiles, strict=True)),
    }  # fmt: skip


def _medians(places: Layout, y: dict[str, Any], color: dict[str, Any], drawn: _Drawn) -> list[dict[str, Any]]:
    """Return the layers of the medians as figures: beside their boxes, on a phone in one line with the row's name."""
    mark = {"type": "text", "x": places.width - 4, "align": "right", "baseline": "middle"}
    if not places.narrow:
        bold = mark | {"fontWeight": "bold"}
        return [{"mark": bold, "encoding": {"y": y, "text": {"field": "median"}, "color": color}}]
    told = {
        row: " \u2192 ".join(words.number(box.quantiles[2]) for box in drawn.boxes if box.row == row)
        for row in dict.fromkeys(box.row for box in drawn.boxes)
    }
    values = [{"row": row + places.above, "medians": medians} for row, medians in told.items()]
    text = {"data": {"values": values}, "mark": mark, "encoding": {"y": y, "text": {"field": "medians"}}}
    return legible(text, places)


def _scale(low: float, high: float, places: Layout) -> dict[str, Any]:
    far = _is_far(low, high)
    kind: dict[str, Any] = {"type": "log"} if far else {"type": "linear", "zero": True}
    ends = [low / _EDGE, high * _EDGE] if far else [0, high]
    return kind | {"domain": ends, "range": [places.first, places.last], "nice": False, "clamp": True}


def _is_far(low: float, high: float) -> bool:
    return low > 0 and high / low > _FAR


def _powers(low: float, high: float, *, few: bool) -> list[float]:
    """Return the ticks of a logarithmic axis: 1, 2 and 5 of each power of ten, or the powers alone."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if few and high / low > _MANY else (1, 2, 5)
    ticks = [step * 10.0**power for power in powers for step in steps]
    return [tick for tick in ticks if low <= tick <= high]
