"""The post's Figures 3 to 5 of this run: E2E, inter-token latency and TTFT over time, four series.

Invariant: two kinds of prompt, each from the baseline and from the variant, as the post draws them; which two, and at
which load, is said. Inter-token latency is drawn twice: as time per output token, and as llmperf computes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tandem.bench.clocks import utc_s
from tandem.bench.columns import Mask
from tandem.bench.fault import BenchError
from tandem.bench.judge import words
from tandem.bench.judge.form import Load, Verdict
from tandem.bench.judge.observations import Observations
from tandem.bench.quantiles import Values
from tandem.bench.report import chosen, colors
from tandem.bench.report.chosen import Spot
from tandem.bench.report.drawing import HALF, Chart, Spec
from tandem.bench.report.markup import Html, table, tag
from tandem.bench.report.section import Section

POST = ("repeat", "open")
"""Classes of the suite `post` that its figures show: the structured prompt and the open-ended one."""

MOST_WINDOWS = 40
_WINDOWS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
_DAY_S, _SHORT_S = 86400, 600
_PAIR = 2
_DASHES = ([1, 0], [5, 3])
_SHAPES = ("circle", "diamond")
_NOTHING = "None of the requests that would be drawn here succeeded."
_BROKEN = 2.5  # windows from one point to the next: farther, the line between them is faint
_PADDING = {"left": 10, "right": 8, "top": 4, "bottom": 2}  # a browser's letters may be wider than vl-convert's


class _Figure(NamedTuple):
    """One of the post's figures."""

    metric: str
    title: str
    says: str


_FIGURES = (
    _Figure(
        "e2e_ms", "Figure 3: E2E latency",
        "The post: the structured prompt is faster with speculation all along, the open-ended one is not.",
    ),
    _Figure(
        "ttft_ms", "Figure 5: TTFT",
        "The post: unchanged by speculation. A difference comes from queue or prefill, not from accepted tokens.",
    ),
    _Figure(
        "tpot_ms", "Figure 4, as time per output token",
        "(E2E - TTFT) / (tokens - 1): every token counts, however many came in one chunk.",
    ),
    _Figure(
        "llmperf_inter_token_latency_ms", "Figure 4, as llmperf computes it",
        "Last chunk's arrival / number of chunks. Under speculation a chunk holds several tokens, so this stays near "
        "the time of a step and hides the gain.",
    ),
)  # fmt: skip


class _Series(NamedTuple):
    """One line: its name, which requests, and how it looks."""

    name: str
    there: Mask
    arm: int
    kind: int


class _Window(NamedTuple):
    """The median of one series in one window of time."""

    at_s: float
    value: float
    n: int


def section(verdict: Verdict, seen: Observations) -> Section:
    """Return the section; where it cannot be drawn, with why."""
    head = {"name": "over-time", "short": "Over time", "title": "The post's Figures 3 to 5, of this run"}
    why = _why_not(seen)
    if why is not None:
        return Section(**head, parts=(tag("p", why, class_="says"),))
    spots, which = _spots(verdict, seen)
    series = list(_series(verdict, seen, spots))
    at_s, dated = _times(seen)
    used = np.logical_or.reduce([each.there for each in series])
    window_s = _window_s(at_s[used]) if used.any() else _WINDOWS_S[0]
    windows = f"Each point is the median of the requests begun within {_duration(window_s)}."
    clock = "" if dated else " The clocks of the manifest show no moment, so time counts from 1970."
    charts = [chart for figure in _FIGURES if (chart := _chart(figure, series, seen, at_s, window_s)) is not None]
    return Section(
        **head, parts=(tag("p", f"{which} {windows}{clock}" if charts else _NOTHING, class_="says"), *charts)
    )


def _why_not(seen: Observations) -> str | None:
    if not len(seen):
        return "No request is recorded, so there is nothing to draw over time."
    if not seen.variants:
        return "These figures compare a baseline and a variant; this run has no variant."
    return None


def _times(seen: Observations) -> tuple[Values, bool]:
    """Return when each request was begun in Unix time, and whether the manifest's clocks tell."""
    try:
        return utc_s(seen.run, seen.start_s, seen.end_s), True
    except BenchError:
        return seen.start_s - seen.start_s.min(), False


def _spots(verdict: Verdict, seen: Observations) -> tuple[list[Spot], str]:
    """Return the two classes that are drawn, with a sentence on which they are and why."""
    load_code = int(np.bincount(seen.load).argmax())
    load = seen.loads[load_code]
    at = f"at {words.load(load)}" + (", the load with the most requests" if len(seen.loads) > 1 else "")
    if all(name in seen.classes for name in POST):
        spots = [Spot(name, load, seen.classes.index(name), load_code) for name in POST]
        return spots, f"The post's two prompts, {POST[0]} (structured) and {POST[1]} (open-ended), {at}."
    names = _farthest(verdict, load) or list(
        dict.fromkeys(seen.classes[code] for code in seen.class_[seen.load == load_code])
    )
    names = names[:1] + names[-1:] if len(names) > 1 else names
    spots = [Spot(name, load, seen.classes.index(name), load_code) for name in names]
    if len(spots) < _PAIR:
        return spots, f"This run has one class, {names[0]}, {at}; the post compares two prompts."
    return spots, (
        f"This run did not ask the post's two prompts. Drawn are the classes with the highest and the lowest speed-up, "
        f"{names[0]} and {names[-1]}, {at}."
    )


def _farthest(verdict: Verdict, load: Load) -> list[str]:
    """Return the classes at a load, highest speed-up first."""
    if not verdict.headlines:
        return []
    cells = [cell for cell in words.cells_of(verdict, verdict.headlines[0]) if cell.load == load and cell.speed_up]
    return [cell.class_ for cell in sorted(cells, key=lambda cell: -(cell.speed_up.value if cell.speed_up else 0))]


def _series(verdict: Verdict, seen: Observations, spots: list[Spot]) -> Iterator[_Series]:
    good = chosen.good(verdict, seen)
    variant = verdict.headlines[0].variant if verdict.headlines else seen.variants[0]
    for kind, spot in enumerate(spots):
        for arm, name in enumerate((seen.baseline, variant if variant in seen.arms else seen.variants[0])):
            there = chosen.at(seen, spot) & good & seen.of_arm(name)
            yield _Series(words.short(f"{spot.class_}, {name}"), there, arm, kind)


def _window_s(at_s: Values) -> int:
    span_s = float(at_s.max() - at_s.min())
    return next((each for each in _WINDOWS_S if span_s <= MOST_WINDOWS * each), int(span_s / MOST_WINDOWS) + 1)


def _duration(seconds: int) -> str:
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds % size == 0:
            number = seconds // size
            return f"one {unit}" if number == 1 else f"{number} {unit}s"
    return "one second" if seconds == 1 else f"{seconds} seconds"


def _windows(values: Values, at_s: Values, there: Mask, window_s: int) -> list[_Window]:
    fine = there & np.isfinite(values)
    which, own = np.floor(at_s[fine] / window_s), values[fine]
    order = np.argsort(which, kind="stable")
    edges = np.flatnonzero(np.diff(which[order])) + 1
    parts = np.split(order, edges) if len(order) else []
    return [_Window(float(at_s[fine][part].mean()), float(np.median(own[part])), len(part)) for part in parts]


def _chart(figure: _Figure, series: list[_Series], seen: Observations, at_s: Values, window_s: int) -> Chart | None:
    values = seen.figures.get(figure.metric)
    if values is None:
        return None
    points = {each.name: _windows(values, at_s, each.there, window_s) for each in series}
    if not any(points.values()):
        return None
    return Chart(
        name=f"over-time-{figure.metric.replace('_', '-')}",
        title=f"{figure.title}, {words.unit(figure.metric)}",
        says=figure.says,
        spec=lambda width: _spec(series, points, window_s, width),
        table=_table(figure, points),
        wide=HALF,
    )


def _table(figure: _Figure, points: dict[str, list[_Window]]) -> Html:
    rows = (
        (name, _clock(window.at_s), f"{window.n:,}", words.number(window.value))
        for name, windows in points.items()
        for window in windows
    )
    return table(
        figure.title, ("Series", "UTC", "Requests", f"Median, {words.unit(figure.metric)}"), rows, numbers=(2, 3)
    )


def _clock(at_s: float) -> str:
    return str(np.datetime64(int(at_s), "s")).replace("T", " ")


def _spec(series: list[_Series], points: dict[str, list[_Window]], window_s: float, width: int) -> Spec:
    values = [
        {"at": window.at_s * 1000, "value": window.value, "series": name, "part": part}
        for name, windows in points.items()
        for window, part in zip(windows, _parts(windows, window_s), strict=True)
    ]
    times_s = [window.at_s for windows in points.values() for window in windows]
    clock = {"format": _format(max(times_s) - min(times_s)), "grid": False, "title": "UTC", "labelOverlap": True,
             "tickCount": 3 if width < HALF else 6}  # fmt: skip
    x = {"field": "at", "type": "temporal", "scale": {"type": "utc"}, "axis": clock}
    y = {"field": "value", "type": "quantitative", "scale": {"zero": True, "nice": 5},
         "axis": {"title": None, "tickCount": 5, "labelExpr": "format(datum.value, ',')"}}  # fmt: skip
    columns = 1 if width < HALF else 2
    legend = {"columns": columns, "columnPadding": 30, "symbolSize": 70, "symbolStrokeWidth": 2, "symbolOpacity": 1,
              "labelLimit": width // columns - 60}  # fmt: skip

    def by(found: list[Any]) -> dict[str, Any]:
        scale = {"domain": [each.name for each in series], "range": found}
        return {"field": "series", "type": "nominal", "sort": None, "title": None, "scale": scale, "legend": legend}

    dash = by([_DASHES[each.kind] for each in series])
    return {
        "width": width,
        "height": 230,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "padding": _PADDING,
        "data": {"values": values},
        "encoding": {"x": x, "y": y, "color": by([colors.arm(each.arm) for each in series])},
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 1, "opacity": 0.35}},
            {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"strokeDash": dash, "detail": {"field": "part"}}},
            {"mark": {"type": "point", "filled": True, "size": 36, "opacity": 1},
             "encoding": {"shape": by([_SHAPES[each.kind] for each in series])}},
        ],
    }  # fmt: skip


def _parts(windows: Sequence[_Window], window_s: float) -> Iterator[int]:
    """Yield which unbroken part of its line each window belongs to: one that is far from the last begins a new one."""
    part, last_s = 0, -np.inf
    for window in windows:
        part += window.at_s - last_s > _BROKEN * window_s
        last_s = window.at_s
        yield int(part)


def _format(span_s: float) -> str:
    return "%m-%d %H:%M" if span_s > _DAY_S else "%H:%M:%S" if span_s < _SHORT_S else "%H:%M"
