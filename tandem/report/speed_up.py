"""The section on speed: per variant a forest plot of speed-ups by class, and every judged figure as a table.

Invariant: the same scale for all rows, and equal factors are equal lengths (it is logarithmic): twice as fast lies as
far to the right as half as fast to the left. The table has the deciding metric first; so many rows that they can be
read, the rest is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from markupsafe import Markup

from tandem.bench.schedule import LoadLevel
from tandem.judge import schema
from tandem.judge import text_format as fmt
from tandem.report import charts
from tandem.report.charts import FULL_PX, NARROW_PX, ReportChart, ReportSection, VegaSpec, build_layer, encode_nominal
from tandem.report.colors import SHAPES, TONES
from tandem.report.header import find_tone
from tandem.report.markup import build_sentence, build_table, render_template

MAX_FOREST_ROWS = 30
MAX_TABLE_ROWS = 160
MAX_VARIANTS = 6
_STEP_PX, _SMALL_STEP_PX = 30, 24
_MAX_SPEED_UP = 50.0  # a speed-up beyond is drawn at the edge
_MIN_SPAN = 1.25  # each side of 1
_AXIS_MARGIN = 1.04
_COLORS_OF_FASTER: Mapping[schema.OutputFinding, str] = {
    "the same": "",
    "not shown": " Faster is amber: that outputs are the same is not shown.",
    "not the same": " Faster is red: outputs are not the same.",
}
_TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 2.5, 3, 5, 10, 20, 50)


def build_speed_section(verdict: schema.Verdict) -> ReportSection:
    """Return the section."""
    parts: list[Markup | ReportChart] = []
    for place, headline in enumerate(verdict.headlines[:MAX_VARIANTS]):
        parts += build_forest_charts(verdict, headline, place)
        cells = [cell for cell in verdict.cells if cell.variant == headline.variant]
        rows = sorted(cells, key=lambda cell: cell.metric != headline.metric)
        if len(rows) > MAX_TABLE_ROWS:
            others = [cell for cell in cells if cell.metric != headline.metric]
            rows = [*fmt.choose_telling_cells(fmt.select_cells(verdict, headline), MAX_TABLE_ROWS), *others][
                :MAX_TABLE_ROWS
            ]
        note = f"{len(rows):,} of {len(cells):,} cells, those that say most; all are in {schema.FILE}."
        title = f"Every judged figure of {headline.variant}"
        table = _build_cells_table(title, rows, verdict, with_tails=True)
        if rows:
            note_text = note if len(rows) < len(cells) else None
            parts.append(render_template("card", summary=title, table=table, sentences=(), note=note_text))
    if len(verdict.headlines) > MAX_VARIANTS:
        parts.append(build_sentence(f"{len(verdict.headlines) - MAX_VARIANTS:,} more variants are in {schema.FILE}."))
    if not verdict.cells:
        parts.append(build_sentence("No figure could be judged: no prompt was answered by both arms."))
    return ReportSection(name="speed", short="Speed-up", title="Speed-up per class", parts=tuple(parts))


@dataclass(frozen=True, kw_only=True)
class _ForestPlot:
    """What a forest plot draws: the cells of a variant in their order."""

    headline: schema.Headline
    cells: list[schema.CellVerdict]
    margin: float
    is_small: bool

    @property
    def colors(self) -> dict[str, str]:
        """Color of each word: that of the verdict, by which faster is green beside equal outputs alone."""
        return {word: TONES[find_tone(self.headline, word).class_] for word in SHAPES}


def build_forest_charts(verdict: schema.Verdict, headline: schema.Headline, variant_index: int) -> list[ReportChart]:
    """Return the plot of a variant by its deciding metric, then smaller ones of the others, with the same rows.

    Args:
        verdict: all of it.
        headline: of the variant.
        variant_index: of the variant, for the charts' names.
    """
    all_cells = [cell for cell in verdict.cells if cell.variant == headline.variant and cell.speed_up is not None]
    metrics = dict.fromkeys(cell.metric for cell in sorted(all_cells, key=lambda cell: cell.metric != headline.metric))
    by_metric = {metric: [cell for cell in all_cells if cell.metric == metric] for metric in metrics}
    rows: dict[tuple[str, LoadLevel], int] = {}
    plots = []
    for number, (metric, cells) in enumerate(by_metric.items()):
        if not number:
            first_cells = sorted(fmt.choose_telling_cells(cells, MAX_FOREST_ROWS), key=_sort_key)
            rows = {(cell.class_, cell.load): row for row, cell in enumerate(first_cells)}
        drawn = [cell for cell in cells if (cell.class_, cell.load) in rows]
        drawn.sort(key=lambda cell: rows[cell.class_, cell.load])
        plot = _ForestPlot(headline=headline, cells=drawn, margin=verdict.margin, is_small=number > 0)
        arms = f"{fmt.shorten_text(headline.variant)} over {fmt.shorten_text(verdict.baseline)}"
        title = f"{fmt.format_metric(metric)} of {headline.variant}"
        if drawn:
            plots.append(
                ReportChart(
                    name=f"speed-up-{variant_index}{f'-{number}' if number else ''}",
                    title=f"{fmt.format_metric(metric)}: speed-up of {arms}",
                    caption=_format_caption(plot, verdict, len(cells)),
                    spec=partial(_build_forest_spec, plot),
                    table=_build_cells_table(title, drawn, verdict, with_tails=False),
                    width_px=NARROW_PX if number else FULL_PX,
                    has_slide=not number,
                )
            )
    return plots


def _sort_key(cell: schema.CellVerdict) -> tuple[float, float]:
    load_value = cell.load.concurrency if cell.load.concurrency is not None else cell.load.rate_per_s or 0
    return load_value, -(cell.speed_up.value if cell.speed_up else 1.0)


def _format_caption(plot: _ForestPlot, verdict: schema.Verdict, cell_count: int) -> str:
    place = f"the fastest and the slowest; all are in {schema.FILE} of the run {verdict.folder}"
    note = f" Drawn are {len(plot.cells)} of {cell_count:,}, {place}." if len(plot.cells) < cell_count else ""
    counts = Counter(cell.verdict for cell in plot.cells)
    if plot.is_small:
        return f"Of {len(plot.cells)} rows: {', '.join(f'{number} {word}' for word, number in counts.items())}.{note}"
    floor = "There is no noise floor: the baseline was not measured against itself."
    if any(cell.noise_floor for cell in plot.cells):
        floor = (
            "The grey bar around 1 in each row is the noise floor, what the baseline differs from itself by: nothing "
            "within it is called."
        )
    color = _COLORS_OF_FASTER[plot.headline.output] if counts["faster"] else ""
    return (
        f"Each mark is the geometric mean over prompts, its line the {fmt.format_level(verdict)} interval; right of 1 "
        f"the variant is better. The shaded band is the margin of {100 * verdict.margin:g} %: an interval inside it is "
        f"the same. {floor}{color}{note}"
    )


def _build_cells_table(
    caption: str, cells: Sequence[schema.CellVerdict], verdict: schema.Verdict, *, with_tails: bool
) -> Markup:
    """Return cells with all that the verdict says of them, with the tails of E2E where they are asked for."""
    rows = []
    for cell in cells:
        for tail in (None, *(cell.tails if with_tails else ())):
            metric = f"{fmt.format_metric(cell.metric)}{f' {tail.statistic}' if tail else ''}"
            rows.append([cell.class_, metric, fmt.format_load(cell.load), *_format_figures(cell, tail)])
    interval = f"{fmt.format_level(verdict)} interval"
    figure_heads = ["Prompts", "Rounds", "Baseline", "Variant", "Speed-up", interval, "Adjusted p"]
    heads = ["Class", "Metric", "Load", *figure_heads, "Noise floor", "Detectable", "Verdict", "Why"]
    return build_table(caption, heads, rows, numbers=range(3, len(heads) - 2), class_="cells")


def _format_figures(cell: schema.CellVerdict, tail: schema.TailSpeedUp | None) -> Iterator[str]:
    """Yield the columns of a cell, or of one statistic beside its median."""
    figures, unit = tail or cell, fmt.metric_unit(cell.metric)
    yield from (f"{cell.prompts:,}", f"{cell.rounds:,}")
    for value in (figures.baseline, figures.measured):
        yield f"{fmt.format_number(value)} {unit}" if value is not None else fmt.ABSENT
    yield fmt.format_times(figures.speed_up.value if figures.speed_up else None)
    yield fmt.format_interval(figures.speed_up)
    yield fmt.format_number(figures.adjusted_p)
    yield fmt.format_times(cell.noise_floor)
    yield fmt.ABSENT if tail else fmt.format_times(cell.detectable)
    yield figures.verdict
    yield "beside the median, over all requests" if tail else cell.why


def _build_forest_spec(plot: _ForestPlot, width: int) -> VegaSpec:
    narrow = charts.is_narrow(width)
    format_place = fmt.format_short_load if narrow else fmt.format_load
    names = fmt.name_places([(cell.class_, cell.load) for cell in plot.cells], format_place)
    ratios = [cell.speed_up for cell in plot.cells if cell.speed_up is not None]
    low = min([1 / _MIN_SPAN, *(ratio.low or ratio.value for ratio in ratios)]) / _AXIS_MARGIN
    high = max([_MIN_SPAN, *(ratio.high or ratio.value for ratio in ratios)]) * _AXIS_MARGIN
    low, high = max(low, 1 / _MAX_SPEED_UP), min(high, _MAX_SPEED_UP)
    x = charts.encode_values("log", low, high, figure_px=100 if narrow else 290, clamp=True)
    title = f"speed-up: left of 1{fmt.TIMES} slower, right of it faster"
    axis = {"grid": True, "orient": "bottom", "tickSize": 4, "title": None if plot.is_small else title}
    axis |= {"values": [tick for tick in _TICKS if low <= tick <= high], "labelOverlap": True}
    axis |= {"labelExpr": f"format(datum.value, '~g') + '{fmt.TIMES}'"}
    values = []
    for name, cell, ratio in zip(names, plot.cells, ratios, strict=True):
        floor, value = cell.noise_floor or 1.0, ratio.value
        ends = {"low": ratio.low or value, "high": ratio.high or value}
        floor_ends = {"floor": max(1 / floor, low), "ceiling": min(floor, high)}
        texts = {"figure": fmt.format_times(value), "interval": fmt.format_interval(ratio), "verdict": cell.verdict}
        short = f"{fmt.format_times(value)} {cell.verdict}"
        values.append({"row": name, "value": value, **ends, **floor_ends, **texts, "short": short})
    color, y = encode_nominal("verdict", plot.colors, legend=None), charts.encode_rows(names, width)
    shape = encode_nominal("verdict", SHAPES, legend=None)
    point_style: dict[str, Any] = {"filled": True, "size": 90, "opacity": 1, "stroke": "var(--card)", "strokeWidth": 1}
    margin_row = {"from": 1 / (1 + plot.margin), "to": 1 + plot.margin}
    floor_bar = {"x": x | {"field": "floor"}, "x2": {"field": "ceiling"}, "y": y}
    texts_right = [("short", 0)] if narrow else [("figure", 220), ("interval", 100), ("verdict", 0)]
    layers = [
        build_layer(
            "rect", {"x": x | {"axis": axis, "field": "from"}, "x2": {"field": "to"}}, [margin_row], color="var(--band)"
        ),
        build_layer("rule", floor_bar, color="var(--floor)", strokeWidth=9, opacity=0.45),
        build_layer("rule", {"x": x | {"field": "one"}}, [{"one": 1}], color="var(--muted)", strokeWidth=1),
        build_layer(
            "rule",
            {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y, "color": color},
            strokeWidth=2.5,
            strokeCap="round",
        ),
        build_layer("point", {"x": x | {"field": "value"}, "y": y, "color": color, "shape": shape}, **point_style),
        *(
            charts.build_figure_layer({"y": y, "text": {"field": name}, "color": color}, right)
            for name, right in texts_right
        ),
    ]
    step = _SMALL_STEP_PX if plot.is_small else _STEP_PX
    return charts.build_fit_spec(width, {"step": step}, data={"values": values}, layer=layers)
