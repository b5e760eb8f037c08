"""The section on speed: a forest plot per variant, all prompts first, and a table.

Invariant: all rows share one logarithmic scale, so equal factors have equal lengths: twice as fast
is as far to the right as half as fast is to the left. The table has the deciding metric first, and
at most MAX_TABLE_ROWS cells; the rest is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    encode_nominal,
)
from tandem.report.colors import SHAPES, TONES
from tandem.report.header import find_tone
from tandem.report.markup import build_table, render_template
from tandem.report.row_chart import RowChart, RowMark, ValueAxis, mark_one

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
            table_cells: list[schema.CellVerdict] = []
            for metric in metrics:
                table_cells += fmt.list_overall_cells(verdict, headline, metric)
            table = _build_cells_table(title, [*table_cells, *cells], verdict)
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
    cells = [
        cell
        for cell in verdict.cells
        if cell.variant == headline.variant and cell.speed_up is not None
    ]
    deciding_cells = [cell for cell in cells if cell.metric == headline.metric]
    telling_cells = fmt.choose_telling_cells(deciding_cells, MAX_FOREST_ROWS)
    places = [(cell.class_, cell.load) for cell in sorted(telling_cells, key=_sort_key)]

    plots = []
    metrics = dict.fromkeys(cell.metric for cell in [*deciding_cells, *cells])
    for number, metric in enumerate(metrics):
        by_place = {(cell.class_, cell.load): cell for cell in cells if cell.metric == metric}
        class_cells = [by_place[place] for place in places if place in by_place]
        overall_cells = fmt.list_overall_cells(verdict, headline, metric)
        drawn_cells = [*(cell for cell in overall_cells if cell.speed_up is not None), *class_cells]
        if not drawn_cells:
            continue
        sentences = ["The same rows as above."]
        if not number:
            sentences = list(_explain_forest(drawn_cells, headline, verdict))
        if metric == DECIDING_METRIC and headline.metric != metric:
            sentences.append("Answers have other lengths, so these times are not of the same work.")
        if len(class_cells) < len(by_place):
            counts = f"{len(class_cells)} of {len(by_place):,}"
            sentences.append(
                f"The chart shows {counts}: the fastest and the slowest; {schema.FILE} has all."
            )
        name = f"speed-up-{variant_index}"
        if number:
            name = f"{name}-{number}"
        plots.append(_build_forest_chart(name, verdict, headline, drawn_cells, " ".join(sentences)))
    return plots


def _build_forest_chart(
    name: str,
    verdict: schema.Verdict,
    headline: schema.Headline,
    cells: Sequence[schema.CellVerdict],
    caption: str,
) -> ReportChart:
    """Return the plot of one metric; only the deciding one is wide and has a slide."""
    is_deciding = cells[0].metric == headline.metric
    metric = fmt.format_metric(cells[0].metric)
    arms = f"{fmt.shorten_text(headline.variant)} over {fmt.shorten_text(verdict.baseline)}"
    colors = {word: TONES[find_tone(headline, word).class_] for word in SHAPES}
    return ReportChart(
        name=name,
        title=f"{metric}: speed-up of {arms}",
        caption=caption,
        spec=partial(_build_forest_spec, cells, colors, verdict.margin),
        table=_build_cells_table(f"{metric} of {headline.variant}", cells, verdict),
        width_px=FULL_PX if is_deciding else NARROW_PX,
        has_slide=is_deciding,
    )


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
            metric = fmt.format_metric(cell.metric)
            if tail:
                metric = f"{metric} {tail.statistic}"
            place = [cell.class_, metric, fmt.format_load(cell.load)]
            rows.append([*place, *_format_figures(cell, tail)])
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
    yield fmt.format_speed_up(figures.speed_up)
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
    figure_px = 290
    figures = [("figure", 220), ("interval", 100), ("word", 0)]
    format_place = fmt.format_load
    if charts.is_narrow(width):
        figure_px = 100
        figures = [("short", 0)]
        format_place = fmt.format_short_load
    axis = _choose_axis(cells, figure_px=figure_px)
    color = {"color": encode_nominal("verdict", colors, legend=None)}
    shape = encode_nominal("verdict", SHAPES, legend=None)
    band = {"from": 1 / (1 + margin), "to": 1 + margin}
    floor_style = {"color": "var(--floor)", "strokeWidth": 9, "opacity": 0.45}
    interval_style = {"strokeWidth": 2.5, "strokeCap": "round"}
    point_style = {"filled": True, "size": 90, "opacity": 1, "stroke": "var(--card)"}
    marks = [
        RowMark("rect", "from", "to", {"color": "var(--band)"}, rows=[band], is_across=True),
        RowMark("rule", "floor", "ceiling", floor_style),
        mark_one("var(--muted)", strokeWidth=1),
        RowMark("rule", "low", "high", interval_style, color),
        RowMark("point", "value", "", {**point_style, "strokeWidth": 1}, {**color, "shape": shape}),
    ]
    chart = RowChart(
        rows=_list_forest_rows(cells, axis, format_place),
        axis=axis,
        marks=marks,
        figures=figures,
        figure_channels=color,
        step_px=_STEP_PX,
    )
    return chart.build_spec(width)


def _choose_axis(cells: Sequence[schema.CellVerdict], *, figure_px: int) -> ValueAxis:
    """Return a logarithmic axis that holds every interval, up to _MAX_SPEED_UP."""
    ends = [1 / _MIN_SPAN, _MIN_SPAN]
    for cell in cells:
        ratio = cell.speed_up
        if ratio is not None:
            ends += [ratio.low or ratio.value, ratio.high or ratio.value]
    low = max(min(ends) / _AXIS_MARGIN, 1 / _MAX_SPEED_UP)
    high = min(max(ends) * _AXIS_MARGIN, _MAX_SPEED_UP)
    ticks = {
        "values": [tick for tick in _TICKS if low <= tick <= high],
        "labelOverlap": True,
        "labelExpr": f"format(datum.value, '~g') + '{fmt.TIMES}'",
    }
    title = f"speed-up: left of 1{fmt.TIMES} slower, right of it faster"
    return ValueAxis(
        title=title, first=low, last=high, figure_px=figure_px, is_log=True, ticks=ticks
    )


def _list_forest_rows(
    cells: Sequence[schema.CellVerdict],
    axis: ValueAxis,
    format_place: Callable[[LoadLevel], str],
) -> list[dict[str, Any]]:
    names = fmt.name_places([(cell.class_, cell.load) for cell in cells], format_place)
    rows = []
    for name, cell in zip(names, cells, strict=True):
        ratio = cell.speed_up
        assert ratio is not None  # a cell without one is not drawn
        floor = cell.noise_floor or 1.0
        figure = fmt.format_times(ratio.value)
        word = fmt.name_word(cell)
        row = {
            "row": name,
            "value": ratio.value,
            "low": ratio.low or ratio.value,
            "high": ratio.high or ratio.value,
            "floor": max(1 / floor, axis.first),
            "ceiling": min(floor, axis.last),
            "figure": figure,
            "interval": fmt.format_interval(ratio),
            "verdict": cell.verdict,
            "word": word,
            "short": f"{figure} {word}",
        }
        rows.append(row)
    return rows
