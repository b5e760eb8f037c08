"""The sections behind the verdict: cost, controls, definitions, how to recompute.

Invariant: no price is assumed; without one the section shows tokens only, and how to give a price.
"""

from __future__ import annotations

from collections.abc import Iterable

from tandem.bench.figures import summary
from tandem.judge import text_format as fmt
from tandem.judge.schema import FILE, TokenCost, Verdict
from tandem.metrics import find_metric
from tandem.report.charts import ReportSection
from tandem.report.markup import build_sentence, build_table, render_template

MAX_ROWS = 40
_TONES = {
    "passed": "good",
    "caution": "caution",
    "failed": "bad",
    "absent": "open",
}


def build_cost_section(verdict: Verdict) -> ReportSection:
    """Return the section on each arm's cost of a million good output tokens."""
    part = build_sentence("No cost is known: no arm gave output that can be counted.")
    if verdict.cost:
        heads = (
            "Arm",
            "Load",
            "USD per million good output tokens",
            "Against the baseline",
            "Good output tokens",
            "Seconds asked",
            "USD per hour",
        )
        rows = [_format_cost(row, verdict) for row in verdict.cost]
        part = render_template(
            "card",
            summary=None,
            table=build_table("Cost", heads, rows, numbers=(2, 3, 4, 5, 6)),
            sentences=list(dict.fromkeys(row.sentence for row in verdict.cost)),
            note=None,
        )
    return ReportSection(
        name="cost", short="Cost", title="Cost per million good output tokens", parts=(part,)
    )


def _format_cost(row: TokenCost, verdict: Verdict) -> list[str]:
    """Return the cells of one arm at one load."""
    usd = row.usd_per_million_good_tokens
    change = fmt.ABSENT
    for base in verdict.cost:
        own_usd = base.usd_per_million_good_tokens
        is_other = base.arm == verdict.baseline != row.arm and base.load == row.load
        if is_other and usd is not None and own_usd:
            change = f"{100 * (usd / own_usd - 1):+.0f} %"
    return [
        row.arm,
        fmt.format_load(row.load),
        _format_usd(usd),
        change,
        f"{row.good_tokens:,}",
        fmt.format_number(row.busy_s),
        _format_usd(row.usd_per_hour),
    ]


def _format_usd(usd: float | None) -> str:
    return fmt.ABSENT if usd is None else f"{usd:,.2f}"


def _count_omitted(count: int, words: str) -> str | None:
    if count > MAX_ROWS:
        return f"{count - MAX_ROWS:,} {words} {FILE}."
    return None


def build_controls_section(verdict: Verdict) -> ReportSection:
    """Return the section on controls."""
    controls = verdict.controls
    interval = f"{fmt.format_level(verdict)} interval"
    floor_count = len(controls.floors)
    omission = _count_omitted(len(controls.marked), "more are in")
    floor_rows = []
    for floor in sorted(controls.floors, key=lambda floor: -floor.ratio)[:MAX_ROWS]:
        place = (floor.class_, fmt.format_load(floor.load), fmt.format_metric(floor.metric))
        speed_up = (fmt.format_times(floor.speed_up.value), fmt.format_interval(floor.speed_up))
        floor_rows.append((*place, *speed_up, fmt.format_times(floor.ratio)))
    rounds = [
        f"round {bottleneck.round}: {bottleneck.sentence}"
        for bottleneck in controls.marked[:MAX_ROWS]
    ]
    floor_note = None
    if floor_count > MAX_ROWS:
        floor_note = f"The widest {MAX_ROWS} of {floor_count:,}; all are in {FILE}."
    part = render_template(
        "controls",
        controls=controls,
        tones=_TONES,
        floor_note=floor_note,
        floor_heads=("Class", "Load", "Metric", "Against itself", interval, "Noise floor"),
        floor_rows=floor_rows,
        excluded_rounds=[*rounds, omission] if omission else rounds,
    )
    return ReportSection(name="controls", short="Controls", title="Controls", parts=(part,))


def build_closing_sections(verdict: Verdict, names: Iterable[str]) -> list[ReportSection]:
    """Return the sections on definitions and on how to recompute the report.

    Args:
        verdict: that the report shows.
        names: of its metrics.
    """
    metrics = list(map(find_metric, dict.fromkeys(names)))
    definitions = render_template("definitions", metrics=metrics)
    file = FILE if verdict.headlines else summary.FILE
    schema = verdict.schema if verdict.headlines else summary.SCHEMA
    recompute = render_template("recompute", verdict=verdict, file=file, schema=schema)
    return [
        ReportSection(
            name="definitions", short="Definitions", title="Definitions", parts=(definitions,)
        ),
        ReportSection(
            name="recompute", short="Recompute", title="How to recompute this", parts=(recompute,)
        ),
    ]
