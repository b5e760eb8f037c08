"""Speed-up per class with its interval, the margin and the noise floor: a forest plot.

Invariant: the same scale for all rows, and equal factors are equal lengths (it is logarithmic): twice as fast lies as
far to the right as half as fast to the left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tandem.bench.judge import words
from tandem.bench.judge.form import FILE, Cell, Headline, Load, TailSpeedUp, Verdict
from tandem.bench.report.colors import SHAPES, WORDS
from tandem.bench.report.drawing import FULL, NARROW, Chart, Spec
from tandem.bench.report.markup import Html, table
from tandem.bench.report.rows import Layout, is_narrow, layout, legible, named

MOST_ROWS = 30
_STEP, _SMALL_STEP = 30, 24
_FARTHEST = 50.0  # a speed-up beyond is drawn at the edge
_LEAST_SPAN = 1.25  # each side of 1
_ROOM = 1.04
_FINE, _MIDDLE = 2.2, 7.0  # spans up to which ticks are tenths, and halves


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What a forest plot draws: the cells in their order, and how many there are."""

    cells: tuple[Cell, ...]
    of: int
    margin: float
    baseline: str
    loads: int


def plots(verdict: Verdict, headline: Headline, place: int) -> tuple[Chart, ...]:
    """Return the plot of a variant by its deciding metric, then smaller ones of the others, with the same rows.

    Args:
        verdict: all of it.
        headline: of the variant.
        place: of the variant, for the charts' names.
    """
    by_metric: dict[str, list[Cell]] = {headline.metric: []}
    for cell in verdict.cells:
        if cell.variant == headline.variant and cell.speed_up is not None:
            by_metric.setdefault(cell.metric, []).append(cell)
    told = {metric: cells for metric, cells in by_metric.items() if cells}
    if not told:
        return ()
    first = next(iter(told.values()))
    rows = {_row_of(cell): row for row, cell in enumerate(sorted(words.most_telling(first, MOST_ROWS), key=_order))}
    return tuple(
        _chart(
            verdict,
            _drawn(cells, rows, verdict),
            f"speed-up-{place}" + (f"-{number}" if number else ""),
            small=number > 0,
        )
        for number, cells in enumerate(told.values())
        if any(_row_of(cell) in rows for cell in cells)
    )


def _row_of(cell: Cell) -> tuple[str, Load]:
    return cell.class_, cell.load


def _drawn(cells: Sequence[Cell], rows: Mapping[tuple[str, Load], int], verdict: Verdict) -> Drawn:
    shown = sorted((cell for cell in cells if _row_of(cell) in rows), key=lambda cell: rows[_row_of(cell)])
    loads = len({cell.load for cell in cells})
    return Drawn(cells=tuple(shown), of=len(cells), margin=verdict.margin, baseline=verdict.baseline, loads=loads)


def _chart(verdict: Verdict, drawn: Drawn, name: str, *, small: bool) -> Chart:
    metric, variant = drawn.cells[0].metric, drawn.cells[0].variant
    return Chart(
        name=name,
        title=f"{words.short_metric(metric)}: speed-up of {words.short(variant)} over {words.short(verdict.baseline)}",
        says=_says(drawn, verdict, small=small),
        spec=lambda width: _spec(drawn, width, small=small),
        table=cells_table(f"{words.short_metric(metric)} of {variant}", drawn.cells, verdict),
        wide=NARROW if small else FULL,
        slide=not small,
    )


def _order(cell: Cell) -> tuple[float, float]:
    asked = cell.load.concurrency if cell.load.concurrency is not None else cell.load.rate_per_s or 0
    return asked, -(cell.speed_up.value if cell.speed_up else 1.0)


def _says(drawn: Drawn, verdict: Verdict, *, small: bool) -> str:
    left = f" {_left_out(drawn, verdict)}" if len(drawn.cells) < drawn.of else ""
    if small:
        counted = Counter(cell.verdict for cell in drawn.cells)
        told = ", ".join(f"{number} {word}" for word, number in counted.items())
        return f"Of {len(drawn.cells)} rows: {told}.{left}"
    floors = any(cell.noise_floor for cell in drawn.cells)
    floor = (
        "The grey bar around 1 in each row is the noise floor, what the baseline differs from itself by: nothing "
        "within it is called."
        if floors
        else "There is no noise floor: the baseline was not measured against itself."
    )
    return (
        f"Each mark is the geometric mean over prompts, its line the {words.level(verdict)} interval; right of 1 the "
        f"variant is better. The shaded band is the margin of {100 * verdict.margin:g} %: an interval inside it is "
        f"the same. {floor}{left}"
    )


def _left_out(drawn: Drawn, verdict: Verdict) -> str:
    return (
        f"Drawn are {len(drawn.cells)} of {drawn.of:,}, the fastest and the slowest; all are in {FILE} of the run "
        f"{verdict.folder}."
    )


def cells_table(caption: str, cells: Sequence[Cell], verdict: Verdict) -> Html:
    """Return the cells of one metric with all that the verdict says of them."""
    heads = ("Class", "Load", *_heads(verdict))
    rows = ((cell.class_, words.load(cell.load), *_columns(cell)) for cell in cells)
    return table(caption, heads, rows, numbers=range(2, 11), class_="cells")


def all_table(caption: str, cells: Sequence[Cell], verdict: Verdict) -> Html:
    """Return cells of several metrics, those of E2E with their mean and 90th percentile."""
    heads = ("Class", "Metric", "Load", *_heads(verdict))
    rows = (
        (cell.class_, name, words.load(cell.load), *columns)
        for cell in cells
        for name, columns in [
            (words.short_metric(cell.metric), _columns(cell)),
            *(
                (f"{words.short_metric(cell.metric)} {tail.statistic}", _tail_columns(cell, tail))
                for tail in cell.tails
            ),
        ]
    )
    return table(caption, heads, rows, numbers=range(3, 12), class_="cells")


def _heads(verdict: Verdict) -> tuple[str, ...]:
    return (
        "Prompts", "Rounds", "Baseline", "Variant", "Speed-up", f"{words.level(verdict)} interval", "Adjusted p",
        "Noise floor", "Detectable", "Verdict", "Why",
    )  # fmt: skip


def _columns(cell: Cell) -> tuple[str, ...]:
    return (
        f"{cell.prompts:,}", f"{cell.rounds:,}", _with_unit(cell.baseline, cell.metric),
        _with_unit(cell.measured, cell.metric), words.times(cell.speed_up.value if cell.speed_up else None),
        words.interval(cell.speed_up), words.number(cell.adjusted_p), words.times(cell.noise_floor),
        words.times(cell.detectable), cell.verdict, cell.why,
    )  # fmt: skip


def _tail_columns(cell: Cell, tail: TailSpeedUp) -> tuple[str, ...]:
    return (
        f"{cell.prompts:,}", f"{cell.rounds:,}", _with_unit(tail.baseline, cell.metric),
        _with_unit(tail.measured, cell.metric), words.times(tail.speed_up.value), words.interval(tail.speed_up),
        words.number(tail.adjusted_p), words.times(cell.noise_floor), words.ABSENT, tail.verdict,
        "beside the median, over all requests",
    )  # fmt: skip


def _with_unit(value: float | None, metric: str) -> str:
    return f"{words.number(value)} {words.unit(metric)}" if value is not None else words.ABSENT


def _spec(drawn: Drawn, width: int, *, small: bool) -> Spec:
    names = [_name(cell, drawn, width) for cell in drawn.cells]
    places = layout(width, names, beside=290, step=_SMALL_STEP if small else _STEP)
    low, high = _ends(drawn.cells)
    x = {
        "type": "quantitative",
        "scale": {
            "type": "log",
            "domain": [low, high],
            "range": [places.first, places.last],
            "nice": False,
            "clamp": True,
        },
    }
    y = {"field": "row", "type": "quantitative", "axis": None, "scale": places.y(len(names))}
    axis = {
        "values": _ticks(low, high, few=places.narrow), "grid": True, "orient": "bottom",
        "labelExpr": f"format(datum.value, '~g') + '{words.TIMES}'", "tickSize": 4,
        "title": None if small else f"speed-up: left of 1{words.TIMES} slower, right of it faster",
    }  # fmt: skip
    rows = [_row(cell, row + places.shift, low, high) for row, cell in enumerate(drawn.cells)]
    return {
        "width": width,
        "height": places.step * len(names),
        "data": {"values": rows},
        "layer": [
            _band(drawn.margin, x | {"axis": axis}),
            _floor(x, y),
            {"data": {"values": [{"one": 1}]}, "mark": {"type": "rule", "color": "var(--muted)", "strokeWidth": 1},
             "encoding": {"x": x | {"field": "one"}}},
            {"mark": {"type": "rule", "strokeWidth": 2.5, "strokeCap": "round"},
             "encoding": {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y, "color": _by_word(WORDS)}},
            {"mark": {"type": "point", "filled": True, "size": 90, "opacity": 1, "stroke": "var(--card)",
                      "strokeWidth": 1},
             "encoding": {"x": x | {"field": "value"}, "y": y, "color": _by_word(WORDS), "shape": _by_word(SHAPES)}},
            *_told(places, y),
            *named(places, names),
        ],
    }  # fmt: skip


def _name(cell: Cell, drawn: Drawn, width: int) -> str:
    asked = words.short_load(cell.load) if is_narrow(width) else words.load(cell.load)
    return f"{cell.class_}, {asked}" if drawn.loads > 1 else cell.class_


def _row(cell: Cell, row: float, low: float, high: float) -> dict[str, Any]:
    ratio = cell.speed_up
    assert ratio is not None
    floor = cell.noise_floor or 1.0
    return {
        "row": row, "value": ratio.value, "verdict": cell.verdict,
        "low": ratio.low if ratio.low is not None else ratio.value,
        "high": ratio.high if ratio.high is not None else ratio.value,
        "floor": max(1 / floor, low), "ceiling": min(floor, high),
        "figure": words.times(ratio.value),
        "interval": words.interval(ratio) if ratio.low is not None else "no interval",
        "short": f"{words.times(ratio.value)} {cell.verdict}",
    }  # fmt: skip


def _by_word(meaning: Any) -> dict[str, Any]:
    return {
        "field": "verdict", "type": "nominal", "legend": None,
        "scale": {"domain": list(meaning), "range": list(meaning.values())},
    }  # fmt: skip


def _band(margin: float, x: dict[str, Any]) -> dict[str, Any]:
    return {
        "data": {"values": [{"from": 1 / (1 + margin), "to": 1 + margin}]},
        "mark": {"type": "rect", "color": "var(--band)"},
        "encoding": {"x": x | {"field": "from"}, "x2": {"field": "to"}},
    }


def _floor(x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    return {
        "transform": [{"filter": "datum.ceiling > 1"}],
        "mark": {"type": "rule", "color": "var(--floor)", "strokeWidth": 9, "opacity": 0.45},
        "encoding": {"x": x | {"field": "floor"}, "x2": {"field": "ceiling"}, "y": y},
    }


def _told(places: Layout, y: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the figures of each row as text: on the right, on a phone above the marks."""

    def written(field: str, x: float, **mark: Any) -> dict[str, Any]:
        return {
            "mark": {"type": "text", "x": x, "baseline": "middle", "align": "left", **mark},
            "encoding": {"y": y, "text": {"field": field}, "color": _by_word(WORDS)},
        }

    if places.narrow:
        return legible(
            written("short", places.width - 4, align="right", dy=(places.above - places.shift) * places.step), places
        )
    return [
        written("figure", places.last + 70, align="right", fontWeight="bold"),
        {**written("interval", places.last + 84), "encoding": {"y": y, "text": {"field": "interval"}}},
        written("verdict", places.last + 200, fontWeight="bold"),
    ]


def _ends(cells: Sequence[Cell]) -> tuple[float, float]:
    ratios = [cell.speed_up for cell in cells if cell.speed_up is not None]
    low = min([1 / _LEAST_SPAN, *(one.low or one.value for one in ratios)]) / _ROOM
    high = max([_LEAST_SPAN, *(one.high or one.value for one in ratios)]) * _ROOM
    return max(low, 1 / _FARTHEST), min(high, _FARTHEST)


def _ticks(low: float, high: float, *, few: bool) -> list[float]:
    span = high / low
    if span < _FINE:
        every = [round(0.5 + 0.1 * step, 1) for step in range(20)]
        every = [value for value in every if not few or round(value * 10) % 2 == 0]
    elif span < _MIDDLE:
        every = [0.25, 0.5, 1, 2, 3, 5] if few else [0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6]
    else:
        every = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50]
    return [value for value in every if low <= value <= high]
