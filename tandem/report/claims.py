"""The answers to the post's claims, on the page and in a terminal, of a run that was asked them.

Invariant: every claim has its answer and the reason; claims that contradict each other are shown as
pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

from tandem.bench.records.terminal_table import WIDTH, format_table
from tandem.bench.records.terminal_text import wrap_text
from tandem.post.schema import FILE, AnswerWord, ClaimAnswers, ClaimVerdict
from tandem.report.charts import ReportSection
from tandem.report.markup import build_sentence, render_template

_TONES: dict[AnswerWord, str] = {
    "confirmed": "good",
    "contradicted": "bad",
    "no evidence": "open",
    "not comparable": "open",
}


def build_claims_section(answers: ClaimAnswers) -> ReportSection:
    """Return the section on the post's claims; show each contradicting pair once."""
    part = build_sentence(answers.reason)
    if answers.claims:
        claims = {claim.claim: claim for claim in answers.claims}
        pairs: dict[frozenset[str], tuple[ClaimVerdict, ClaimVerdict]] = {}
        for claim in answers.claims:
            for other in claim.against:
                pairs.setdefault(frozenset((claim.claim, other)), (claim, claims[other]))
        part = render_template(
            "claims", claims=answers.claims, contradictions=list(pairs.values()), tones=_TONES
        )
    return ReportSection(name="claims", short="Claims", title="The post's claims", parts=(part,))


def render_claims(answers: ClaimAnswers, *, width: int = WIDTH) -> Iterator[str]:
    """Yield a line for each claim, or why there is none.

    Args:
        answers: of a run.
        width: of a line, in columns.
    """
    if answers.reason:
        yield from wrap_text(answers.reason, width, indent="  ")
        return
    yield f"the post's claims (why: {FILE} and the report)"
    rows = [
        (claim.claim, claim.answer, claim.text, ", ".join(claim.against))
        for claim in answers.claims
    ]
    yield from format_table(("claim", "answer", "", "against"), rows, flexible=(2,), width=width)
