"""The section on cost: what a million good output tokens cost, of each arm.

Invariant: no price is assumed; without one the tokens stand alone, and how to give one is said.
"""

from __future__ import annotations

from tandem.judge import text_format
from tandem.judge.schema import FILE, TokenCost, Verdict
from tandem.report.markup import HtmlFragment, build_table, build_tag
from tandem.report.section import ReportSection

MAX_ROWS = 40


def build_cost_section(verdict: Verdict) -> ReportSection:
    """Return the section."""
    return ReportSection(
        name="cost", short="Cost", title="Cost per million good output tokens", parts=(_build_cost_card(verdict),)
    )


def _build_cost_card(verdict: Verdict) -> HtmlFragment:
    if not verdict.cost:
        return build_tag("p", "No cost is known: no arm gave output that can be counted.", class_="says")
    table_rows = verdict.cost[:MAX_ROWS]
    omission_note = (
        f"{len(verdict.cost) - len(table_rows):,} more rows are in {FILE}."
        if len(table_rows) < len(verdict.cost)
        else None
    )
    sentences = list(dict.fromkeys(row.sentence for row in verdict.cost if row.sentence))
    heads = ("Arm", "Load", "USD per million good output tokens", "Against the baseline", "Good output tokens",
             "Seconds asked", "USD per hour")  # fmt: skip
    return build_tag(
        "div",
        build_table("Cost", heads, (_format_cost_row(row, verdict) for row in table_rows), numbers=(2, 3, 4, 5, 6)),
        *(build_tag("p", sentence, class_="says") for sentence in sentences[:MAX_ROWS]),
        build_tag("p", omission_note, class_="says") if omission_note else None,
        class_="card",
    )


def _format_cost_row(row: TokenCost, verdict: Verdict) -> tuple[str, ...]:
    usd = row.usd_per_million_good_tokens
    return (
        row.arm,
        text_format.format_load(row.load),
        _format_usd(usd),
        _format_cost_change(row, verdict),
        f"{row.good_tokens:,}",
        text_format.format_number(row.busy_s),
        _format_usd(row.usd_per_hour),
    )


def _format_usd(value: float | None) -> str:
    return text_format.ABSENT if value is None else f"{value:,.2f}"


def _format_cost_change(row: TokenCost, verdict: Verdict) -> str:
    baseline_usd = next(
        (
            candidate.usd_per_million_good_tokens
            for candidate in verdict.cost
            if (candidate.arm, candidate.load) == (verdict.baseline, row.load)
        ),
        None,
    )
    own_usd = row.usd_per_million_good_tokens
    if row.arm == verdict.baseline or not baseline_usd or own_usd is None:
        return text_format.ABSENT
    return f"{100 * (own_usd / baseline_usd - 1):+.0f} %"
