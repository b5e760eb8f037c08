"""The section on speed: a forest plot per variant, all prompts first, and a table.

Invariant: all rows share one logarithmic scale, so equal factors have equal lengths: twice as fast
is as far to the right as half as fast is to the left. The table has the deciding metric first, and
at most MAX_TABLE_ROWS cells; the rest is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup

from tandem.bench.plan.schedule import LoadLevel
from tandem.judge import schema
from tandem.judge import text_format as fmt
from tandem.judge.pairs import DECIDING_METRIC
from tandem.report import charts
from tandem.report.charts import (
    FULL_PX,
    NARROW_PX,
    ReportChart,
    ReportSection,
    VegaSpec,
    build_layer,
    encode_nominal,
)
from tandem.report.colors import SHAPES, TONES
from tandem.report.header import find_tone
from tandem.report.markup import build_table, render_template

MAX_FOREST_ROWS = 30
MAX_TABLE_ROWS = 160
_STEP_PX = 30
_MAX_SPEED_UP = 50.0  # a larger speed-up is drawn at the edge
_MIN_SPAN = 1.25  # each side of 1
_AXIS_MARGIN = 1.04
_COLORS_OF_FASTER: Mapping[schema.OutputFinding, str] = {
    "the same": "Faster is green: outputs are the same.",
    "same quality": "Faster is green: every task is answered as well.",
    "not shown": "Faster is amber: that outputs are the same is not shown.",
    "not the same": "Faster is red: outputs are not the same.",
}
_TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 2.5, 3, 5, 10, 20, 50)


def build_speed_section(verdict: schema.Verdict) -> ReportSection:
    """Return the section on speed."""
    parts: list[Markup | ReportChart] = []
    for place, headline in enumerate(verdict.headlines):
        parts += build_forest_charts(verdict, headline, place)
        cells, cell_count = fmt.choose_table_cells(verdict, headline, MAX_TABLE_ROWS)
        title = f"Every judged figure of {headline.variant}"
        note = None
        if len(cells) < cell_count:
            note = (
                f"{len(cells):,} of {cell_count:,} cells, those that say most; all are in"
                f" {schema.FILE}."
            )
        if cells:
            metrics = dict.fromkeys((headline.metric, *(cell.metric for cell in cells)))
            overall_cells = [
                cell
                for metric in metrics
                for cell in fmt.list_overall_cells(verdict, headline, metric)
            ]
            table = _build_cells_table(title, [*overall_cells, *cells], verdict)
            parts.append(
                render_template("card", summary=title, table=table, sentences=(), note=note)
            )
    return ReportSection(
        name="speed",
        short="Speed-up",
        title="Speed-up over all prompts and per class",
        parts=tuple(parts),
    )


def build_forest_charts(
    verdict: schema.Verdict, headline: schema.Headline, variant_index: int
) -> list[ReportChart]:
    """Return a variant's plot by its deciding metric, then smaller ones of the others.

    Args:
        verdict: of the run.
        headline: of the variant.
        variant_index: of the variant, for the charts' names.
    """
    all_cells = [
        cell
        for cell in verdict.cells
        if cell.variant == headline.variant and cell.speed_up is not None
    ]
    by_metric: dict[str, dict[tuple[str, LoadLevel], schema.CellVerdict]] = {}
    for cell in sorted(all_cells, key=lambda cell: cell.metric != headline.metric):
        by_metric.setdefault(cell.metric, {})[cell.class_, cell.load] = cell
    arms = f"{fmt.shorten_text(headline.variant)} over {fmt.shorten_text(verdict.baseline)}"
    colors = {word: TONES[find_tone(headline, word).class_] for word in SHAPES}
    plots = []
    places = list[tuple[str, LoadLevel]]()
    for number, (metric, cells) in enumerate(by_metric.items()):
        if not number:
            first_cells = sorted(
                fmt.choose_telling_cells(cells.values(), MAX_FOREST_ROWS), key=_sort_key
            )
            places = [(cell.class_, cell.load) for cell in first_cells]
        class_cells = [cells[place] for place in places if place in cells]
        note = (
            f"Drawn are {len(class_cells)} of {len(cells):,}, the fastest and the slowest; all are"
            f" in {schema.FILE}."
        )
        overall_cells = fmt.list_overall_cells(verdict, headline, metric)
        drawn = [*(cell for cell in overall_cells if cell.speed_up is not None), *class_cells]
        sentences = (
            ["The same rows as above."] if number else _explain_forest(drawn, headline, verdict)
        )
        if metric == DECIDING_METRIC and headline.metric != metric:
            sentences = [
                *sentences,
                "Answers have other lengths, so these times are not of the same work.",
            ]
        if drawn:
            plots.append(
                ReportChart(
                    name=f"speed-up-{variant_index}{f'-{number}' if number else ''}",
                    title=f"{fmt.format_metric(metric)}: speed-up of {arms}",
                    caption=" ".join(
                        [*sentences, *([note] if len(class_cells) < len(cells) else [])]
                    ),
                    spec=partial(_build_forest_spec, drawn, colors, verdict.margin),
                    table=_build_cells_table(
                        f"{fmt.format_metric(metric)} of {headline.variant}", drawn, verdict
                    ),
                    width_px=NARROW_PX if number else FULL_PX,
                    has_slide=not number,
                )
            )
    return plots


def _sort_key(cell: schema.CellVerdict) -> tuple[float, float]:
    load_value = (
        cell.load.concurrency if cell.load.concurrency is not None else cell.load.rate_per_s or 0
    )
    return load_value, -(cell.speed_up.value if cell.speed_up else 1.0)


def _explain_forest(
    cells: Sequence[schema.CellVerdict], headline: schema.Headline, verdict: schema.Verdict
) -> Iterator[str]:
    """Yield sentences that explain how to read a plot."""
    yield (
        "Each mark is the geometric mean over prompts,"
        f" its line the {fmt.format_level(verdict)} interval."
    )
    yield "Right of 1 the variant is better."
    yield (
        f"The shaded band is the equivalence margin of {100 * verdict.margin:g} %: an interval"
        " inside it is the same."
    )
    yield (
        "The grey band around 1, if any, is the noise floor:"
        " how far the baseline differs from itself."
    )
    yield "Differences inside the grey band are treated as noise."
    if any(cell.verdict == "faster" for cell in cells):
        yield _COLORS_OF_FASTER[headline.output]


def _build_cells_table(
    caption: str, cells: Sequence[schema.CellVerdict], verdict: schema.Verdict
) -> Markup:
    """Return the table of cells with all their figures, the tails of E2E under its median."""
    rows = []
    for cell in cells:
        for tail in (None, *cell.tails):
            metric = f"{fmt.format_metric(cell.metric)}{f' {tail.statistic}' if tail else ''}"
            rows.append(
                [cell.class_, metric, fmt.format_load(cell.load), *_format_figures(cell, tail)]
            )
    interval = f"{fmt.format_level(verdict)} interval"
    figure_heads = ["Prompts", "Rounds", "Baseline", "Variant", "Speed-up", interval, "Adjusted p"]
    heads = [
        "Class",
        "Metric",
        "Load",
        *figure_heads,
        "Noise floor",
        "Detectable",
        "Verdict",
        "Why",
    ]
    return build_table(caption, heads, rows, numbers=range(3, len(heads) - 2), class_="cells")


def _format_figures(cell: schema.CellVerdict, tail: schema.TailSpeedUp | None) -> Iterator[str]:
    """Yield the columns of a cell, or of one tail statistic of the cell."""
    figures = tail or cell
    unit = fmt.metric_unit(cell.metric)
    yield from (f"{cell.prompts:,}", f"{cell.rounds:,}")
    for value in (figures.baseline, figures.measured):
        yield f"{fmt.format_number(value)} {unit}" if value is not None else fmt.ABSENT
    yield fmt.format_times(figures.speed_up.value if figures.speed_up else None)
    yield fmt.format_interval(figures.speed_up)
    yield fmt.format_number(figures.adjusted_p)
    yield fmt.format_times(cell.noise_floor)
    yield fmt.ABSENT if tail else fmt.format_times(cell.detectable)
    yield figures.verdict if tail else fmt.name_word(cell)
    yield "beside the median, over all requests" if tail else cell.why


def _build_forest_spec(
    cells: Sequence[schema.CellVerdict],
    colors: Mapping[schema.CellWord, str],
    margin: float,
    width: int,
) -> VegaSpec:
    narrow = charts.is_narrow(width)
    format_place = fmt.format_short_load if narrow else fmt.format_load
    names = fmt.name_places([(cell.class_, cell.load) for cell in cells], format_place)
    ratios = [cell.speed_up for cell in cells if cell.speed_up is not None]
    low = min([1 / _MIN_SPAN, *(ratio.low or ratio.value for ratio in ratios)]) / _AXIS_MARGIN
    high = max([_MIN_SPAN, *(ratio.high or ratio.value for ratio in ratios)]) * _AXIS_MARGIN
    low = max(low, 1 / _MAX_SPEED_UP)
    high = min(high, _MAX_SPEED_UP)
    x = charts.encode_values("log", low, high, figure_px=100 if narrow else 290, clamp=True)
    title = f"speed-up: left of 1{fmt.TIMES} slower, right of it faster"
    axis = {"grid": True, "orient": "bottom", "tickSize": 4, "title": title}
    axis |= {"values": [tick for tick in _TICKS if low <= tick <= high], "labelOverlap": True}
    axis |= {"labelExpr": f"format(datum.value, '~g') + '{fmt.TIMES}'"}
    values = []
    for name, cell, ratio in zip(names, cells, ratios, strict=True):
        floor = cell.noise_floor or 1.0
        value = ratio.value
        ends = {"low": ratio.low or value, "high": ratio.high or value}
        floor_ends = {"floor": max(1 / floor, low), "ceiling": min(floor, high)}
        texts = {
            "figure": fmt.format_times(value),
            "interval": fmt.format_interval(ratio),
            "verdict": cell.verdict,
        }
        texts["word"] = fmt.name_word(cell)
        short = f"{fmt.format_times(value)} {fmt.name_word(cell)}"
        values.append({"row": name, "value": value, **ends, **floor_ends, **texts, "short": short})
    color = encode_nominal("verdict", colors, legend=None)
    y = charts.encode_rows(names, width)
    shape = encode_nominal("verdict", SHAPES, legend=None)
    point_style: dict[str, Any] = {
        "filled": True,
        "size": 90,
        "opacity": 1,
        "stroke": "var(--card)",
        "strokeWidth": 1,
    }
    margin_row = {"from": 1 / (1 + margin), "to": 1 + margin}
    floor_bar = {"x": x | {"field": "floor"}, "x2": {"field": "ceiling"}, "y": y}
    texts_right = [("short", 0)] if narrow else [("figure", 220), ("interval", 100), ("word", 0)]
    layers = [
        build_layer(
            "rect",
            {"x": x | {"axis": axis, "field": "from"}, "x2": {"field": "to"}},
            [margin_row],
            color="var(--band)",
        ),
        build_layer("rule", floor_bar, color="var(--floor)", strokeWidth=9, opacity=0.45),
        build_layer(
            "rule", {"x": x | {"field": "one"}}, [{"one": 1}], color="var(--muted)", strokeWidth=1
        ),
        build_layer(
            "rule",
            {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y, "color": color},
            strokeWidth=2.5,
            strokeCap="round",
        ),
        build_layer(
            "point",
            {"x": x | {"field": "value"}, "y": y, "color": color, "shape": shape},
            **point_style,
        ),
        *(
            charts.build_figure_layer({"y": y, "text": {"field": name}, "color": color}, right)
            for name, right in texts_right
        ),
    ]
    return charts.build_fit_spec(width, {"step": _STEP_PX}, data={"values": values}, layer=layers)
