"""How the figures of single requests are spread: TTFT, TPOT and E2E, baseline against variant, per class.

Invariant: requests as they were measured, not pairs: what is drawn here shows the spread and decides nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from tandem.bench.quantiles import Values
from tandem.bench.request_table import RequestTable
from tandem.judge import text_format as fmt
from tandem.judge.schema import Verdict
from tandem.report import charts, colors, sampling
from tandem.report.charts import FULL_PX, ReportChart, ReportSection, VegaSpec, build_layer, encode_nominal
from tandem.report.markup import build_sentence, build_table

METRICS = ("e2e_ms", "tpot_ms", "ttft_ms")
MAX_ROWS = 10
MAX_DOTS = 480
"""Requests of a chart that are drawn one by one; of more, the boxes alone."""

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BOX_PX = 17  # pixels of an arm in a row
_AXIS_MARGIN = 1.05  # beyond the ends of a logarithmic axis
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
    good_mask, places = sampling.mask_good_requests(verdict, requests), [(cell.class_, cell.load) for cell in cells]
    names, short = (fmt.name_places(places, format_place) for format_place in (fmt.format_load, fmt.format_short_load))
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
    narrow = charts.is_narrow(width)
    names = plot.short if narrow else plot.names
    values: list[dict[str, Any]] = []
    dots: list[dict[str, Any]] = []
    for box in plot.boxes:
        place = {"row": names[box.row], "arm": fmt.shorten_text(plot.arms[box.arm])}
        quantiles = dict(zip(("p5", "p25", "p50", "p75", "p95"), box.quantiles, strict=True))
        values.append({**place, "median": fmt.format_number(box.quantiles[2]), **quantiles})
        dots += [{"at": dot, **place} for dot in box.values if plot.has_dots]
    low = min(box.quantiles[0] for box in plot.boxes)
    high = max(max(box.quantiles[-1], *box.values) if plot.has_dots else box.quantiles[-1] for box in plot.boxes)
    is_log = low > 0 and high / low > _LOG_RATIO
    ends = (max(low, high / _MAX_AXIS_RATIO) / _AXIS_MARGIN, high * _AXIS_MARGIN) if is_log else (0, high)
    x = charts.encode_values("log" if is_log else "linear", *ends, figure_px=65, clamp=True)
    axis = {"grid": True, "tickSize": 4, "labelExpr": "format(datum.value, ',')", "title": plot.label}
    axis |= {"labelOverlap": True, "tickCount": 4 if narrow else 8}
    scale = {fmt.shorten_text(name): colors.arm_color(place) for place, name in enumerate(plot.arms)}
    color = encode_nominal("arm", scale, legend={"symbolType": "square", "symbolOpacity": 1, "columnPadding": 30})
    look = {"y": charts.encode_rows(names, width), "color": color}
    look["yOffset"] = {"field": "arm", "type": "nominal", "scale": {"domain": list(scale)}}
    layers = [
        build_layer("rule", {"x": x | {"field": "p5", "axis": axis}, "x2": {"field": "p95"}, **look}, strokeWidth=1.5),
        build_layer("rule", {"x": x | {"field": "p25"}, "x2": {"field": "p75"}, **look}, strokeWidth=11, opacity=0.35),
        build_layer("tick", {"x": x | {"field": "at"}, **look}, dots, size=11, thickness=1, opacity=0.55),
        build_layer("tick", {"x": x | {"field": "p50"}, **look}, size=15, thickness=3, opacity=1),
        charts.build_figure_layer({**look, "text": {"field": "median"}}, fontWeight="bold"),
    ]
    return charts.build_fit_spec(width, {"step": _BOX_PX}, data={"values": values}, layer=layers)
