"""How the figures of single requests are spread: TTFT, TPOT and E2E, baseline against variant, per class.

Invariant: requests as they were measured, not pairs: what is drawn here shows the spread and decides nothing.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from tandem.bench.request_table import RequestTable
from tandem.judge import text_format
from tandem.judge.schema import Verdict
from tandem.report import colors, sampling
from tandem.report.charts import FULL_PX, ReportChart, VegaSpec
from tandem.report.markup import build_sentence, build_table
from tandem.report.row_layout import (
    RowLayout,
    add_text_halo,
    build_layer,
    build_name_layers,
    compute_row_layout,
    is_narrow,
)
from tandem.report.section import ReportSection

METRICS = ("e2e_ms", "tpot_ms", "ttft_ms")
MAX_ROWS = 10
MAX_DOTS = 480
"""Requests of a chart that are drawn one by one; of more, the boxes alone."""

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BOX_PX = 17  # pixels of an arm in a row
_ROW_GAP_PX = 14  # and of what parts rows
_AXIS_MARGIN = 1.05  # beyond the ends of a logarithmic axis
_WIDE_RATIO = 100.0  # largest over smallest from which on a phone has powers of ten alone
_LOG_RATIO = 30.0  # largest over smallest from which on the axis is logarithmic
_MAX_AXIS_RATIO = 1e9  # times the shortest that an axis reaches down to: a nanosecond beside a second


class _BoxStatistics(NamedTuple):
    """One arm in one row."""

    row: int
    arm: int
    n: int
    quantiles: tuple[float, ...]
    values: tuple[float, ...]


class _BoxPlot(NamedTuple):
    """What one chart draws."""

    metric: str
    names: list[str]
    short: list[str]
    arms: tuple[str, ...]
    boxes: list[_BoxStatistics]

    @property
    def has_dots(self) -> bool:
        """Whether single requests are drawn."""
        return sum(box.n for box in self.boxes) <= MAX_DOTS


def build_distribution_section(verdict: Verdict, requests: RequestTable) -> ReportSection:
    """Return the section."""
    cells, cell_count = sampling.select_cells(verdict, requests, MAX_ROWS)
    arms, good_mask = sampling.select_arms(requests), sampling.mask_good_requests(verdict, requests)
    masks = {
        (row, arm): sampling.mask_cell(requests, cell) & good_mask & requests.arm_mask(name)
        for row, cell in enumerate(cells)
        for arm, name in enumerate(arms)
    }
    names, short = (
        [sampling.format_cell_name(cell, load_count=len(requests.loads), short=short) for cell in cells]
        for short in (False, True)
    )
    omission_note = (
        f" Drawn are {len(cells)} of {cell_count:,} classes at loads; the records have all."
        if len(cells) < cell_count
        else ""
    )
    charts = []
    for metric in METRICS:
        boxes = [
            _compute_box(row, arm, sampling.select_figures(requests, metric, mask))
            for (row, arm), mask in masks.items()
            if np.isfinite(requests.figures.get(metric, np.empty(0))[mask]).any()
        ]
        if boxes:
            charts.append(_build_box_chart(_BoxPlot(metric, names, short, arms, boxes), omission_note))
    sentence = "Single requests, all prompts and rounds together; the verdict pairs each prompt with itself instead."
    empty_sentence = "No request of this run has these figures: none succeeded."
    return ReportSection(
        name="spread", short="Distributions", title="Distributions",
        parts=(build_sentence(sentence if charts else empty_sentence), *charts),
    )  # fmt: skip


def _compute_box(row: int, arm: int, values: Any) -> _BoxStatistics:
    return _BoxStatistics(
        row=row,
        arm=arm,
        n=len(values),
        quantiles=tuple(float(quantile) for quantile in np.quantile(values, _QUANTILES)),
        values=tuple(values.tolist()) if len(values) <= MAX_DOTS else (),
    )


def _build_box_chart(plot: _BoxPlot, omission_note: str) -> ReportChart:
    name = text_format.format_metric(plot.metric)
    dots = " Each tick is a request." if plot.has_dots else ""
    return ReportChart(
        name=f"spread-{plot.metric.replace('_', '-')}",
        title=f"{name} of single requests, {text_format.metric_unit(plot.metric)}",
        caption="The box holds the middle half of the requests, the line in it is the median, which stands on "
        "the right "
        f"as a figure; the thin line runs from p5 to p95.{dots}{omission_note}",
        spec=lambda width: _build_box_spec(plot, width),
        table=_build_box_table(plot),
        width_px=FULL_PX,
    )


def _build_box_table(plot: _BoxPlot) -> Markup:
    heads = ("Class", "Arm", "Requests", "p5", "p25", "Median", "p75", "p95")
    rows = (
        (
            plot.names[box.row],
            plot.arms[box.arm],
            f"{box.n:,}",
            *(text_format.format_number(quantile) for quantile in box.quantiles),
        )
        for box in plot.boxes
    )
    return build_table(
        f"{text_format.format_metric(plot.metric)}, {text_format.metric_unit(plot.metric)}",
        heads,
        rows,
        numbers=range(2, 8),
    )


def _build_box_spec(plot: _BoxPlot, width: int) -> VegaSpec:
    names = plot.short if is_narrow(width) else plot.names
    row_layout = compute_row_layout(width, names, figure_px=80, step=_BOX_PX * len(plot.arms) + _ROW_GAP_PX)
    values = [_build_box_values(box, plot, row_layout) for box in plot.boxes]
    dots = [
        {"at": dot, "row": row_values["row"], "arm": row_values["arm"]}
        for box, row_values in zip(plot.boxes, values, strict=True)
        for dot in box.values
        if plot.has_dots
    ]
    low = min(box.quantiles[0] for box in plot.boxes)
    high = max([*(box.quantiles[-1] for box in plot.boxes), *(dot["at"] for dot in dots)])
    low = max(low, high / _MAX_AXIS_RATIO) if low > 0 else low
    x = {"type": "quantitative", "scale": _build_axis_scale(low, high, row_layout)}
    ticks = (
        {"values": _choose_log_ticks(low, high, is_sparse=row_layout.narrow)}
        if _is_log_range(low, high)
        else {"tickCount": 4 if row_layout.narrow else 8}
    )
    axis = {"grid": True, "tickSize": 4, "labelExpr": "format(datum.value, ',')", **ticks,
            "title": f"{text_format.format_metric(plot.metric)}, {text_format.metric_unit(plot.metric)}"}  # fmt: skip
    y = row_layout.encode_rows(len(plot.names))
    arms = [text_format.shorten_text(name) for name in plot.arms]
    color = {
        "field": "arm", "type": "nominal", "legend": {"symbolType": "square", "columnPadding": 30},
        "scale": {"domain": arms, "range": [colors.arm_color(place) for place in range(len(arms))]},
    }  # fmt: skip
    no_legend = color | {"legend": None}
    dot_encoding, median_encoding = ({"x": x | {"field": field}, "y": y, "color": no_legend} for field in ("at", "p50"))
    line = {"x": x | {"field": "p5", "axis": axis}, "x2": {"field": "p95"}, "y": y, "color": color}
    box = {"x": x | {"field": "p25"}, "x2": {"field": "p75"}, "y": y, "color": no_legend}
    return {
        "width": width,
        "height": row_layout.step * len(plot.names),
        "data": {"values": values},
        "layer": [
            build_layer("rule", line, strokeWidth=1.5),
            build_layer("rule", box, strokeWidth=11, opacity=0.35),
            build_layer("tick", dot_encoding, dots, size=11, thickness=1, opacity=0.55),
            build_layer("tick", median_encoding, size=15, thickness=3, opacity=1),
            *_build_median_layers(row_layout, y, no_legend, plot),
            *build_name_layers(row_layout, names),
        ],
    }


def _build_box_values(box: _BoxStatistics, plot: _BoxPlot, row_layout: RowLayout) -> dict[str, Any]:
    arm_offset = (box.arm - (len(plot.arms) - 1) / 2) * _BOX_PX / row_layout.step
    names = ("p5", "p25", "p50", "p75", "p95")
    return {
        "row": box.row + row_layout.shift + arm_offset, "arm": text_format.shorten_text(plot.arms[box.arm]),
        "median": text_format.format_number(box.quantiles[2]), **dict(zip(names, box.quantiles, strict=True)),
    }  # fmt: skip


def _build_median_layers(
    row_layout: RowLayout, y: dict[str, Any], color: dict[str, Any], plot: _BoxPlot
) -> list[dict[str, Any]]:
    """Return the layers of the medians as figures: beside their boxes, on a phone in one line with the row's name."""
    mark = {"type": "text", "x": row_layout.width - 4, "align": "right", "baseline": "middle"}
    if not row_layout.narrow:
        bold = mark | {"fontWeight": "bold"}
        return [{"mark": bold, "encoding": {"y": y, "text": {"field": "median"}, "color": color}}]
    medians_by_row = {
        row: " \u2192 ".join(text_format.format_number(box.quantiles[2]) for box in plot.boxes if box.row == row)
        for row in dict.fromkeys(box.row for box in plot.boxes)
    }
    values = [{"row": row + row_layout.name_offset, "medians": medians} for row, medians in medians_by_row.items()]
    text = {"data": {"values": values}, "mark": mark, "encoding": {"y": y, "text": {"field": "medians"}}}
    return add_text_halo(text, row_layout)


def _build_axis_scale(low: float, high: float, row_layout: RowLayout) -> dict[str, Any]:
    is_log = _is_log_range(low, high)
    kind: dict[str, Any] = {"type": "log"} if is_log else {"type": "linear", "zero": True}
    ends = [low / _AXIS_MARGIN, high * _AXIS_MARGIN] if is_log else [0, high]
    return kind | {"domain": ends, "range": [row_layout.first, row_layout.last], "nice": False, "clamp": True}


def _is_log_range(low: float, high: float) -> bool:
    return low > 0 and high / low > _LOG_RATIO


def _choose_log_ticks(low: float, high: float, *, is_sparse: bool) -> list[float]:
    """Return the ticks of a logarithmic axis: 1, 2 and 5 of each power of ten, or the powers alone."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if is_sparse and high / low > _WIDE_RATIO else (1, 2, 5)
    ticks = [step * 10.0**power for power in powers for step in steps]
    return [tick for tick in ticks if low <= tick <= high]
