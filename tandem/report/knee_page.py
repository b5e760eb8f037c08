"""The page of a search for the knee: the ratio, the curve of each arm, and the limits.

Invariant: one file, no script, no outside reference; the table has what the chart shows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tandem.bench.records.manifest import RunManifest, run_id
from tandem.judge import text_format as fmt
from tandem.judge.knee import ArmKnee, KneeFinding
from tandem.report.chart_page import PageHeader
from tandem.report.charts import (
    FULL_PX,
    ReportChart,
    ReportSection,
    VegaSpec,
    build_fit_spec,
    build_layer,
    encode_series,
)
from tandem.report.colors import LINE_LOOKS
from tandem.report.knee_text import describe_arm, describe_ratios, list_curve_rows
from tandem.report.markup import build_sentence, build_table, render_template
from tandem.report.page import write_page

_CURVE_STEPS = 40  # places of a drawn curve
_HEIGHT_PX = 300
_NO_CURVE = "No round was measured, so there is no curve."
_LEGEND = {"symbolOpacity": 1, "symbolStrokeWidth": 2}
_HEADS = ("Arm", "Requests/s", "Good", "Of", "Share", "Share by the curve")


def write_knee_report(
    finding: KneeFinding, run: RunManifest, notes: Sequence[str], folder: Path
) -> Path:
    """Write report.html and the picture of its chart; return the page.

    Args:
        finding: to show.
        run: manifest of the run.
        notes: of the run.
        folder: of the run.

    Raises:
        ExternalError: the folder cannot be written to.
    """
    sections = [build_curve_section(finding)]
    if notes:
        reasons = render_template("reasons", sentences=list(notes))
        sections.append(ReportSection(name="notes", short="Notes", title="Notes", parts=(reasons,)))
    return write_page(_build_header(finding, run), sections, folder)


def build_curve_section(finding: KneeFinding) -> ReportSection:
    """Return the section with the curve of each arm; with the reason if there is none."""
    if not any(arm.points for arm in finding.arms):
        parts: tuple[Markup | ReportChart, ...] = (build_sentence(_NO_CURVE),)
    else:
        parts = (_build_chart(finding),)
    return ReportSection(name="curve", short="Curve", title="The curve", parts=parts)


def _build_chart(finding: KneeFinding) -> ReportChart:
    return ReportChart(
        name="knee",
        title="Requests that keep every limit, by the rate of arrivals",
        caption=(
            "A point is the share over all rounds at one rate, the line is the fitted curve. Where"
            " the curve falls through the dashed line is the knee; the shaded range is its 95 %"
            " interval."
        ),
        spec=partial(build_knee_spec, finding),
        table=build_table("The curve", _HEADS, list_curve_rows(finding), numbers=range(1, 6)),
        width_px=FULL_PX,
    )


def _build_header(finding: KneeFinding, run: RunManifest) -> PageHeader:
    ratios = list(describe_ratios(finding))
    arms = [describe_arm(arm, finding) for arm in finding.arms]
    first, *others = [*ratios, *arms]
    return PageHeader(
        title=first,
        eyebrow=f"Tandem knee of {run_id(run)}",
        sentences=tuple(f"{sentence}." for sentence in others),
        source="the records of the run",
        is_simulated=run.simulated is True,
        version=run.version,
    )


def build_knee_spec(finding: KneeFinding, width: int) -> VegaSpec:
    """Return the specification of the chart for a width in pixels."""
    arms = [arm for arm in finding.arms if arm.points][: len(LINE_LOOKS)]
    looks = {fmt.shorten_text(arm.arm): look for arm, look in zip(arms, LINE_LOOKS, strict=False)}
    color, dash, shape = encode_series(looks, title=None, legend=_LEGEND)
    place = {"x": _encode_rate("rate"), "y": _encode_share("share")}
    band = {
        "x": _encode_rate("low"),
        "x2": {"field": "high"},
        "y": _encode_share("bottom"),
        "y2": {"field": "top"},
        "color": color,
    }
    target = [{"share": finding.share}]
    target_style = {"color": "var(--text)", "strokeDash": [4, 3]}
    point_style = {"filled": True, "size": 60, "opacity": 1}
    curve = list(itertools.chain.from_iterable(map(_draw_curve, arms)))
    points = list(itertools.chain.from_iterable(map(_list_points, arms)))
    layers = [
        build_layer("rect", band, _list_ranges(arms), opacity=0.15),
        build_layer("rule", {"y": _encode_share("share")}, target, **target_style),
        build_layer("line", {**place, "color": color, "strokeDash": dash}, curve, strokeWidth=2),
        build_layer("point", {**place, "color": color, "shape": shape}, points, **point_style),
    ]
    return build_fit_spec(width, _HEIGHT_PX, layer=layers)


def _encode_rate(field: str) -> dict[str, Any]:
    axis = {"title": "requests/s", "grid": False}
    return {"field": field, "type": "quantitative", "scale": {"zero": False}, "axis": axis}


def _encode_share(field: str) -> dict[str, Any]:
    axis = {"title": None, "format": ".0%"}
    return {"field": field, "type": "quantitative", "scale": {"domain": [0, 1]}, "axis": axis}


def _list_points(arm: ArmKnee) -> list[dict[str, Any]]:
    """Return the measured share at each rate of an arm."""
    name = fmt.shorten_text(arm.arm)
    return [
        {"series": name, "rate": point.rate_per_s, "share": point.good / point.counted}
        for point in arm.points
    ]


def _list_ranges(arms: Sequence[ArmKnee]) -> list[dict[str, Any]]:
    """Return the interval of each knee, over the height of the chart."""
    ranges = []
    for arm in arms:
        if arm.rate_per_s is not None and arm.rate_per_s.low is not None:
            ends = {"low": arm.rate_per_s.low, "high": arm.rate_per_s.high}
            ranges.append({"series": fmt.shorten_text(arm.arm), **ends, "bottom": 0, "top": 1})
    return ranges


def _draw_curve(arm: ArmKnee) -> list[dict[str, Any]]:
    """Return places of the fitted curve between the first and the last measured rate."""
    first = arm.points[0]
    if arm.slope is None or first.fitted is None:
        return []
    name = fmt.shorten_text(arm.arm)
    span = arm.points[-1].rate_per_s / first.rate_per_s
    places = []
    for step in range(_CURVE_STEPS + 1):
        ratio = span ** (step / _CURVE_STEPS)
        share = 1 / (1 + (1 / first.fitted - 1) * ratio**arm.slope)
        places.append({"series": name, "rate": first.rate_per_s * ratio, "share": share})
    return places
