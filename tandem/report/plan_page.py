"""The page of `tandem plan --page`: speed-up by window, draft and load, with measured points.

Invariant: speed-ups are relative to plain decoding at the same load, unlike the post's Figure 1. A
load without a forecast speed-up has no chart. A measured point has its interval and its class; a
page of simulated servers says so. One file, no script, no outside reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from markupsafe import Markup

from tandem.judge.schema import RatioEstimate
from tandem.judge.text_format import (
    ABSENT,
    format_interval,
    format_number,
    format_speed_up,
    format_times,
)
from tandem.plan.forecast_cell import ForecastCell
from tandem.report.chart_page import PageHeader, write_chart_page
from tandem.report.charts import HALF_PX, ReportChart, ReportSection, VegaSpec
from tandem.report.markup import build_table, render_template
from tandem.report.window_chart import build_window_spec, name_drafts

_SPREAD = 0.08  # windows between measured points, so that they do not overlap


@dataclass(frozen=True, kw_only=True)
class MeasuredPoint:
    """A run's measurement of a class at a load: the speed-up by TPOT."""

    class_: str
    draft: str
    window: int
    concurrency: int
    speed_up: RatioEstimate


def write_plan_page(
    header: PageHeader, lines: Sequence[ForecastCell], points: Sequence[MeasuredPoint], path: Path
) -> None:
    """Write the page.

    Args:
        header: head and foot.
        lines: of the model.
        points: of a run.
        path: of the file.

    Raises:
        ExternalError: the file cannot be written.
    """
    loads = sorted({line.concurrency for line in lines if line.speed_up is not None})
    charts = tuple(_build_load_chart(lines, points, load) for load in loads)
    table = render_template(
        "card", summary=None, table=_build_lines_table(lines), sentences=(), note=None
    )
    figures = ReportSection(name="figures", short="Figures", title="Every figure", parts=(table,))
    speed_up = ReportSection(
        name="speed-up", short="Speed-up", title="Speed-up by window", parts=charts
    )
    write_chart_page(header, [speed_up, figures] if charts else [figures], path)


def _build_load_chart(
    all_lines: Sequence[ForecastCell], all_points: Sequence[MeasuredPoint], load: int
) -> ReportChart:
    lines = [line for line in all_lines if line.concurrency == load]
    points = [point for point in all_points if point.concurrency == load]
    measured = " Points are classes of the run, with their 95 % intervals." if points else ""
    return ReportChart(
        name=f"plan-{load}",
        title=f"Speed-up over plain decoding at concurrency {load}",
        caption=(
            "A line a draft, the band its range by the cost of a draft forward. Below 1 speculation"
            " is slower."
        )
        + measured,
        spec=partial(_build_load_spec, lines, points),
        table=_build_points_table(points) if points else _build_lines_table(lines),
        width_px=HALF_PX,
        has_slide=False,
    )


def _build_load_spec(
    lines: Sequence[ForecastCell], points: Sequence[MeasuredPoint], width: int
) -> VegaSpec:
    names = name_drafts([line.draft for line in lines])
    line_rows = []
    for line in lines:
        if line.draft in names:
            own = {"series": names[line.draft], "window": line.window}
            line_rows.append({**own, "value": line.speed_up, "low": line.low, "high": line.high})
    point_rows = []
    middle = (len(points) - 1) / 2
    for place, point in enumerate(points):
        ratio = point.speed_up
        row = {
            "window": point.window + (place - middle) * _SPREAD,
            "value": ratio.value,
            "low": ratio.low or ratio.value,
            "high": ratio.high or ratio.value,
        }
        point_rows.append(row)
    return build_window_spec(width, line_rows, point_rows, list(names.values()), ".1f")


def _build_points_table(points: Sequence[MeasuredPoint]) -> Markup:
    rows = [
        (
            point.class_,
            str(point.window),
            format_speed_up(point.speed_up),
            format_interval(point.speed_up),
        )
        for point in points
    ]
    return build_table("Measured", ["Class", "Window", "Speed-up", "95 %"], rows, numbers=(1, 2))


def _build_lines_table(lines: Sequence[ForecastCell]) -> Markup:
    rows = [_format_line(line) for line in lines]
    heads = [
        "Draft",
        "Window",
        "Concurrency",
        "Tokens a step",
        "Speed-up",
        "Range",
        "Break-even acceptance",
    ]
    heads.append("Gains above, ms of plain TPOT")
    return build_table("Every draft, window and load", heads, rows, numbers=(1, 2, 3, 4, 6, 7))


def _format_line(line: ForecastCell) -> tuple[str, ...]:
    speed_up = ABSENT
    span = ABSENT
    if line.speed_up is not None:
        speed_up = format_times(line.speed_up)
        span = f"{format_number(line.low)} to {format_number(line.high)}"
    return (
        line.draft,
        str(line.window),
        str(line.concurrency),
        format_number(line.tokens),
        speed_up,
        span,
        ABSENT if line.break_even is None else f"{line.break_even:.2f}",
        ABSENT if line.gain_tpot_ms is None else f"{line.gain_tpot_ms:.1f}",
    )
