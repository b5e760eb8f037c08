"""The page of a sweep: speed-up by draft and window, goodput per USD, evidence.

Invariant: a speed-up is relative to plain decoding in the same pair, unlike the post's figure; a
candidate that nobody measured has no point. One file, no script, no outside reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from tandem.judge.sweep_record import CandidateRecord
from tandem.judge.text_format import ABSENT, format_number, format_times
from tandem.report.acceptance import LINE_LOOKS
from tandem.report.chart_page import PageHeader, write_chart_page
from tandem.report.charts import (
    HALF_PX,
    ReportChart,
    ReportSection,
    VegaSpec,
    build_fit_spec,
    build_layer,
    encode_drafts,
    encode_windows,
    mark_plain_decoding,
)
from tandem.report.markup import build_table, render_template

PLAIN = "plain decoding"
_SPREAD = 0.12  # windows between drafts, so that intervals do not overlap


def write_sweep_page(header: PageHeader, points: Sequence[CandidateRecord], path: Path) -> None:
    """Write the page of a sweep.

    Args:
        header: head and foot.
        points: all candidates.
        path: of the file.

    Raises:
        ExternalError: the file cannot be written.
    """
    measured = [point for point in points if point.speed_up]
    charts = [
        ReportChart(
            name="sweep-speed-up",
            title="Speed-up over plain decoding",
            caption=(
                "A point for each measured candidate, with its 95 % interval. Below 1 speculation"
                " is slower."
            ),
            spec=lambda width: _build_spec(measured, _list_speed_ups(measured), width),
            table=_build_candidates_table(points),
            width_px=HALF_PX,
            has_slide=False,
        )
    ]
    priced = [point for point in measured if point.goodput_per_usd]
    ratios = [
        point.goodput_per_usd[1] / point.goodput_per_usd[0]
        for point in priced
        if point.goodput_per_usd
    ]
    if priced:
        values = [{"value": ratio, "low": ratio, "high": ratio} for ratio in ratios]
        goodput = ReportChart(
            name="sweep-goodput",
            title="Goodput per USD, relative to plain decoding",
            caption=(
                "Good tokens keep the limits of the experiment. Each pair is compared with its own"
                " plain server."
            ),
            spec=lambda width: _build_spec(priced, values, width),
            table=_build_goodput_table(priced),
            width_px=HALF_PX,
            has_slide=False,
        )
        charts.append(goodput)
    table = render_template(
        "card", summary=None, table=_build_evidence_table(points), sentences=(), note=None
    )
    sections = [
        ReportSection(
            name="candidates", short="Candidates", title="Drafts and windows", parts=tuple(charts)
        ),
        ReportSection(name="evidence", short="Evidence", title="What decided", parts=(table,)),
    ]
    write_chart_page(header, sections, path)


def _list_speed_ups(points: Sequence[CandidateRecord]) -> list[dict[str, float]]:
    return [
        {"value": point.speed_up[0], "low": point.speed_up[1], "high": point.speed_up[2]}
        for point in points
        if point.speed_up
    ]


def _build_spec(
    points: Sequence[CandidateRecord], values: Sequence[Mapping[str, float]], width: int
) -> VegaSpec:
    """Return a chart of one value for each point by its window; a line marks plain decoding."""
    drafts = list(dict.fromkeys(point.draft.rpartition("/")[2] for point in points))
    looks = dict(zip(drafts, LINE_LOOKS, strict=False))
    rows = [
        {
            **value,
            "series": draft,
            "window": (
                point.num_speculative_tokens
                + (drafts.index(draft) - (len(drafts) - 1) / 2) * _SPREAD
            ),
        }
        for point, value in zip(points, values, strict=True)
        if (draft := point.draft.rpartition("/")[2]) in looks
    ]
    (color, dash), (x, y) = encode_drafts(looks), encode_windows(".2f")
    ends = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
    layers = [
        mark_plain_decoding(y),
        build_layer(
            "line",
            {"x": x, "color": color, "strokeDash": dash, "y": {**y, "field": "value"}},
            opacity=0.5,
        ),
        build_layer("rule", {"x": x, "color": color, **ends}, strokeWidth=2),
        build_layer(
            "point",
            {"x": x, "color": color, "y": {**y, "field": "value"}},
            filled=True,
            size=50,
            opacity=1,
        ),
    ]
    return build_fit_spec(width, 260, data={"values": rows}, layer=layers)


def _build_candidates_table(points: Sequence[CandidateRecord]) -> Markup:
    rows = [
        (
            point.draft,
            str(point.num_speculative_tokens),
            point.state,
            format_times(point.speed_up[0]) if point.speed_up else ABSENT,
            (
                f"{format_number(point.speed_up[1])} to {format_number(point.speed_up[2])}"
                if point.speed_up
                else ABSENT
            ),
        )
        for point in points
    ]
    return build_table(
        "Candidates", ["Draft", "Window", "State", "Speed-up", "95 %"], rows, numbers=(1, 3)
    )


def _build_goodput_table(points: Sequence[CandidateRecord]) -> Markup:
    rows = [
        (
            point.draft,
            str(point.num_speculative_tokens),
            *(f"{tokens:,.0f}" for tokens in point.goodput_per_usd),
        )
        for point in points
        if point.goodput_per_usd
    ]
    return build_table(
        "Good tokens per USD", ["Draft", "Window", PLAIN, "Candidate"], rows, numbers=(1, 2, 3)
    )


def _build_evidence_table(points: Sequence[CandidateRecord]) -> Markup:
    outputs = [
        (
            " ".join(filter(None, (point.verdict.equality, point.verdict.quality)))
            if point.verdict
            else ""
        )
        for point in points
    ]
    rows = [
        (
            point.variant,
            point.state,
            point.reason or output or ABSENT,
            f"{point.node_minutes:.0f}",
            f"{point.compile_minutes:.0f}",
            f"{point.usd:.2f}",
        )
        for point, output in zip(points, outputs, strict=True)
    ]
    heads = ["Candidate", "State", "Why, or the output", "Node minutes", "of compile", "USD"]
    return build_table("Every candidate", heads, rows, numbers=(3, 4, 5))
