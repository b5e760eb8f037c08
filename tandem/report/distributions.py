"""How the figures of single requests are spread: TTFT, TPOT and E2E, baseline against variant, per class.

Invariant: requests as they were measured, not pairs: what is drawn here shows the spread and decides nothing.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from tandem.bench.quantiles import Values
from tandem.bench.request_table import RequestTable
from tandem.judge import text_format as fmt
from tandem.judge.schema import Verdict
from tandem.report import colors, sampling
from tandem.report.charts import FULL_PX, ReportChart, ReportSection, VegaSpec, build_layer, encode_nominal
from tandem.report.markup import build_sentence, build_table
from tandem.report.row_layout import RowLayout, add_text_halo, build_row_spec, compute_row_layout, is_narrow

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
    """One arm in one row; single values of few requests alone."""

    row: int
    arm: int
    n: int
    quantiles: tuple[float, ...]
    values: tuple[float, ...]


class _BoxPlot(NamedTuple):
    """What one chart draws: rows, wide and short names of them, arms."""

    metric: str
    names: list[str]
    short: list[str]
    arms: tuple[str, ...]
    boxes: list[_BoxStatistics]

    @property
    def has_dots(self) -> bool:
        """Whether single requests are drawn."""
        return sum(box.n for box in self.boxes) <= MAX_DOTS

    @property
    def label(self) -> str:
        """The metric and its unit."""
        return f"{fmt.format_metric(self.metric)}, {fmt.metric_unit(self.metric)}"


def build_distribution_section(verdict: Verdict, requests: RequestTable) -> ReportSection:
    """Return the section."""
    cells, cell_count = sampling.choose_cells(verdict, requests, MAX_ROWS)
    arms = (requests.baseline, *requests.variants)[: colors.MAX_ARMS] if requests.arms else ()
    good_mask, load_count = sampling.mask_good_requests(verdict, requests), len(requests.loads)
    names, short = (
        [f"{cell.class_}, {format_place(cell.load)}" if load_count > 1 else cell.class_ for cell in cells]
        for format_place in (fmt.format_load, fmt.format_short_load)
    )
    drawn = f" Drawn are {len(cells)} of {cell_count:,} classes at loads; the records have all."
    parts: list[Markup | ReportChart] = []
    for metric in METRICS:
        figures, boxes = requests.figures.get(metric, np.full(len(requests), np.nan)), []
        for row, cell in enumerate(cells):
            row_mask = sampling.mask_cell(requests, cell) & good_mask & np.isfinite(figures)
            for place, arm in enumerate(arms):
                values: Values = figures[row_mask & requests.arm_mask(arm)]
                if len(values):
                    quantiles = tuple(np.quantile(values, _QUANTILES).tolist())
                    single_values = tuple(values.tolist()) if len(values) <= MAX_DOTS else ()
                    boxes.append(_BoxStatistics(row, place, len(values), quantiles, single_values))
        if boxes:
            plot = _BoxPlot(metric, names, short, arms, boxes)
            parts.append(_build_box_chart(plot, drawn if len(cells) < cell_count else ""))
    sentence = "No request of this run has these figures: none succeeded."
    if parts:
        sentence = (
            "Single requests, all prompts and rounds together; the verdict pairs each prompt with itself instead."
        )
    parts.insert(0, build_sentence(sentence))
    return ReportSection(name="spread", short="Distributions", title="Distributions", parts=tuple(parts))


def _build_box_chart(plot: _BoxPlot, omission_note: str) -> ReportChart:
    rows = (
        (plot.names[box.row], plot.arms[box.arm], f"{box.n:,}", *map(fmt.format_number, box.quantiles))
        for box in plot.boxes
    )
    heads = ("Class", "Arm", "Requests", "p5", "p25", "Median", "p75", "p95")
    return ReportChart(
        name=f"spread-{plot.metric.replace('_', '-')}",
        title=f"{fmt.format_metric(plot.metric)} of single requests, {fmt.metric_unit(plot.metric)}",
        caption="The box holds the middle half of the requests, the line in it is the median, which stands on the "
        "right as a figure; the thin line runs from p5 to p95."
        f"{' Each tick is a request.' if plot.has_dots else ''}{omission_note}",
        spec=lambda width: _build_box_spec(plot, width),
        table=build_table(plot.label, heads, rows, numbers=range(2, 8)),
        width_px=FULL_PX,
    )


def _build_box_spec(plot: _BoxPlot, width: int) -> VegaSpec:
    names = plot.short if is_narrow(width) else plot.names
    row_layout = compute_row_layout(width, names, figure_px=80, step=_BOX_PX * len(plot.arms) + _ROW_GAP_PX)
    values: list[dict[str, Any]] = []
    dots: list[dict[str, Any]] = []
    for box in plot.boxes:
        offset = (box.arm - (len(plot.arms) - 1) / 2) * _BOX_PX / row_layout.step
        row = {"row": box.row + row_layout.shift + offset, "arm": fmt.shorten_text(plot.arms[box.arm])}
        quantiles = dict(zip(("p5", "p25", "p50", "p75", "p95"), box.quantiles, strict=True))
        values.append({**row, "median": fmt.format_number(box.quantiles[2]), **quantiles})
        dots += [{"at": dot, **row} for dot in box.values if plot.has_dots]
    low = min(box.quantiles[0] for box in plot.boxes)
    high = max(max(box.quantiles[-1], *box.values) if plot.has_dots else box.quantiles[-1] for box in plot.boxes)
    low = max(low, high / _MAX_AXIS_RATIO) if low > 0 else low
    is_log = low > 0 and high / low > _LOG_RATIO
    ends = (low / _AXIS_MARGIN, high * _AXIS_MARGIN) if is_log else (0, high)
    x = row_layout.encode_values("log" if is_log else "linear", *ends, clamp=True)
    axis = {"grid": True, "tickSize": 4, "labelExpr": "format(datum.value, ',')", "title": plot.label}
    axis |= {"values": _choose_log_ticks(low, high, row_layout)} if is_log else {}
    axis |= {} if is_log else {"tickCount": 4 if row_layout.narrow else 8}
    y = row_layout.encode_rows(len(names))
    scale = {fmt.shorten_text(name): colors.arm_color(place) for place, name in enumerate(plot.arms)}
    color = encode_nominal("arm", scale, legend={"symbolType": "square", "columnPadding": 30})
    look = {"y": y, "color": color | {"legend": None}}
    line = {"x": x | {"field": "p5", "axis": axis}, "x2": {"field": "p95"}, "y": y, "color": color}
    layers = [
        build_layer("rule", line, strokeWidth=1.5),
        build_layer("rule", {"x": x | {"field": "p25"}, "x2": {"field": "p75"}, **look}, strokeWidth=11, opacity=0.35),
        build_layer("tick", {"x": x | {"field": "at"}, **look}, dots, size=11, thickness=1, opacity=0.55),
        build_layer("tick", {"x": x | {"field": "p50"}, **look}, size=15, thickness=3, opacity=1),
        *_build_median_layers(row_layout, look, plot),
    ]
    return build_row_spec(row_layout, names, values, layers)


def _build_median_layers(row_layout: RowLayout, look: dict[str, Any], plot: _BoxPlot) -> list[dict[str, Any]]:
    """Return the layers of the medians as figures: beside their boxes, on a phone in one line with the row's name."""
    style: dict[str, Any] = {"x": row_layout.width - 4, "align": "right", "baseline": "middle"}
    if not row_layout.narrow:
        return [build_layer("text", {**look, "text": {"field": "median"}}, fontWeight="bold", **style)]
    medians: dict[int, list[str]] = {}
    for box in plot.boxes:
        medians.setdefault(box.row, []).append(fmt.format_number(box.quantiles[2]))
    rows = [{"row": row + row_layout.name_offset, "medians": " \u2192 ".join(arms)} for row, arms in medians.items()]
    text = build_layer("text", {"y": look["y"], "text": {"field": "medians"}}, rows, **style)
    return add_text_halo(text, row_layout)


def _choose_log_ticks(low: float, high: float, row_layout: RowLayout) -> list[float]:
    """Return the ticks of a logarithmic axis: 1, 2 and 5 of each power of ten, or on a phone the powers alone."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if row_layout.narrow and high / low > _WIDE_RATIO else (1, 2, 5)
    ticks = [step * 10.0**power for power in powers for step in steps]
    return [tick for tick in ticks if low <= tick <= high]
