"""What stands behind the verdict: controls, the post's claims, definitions, and how to make it again.

Invariant: every claim has its answer and why; claims that contradict each other stand against each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from tandem.judge import text_format
from tandem.judge.schema import FILE, ClaimVerdict, Verdict
from tandem.report.markup import (
    HtmlFragment,
    build_details,
    build_list,
    build_table,
    build_tag,
    escape_text,
    join_html,
)
from tandem.report.section import ReportSection

MAX_ROWS = 40
_TONES = {
    "passed": "good", "caution": "caution", "failed": "bad", "absent": "open",
    "confirmed": "good", "contradicted": "bad", "no evidence": "open", "not comparable": "open",
}  # fmt: skip


def build_controls_section(verdict: Verdict) -> ReportSection:
    """Return the section on controls."""
    controls = verdict.controls
    rows = [
        build_tag(
            "tr",
            build_tag("th", check.name, scope="row"),
            build_tag("td", _build_result_tag(check.result)),
            build_tag("td", check.sentence),
        )
        for check in controls.checks
    ]
    head = build_tag("tr", *(build_tag("th", name, scope="col") for name in ("Control", "Result", "What was seen")))
    checks = build_tag(
        "table", build_tag("caption", "Controls"), build_tag("thead", head), build_tag("tbody", *rows), class_="told"
    )
    parts = [
        build_tag(
            "div",
            checks,
            build_list(controls.cautions, "reasons"),
            *_build_noise_floors(verdict),
            *_build_excluded_rounds(verdict),
            class_="card",
        )
        if rows or controls.cautions or controls.floors or controls.marked
        else build_tag("p", "No control was done: this verdict has no noise floor.", class_="says")
    ]
    return ReportSection(name="controls", short="Controls", title="Controls", parts=tuple(parts))


def _build_result_tag(result: str) -> HtmlFragment:
    return build_tag("span", result, class_=f"word {_TONES[result]}")


def _build_noise_floors(verdict: Verdict) -> Iterator[HtmlFragment]:
    floors = sorted(verdict.controls.floors, key=lambda floor: -floor.ratio)
    if not floors:
        return
    rows = (
        (
            floor.class_,
            text_format.format_load(floor.load),
            text_format.format_metric(floor.metric),
            text_format.format_times(floor.speed_up.value),
            text_format.format_interval(floor.speed_up),
            text_format.format_times(floor.ratio),
        )
        for floor in floors[:MAX_ROWS]
    )
    heads = (
        "Class",
        "Load",
        "Metric",
        "Against itself",
        f"{text_format.format_level(verdict)} interval",
        "Noise floor",
    )
    omission_note = f"The widest {MAX_ROWS} of {len(floors):,}; all are in {FILE}." if len(floors) > MAX_ROWS else None
    yield build_details(
        "Noise floor per class",
        build_tag("p", omission_note, class_="says") if omission_note else None,
        build_table("What the baseline differs from itself by", heads, rows, numbers=(3, 4, 5)),
    )


def _build_excluded_rounds(verdict: Verdict) -> Iterator[HtmlFragment]:
    excluded_rounds = verdict.controls.marked
    if not excluded_rounds:
        return
    sentences = [
        f"round {excluded_round.round}: {excluded_round.sentence}" for excluded_round in excluded_rounds[:MAX_ROWS]
    ]
    omission_note = (
        [f"{len(excluded_rounds) - MAX_ROWS:,} more are in {FILE}"] if len(excluded_rounds) > MAX_ROWS else []
    )
    rounds = "1 round is" if len(excluded_rounds) == 1 else f"{len(excluded_rounds):,} rounds are"
    yield build_tag(
        "p", f"{rounds} left out of every figure, because the measuring client was the bottleneck:", class_="says"
    )
    items = build_list([*sentences, *omission_note], "reasons")
    if items is not None:
        yield items


def build_claims_section(verdict: Verdict) -> ReportSection:
    """Return the section on the post's claims."""
    if not verdict.claims:
        reason = verdict.claims_unasked or "No claim was held against this run."
        return ReportSection(name="claims", short="Claims", title="The post's claims",
                       parts=(build_tag("p", reason, class_="says"),))  # fmt: skip
    pairs = list(_build_contradictions(verdict.claims))
    contradictions = [build_tag("h3", "Claims that contradict each other"), *pairs] if pairs else []
    return ReportSection(
        name="claims", short="Claims", title="The post's claims, answered by this run",
        parts=(
            *([build_tag("div", *contradictions, class_="card")] if contradictions else []),
            build_tag("div", *(_build_claim(claim) for claim in verdict.claims), class_="card claims"),
        ),
    )  # fmt: skip


def _build_contradictions(claims: tuple[ClaimVerdict, ...]) -> Iterator[HtmlFragment]:
    by_id = {entry.claim: entry for entry in claims}
    pair_ids: set[frozenset[str]] = set()
    for claim in claims:
        for claim_id in claim.against:
            pair = frozenset((claim.claim, claim_id))
            if claim_id in by_id and pair not in pair_ids and len(pair) > 1:
                pair_ids.add(pair)
                yield build_tag(
                    "div",
                    _build_claim_side(claim),
                    build_tag("p", "against", class_="versus"),
                    _build_claim_side(by_id[claim_id]),
                    class_="pair versus-pair",
                )


def _build_claim_side(claim: ClaimVerdict) -> HtmlFragment:
    return build_tag(
        "div",
        build_tag("p", build_tag("b", claim.claim), " ", _build_result_tag(claim.answer)),
        build_tag("p", claim.text),
        class_="side",
    )


def _build_claim(claim: ClaimVerdict) -> HtmlFragment:
    llmperf = build_tag("p", _add_full_stop(claim.llmperf), class_="says") if claim.llmperf else None
    return build_tag(
        "article",
        build_tag(
            "h3", build_tag("span", claim.claim, class_="id"), " ", _build_result_tag(claim.answer), " ", claim.text
        ),
        build_tag("p", _add_full_stop(claim.why)),
        llmperf,
        build_tag("p", f"Where: {claim.where}.", *_build_claim_links(claim), class_="says"),
        id=f"claim-{claim.claim}",
    )


def _add_full_stop(sentence: str) -> str:
    """Return it with a full stop; its first letter stays, for it may be that of a name."""
    return sentence if sentence.endswith(".") else f"{sentence}."


def _build_claim_links(claim: ClaimVerdict) -> Iterator[HtmlFragment]:
    for index, claim_id in enumerate(claim.against):
        yield join_html([" See " if not index else ", ", build_tag("a", claim_id, href=f"#claim-{claim_id}")])
    if claim.against:
        yield escape_text(".")


def build_definitions_section(verdict: Verdict) -> ReportSection:
    """Return the section of definitions."""
    entries = [
        build_tag(
            "div",
            build_tag(
                "dt",
                definition.name,
                build_tag("span", definition.unit, class_="unit") if definition.unit not in {"", "1"} else None,
            ),
            build_tag("dd", definition.definition),
        )
        for definition in verdict.definitions
    ]
    part = (
        build_tag("dl", *entries, class_="card words")
        if entries
        else build_tag("p", "No word needs one.", class_="says")
    )
    return ReportSection(name="definitions", short="Definitions", title="Definitions", parts=(part,))


def build_recompute_section(verdict: Verdict) -> ReportSection:
    """Return how the report is made again."""
    commands = [build_tag("pre", build_tag("code", command)) for command in verdict.recompute]
    sentence = (
        f"Every figure comes from the records in the folder {verdict.folder} and nothing else; {FILE} beside this page "
        f"has all of them, in schema {verdict.schema}."
    )
    return ReportSection(
        name="recompute", short="Recompute", title="How to recompute this",
        parts=(build_tag("div", build_tag("p", sentence), *commands, class_="card"),),
    )  # fmt: skip
