"""Distributions of single requests' TTFT, TPOT and E2E, baseline against variant, by class.

Invariant: the figures are of single requests, not of pairs: these charts show the spread and decide
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from markupsafe import Markup

from tandem.bench.figures.quantiles import Values
from tandem.bench.figures.request_table import RequestTable
from tandem.judge import text_format as fmt
from tandem.judge.pairs import find_figures
from tandem.judge.schema import Verdict
from tandem.report import charts, colors, sampling
from tandem.report.charts import (
    FULL_PX,
    ReportChart,
    ReportSection,
    VegaSpec,
    build_layer,
    encode_nominal,
)
from tandem.report.markup import build_sentence, build_table

METRICS = ("e2e_ms", "tpot_ms", "ttft_ms")
MAX_ROWS = 10
MAX_DOTS = 480
"""Most requests of a chart that are drawn one by one; with more, the chart has only boxes."""

_QUANTILES = {"p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95}
_BOX_PX = 17  # pixels of an arm in a row
_AXIS_MARGIN = 1.05  # factor beyond the ends of a logarithmic axis
_LOG_RATIO = 30.0  # largest over smallest value above which the axis is logarithmic
_MAX_AXIS_RATIO = 1e9  # largest ratio of an axis' ends: a second to a nanosecond


def build_distribution_section(verdict: Verdict, requests: RequestTable) -> ReportSection:
    """Return the section on distributions."""
    cells, cell_count = sampling.choose_cells(verdict, requests, MAX_ROWS)
    arms = (requests.baseline, *requests.variants)[: colors.MAX_ARMS]
    names = fmt.name_places([(cell.class_, cell.load) for cell in cells], fmt.format_short_load)
    good_mask = sampling.mask_good_requests(verdict, requests)
    note = ""
    if len(cells) < cell_count:
        note = f" Drawn are {len(cells)} of {cell_count:,} classes at loads; the records have all."
    parts: list[Markup | ReportChart] = []
    for metric in METRICS:
        figures = find_figures(requests, metric)
        boxes: list[dict[str, Any]] = []
        dots: list[dict[str, Any]] = []
        for (name, cell), arm in product(zip(names, cells, strict=True), arms):
            mask = (
                sampling.mask_cell(requests, cell)
                & good_mask
                & np.isfinite(figures)
                & requests.arm_mask(arm)
            )
            values: Values = figures[mask]
            if len(values):
                place = {"row": name, "arm": fmt.shorten_text(arm)}
                quantiles = dict(
                    zip(
                        _QUANTILES,
                        np.quantile(values, list(_QUANTILES.values())).tolist(),
                        strict=True,
                    )
                )
                boxes.append(
                    {
                        **place,
                        **quantiles,
                        "n": len(values),
                        "median": fmt.format_number(quantiles["p50"]),
                    }
                )
                dots += [{"at": value, **place} for value in values[: MAX_DOTS + 1].tolist()]
        if boxes:
            parts.append(
                _build_box_chart(metric, arms, boxes, dots if len(dots) <= MAX_DOTS else [], note)
            )
    sentence = "No request of this run has these figures: none succeeded."
    if parts:
        sentence = (
            "Single requests, all prompts and rounds together; the verdict pairs each prompt with"
            " itself instead."
        )
    parts.insert(0, build_sentence(sentence))
    return ReportSection(
        name="spread", short="Distributions", title="Distributions", parts=tuple(parts)
    )


def _build_box_chart(
    metric: str,
    arms: Sequence[str],
    boxes: list[dict[str, Any]],
    dots: list[dict[str, Any]],
    note: str,
) -> ReportChart:
    label = f"{fmt.format_metric(metric)}, {fmt.metric_unit(metric)}"
    rows = [
        (
            box["row"],
            box["arm"],
            f"{box['n']:,}",
            *(fmt.format_number(box[name]) for name in _QUANTILES),
        )
        for box in boxes
    ]
    ticks = " Each tick is a request." if dots else ""
    return ReportChart(
        name=f"spread-{metric.replace('_', '-')}",
        title=f"{fmt.format_metric(metric)} of single requests, {fmt.metric_unit(metric)}",
        caption=(
            "The box holds the middle half of the requests, the line in it is the median, which"
            f" stands on the right as a figure; the thin line runs from p5 to p95.{ticks}{note}"
        ),
        spec=lambda width: _build_box_spec(label, arms, boxes, dots, width),
        table=build_table(
            label, ("Class", "Arm", "Requests", *_QUANTILES), rows, numbers=range(2, 8)
        ),
        width_px=FULL_PX,
    )


def _build_box_spec(
    label: str,
    arms: Sequence[str],
    boxes: list[dict[str, Any]],
    dots: list[dict[str, Any]],
    width: int,
) -> VegaSpec:
    low = min(box["p5"] for box in boxes)
    high = max([*(box["p95"] for box in boxes), *(dot["at"] for dot in dots)])
    is_log = low > 0 and high / low > _LOG_RATIO
    ends = (
        (max(low, high / _MAX_AXIS_RATIO) / _AXIS_MARGIN, high * _AXIS_MARGIN)
        if is_log
        else (0, high)
    )
    x = charts.encode_values("log" if is_log else "linear", *ends, figure_px=65, clamp=True)
    axis = {"grid": True, "tickSize": 4, "labelExpr": "format(datum.value, ',')", "title": label}
    axis |= {"labelOverlap": True, "tickCount": 4 if charts.is_narrow(width) else 8}
    scale = {fmt.shorten_text(name): colors.arm_color(place) for place, name in enumerate(arms)}
    legend = {"symbolType": "square", "symbolOpacity": 1, "columnPadding": 30}
    look = {"y": charts.encode_rows([box["row"] for box in boxes], width)}
    look |= {"color": encode_nominal("arm", scale, legend=legend)}
    look |= {"yOffset": {"field": "arm", "type": "nominal", "scale": {"domain": list(scale)}}}
    layers = [
        build_layer(
            "rule",
            {"x": x | {"field": "p5", "axis": axis}, "x2": {"field": "p95"}, **look},
            strokeWidth=1.5,
        ),
        build_layer(
            "rule",
            {"x": x | {"field": "p25"}, "x2": {"field": "p75"}, **look},
            strokeWidth=11,
            opacity=0.35,
        ),
        build_layer(
            "tick", {"x": x | {"field": "at"}, **look}, dots, size=11, thickness=1, opacity=0.55
        ),
        build_layer("tick", {"x": x | {"field": "p50"}, **look}, size=15, thickness=3, opacity=1),
        charts.build_figure_layer({**look, "text": {"field": "median"}}, fontWeight="bold"),
    ]
    return charts.build_fit_spec(width, {"step": _BOX_PX}, data={"values": boxes}, layer=layers)
