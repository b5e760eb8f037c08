"""Speed-up per class with its interval, the margin and the noise floor: a forest plot.

Invariant: the same scale for all rows, and equal factors are equal lengths (it is logarithmic): twice as fast lies as
far to the right as half as fast to the left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from tandem.bench.schedule import LoadLevel
from tandem.judge import text_format
from tandem.judge.schema import FILE, CellVerdict, CellWord, Headline, OutputFinding, TailSpeedUp, Verdict
from tandem.report.charts import FULL_PX, NARROW_PX, ReportChart, VegaSpec
from tandem.report.colors import SHAPES, TONES
from tandem.report.header import find_tone
from tandem.report.markup import build_table
from tandem.report.row_layout import (
    RowLayout,
    add_text_halo,
    build_layer,
    build_name_layers,
    compute_row_layout,
    is_narrow,
)

MAX_ROWS = 30
_STEP_PX, _SMALL_STEP_PX = 30, 24
POINT_STYLE: dict[str, Any] = {"filled": True, "size": 90, "opacity": 1, "stroke": "var(--card)", "strokeWidth": 1}
_MAX_SPEED_UP = 50.0  # a speed-up beyond is drawn at the edge
_MIN_SPAN = 1.25  # each side of 1
_AXIS_MARGIN = 1.04
_COLORS_OF_FASTER: Mapping[OutputFinding, str] = {
    "the same": "", "not shown": " Faster is amber: that outputs are the same is not shown.",
    "not the same": " Faster is red: outputs are not the same.",
}  # fmt: skip
_FINE_TICK_SPAN, _MIDDLE_TICK_SPAN = 2.2, 7.0  # spans up to which ticks are tenths, and halves


@dataclass(frozen=True, kw_only=True)
class ForestPlot:
    """What a forest plot draws: the cells of a variant in their order, and how many there are."""

    headline: Headline
    cells: tuple[CellVerdict, ...]
    cell_count: int
    margin: float
    load_count: int

    @property
    def colors(self) -> dict[CellWord, str]:
        """Color of each word: that of the verdict, by which faster is green beside equal outputs alone."""
        return {word: TONES[find_tone(self.headline, word).class_] for word in SHAPES}


def build_forest_charts(verdict: Verdict, headline: Headline, variant_index: int) -> tuple[ReportChart, ...]:
    """Return the plot of a variant by its deciding metric, then smaller ones of the others, with the same rows.

    Args:
        verdict: all of it.
        headline: of the variant.
        variant_index: of the variant, for the charts' names.
    """
    by_metric: dict[str, list[CellVerdict]] = {headline.metric: []}
    for cell in verdict.cells:
        if cell.variant == headline.variant and cell.speed_up is not None:
            by_metric.setdefault(cell.metric, []).append(cell)
    nonempty_cells = {metric: cells for metric, cells in by_metric.items() if cells}
    if not nonempty_cells:
        return ()
    first_cells = next(iter(nonempty_cells.values()))
    rows = {
        _row_key(cell): row
        for row, cell in enumerate(sorted(text_format.choose_telling_cells(first_cells, MAX_ROWS), key=_sort_key))
    }
    charts = []
    for number, cells in enumerate(nonempty_cells.values()):
        plot_cells = [cell for cell in cells if _row_key(cell) in rows]
        if plot_cells:
            plot = ForestPlot(
                headline=headline,
                cells=tuple(sorted(plot_cells, key=lambda cell: rows[_row_key(cell)])),
                cell_count=len(cells),
                margin=verdict.margin,
                load_count=len({cell.load for cell in cells}),
            )
            suffix = f"-{number}" if number else ""
            charts.append(_build_forest_chart(verdict, plot, f"speed-up-{variant_index}{suffix}", small=number > 0))
    return tuple(charts)


def _row_key(cell: CellVerdict) -> tuple[str, LoadLevel]:
    return cell.class_, cell.load


def _build_forest_chart(verdict: Verdict, plot: ForestPlot, name: str, *, small: bool) -> ReportChart:
    metric, variant = plot.cells[0].metric, plot.cells[0].variant
    return ReportChart(
        name=name,
        title=f"{text_format.format_metric(metric)}: speed-up of {text_format.shorten_text(variant)} over "
        f"{text_format.shorten_text(verdict.baseline)}",
        caption=_format_caption(plot, verdict, small=small),
        spec=lambda width: _build_forest_spec(plot, width, small=small),
        table=build_cells_table(f"{text_format.format_metric(metric)} of {variant}", plot.cells, verdict),
        width_px=NARROW_PX if small else FULL_PX,
        has_slide=not small,
    )


def _sort_key(cell: CellVerdict) -> tuple[float, float]:
    load_value = cell.load.concurrency if cell.load.concurrency is not None else cell.load.rate_per_s or 0
    return load_value, -(cell.speed_up.value if cell.speed_up else 1.0)


def _format_caption(plot: ForestPlot, verdict: Verdict, *, small: bool) -> str:
    omission_note = (
        f" Drawn are {len(plot.cells)} of {plot.cell_count:,}, the fastest and the slowest; all are in {FILE} of the "
        f"run {verdict.folder}."
        if len(plot.cells) < plot.cell_count
        else ""
    )
    if small:
        verdict_counts = Counter(cell.verdict for cell in plot.cells)
        counts_text = ", ".join(f"{number} {word}" for word, number in verdict_counts.items())
        return f"Of {len(plot.cells)} rows: {counts_text}.{omission_note}"
    floors = any(cell.noise_floor for cell in plot.cells)
    floor = (
        "The grey bar around 1 in each row is the noise floor, what the baseline differs from itself by: nothing "
        "within it is called."
        if floors
        else "There is no noise floor: the baseline was not measured against itself."
    )
    color = _COLORS_OF_FASTER[plot.headline.output] if any(cell.verdict == "faster" for cell in plot.cells) else ""
    return (
        f"Each mark is the geometric mean over prompts, its line the {text_format.format_level(verdict)} "
        "interval; right of 1 the "
        f"variant is better. The shaded band is the margin of {100 * verdict.margin:g} %: an interval inside it is "
        f"the same. {floor}{color}{omission_note}"
    )


def build_cells_table(caption: str, cells: Sequence[CellVerdict], verdict: Verdict) -> Markup:
    """Return the cells of one metric with all that the verdict says of them."""
    rows = ((cell.class_, text_format.format_load(cell.load), *_format_cell(cell)) for cell in cells)
    return build_table(caption, ("Class", "Load", *_list_headings(verdict)), rows, numbers=range(2, 11), class_="cells")


def build_metrics_table(caption: str, cells: Sequence[CellVerdict], verdict: Verdict) -> Markup:
    """Return cells of several metrics, those of E2E with their mean and 90th percentile."""
    heads = ("Class", "Metric", "Load", *_list_headings(verdict))
    rows = (
        (
            cell.class_,
            f"{text_format.format_metric(cell.metric)}{statistic}",
            text_format.format_load(cell.load),
            *columns,
        )
        for cell in cells
        for statistic, columns in [
            ("", _format_cell(cell)),
            *((f" {tail.statistic}", _format_cell(cell, tail)) for tail in cell.tails),
        ]
    )
    return build_table(caption, heads, rows, numbers=range(3, 12), class_="cells")


def _list_headings(verdict: Verdict) -> tuple[str, ...]:
    interval = f"{text_format.format_level(verdict)} interval"
    values = (
        "Prompts",
        "Rounds",
        "Baseline",
        "Variant",
        "Speed-up",
        interval,
        "Adjusted p",
        "Noise floor",
        "Detectable",
    )
    return (*values, "Verdict", "Why")


def _format_cell(cell: CellVerdict, tail: TailSpeedUp | None = None) -> tuple[str, ...]:
    """Return the columns of a cell, or of one statistic beside its median."""
    figures = tail or cell
    return (
        f"{cell.prompts:,}",
        f"{cell.rounds:,}",
        _format_value(figures.baseline, cell.metric),
        _format_value(figures.measured, cell.metric),
        text_format.format_times(figures.speed_up.value if figures.speed_up else None),
        text_format.format_interval(figures.speed_up),
        text_format.format_number(figures.adjusted_p),
        text_format.format_times(cell.noise_floor),
        text_format.ABSENT if tail else text_format.format_times(cell.detectable),
        figures.verdict,
        "beside the median, over all requests" if tail else cell.why,
    )


def _format_value(value: float | None, metric: str) -> str:
    return (
        f"{text_format.format_number(value)} {text_format.metric_unit(metric)}"
        if value is not None
        else text_format.ABSENT
    )


def _build_forest_spec(plot: ForestPlot, width: int, *, small: bool) -> VegaSpec:
    names = [_format_row_name(cell, plot, width) for cell in plot.cells]
    row_layout = compute_row_layout(width, names, figure_px=290, step=_SMALL_STEP_PX if small else _STEP_PX)
    low, high = _compute_axis_ends(plot.cells)
    x = row_layout.encode_values("log", low, high, clamp=True)
    y = row_layout.encode_rows(len(names))
    axis = {
        "values": _choose_ticks(low, high, is_sparse=row_layout.narrow), "grid": True, "orient": "bottom",
        "labelExpr": f"format(datum.value, '~g') + '{text_format.TIMES}'", "tickSize": 4,
        "title": None if small else f"speed-up: left of 1{text_format.TIMES} slower, right of it faster",
    }  # fmt: skip
    rows = [_build_row_values(cell, row + row_layout.shift, low, high) for row, cell in enumerate(plot.cells)]
    margin_row = {"from": 1 / (1 + plot.margin), "to": 1 + plot.margin}
    color, shape = _encode_verdict(plot.colors), _encode_verdict(SHAPES)
    margin_ends = {"x": x | {"axis": axis, "field": "from"}, "x2": {"field": "to"}}
    floor_ends = {"x": x | {"field": "floor"}, "x2": {"field": "ceiling"}, "y": y}
    interval_ends = {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y, "color": color}
    return {
        "width": width,
        "height": row_layout.step * len(names),
        "data": {"values": rows},
        "layer": [
            build_layer("rect", margin_ends, [margin_row], color="var(--band)"),
            build_layer("rule", floor_ends, color="var(--floor)", strokeWidth=9, opacity=0.45)
            | {"transform": [{"filter": "datum.ceiling > 1"}]},
            build_layer("rule", {"x": x | {"field": "one"}}, [{"one": 1}], color="var(--muted)", strokeWidth=1),
            build_layer("rule", interval_ends, strokeWidth=2.5, strokeCap="round"),
            build_layer("point", {"x": x | {"field": "value"}, "y": y, "color": color, "shape": shape}, **POINT_STYLE),
            *_build_text_layers(row_layout, y, plot.colors),
            *build_name_layers(row_layout, names),
        ],
    }


def _format_row_name(cell: CellVerdict, plot: ForestPlot, width: int) -> str:
    load_text = text_format.format_short_load(cell.load) if is_narrow(width) else text_format.format_load(cell.load)
    return f"{cell.class_}, {load_text}" if plot.load_count > 1 else cell.class_


def _build_row_values(cell: CellVerdict, row: float, low: float, high: float) -> dict[str, Any]:
    ratio = cell.speed_up
    assert ratio is not None
    floor = cell.noise_floor or 1.0
    return {
        "row": row, "value": ratio.value, "verdict": cell.verdict,
        "low": ratio.low if ratio.low is not None else ratio.value,
        "high": ratio.high if ratio.high is not None else ratio.value,
        "floor": max(1 / floor, low), "ceiling": min(floor, high),
        "figure": text_format.format_times(ratio.value),
        "interval": text_format.format_interval(ratio) if ratio.low is not None else "no interval",
        "short": f"{text_format.format_times(ratio.value)} {cell.verdict}",
    }  # fmt: skip


def _encode_verdict(channel_values: Any) -> dict[str, Any]:
    return {
        "field": "verdict", "type": "nominal", "legend": None,
        "scale": {"domain": list(channel_values), "range": list(channel_values.values())},
    }  # fmt: skip


def _build_text_layers(
    row_layout: RowLayout, y: dict[str, Any], colors: Mapping[CellWord, str]
) -> list[dict[str, Any]]:
    """Return the figures of each row as text: on the right, on a phone above the marks."""

    def build_text_layer(field: str, x: float, **style: Any) -> dict[str, Any]:
        encoding = {"y": y, "text": {"field": field}, "color": _encode_verdict(colors)}
        return build_layer("text", encoding, **{"x": x, "baseline": "middle", "align": "left", **style})

    if row_layout.narrow:
        dy = (row_layout.name_offset - row_layout.shift) * row_layout.step
        return add_text_halo(build_text_layer("short", row_layout.width - 4, align="right", dy=dy), row_layout)
    interval_layer = build_text_layer("interval", row_layout.last + 84)
    return [
        build_text_layer("figure", row_layout.last + 70, align="right", fontWeight="bold"),
        interval_layer | {"encoding": {"y": y, "text": {"field": "interval"}}},
        build_text_layer("verdict", row_layout.last + 200, fontWeight="bold"),
    ]


def _compute_axis_ends(cells: Sequence[CellVerdict]) -> tuple[float, float]:
    ratios = [cell.speed_up for cell in cells if cell.speed_up is not None]
    low = min([1 / _MIN_SPAN, *(ratio.low or ratio.value for ratio in ratios)]) / _AXIS_MARGIN
    high = max([_MIN_SPAN, *(ratio.high or ratio.value for ratio in ratios)]) * _AXIS_MARGIN
    return max(low, 1 / _MAX_SPEED_UP), min(high, _MAX_SPEED_UP)


def _choose_ticks(low: float, high: float, *, is_sparse: bool) -> list[float]:
    span = high / low
    if span < _FINE_TICK_SPAN:
        ticks = [round(0.5 + 0.1 * step, 1) for step in range(20)]
        ticks = [value for value in ticks if not is_sparse or round(value * 10) % 2 == 0]
    elif span < _MIDDLE_TICK_SPAN:
        ticks = [0.25, 0.5, 1, 2, 3, 5] if is_sparse else [0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6]
    else:
        ticks = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50]
    return [value for value in ticks if low <= value <= high]
