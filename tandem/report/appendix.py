"""What stands behind the verdict: cost, controls, the post's claims, definitions, and how to make it again.

Invariant: every claim has its answer and why; claims that contradict each other stand against each other. No price is
assumed; without one the tokens stand alone, and how to give one is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from tandem.judge import text_format
from tandem.judge.schema import FILE, ClaimVerdict, TokenCost, Verdict
from tandem.report.markup import build_sentence, build_table, render_template
from tandem.report.section import ReportSection

MAX_ROWS = 40
_TONES = {
    "passed": "good", "caution": "caution", "failed": "bad", "absent": "open",
    "confirmed": "good", "contradicted": "bad", "no evidence": "open", "not comparable": "open",
}  # fmt: skip
_COST_HEADS = ("Arm", "Load", "USD per million good output tokens", "Against the baseline", "Good output tokens",
               "Seconds asked", "USD per hour")  # fmt: skip


def build_cost_section(verdict: Verdict) -> ReportSection:
    """Return the section on what a million good output tokens cost, of each arm."""
    part = build_sentence("No cost is known: no arm gave output that can be counted.")
    if verdict.cost:
        baseline_costs = {
            row.load: row.usd_per_million_good_tokens for row in verdict.cost if row.arm == verdict.baseline
        }
        rows = [
            _format_cost_row(row, None if row.arm == verdict.baseline else baseline_costs.get(row.load))
            for row in verdict.cost[:MAX_ROWS]
        ]
        part = render_template(
            "card",
            summary=None,
            table=build_table("Cost", _COST_HEADS, rows, numbers=(2, 3, 4, 5, 6)),
            sentences=list(dict.fromkeys(row.sentence for row in verdict.cost if row.sentence))[:MAX_ROWS],
            note=_count_omitted(len(verdict.cost), "more rows are in"),
        )
    return ReportSection(name="cost", short="Cost", title="Cost per million good output tokens", parts=(part,))


def _format_cost_row(row: TokenCost, baseline_usd: float | None) -> tuple[str, ...]:
    """Return the cells of a row; `baseline_usd` is what it is held against, None where nothing is."""
    usd = row.usd_per_million_good_tokens
    change = f"{100 * (usd / baseline_usd - 1):+.0f} %" if baseline_usd and usd is not None else text_format.ABSENT
    usd_text, hour_text = (
        text_format.ABSENT if value is None else f"{value:,.2f}" for value in (usd, row.usd_per_hour)
    )
    busy_text = text_format.format_number(row.busy_s)
    return row.arm, text_format.format_load(row.load), usd_text, change, f"{row.good_tokens:,}", busy_text, hour_text


def _count_omitted(count: int, words: str) -> str | None:
    return f"{count - MAX_ROWS:,} {words} {FILE}." if count > MAX_ROWS else None


def build_controls_section(verdict: Verdict) -> ReportSection:
    """Return the section on controls."""
    controls = verdict.controls
    floors = sorted(controls.floors, key=lambda floor: -floor.ratio)[:MAX_ROWS]
    omission_note = _count_omitted(len(controls.marked), "more are in")
    part = render_template(
        "controls",
        controls=controls,
        tones=_TONES,
        floor_note=f"The widest {MAX_ROWS} of {len(controls.floors):,}; all are in {FILE}."
        if len(controls.floors) > MAX_ROWS
        else None,
        floor_heads=(
            "Class", "Load", "Metric", "Against itself", f"{text_format.format_level(verdict)} interval", "Noise floor"
        ),
        floor_rows=[
            (
                floor.class_,
                text_format.format_load(floor.load),
                text_format.format_metric(floor.metric),
                text_format.format_times(floor.speed_up.value),
                text_format.format_interval(floor.speed_up),
                text_format.format_times(floor.ratio),
            )
            for floor in floors
        ],
        excluded_rounds=[
            *(f"round {excluded.round}: {excluded.sentence}" for excluded in controls.marked[:MAX_ROWS]),
            *([omission_note] if omission_note else []),
        ],
    )  # fmt: skip
    return ReportSection(name="controls", short="Controls", title="Controls", parts=(part,))


def build_claims_section(verdict: Verdict) -> ReportSection:
    """Return the section on the post's claims."""
    if not verdict.claims:
        reason = build_sentence(verdict.claims_unasked or "No claim was held against this run.")
        return ReportSection(name="claims", short="Claims", title="The post's claims", parts=(reason,))
    contradictions = list(_list_contradictions(verdict.claims))
    part = render_template("claims", claims=verdict.claims, contradictions=contradictions, tones=_TONES)
    title = "The post's claims, answered by this run"
    return ReportSection(name="claims", short="Claims", title=title, parts=(part,))


def _list_contradictions(claims: tuple[ClaimVerdict, ...]) -> Iterator[tuple[ClaimVerdict, ClaimVerdict]]:
    """Yield each pair of claims that contradict each other once."""
    claim_by_id = {entry.claim: entry for entry in claims}
    known_pairs: set[frozenset[str]] = set()
    for claim in claims:
        for other_id in claim.against:
            pair = frozenset((claim.claim, other_id))
            if other_id in claim_by_id and len(pair) > 1 and pair not in known_pairs:
                known_pairs.add(pair)
                yield claim, claim_by_id[other_id]


def build_definitions_section(verdict: Verdict) -> ReportSection:
    """Return the section of definitions."""
    part = render_template("definitions", definitions=verdict.definitions)
    return ReportSection(name="definitions", short="Definitions", title="Definitions", parts=(part,))


def build_recompute_section(verdict: Verdict) -> ReportSection:
    """Return how the report is made again."""
    part = render_template("recompute", verdict=verdict, file=FILE)
    return ReportSection(name="recompute", short="Recompute", title="How to recompute this", parts=(part,))
