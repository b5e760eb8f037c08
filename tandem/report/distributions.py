"""Distributions of single requests' TTFT, TPOT and E2E, baseline against variant, by class.

Invariant: the figures are of single requests, not of pairs: these charts show the spread and decide
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tandem.bench.figures.request_table import RequestTable
from tandem.judge import text_format as fmt
from tandem.judge.pairs import find_figures
from tandem.judge.schema import Verdict
from tandem.report import charts, colors, sampling
from tandem.report.charts import FULL_PX, ReportChart, ReportSection, VegaSpec
from tandem.report.markup import build_sentence, build_table
from tandem.report.row_chart import RowChart, RowMark, ValueAxis, encode_arms
from tandem.report.sampling import ChartCell

METRICS = ("e2e_ms", "tpot_ms", "ttft_ms")
MAX_ROWS = 10
MAX_DOTS = 480
"""Most requests of a chart that are drawn one by one; with more, the chart has only boxes."""

_QUANTILES = {"p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95}
_BOX_PX = 17  # pixels of an arm in a row
_AXIS_MARGIN = 1.05  # factor beyond the ends of a logarithmic axis
_LOG_RATIO = 30.0  # largest over smallest value above which the axis is logarithmic
_MAX_AXIS_RATIO = 1e9  # largest ratio of an axis' ends: a second to a nanosecond


class _BoxData(NamedTuple):
    """A chart's boxes, one a class and arm, and the requests that are drawn one by one."""

    boxes: list[dict[str, Any]]
    dots: list[dict[str, Any]]


def build_distribution_section(verdict: Verdict, requests: RequestTable) -> ReportSection:
    """Return the section on distributions."""
    cells, cell_count = sampling.choose_cells(verdict, requests, MAX_ROWS)
    note = ""
    if len(cells) < cell_count:
        note = f" Shows {len(cells)} of {cell_count:,} classes at loads; the records have all."
    box_charts = []
    for metric in METRICS:
        data = _collect_boxes(verdict, requests, cells, metric)
        if data.boxes:
            box_charts.append(_build_box_chart(metric, _color_arms(requests), data, note))
    sentence = "No request of this run has these figures: none succeeded."
    if box_charts:
        sentence = "Single requests, all prompts and rounds together"
        sentence += "; the verdict pairs each prompt with itself instead." if verdict.cells else "."
    return ReportSection(
        name="spread",
        short="Distributions",
        title="Distributions",
        parts=(build_sentence(sentence), *box_charts),
    )


def _color_arms(requests: RequestTable) -> dict[str, str]:
    """Return the color of each arm that is drawn."""
    arms = (requests.baseline, *requests.variants)[: colors.MAX_ARMS]
    return {name: colors.arm_color(place) for place, name in enumerate(arms)}


def _collect_boxes(
    verdict: Verdict, requests: RequestTable, cells: Sequence[ChartCell], metric: str
) -> _BoxData:
    figures = find_figures(requests, metric)
    usable_mask = sampling.mask_good_requests(verdict, requests) & np.isfinite(figures)
    names = fmt.name_places([(cell.class_, cell.load) for cell in cells], fmt.format_short_load)
    boxes = []
    dots = []
    for name, cell in zip(names, cells, strict=True):
        cell_mask = usable_mask & sampling.mask_cell(requests, cell)
        for arm in _color_arms(requests):
            values = figures[cell_mask & requests.arm_mask(arm)]
            if not len(values):
                continue
            place = {"row": name, "arm": fmt.shorten_text(arm)}
            marks = np.quantile(values, list(_QUANTILES.values())).tolist()
            quantiles = dict(zip(_QUANTILES, marks, strict=True))
            median = fmt.format_number(quantiles["p50"])
            boxes.append({**place, **quantiles, "n": len(values), "median": median})
            dots += [{"at": value, **place} for value in values[: MAX_DOTS + 1].tolist()]
    if len(dots) > MAX_DOTS:
        dots = []
    return _BoxData(boxes, dots)


def _build_box_chart(
    metric: str, arm_colors: Mapping[str, str], data: _BoxData, note: str
) -> ReportChart:
    unit = fmt.metric_unit(metric)
    label = f"{fmt.format_metric(metric)}, {unit}"
    rows = []
    for box in data.boxes:
        quantiles = [fmt.format_number(box[name]) for name in _QUANTILES]
        rows.append((box["row"], box["arm"], f"{box['n']:,}", *quantiles))
    ticks = " Each tick is a request." if data.dots else ""
    heads = ("Class", "Arm", "Requests", *_QUANTILES)
    return ReportChart(
        name=f"spread-{metric.replace('_', '-')}",
        title=f"{fmt.format_metric(metric)} of single requests, {unit}",
        caption=(
            "The box holds the middle half of the requests, the line in it is the median, which"
            f" stands on the right as a figure; the thin line runs from p5 to p95.{ticks}{note}"
        ),
        spec=partial(_build_box_spec, label, arm_colors, data),
        table=build_table(label, heads, rows, numbers=range(2, 8)),
        width_px=FULL_PX,
    )


def _build_box_spec(
    label: str, arm_colors: Mapping[str, str], data: _BoxData, width: int
) -> VegaSpec:
    low = min(box["p5"] for box in data.boxes)
    highs = [box["p95"] for box in data.boxes]
    highs += [dot["at"] for dot in data.dots]
    high = max(highs)
    is_log = low > 0 and high / low > _LOG_RATIO
    first = 0.0
    last = high
    if is_log:
        first = max(low, high / _MAX_AXIS_RATIO) / _AXIS_MARGIN
        last = high * _AXIS_MARGIN
    ticks = {
        "labelExpr": "format(datum.value, ',')",
        "labelOverlap": True,
        "tickCount": 4 if charts.is_narrow(width) else 8,
    }
    dot_style = {"size": 11, "thickness": 1, "opacity": 0.55}
    chart = RowChart(
        rows=data.boxes,
        axis=ValueAxis(
            title=label, first=first, last=last, figure_px=65, is_log=is_log, ticks=ticks
        ),
        marks=[
            RowMark("rule", "p5", "p95", {"strokeWidth": 1.5}),
            RowMark("rule", "p25", "p75", {"strokeWidth": 11, "opacity": 0.35}),
            RowMark("tick", "at", "", dot_style, rows=data.dots),
            RowMark("tick", "p50", "", {"size": 15, "thickness": 3, "opacity": 1}),
        ],
        figures=[("median", 0)],
        figure_style={"fontWeight": "bold"},
        look=encode_arms(
            {fmt.shorten_text(name): color for name, color in arm_colors.items()}, symbolOpacity=1
        ),
        step_px=_BOX_PX,
    )
    return chart.build_spec(width)
