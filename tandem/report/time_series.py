"""The post's Figures 3 to 5 of this run: E2E, inter-token latency and TTFT over time, four series; and throughput.

Invariant: two kinds of prompt, each from the baseline and from the variant, as the post draws them; which two, and at
which load, is said. Inter-token latency is drawn twice: as time per output token, and as llmperf computes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from tandem.bench.clocks import compute_utc_s
from tandem.bench.columns import BoolArray
from tandem.bench.fault import BenchError
from tandem.bench.quantiles import Values
from tandem.bench.request_table import RequestTable
from tandem.bench.schedule import LoadLevel
from tandem.judge import text_format
from tandem.judge.schema import Verdict
from tandem.metrics import find_metric, list_post_figures
from tandem.report import colors, sampling
from tandem.report.charts import HALF_PX, ReportChart, VegaSpec
from tandem.report.markup import build_sentence, build_table
from tandem.report.sampling import ChartCell
from tandem.report.section import ReportSection

POST_CLASSES = ("repeat", "open")
"""Classes of the suite `post` that its figures show: the structured prompt and the open-ended one."""

MAX_WINDOWS = 40
_WINDOWS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
_DAY_S, _SHORT_S = 86400, 600
_PAIR = 2
_DASHES = ([1, 0], [5, 3])
_SHAPES = ("circle", "diamond")
_NO_DATA_TEXT = "None of the requests that would be drawn here succeeded."
_MAX_GAP_WINDOWS = 2.5  # windows from one point to the next: farther, the line between them is faint
_PADDING = {"left": 10, "right": 8, "top": 4, "bottom": 2}  # a browser's letters may be wider than vl-convert's


class _FigureTexts(NamedTuple):
    """One figure over time: the metric, its title and what it says."""

    metric: str
    title: str
    caption: str


class _ChartLine(NamedTuple):
    """One line: its name, which requests, and how it looks."""

    name: str
    mask: BoolArray
    arm: int
    kind: int


class _WindowMedian(NamedTuple):
    """The median of one series in one window of time."""

    at_s: float
    value: float
    n: int


def build_time_series_section(verdict: Verdict, requests: RequestTable) -> ReportSection:
    """Return the section; where it cannot be drawn, with why."""
    head = {"name": "over-time", "short": "Over time", "title": "The post's Figures 3 to 5, of this run"}
    reason = _explain_absence(requests)
    if reason is not None:
        return ReportSection(**head, parts=(build_sentence(reason),))
    cells, sentence = _select_cells(verdict, requests)
    chart_lines = list(_build_chart_lines(verdict, requests, cells))
    at_s, has_clock = _compute_start_times(requests)
    mask = np.logical_or.reduce([chart_line.mask for chart_line in chart_lines])
    window_s = _choose_window_s(at_s[mask]) if mask.any() else _WINDOWS_S[0]
    windows = f"Each point is the median of the requests begun within {_format_duration(window_s)}."
    clock = "" if has_clock else " The clocks of the manifest show no moment, so time counts from 1970."
    charts = [
        chart
        for figure in _list_figures()
        if (chart := _build_figure_chart(figure, chart_lines, requests, at_s, window_s)) is not None
    ]
    return ReportSection(
        **head, parts=(build_sentence(f"{sentence} {windows}{clock}" if charts else _NO_DATA_TEXT), *charts)
    )


def _list_figures() -> list[_FigureTexts]:
    """Return the post's figures in its order, then the throughput, of which it prints none."""
    throughput = find_metric("output_tokens_per_s")
    return [
        *(_FigureTexts(metric.name, figure.title, figure.sentence) for metric, figure in list_post_figures()),
        _FigureTexts(throughput.name, "Throughput of a stream", f"Output tokens: {throughput.definition}."),
    ]


def _explain_absence(requests: RequestTable) -> str | None:
    if not len(requests):
        return "No request is recorded, so there is nothing to draw over time."
    if not requests.variants:
        return "These figures compare a baseline and a variant; this run has no variant."
    return None


def _compute_start_times(requests: RequestTable) -> tuple[Values, bool]:
    """Return when each request was begun in Unix time, and whether the manifest's clocks tell."""
    try:
        return compute_utc_s(requests.run, requests.start_s, requests.end_s), True
    except BenchError:
        return requests.start_s - requests.start_s.min(), False


def _select_cells(verdict: Verdict, requests: RequestTable) -> tuple[list[ChartCell], str]:
    """Return the two classes that are drawn, with a sentence on which they are and why."""
    load_code = int(np.bincount(requests.load).argmax())
    load = requests.loads[load_code]
    load_text = f"at {text_format.format_load(load)}" + (
        ", the load with the most requests" if len(requests.loads) > 1 else ""
    )
    if all(name in requests.classes for name in POST_CLASSES):
        cells = [ChartCell(name, load, requests.classes.index(name), load_code) for name in POST_CLASSES]
        return (
            cells,
            f"The post's two prompts, {POST_CLASSES[0]} (structured) and {POST_CLASSES[1]} (open-ended), {load_text}.",
        )
    names = _rank_classes(verdict, load) or list(
        dict.fromkeys(requests.classes[code] for code in requests.class_[requests.load == load_code])
    )
    names = names[:1] + names[-1:] if len(names) > 1 else names
    cells = [ChartCell(name, load, requests.classes.index(name), load_code) for name in names]
    if len(cells) < _PAIR:
        return cells, f"This run has one class, {names[0]}, {load_text}; the post compares two prompts."
    return cells, (
        f"This run did not ask the post's two prompts. Drawn are the classes with the highest and the lowest speed-up, "
        f"{names[0]} and {names[-1]}, {load_text}."
    )


def _rank_classes(verdict: Verdict, load: LoadLevel) -> list[str]:
    """Return the classes at a load, highest speed-up first."""
    if not verdict.headlines:
        return []
    cells = [
        cell for cell in text_format.select_cells(verdict, verdict.headlines[0]) if cell.load == load and cell.speed_up
    ]
    return [cell.class_ for cell in sorted(cells, key=lambda cell: -(cell.speed_up.value if cell.speed_up else 0))]


def _build_chart_lines(verdict: Verdict, requests: RequestTable, cells: list[ChartCell]) -> Iterator[_ChartLine]:
    good_mask = sampling.mask_good_requests(verdict, requests)
    variant = verdict.headlines[0].variant if verdict.headlines else requests.variants[0]
    for kind, cell in enumerate(cells):
        for arm, name in enumerate((requests.baseline, variant if variant in requests.arms else requests.variants[0])):
            mask = sampling.mask_cell(requests, cell) & good_mask & requests.arm_mask(name)
            yield _ChartLine(text_format.shorten_text(f"{cell.class_}, {name}"), mask, arm, kind)


def _choose_window_s(at_s: Values) -> int:
    span_s = float(at_s.max() - at_s.min())
    return next(
        (window_s for window_s in _WINDOWS_S if span_s <= MAX_WINDOWS * window_s), int(span_s / MAX_WINDOWS) + 1
    )


def _format_duration(seconds: int) -> str:
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds % size == 0:
            number = seconds // size
            return f"one {unit}" if number == 1 else f"{number} {unit}s"
    return "one second" if seconds == 1 else f"{seconds} seconds"


def _compute_medians(values: Values, at_s: Values, mask: BoolArray, window_s: int) -> list[_WindowMedian]:
    valid_mask = mask & np.isfinite(values)
    window_indexes, valid_values = np.floor(at_s[valid_mask] / window_s), values[valid_mask]
    order = np.argsort(window_indexes, kind="stable")
    edges = np.flatnonzero(np.diff(window_indexes[order])) + 1
    parts = np.split(order, edges) if len(order) else []
    return [
        _WindowMedian(float(at_s[valid_mask][part].mean()), float(np.median(valid_values[part])), len(part))
        for part in parts
    ]


def _build_figure_chart(
    figure: _FigureTexts, chart_lines: list[_ChartLine], requests: RequestTable, at_s: Values, window_s: int
) -> ReportChart | None:
    values = requests.figures.get(figure.metric)
    if values is None:
        return None
    points = {chart_line.name: _compute_medians(values, at_s, chart_line.mask, window_s) for chart_line in chart_lines}
    if not any(points.values()):
        return None
    return ReportChart(
        name=f"over-time-{figure.metric.replace('_', '-')}",
        title=f"{figure.title}, {text_format.metric_unit(figure.metric)}",
        caption=figure.caption,
        spec=lambda width: _build_line_spec(chart_lines, points, window_s, width),
        table=_build_figure_table(figure, points),
        width_px=HALF_PX,
    )


def _build_figure_table(figure: _FigureTexts, points: dict[str, list[_WindowMedian]]) -> Markup:
    rows = (
        (name, _format_utc(window.at_s), f"{window.n:,}", text_format.format_number(window.value))
        for name, windows in points.items()
        for window in windows
    )
    return build_table(
        figure.title,
        ("Series", "UTC", "Requests", f"Median, {text_format.metric_unit(figure.metric)}"),
        rows,
        numbers=(2, 3),
    )


def _format_utc(at_s: float) -> str:
    return str(np.datetime64(int(at_s), "s")).replace("T", " ")


def _build_line_spec(
    chart_lines: list[_ChartLine], points: dict[str, list[_WindowMedian]], window_s: float, width: int
) -> VegaSpec:
    values = [
        {"at": window.at_s * 1000, "value": window.value, "series": name, "part": part}
        for name, windows in points.items()
        for window, part in zip(windows, _number_unbroken_parts(windows, window_s), strict=True)
    ]
    times_s = [window.at_s for windows in points.values() for window in windows]
    clock = {
        "format": _choose_time_format(max(times_s) - min(times_s)),
        "grid": False,
        "title": "UTC",
        "labelOverlap": True,
        "tickCount": 3 if width < HALF_PX else 6,
    }
    x = {"field": "at", "type": "temporal", "scale": {"type": "utc"}, "axis": clock}
    y = {"field": "value", "type": "quantitative", "scale": {"zero": True, "nice": 5},
         "axis": {"title": None, "tickCount": 5, "labelExpr": "format(datum.value, ',')"}}  # fmt: skip
    columns = 1 if width < HALF_PX else 2
    legend = {"columns": columns, "columnPadding": 30, "symbolSize": 70, "symbolStrokeWidth": 2, "symbolOpacity": 1,
              "labelLimit": width // columns - 60}  # fmt: skip

    def encode_line(scale_range: list[Any]) -> dict[str, Any]:
        scale = {"domain": [chart_line.name for chart_line in chart_lines], "range": scale_range}
        return {"field": "series", "type": "nominal", "sort": None, "title": None, "scale": scale, "legend": legend}

    dash = encode_line([_DASHES[chart_line.kind] for chart_line in chart_lines])
    return {
        "width": width,
        "height": 230,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "padding": _PADDING,
        "data": {"values": values},
        "encoding": {
            "x": x,
            "y": y,
            "color": encode_line([colors.arm_color(chart_line.arm) for chart_line in chart_lines]),
        },
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 1, "opacity": 0.35}},
            {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"strokeDash": dash, "detail": {"field": "part"}}},
            {
                "mark": {"type": "point", "filled": True, "size": 36, "opacity": 1},
                "encoding": {"shape": encode_line([_SHAPES[chart_line.kind] for chart_line in chart_lines])},
            },
        ],
    }


def _number_unbroken_parts(windows: Sequence[_WindowMedian], window_s: float) -> Iterator[int]:
    """Yield which unbroken part of its line each window belongs to: one that is far from the last begins a new one."""
    segment, last_s = 0, -np.inf
    for window in windows:
        segment += window.at_s - last_s > _MAX_GAP_WINDOWS * window_s
        last_s = window.at_s
        yield int(segment)


def _choose_time_format(span_s: float) -> str:
    return "%m-%d %H:%M" if span_s > _DAY_S else "%H:%M:%S" if span_s < _SHORT_S else "%H:%M"
