"""The section on acceptance: tokens per step of the target, per class and per drafted position.

Invariant: the method is next to each figure; for arms and classes without a figure the section
gives the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from markupsafe import Markup

from tandem.judge.schema import FILE, ClassAcceptance, Verdict
from tandem.judge.text_format import (
    ABSENT,
    filter_speculation,
    format_number,
    format_percent,
    shorten_text,
)
from tandem.report import charts, colors
from tandem.report.charts import HALF_PX, ReportChart, ReportSection, VegaSpec
from tandem.report.colors import LINE_LOOKS
from tandem.report.markup import build_table, render_template
from tandem.report.row_chart import RowChart, RowMark, ValueAxis, encode_arms, mark_one

MAX_ROWS = 20
_BAR_PX = 16


def build_acceptance_section(verdict: Verdict) -> ReportSection:
    """Return the section on acceptance of a verdict that has a figure of it."""
    rows = filter_speculation(verdict)
    parts: list[Markup | ReportChart] = [
        _build_length_chart(rows, verdict),
        *_build_position_charts(rows),
    ]
    sentences = dict.fromkeys(
        f"{row.arm}: {row.sentence}" for row in verdict.acceptance if row.sentence
    )
    parts.append(render_template("reasons", sentences=list(sentences)[:MAX_ROWS]))
    return ReportSection(
        name="acceptance", short="Acceptance", title="Acceptance", parts=tuple(parts)
    )


def _build_length_chart(rows: Sequence[ClassAcceptance], verdict: Verdict) -> ReportChart:
    class_names = list(dict.fromkeys(row.class_ for row in rows))[:MAX_ROWS]
    arm_colors = {
        arm: colors.arm_color(place)
        for place, arm in enumerate((verdict.baseline, *verdict.variants))
    }
    row_arms = {row.arm for row in rows}
    arms = [arm for arm in arm_colors if arm in row_arms][: colors.MAX_ARMS]
    chart_rows = [row for row in rows if row.class_ in class_names and row.arm in arms]
    note = ""
    if len(chart_rows) < len(rows):
        note = f" {len(rows) - len(chart_rows):,} more are in {FILE}."
    return ReportChart(
        name="acceptance-length",
        title="Acceptance length, tokens per step of the target",
        caption=(
            "Tokens that one step of the target gave, its own included: 1 is no speculation; no"
            f" length can be more than the number of drafted tokens plus 1.{note}"
        ),
        spec=partial(_build_bar_spec, chart_rows, {arm: arm_colors[arm] for arm in arms}),
        table=_build_acceptance_table(chart_rows),
        width_px=HALF_PX,
    )


def _build_acceptance_table(rows: Sequence[ClassAcceptance]) -> Markup:
    places = range(max((len(row.per_position) for row in rows), default=0))
    heads = ["Class", "Arm", "Tokens per step", "Target steps per token", "Method"]
    cells = []
    for row in rows:
        figures = (format_number(row.acceptance_length), format_number(row.target_steps_per_token))
        shares = [
            format_percent(row.per_position[at]) if at < len(row.per_position) else ABSENT
            for at in places
        ]
        cells.append((row.class_, row.arm, *figures, row.method, *shares))
    numbers = (2, 3, *(5 + place for place in places))
    return build_table(
        "Acceptance", [*heads, *(f"Position {at + 1}" for at in places)], cells, numbers=numbers
    )


def _build_bar_spec(
    rows: Sequence[ClassAcceptance], arm_colors: Mapping[str, str], width: int
) -> VegaSpec:
    values = []
    for row in rows:
        place = {"row": shorten_text(row.class_), "arm": shorten_text(row.arm)}
        figure = format_number(row.acceptance_length)
        values.append({**place, "length": row.acceptance_length, "figure": figure})
    highest = max([2.0, *(row.acceptance_length or 0 for row in rows)])
    ticks = {"tickMinStep": 1, "tickCount": 6}
    chart = RowChart(
        rows=values,
        axis=ValueAxis(title="tokens per step", first=0, last=highest, figure_px=45, ticks=ticks),
        marks=[
            RowMark("bar", "length"),
            mark_one("var(--text)", strokeDash=[4, 3]),
        ],
        figures=[("figure", 0)],
        look=encode_arms(
            {shorten_text(arm): color for arm, color in arm_colors.items()}, labelLimit=width - 40
        ),
        step_px=_BAR_PX,
    )
    return chart.build_spec(width)


def _build_position_charts(all_rows: Sequence[ClassAcceptance]) -> list[ReportChart]:
    rows = [row for row in all_rows if row.per_position]
    if not rows:
        return []
    chart_rows = [row for row in rows if row.arm == rows[0].arm][: len(LINE_LOOKS)]
    omitted_count = len(rows) - len(chart_rows)
    note = ""
    if omitted_count:
        note = f" {omitted_count:,} more lines are in the table of {FILE}."
    caption = (
        "Share of drafts whose token at this position was accepted, by the server's counters; it"
        " cannot rise, "
    )
    return [
        ReportChart(
            name="acceptance-position",
            title=f"Accepted at each drafted position, {shorten_text(rows[0].arm)}",
            caption=f"{caption}because a rejected token ends its draft.{note}",
            spec=partial(_build_position_spec, chart_rows),
            table=_build_acceptance_table(chart_rows),
            width_px=HALF_PX,
            has_slide=False,
        )
    ]


def _build_position_spec(rows: Sequence[ClassAcceptance], width: int) -> VegaSpec:
    names = [shorten_text(row.class_) for row in rows]
    values = []
    for row, name in zip(rows, names, strict=True):
        values += [
            {"position": position, "share": share, "series": name}
            for position, share in enumerate(row.per_position, 1)
        ]
    legend = {"columns": 2 if width < HALF_PX else 3, "labelLimit": 110, "symbolSize": 70}
    x_axis = {"grid": False, "tickMinStep": 1, "title": "drafted position", "format": "d"}
    y_axis = {"format": ".0%", "tickCount": 5, "title": None}
    x = {
        "field": "position",
        "type": "quantitative",
        "scale": {"zero": False, "nice": False},
        "axis": x_axis,
    }
    y = {"field": "share", "type": "quantitative", "scale": {"domain": [0, 1]}, "axis": y_axis}
    return charts.build_line_spec(
        width, values, {"x": x, "y": y}, dict(zip(names, LINE_LOOKS, strict=False)), legend
    )
