"""Figures over time: E2E, TPOT, TTFT and throughput; for speculation, the post's.

Invariant: two kinds of prompt, each from the baseline and from the variant, as in the post's
figures; the section names the two and their load. Inter-token latency is drawn twice: as time per
output token, and as llmperf computes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tandem.bench.figures.clocks import compute_utc_s
from tandem.bench.figures.columns import BoolArray
from tandem.bench.figures.quantiles import Values
from tandem.bench.figures.request_table import RequestTable
from tandem.errors import TandemError
from tandem.judge import text_format as fmt
from tandem.judge.pairs import find_figures
from tandem.judge.schema import Verdict
from tandem.metrics import POST_FIGURES, find_metric
from tandem.report import charts, colors, sampling
from tandem.report.charts import HALF_PX, ReportChart, ReportSection, VegaSpec
from tandem.report.markup import build_sentence, build_table
from tandem.report.sampling import ChartCell

POST_CLASSES = ("repeat", "open")
"""Classes of the suite `post` in its figures: the structured prompt and the open-ended one."""

_METRICS = ("e2e_ms", "ttft_ms", "tpot_ms")
MAX_WINDOWS = 40
_DAY_S = 86400
_SHORT_S = 600
_LOOKS = (([1, 0], "circle"), ([5, 3], "diamond"))  # dash and shape of each kind of prompt
_NO_DATA_TEXT = "None of the requests that would be drawn here succeeded."


class _ChartLine(NamedTuple):
    """A line: its name, the mask of its requests, and what sets its look."""

    name: str
    mask: BoolArray
    arm: int
    kind: int


def build_time_series_section(verdict: Verdict, requests: RequestTable) -> ReportSection:
    """Return the section; if it cannot be drawn, with the reason."""
    is_post = _is_of_post(verdict, requests)
    sentence = "No request is recorded, so there is nothing to draw over time."
    figure_charts = []
    if len(requests):
        cells, sentence = _choose_cells(verdict, requests)
        chart_lines = list(_build_chart_lines(verdict, requests, cells))
        at_s, clock = _read_clock(requests)
        drawn_at_s = at_s[np.logical_or.reduce([chart_line.mask for chart_line in chart_lines])]
        span_s = float(np.ptp(drawn_at_s)) if len(drawn_at_s) else 0.0
        window_s = max(math.ceil(span_s / MAX_WINDOWS), 1)
        for figure in _list_figures(is_post=is_post):
            values = find_figures(requests, figure[0])
            points = []
            for line in chart_lines:
                points += _compute_medians(line, values, at_s, window_s)
            if points:
                figure_charts.append(_build_figure_chart(figure, chart_lines, points))
        windows = f"Each point is the median of the requests begun within {window_s:,} s."
        sentence = f"{sentence} {windows}{clock}" if figure_charts else _NO_DATA_TEXT
    return ReportSection(
        name="over-time",
        short="Over time",
        title="The post's Figures 3 to 5, of this run" if is_post else "Over time",
        parts=(build_sentence(sentence), *figure_charts),
    )


def _read_clock(requests: RequestTable) -> tuple[Values, str]:
    """Return when each request began, in UTC, and a sentence where that is not known."""
    try:
        return compute_utc_s(requests.run, requests.start_s, requests.end_s), ""
    except TandemError:
        sentence = " The clocks of the manifest show no moment, so time counts from 1970."
        return requests.start_s - requests.start_s.min(), sentence


def _is_of_post(verdict: Verdict, requests: RequestTable) -> bool:
    """Return whether an arm speculates and was sent the post's two prompts."""
    return fmt.mentions_speculation(verdict) and all(
        name in requests.classes for name in POST_CLASSES
    )


def _list_figures(*, is_post: bool) -> list[tuple[str, str, str]]:
    """Return the metric, the title and the caption of each chart."""
    figures = [(figure.metric, figure.title, figure.sentence) for figure in POST_FIGURES]
    if not is_post:
        figures = [
            (name, fmt.format_metric(name), f"{find_metric(name).definition}.") for name in _METRICS
        ]
    throughput = find_metric("output_tokens_per_s")  # the post prints none
    figures.append(
        (throughput.name, "Throughput of a stream", f"Output tokens: {throughput.definition}.")
    )
    return figures


def _choose_cells(verdict: Verdict, requests: RequestTable) -> tuple[list[ChartCell], str]:
    """Return the two classes to draw, with a sentence that names them and the reason."""
    if _is_of_post(verdict, requests):
        load_code = int(np.bincount(requests.load).argmax())
        load = requests.loads[load_code]
        names = f"{POST_CLASSES[0]} (structured) and {POST_CLASSES[1]} (open-ended)"
        sentence = (
            f"The post's two prompts, {names}, at {fmt.format_load(load)},"
            " the load with the most requests."
        )
        return [
            ChartCell(name, load, requests.classes.index(name), load_code) for name in POST_CLASSES
        ], sentence
    cells, _ = sampling.choose_cells(verdict, requests, len(POST_CLASSES))
    names = " and ".join(f"{cell.class_} at {fmt.format_load(cell.load)}" for cell in cells)
    criterion = "whose speed-up says most" if verdict.headlines else "with the most requests"
    return cells, f"The classes {criterion}: {names}."


def _build_chart_lines(
    verdict: Verdict, requests: RequestTable, cells: list[ChartCell]
) -> Iterator[_ChartLine]:
    good_mask = sampling.mask_good_requests(verdict, requests)
    names = fmt.name_places([(cell.class_, cell.load) for cell in cells], fmt.format_short_load)
    for kind, (class_name, cell) in enumerate(zip(names, cells, strict=True)):
        for arm, name in enumerate((requests.baseline, *verdict.variants[:1])):
            mask = sampling.mask_cell(requests, cell) & good_mask & requests.arm_mask(name)
            yield _ChartLine(fmt.shorten_text(f"{class_name}, {name}"), mask, arm, kind)


def _compute_medians(
    chart_line: _ChartLine, values: Values, at_s: Values, window_s: int
) -> list[dict[str, Any]]:
    """Return the medians of a line's windows with a value; a gap begins a new `part`."""
    rows = np.flatnonzero(chart_line.mask & np.isfinite(values))
    if not len(rows):
        return []
    numbers = np.floor(at_s / window_s)  # of each request's window
    rows = rows[np.argsort(numbers[rows], kind="stable")]
    edges = np.flatnonzero(np.diff(numbers[rows])) + 1
    windows = np.split(rows, edges)
    at_ms = [1000 * float(at_s[window].mean()) for window in windows]
    steps_ms = np.diff(at_ms, prepend=at_ms[0])
    # twice a window: neighbors are at most so far apart; twice the usual step: requests may be
    # rarer than windows
    longest_step_ms = 2 * max(1000 * window_s, float(np.median(steps_ms)))
    parts = np.cumsum(steps_ms > longest_step_ms)
    points = []
    for part, at, window in zip(parts.tolist(), at_ms, windows, strict=True):
        median = float(np.median(values[window]))
        points.append(
            {"series": chart_line.name, "part": part, "at": at, "value": median, "n": len(window)}
        )
    return points


def _build_figure_chart(
    texts: tuple[str, str, str], chart_lines: list[_ChartLine], points: list[dict[str, Any]]
) -> ReportChart:
    metric, title, caption = texts
    rows = []
    for point in points:
        moment = np.datetime64(int(point["at"] / 1000), "s")
        moment_text = str(moment).replace("T", " ")
        median = fmt.format_number(point["value"])
        rows.append((point["series"], moment_text, f"{point['n']:,}", median))
    heads = ("Series", "UTC", "Requests", f"Median, {fmt.metric_unit(metric)}")
    return ReportChart(
        name=f"over-time-{metric.replace('_', '-')}",
        title=f"{title}, {fmt.metric_unit(metric)}",
        caption=caption,
        spec=lambda width: _build_line_spec(chart_lines, points, width),
        table=build_table(title, heads, rows, numbers=(2, 3)),
        width_px=HALF_PX,
    )


def _build_line_spec(
    chart_lines: list[_ChartLine], points: list[dict[str, Any]], width: int
) -> VegaSpec:
    moments_ms = [point["at"] for point in points]
    span_s = (max(moments_ms) - min(moments_ms)) / 1000
    columns = 1 if width < HALF_PX else 2
    time_format = "%H:%M:%S" if span_s < _SHORT_S else "%H:%M"
    if span_s > _DAY_S:
        time_format = "%m-%d %H:%M"
    clock = {
        "format": time_format,
        "grid": False,
        "title": "UTC",
        "labelOverlap": True,
        "tickCount": 3 * columns,
    }
    x = {"field": "at", "type": "temporal", "scale": {"type": "utc"}, "axis": clock}
    y_axis = {"title": None, "tickCount": 5, "labelExpr": "format(datum.value, ',')"}
    y = {
        "field": "value",
        "type": "quantitative",
        "scale": {"zero": True, "nice": 5},
        "axis": y_axis,
    }
    symbols = {"symbolSize": 70, "symbolStrokeWidth": 2, "symbolOpacity": 1}
    legend = {
        "columns": columns,
        "columnPadding": 30,
        "labelLimit": width // columns - 60,
        **symbols,
    }
    looks = {line.name: (colors.arm_color(line.arm), *_LOOKS[line.kind]) for line in chart_lines}
    return charts.build_line_spec(width, points, {"x": x, "y": y}, looks, legend)
