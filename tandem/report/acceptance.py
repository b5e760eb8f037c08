"""The section on acceptance: how many tokens a step of the target gave, per class and per drafted position.

Invariant: the method stands beside each figure; arms and classes without one are said to have none, and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from tandem.judge import text_format
from tandem.judge.schema import FILE, ClassAcceptance, Verdict
from tandem.report import colors
from tandem.report.charts import HALF_PX, ReportChart, VegaSpec
from tandem.report.markup import build_sentence, build_table, render_template
from tandem.report.row_layout import build_layer, build_name_layers, compute_row_layout
from tandem.report.section import ReportSection

MAX_ROWS = 20
MAX_LINES = 6
_BAR_PX = 16
POINT_STYLE: dict[str, Any] = {"filled": True, "size": 40, "opacity": 1}
_ROW_GAP_PX = 10
_DASHES = ([1, 0], [6, 3], [2, 2], [9, 3, 2, 3], [4, 6], [12, 4])
_SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")


def build_acceptance_section(verdict: Verdict) -> ReportSection:
    """Return the section."""
    acceptances = text_format.filter_speculation(verdict.acceptance)
    parts: list[Markup | ReportChart] = [build_sentence("No acceptance is known of any arm, or none speculates.")]
    if acceptances:
        parts = [_build_length_chart(acceptances, verdict), *_build_position_charts(acceptances)]
    sentences = dict.fromkeys(f"{row.arm}: {row.sentence}" for row in verdict.acceptance if row.sentence)
    parts.append(render_template("reasons", sentences=list(sentences)[:MAX_ROWS]))
    return ReportSection(name="acceptance", short="Acceptance", title="Acceptance", parts=tuple(parts))


def _build_length_chart(acceptances: Sequence[ClassAcceptance], verdict: Verdict) -> ReportChart:
    class_names = list(dict.fromkeys(row.class_ for row in acceptances))[:MAX_ROWS]
    arms = [arm for arm in (verdict.baseline, *verdict.variants) if any(row.arm == arm for row in acceptances)][
        : colors.MAX_ARMS
    ]
    color_indexes = {arm: number for number, arm in enumerate((verdict.baseline, *verdict.variants))}
    chart_rows = [row for row in acceptances if row.class_ in class_names and row.arm in arms]
    omission_note = (
        f" {len(acceptances) - len(chart_rows):,} more are in {FILE}." if len(chart_rows) < len(acceptances) else ""
    )
    return ReportChart(
        name="acceptance-length",
        title="Acceptance length, tokens per step of the target",
        caption="Tokens that one step of the target gave, its own included: 1 is no speculation; no length can be more "
        f"than the number of drafted tokens plus 1.{omission_note}",
        spec=lambda width: _build_bar_spec(
            chart_rows, class_names, arms, [colors.arm_color(color_indexes[arm]) for arm in arms], width
        ),
        table=_build_acceptance_table(chart_rows),
        width_px=HALF_PX,
    )


def _build_acceptance_table(rows: Sequence[ClassAcceptance]) -> Markup:
    positions = max((len(row.per_position) for row in rows), default=0)
    heads = ("Class", "Arm", "Tokens per step", "Target steps per token", "Method",
             *(f"Position {place}" for place in range(1, positions + 1)))  # fmt: skip
    cells = (
        (
            row.class_,
            row.arm,
            text_format.format_number(row.acceptance_length),
            text_format.format_number(row.target_steps_per_token),
            row.method,
            *(
                text_format.format_percent(row.per_position[place])
                if place < len(row.per_position)
                else text_format.ABSENT
                for place in range(positions)
            ),
        )
        for row in rows
    )
    return build_table("Acceptance", heads, cells, numbers=(2, 3, *range(5, 5 + positions)))


def _build_bar_spec(
    rows: Sequence[ClassAcceptance], class_names: list[str], arms: list[str], arm_colors: list[str], width: int
) -> VegaSpec:
    step = _BAR_PX * len(arms) + _ROW_GAP_PX
    row_layout = compute_row_layout(width, class_names, figure_px=45, step=step)
    arm_offsets = {arm: (number - (len(arms) - 1) / 2) * _BAR_PX / row_layout.step for number, arm in enumerate(arms)}
    half_bar = (_BAR_PX - 4) / 2 / row_layout.step
    values = [
        {
            "row": row,
            "top": row - half_bar,
            "foot": row + half_bar,
            "arm": text_format.shorten_text(acceptance.arm),
            "zero": 0,
            "length": acceptance.acceptance_length,
            "told": text_format.format_number(acceptance.acceptance_length),
        }
        for acceptance in rows
        for row in (class_names.index(acceptance.class_) + row_layout.shift + arm_offsets[acceptance.arm],)
    ]
    high = max(2.0, *(row.acceptance_length or 0 for row in rows))
    x = row_layout.encode_values("linear", 0, high)
    if row_layout.narrow:
        x["scale"]["range"][1] -= 35
    axis = {"grid": True, "tickMinStep": 1, "tickCount": 6, "tickSize": 4, "title": "tokens per step"}
    y = row_layout.encode_rows(len(class_names))
    color = {
        "field": "arm", "type": "nominal",
        "legend": {"symbolType": "square", "labelLimit": width - 40, "columnPadding": 30},
        "scale": {"domain": [text_format.shorten_text(arm) for arm in arms], "range": arm_colors},
    }  # fmt: skip
    bar = {"x": x | {"field": "zero", "axis": axis}, "x2": {"field": "length"}, "y": y | {"field": "top"}}
    figure = {"x": x | {"field": "length"}, "y": y, "text": {"field": "told"}}
    return {
        "width": width,
        "height": row_layout.step * len(class_names),
        "data": {"values": values},
        "layer": [
            build_layer("rect", bar | {"y2": {"field": "foot"}, "color": color}),
            build_layer("rule", {"x": x | {"field": "one"}}, [{"one": 1}], color="var(--text)", strokeDash=[4, 3]),
            build_layer("text", figure, align="left", baseline="middle", dx=7),
            *build_name_layers(row_layout, class_names),
        ],
    }


def _build_position_charts(acceptances: Sequence[ClassAcceptance]) -> list[ReportChart]:
    rows = [row for row in acceptances if row.per_position]
    if not rows:
        return []
    first_arm = rows[0].arm
    arm_rows = [row for row in rows if row.arm == first_arm]
    chart_rows = arm_rows[:MAX_LINES]
    omitted_count = len(rows) - len(chart_rows)
    omission_note = f" {omitted_count:,} more lines are in the table of {FILE}." if omitted_count else ""
    return [
        ReportChart(
            name="acceptance-position",
            title=f"Accepted at each drafted position, {text_format.shorten_text(first_arm)}",
            caption="Share of drafts whose token at this position was accepted, by the server's counters; it "
            "cannot rise, "
            f"because a rejected token ends its draft.{omission_note}",
            spec=lambda width: _build_position_spec(chart_rows, width),
            table=_build_acceptance_table(chart_rows),
            width_px=HALF_PX,
            has_slide=False,
        )
    ]


def _build_position_spec(rows: Sequence[ClassAcceptance], width: int) -> VegaSpec:
    class_names = [text_format.shorten_text(row.class_) for row in rows]
    values = [
        {"position": position, "share": share, "class": name}
        for row, name in zip(rows, class_names, strict=True)
        for position, share in enumerate(row.per_position, 1)
    ]

    def encode_class(scale_range: list[Any]) -> dict[str, Any]:
        return {"field": "class", "type": "nominal", "sort": None, "title": None,
                "scale": {"domain": class_names, "range": scale_range},
                "legend": {"columns": 2 if width < HALF_PX else 3, "labelLimit": 110, "symbolSize": 70}}  # fmt: skip

    line_colors = ["var(--text)", "var(--arm-1)", "var(--same)", "var(--arm-3)", "var(--arm-2)", "var(--arm-0)"]
    x = {"field": "position", "type": "quantitative", "scale": {"zero": False, "nice": False},
         "axis": {"grid": False, "tickMinStep": 1, "title": "drafted position", "format": "d"}}  # fmt: skip
    y = {"field": "share", "type": "quantitative", "scale": {"domain": [0, 1]},
         "axis": {"format": ".0%", "tickCount": 5, "title": None}}  # fmt: skip
    return {
        "width": width,
        "height": 230,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": values},
        "encoding": {"x": x, "y": y, "color": encode_class(line_colors[: len(class_names)])},
        "layer": [
            build_layer("line", {"strokeDash": encode_class(list(_DASHES[: len(class_names)]))}, strokeWidth=2),
            build_layer("point", {"shape": encode_class(list(_SHAPES[: len(class_names)]))}, **POINT_STYLE),
        ],
    }
