"""The page of a sweep: speed-up by draft and window, goodput per USD, evidence.

Invariant: a speed-up is relative to plain decoding in the same pair, unlike the post's figure; a
candidate that nobody measured has no point. One file, no script, no outside reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from markupsafe import Markup

from tandem.judge.schema import RatioEstimate
from tandem.judge.sweep_record import CandidateRecord
from tandem.judge.text_format import ABSENT, format_interval, format_speed_up
from tandem.report.chart_page import PageHeader, write_chart_page
from tandem.report.charts import HALF_PX, ReportChart, ReportSection, VegaSpec
from tandem.report.markup import build_table, render_template
from tandem.report.window_chart import build_window_spec, name_drafts

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
    measured_points = [(point, point.speed_up) for point in points if point.speed_up]
    charts = [
        ReportChart(
            name="sweep-speed-up",
            title="Speed-up over plain decoding",
            caption=(
                "A point for each measured candidate, with its 95 % interval. Below 1 speculation"
                " is slower."
            ),
            spec=partial(_build_spec, measured_points),
            table=_build_candidates_table(points),
            width_px=HALF_PX,
            has_slide=False,
        )
    ]
    priced = []
    for point, _ in measured_points:
        if point.goodput_per_usd:
            plain, candidate = point.goodput_per_usd
            priced.append((point, (candidate / plain,) * 3))
    if priced:
        goodput = ReportChart(
            name="sweep-goodput",
            title="Goodput per USD, relative to plain decoding",
            caption=(
                "Good tokens keep the limits of the experiment. Each pair is compared with its own"
                " plain server."
            ),
            spec=partial(_build_spec, priced),
            table=_build_goodput_table([point for point, _ in priced]),
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


def _build_spec(
    figures: Sequence[tuple[CandidateRecord, tuple[float, float, float]]], width: int
) -> VegaSpec:
    """Return a chart of a figure of each candidate, with its interval, by its window."""
    names = name_drafts([point.draft for point, _ in figures])
    middle = (len(names) - 1) / 2
    lines = []
    points = []
    for point, (value, low, high) in figures:
        if point.draft in names:
            shift = (list(names).index(point.draft) - middle) * _SPREAD
            place = {
                "series": names[point.draft],
                "window": point.num_speculative_tokens + shift,
            }
            lines.append({**place, "value": value})
            points.append({**place, "value": value, "low": low, "high": high})
    return build_window_spec(width, lines, points, list(names.values()), ".2f")


def _build_candidates_table(points: Sequence[CandidateRecord]) -> Markup:
    rows = []
    for point in points:
        speed_up = None
        if point.speed_up:
            value, low, high = point.speed_up
            speed_up = RatioEstimate(value=value, low=low, high=high)
        place = (point.draft, str(point.num_speculative_tokens), point.state)
        rows.append((*place, format_speed_up(speed_up), format_interval(speed_up)))
    return build_table(
        "Candidates", ["Draft", "Window", "State", "Speed-up", "95 %"], rows, numbers=(1, 3)
    )


def _build_goodput_table(points: Sequence[CandidateRecord]) -> Markup:
    rows = []
    for point in points:
        plain, candidate = point.goodput_per_usd or (0.0, 0.0)
        figures = (f"{plain:,.0f}", f"{candidate:,.0f}")
        rows.append((point.draft, str(point.num_speculative_tokens), *figures))
    return build_table(
        "Good tokens per USD", ["Draft", "Window", PLAIN, "Candidate"], rows, numbers=(1, 2, 3)
    )


def _build_evidence_table(points: Sequence[CandidateRecord]) -> Markup:
    rows = []
    for point in points:
        output = ""
        if point.verdict:
            output = " ".join(filter(None, (point.verdict.equality, point.verdict.quality)))
        minutes = (f"{point.node_minutes:.0f}", f"{point.compile_minutes:.0f}")
        why = point.reason or output or ABSENT
        rows.append((point.variant, point.state, why, *minutes, f"{point.usd:.2f}"))
    heads = ["Candidate", "State", "Why, or the output", "Node minutes", "of compile", "USD"]
    return build_table("Every candidate", heads, rows, numbers=(3, 4, 5))
