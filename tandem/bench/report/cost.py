"""The section on cost: what a million good output tokens cost, of each arm.

Invariant: no price is assumed; without one the tokens stand alone, and how to give one is said.
"""

from __future__ import annotations

from tandem.bench.judge import words
from tandem.bench.judge.form import FILE, Cost, Verdict
from tandem.bench.report.markup import Html, table, tag
from tandem.bench.report.section import Section

MOST_ROWS = 40


def section(verdict: Verdict) -> Section:
    """Return the section."""
    return Section(name="cost", short="Cost", title="Cost per million good output tokens", parts=(_card(verdict),))


def _card(verdict: Verdict) -> Html:
    if not verdict.cost:
        return tag("p", "No cost is known: no arm gave output that can be counted.", class_="says")
    shown = verdict.cost[:MOST_ROWS]
    left = f"{len(verdict.cost) - len(shown):,} more rows are in {FILE}." if len(shown) < len(verdict.cost) else None
    said = list(dict.fromkeys(row.sentence for row in verdict.cost if row.sentence))
    heads = ("Arm", "Load", "USD per million good output tokens", "Against the baseline", "Good output tokens",
             "Seconds asked", "USD per hour")  # fmt: skip
    return tag(
        "div",
        table("Cost", heads, (_row(row, verdict) for row in shown), numbers=(2, 3, 4, 5, 6)),
        *(tag("p", each, class_="says") for each in said[:MOST_ROWS]),
        tag("p", left, class_="says") if left else None,
        class_="card",
    )


def _row(row: Cost, verdict: Verdict) -> tuple[str, ...]:
    usd = row.usd_per_million_good_tokens
    return (
        row.arm, words.load(row.load), _usd(usd), _against(row, verdict), f"{row.good_tokens:,}",
        words.number(row.busy_s),
        _usd(row.usd_per_hour),
    )  # fmt: skip


def _usd(value: float | None) -> str:
    return words.ABSENT if value is None else f"{value:,.2f}"


def _against(row: Cost, verdict: Verdict) -> str:
    base = next(
        (
            each.usd_per_million_good_tokens
            for each in verdict.cost
            if (each.arm, each.load) == (verdict.baseline, row.load)
        ),
        None,
    )
    own = row.usd_per_million_good_tokens
    if row.arm == verdict.baseline or not base or own is None:
        return words.ABSENT
    return f"{100 * (own / base - 1):+.0f} %"
