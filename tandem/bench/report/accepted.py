"""The section on acceptance: how many tokens a step of the target gave, per class and per drafted position.

Invariant: the method stands beside each figure; arms and classes without one are said to have none, and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tandem.bench.judge import words
from tandem.bench.judge.form import FILE, Acceptance, Verdict
from tandem.bench.report import colors
from tandem.bench.report.drawing import HALF, Chart, Spec
from tandem.bench.report.markup import Html, table, tag
from tandem.bench.report.rows import layout, named
from tandem.bench.report.section import Section

EVERY = "all"
MOST_ROWS = 20
MOST_LINES = 6
_BAR = 16
_BETWEEN = 10
_DASHES = ([1, 0], [6, 3], [2, 2], [9, 3, 2, 3], [4, 6], [12, 4])
_SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")


def section(verdict: Verdict) -> Section:
    """Return the section."""
    told = words.speculating(verdict.acceptance)
    parts: list[Html | Chart] = []
    if told:
        parts += [_lengths(told, verdict), *_positions(told)]
    else:
        parts.append(tag("p", "No acceptance is known of any arm, or none speculates.",
                         class_="says"))  # fmt: skip
    said = dict.fromkeys(f"{row.arm}: {row.sentence}" for row in verdict.acceptance if row.sentence)
    if said:
        parts.append(tag("ul", *(tag("li", each) for each in list(said)[:MOST_ROWS]), class_="reasons"))
    return Section(name="acceptance", short="Acceptance", title="Acceptance", parts=tuple(parts))


def _lengths(told: Sequence[Acceptance], verdict: Verdict) -> Chart:
    names = list(dict.fromkeys(row.class_ for row in told))[:MOST_ROWS]
    arms = [arm for arm in (verdict.baseline, *verdict.variants) if any(row.arm == arm for row in told)][: colors.ARMS]
    place = {arm: number for number, arm in enumerate((verdict.baseline, *verdict.variants))}
    shown = [row for row in told if row.class_ in names and row.arm in arms]
    left = f" {len(told) - len(shown):,} more are in {FILE}." if len(shown) < len(told) else ""
    return Chart(
        name="acceptance-length", title="Acceptance length, tokens per step of the target",
        says="Tokens that one step of the target gave, its own included: 1 is no speculation; no length can be more "
        f"than the number of drafted tokens plus 1.{left}",
        spec=lambda width: _bars(shown, names, arms, [colors.arm(place[arm]) for arm in arms], width),
        table=_table(shown), wide=HALF,
    )  # fmt: skip


def _table(rows: Sequence[Acceptance]) -> Html:
    positions = max((len(row.per_position) for row in rows), default=0)
    heads = ("Class", "Arm", "Tokens per step", "Target steps per token", "Method",
             *(f"Position {place}" for place in range(1, positions + 1)))  # fmt: skip
    cells = (
        (
            row.class_, row.arm, words.number(row.acceptance_length), words.number(row.target_steps_per_token),
            row.method,
            *(words.percent(row.per_position[place]) if place < len(row.per_position) else words.ABSENT
              for place in range(positions)),
        )
        for row in rows
    )  # fmt: skip
    return table("Acceptance", heads, cells, numbers=(2, 3, *range(5, 5 + positions)))


def _bars(rows: Sequence[Acceptance], names: list[str], arms: list[str], hues: list[str], width: int) -> Spec:
    step = _BAR * len(arms) + _BETWEEN
    places = layout(width, names, beside=45, step=step)
    among = {arm: (number - (len(arms) - 1) / 2) * _BAR / places.step for number, arm in enumerate(arms)}
    half = (_BAR - 4) / 2 / places.step
    values = [
        {"row": row, "top": row - half, "foot": row + half, "arm": words.short(told.arm), "zero": 0,
         "length": told.acceptance_length, "told": words.number(told.acceptance_length)}
        for told in rows
        for row in (names.index(told.class_) + places.shift + among[told.arm],)
    ]  # fmt: skip
    high = max(2.0, *(row.acceptance_length or 0 for row in rows))
    x: dict[str, Any] = {
        "type": "quantitative",
        "scale": {
            "domain": [0, high],
            "range": [places.first, places.last - (35 if places.narrow else 0)],
            "nice": False,
        },
    }
    axis = {"grid": True, "tickMinStep": 1, "tickCount": 6, "tickSize": 4, "title": "tokens per step"}
    y = {"field": "row", "type": "quantitative", "axis": None, "scale": places.y(len(names))}
    color = {
        "field": "arm", "type": "nominal",
        "legend": {"symbolType": "square", "labelLimit": width - 40, "columnPadding": 30},
        "scale": {"domain": [words.short(arm) for arm in arms], "range": hues},
    }  # fmt: skip
    return {
        "width": width,
        "height": places.step * len(names),
        "data": {"values": values},
        "layer": [
            {"mark": {"type": "rect"},
             "encoding": {"x": x | {"field": "zero", "axis": axis}, "x2": {"field": "length"},
                          "y": y | {"field": "top"}, "y2": {"field": "foot"}, "color": color}},
            {"data": {"values": [{"one": 1}]}, "mark": {"type": "rule", "color": "var(--text)", "strokeDash": [4, 3]},
             "encoding": {"x": x | {"field": "one"}}},
            {"mark": {"type": "text", "align": "left", "baseline": "middle", "dx": 7},
             "encoding": {"x": x | {"field": "length"}, "y": y, "text": {"field": "told"}}},
            *named(places, names),
        ],
    }  # fmt: skip


def _positions(told: Sequence[Acceptance]) -> list[Chart]:
    rows = [row for row in told if row.per_position]
    if not rows:
        return []
    first = rows[0].arm
    of_arm = [row for row in rows if row.arm == first]
    shown = of_arm[:MOST_LINES]
    more = len(rows) - len(shown)
    left = f" {more:,} more lines are in the table of {FILE}." if more else ""
    return [
        Chart(
            name="acceptance-position",
            title=f"Accepted at each drafted position, {words.short(first)}",
            says="Share of drafts whose token at this position was accepted, by the server's counters; it cannot rise, "
            f"because a rejected token ends its draft.{left}",
            spec=lambda width: _lines(shown, width),
            table=_table(shown),
            wide=HALF,
            slide=False,
        )
    ]


def _lines(rows: Sequence[Acceptance], width: int) -> Spec:
    names = [words.short(row.class_) for row in rows]
    values = [
        {"position": position, "share": share, "class": name}
        for row, name in zip(rows, names, strict=True)
        for position, share in enumerate(row.per_position, 1)
    ]

    def by(found: list[Any]) -> dict[str, Any]:
        return {"field": "class", "type": "nominal", "sort": None, "title": None,
                "scale": {"domain": names, "range": found},
                "legend": {"columns": 2 if width < HALF else 3, "labelLimit": 110, "symbolSize": 70}}  # fmt: skip

    hues = ["var(--text)", "var(--arm-1)", "var(--same)", "var(--arm-3)", "var(--arm-2)", "var(--arm-0)"]
    x = {"field": "position", "type": "quantitative", "scale": {"zero": False, "nice": False},
         "axis": {"grid": False, "tickMinStep": 1, "title": "drafted position", "format": "d"}}  # fmt: skip
    y = {"field": "share", "type": "quantitative", "scale": {"domain": [0, 1]},
         "axis": {"format": ".0%", "tickCount": 5, "title": None}}  # fmt: skip
    return {
        "width": width,
        "height": 230,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": values},
        "encoding": {"x": x, "y": y, "color": by(hues[: len(names)])},
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"strokeDash": by(list(_DASHES[: len(names)]))}},
            {"mark": {"type": "point", "filled": True, "size": 40, "opacity": 1},
             "encoding": {"shape": by(list(_SHAPES[: len(names)]))}},
        ],
    }  # fmt: skip
