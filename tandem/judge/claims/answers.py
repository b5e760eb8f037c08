"""What a run says to each claim of the post: confirmed, contradicted, no evidence, not comparable, and why.

Invariant: every claim of the register has an answer for every variant, with figures where there are any; a claim about
the size of a figure is answered by a run of the post's own set-up alone; no gain is confirmed of a variant whose output
differs or that failed what the baseline answered; a run that is void, or whose answers are no text, says nothing; of
speed, neither does one of too few rounds for a verdict.
Claims that contradict each other are told against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tandem.bench.request_table import RequestTable
from tandem.judge import verdict_reason
from tandem.judge.claims import efficiency as claim_work
from tandem.judge.claims import server_setup as claim_set_up
from tandem.judge.claims import speed as claim_speed
from tandem.judge.claims.register import Claim, ClaimAnswer, read_register
from tandem.judge.claims.variant_results import VariantResults, describe_llmperf
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import CellVerdict, ClaimVerdict, ClassAcceptance, OutputEquality, RunControls

ANSWER_FUNCTIONS: Mapping[str, Callable[[Claim, VariantResults], ClaimAnswer]] = {
    "best class": claim_speed.answer_best_class,
    "cells": claim_speed.answer_cells,
    "over time": claim_speed.answer_over_time,
    "pattern": claim_speed.answer_pattern,
    "drafts": claim_work.answer_drafts,
    "windows of speculation": claim_work.answer_windows,
    "cost": claim_work.answer_cost,
    "equality": claim_work.answer_equality,
    "steps": claim_work.answer_steps,
    "declared": claim_set_up.answer_declaration,
    "set-up": claim_set_up.answer_setup,
    "months": claim_set_up.answer_months,
    "image": claim_set_up.answer_image,
}
"""What answers each word of tandem.judge.claims.register.AnswerMethod."""

RUN_CLAIMS = ("drafts", "windows of speculation", "declared", "months")
"""What is answered once a run: it compares variants, or no run can answer it."""

_MANIFEST_CLAIMS = ("declared", "months", "set-up", "image")


def answer_claims(  # noqa: PLR0913 - the signature is a sentence: a run, what was found of it, how to answer
    table: RequestTable,
    cells: Sequence[CellVerdict],
    equality: Sequence[OutputEquality],
    acceptance: Sequence[ClassAcceptance],
    *,
    margin: float,
    controls: RunControls | None = None,
) -> tuple[ClaimVerdict, ...]:
    """Return the answers in the register's order, one a variant, or one where it is the run's.

    Args:
        table: the run.
        cells: every judged cell of it.
        equality: of each variant.
        acceptance: of each arm.
        margin: within which a speed-up is the same.
        controls: rounds that they mark are left out; where they void the run, nothing is concluded.

    Raises:
        BenchError: the register of claims is not as it must be.
    """
    claim_register = read_register()
    pairing = RequestPairing(table, controls.marked_rounds if controls is not None else ())
    variant_results: list[VariantResults | None] = [
        VariantResults(
            pairing=pairing,
            variant=variant,
            cells=tuple(cell for cell in cells if cell.variant == variant),
            equality=next((outputs for outputs in equality if outputs.variant == variant), None),
            acceptance=tuple(acceptance),
            margin=margin,
            set_up=claim_register.set_up,
            test_count=max(sum(cell.prompts > 0 for cell in cells), 1),
        )
        for variant in table.variants
    ]
    void_reason = controls.void[0] if controls is not None and controls.void else ""
    verdicts = [
        _answer_claim(claim, results, void_reason)
        for claim in claim_register.claim
        for results in (variant_results[:1] if claim.asks in RUN_CLAIMS else variant_results) or [None]
    ]
    return tuple(_add_contradictions(verdicts))


def _answer_claim(claim: Claim, results: VariantResults | None, void_reason: str) -> ClaimVerdict:
    is_of_run = results is None or claim.asks in RUN_CLAIMS
    if results is None:
        answer = ClaimAnswer("not comparable", "this run has no variant to hold against a baseline")
    elif claim.asks in _MANIFEST_CLAIMS:
        answer = _restrict_answer(claim, results, ANSWER_FUNCTIONS[claim.asks](claim, results))
    elif void_reason or results.invalid_reason:
        reason = f"the run is void: {void_reason}" if void_reason else results.invalid_reason
        answer = ClaimAnswer("no evidence", reason)
    else:
        answer = _restrict_answer(claim, results, ANSWER_FUNCTIONS[claim.asks](claim, results))
        difference = results.explain_difference()
        if answer.answer in {"confirmed", "contradicted"} and difference:
            answer = answer.add_sentence(f"This is said of this run's servers, not of the post's: {difference}")
    has_llmperf = results is not None and claim.llmperf and not is_of_run
    return ClaimVerdict(
        claim=claim.id,
        text=claim.text,
        where=claim.where,
        answer=answer.answer,
        why=f"{answer.reason.rstrip('.')}.",
        against=claim.against,
        llmperf=describe_llmperf(results, (*claim.classes, *claim.beside)) if results and has_llmperf else None,
        variant=None if results is None or is_of_run else results.variant,
    )


def _restrict_answer(claim: Claim, results: VariantResults, answer: ClaimAnswer) -> ClaimAnswer:
    """Take back an answer that this run cannot give, whatever its figures are."""
    few_reason = verdict_reason.explain_few_rounds(results.count_rounds(claim.metrics, claim.classes))
    if few_reason and claim.asks not in ("equality", *_MANIFEST_CLAIMS) and answer.answer != "not comparable":
        answer = ClaimAnswer("no evidence", few_reason)
    reason, difference = "", results.explain_difference(allow_tuning=claim.asks in RUN_CLAIMS)
    if answer.answer == "confirmed" and claim.direction == "faster":
        if results.explain_bias():
            reason = f"{results.explain_bias()}, so only survivors are compared"
        elif results.equality is not None and results.equality.result == "differs":
            reason = "its output is not the baseline's, so its speed is of another"
    if not reason and claim.carries == "the post's set-up" and difference:
        reason = f"it is about the post's set-up, and {difference}"
    return ClaimAnswer("not comparable", f"{reason}; {answer.reason}") if reason else answer


def _add_contradictions(verdicts: Sequence[ClaimVerdict]) -> Iterable[ClaimVerdict]:
    """Tell each claim that another one contradicts what became of that one."""
    answers_by_claim = {(verdict.claim, verdict.variant): verdict.answer for verdict in verdicts}
    words = {
        "confirmed": "is confirmed", "contradicted": "is contradicted", "no evidence": "finds no evidence",
        "not comparable": "is not comparable with this run",
    }  # fmt: skip
    for verdict in verdicts:
        remarks = [
            f"{claim_id} says otherwise, and {words[answer]}"
            for claim_id in verdict.against
            if (answer := answers_by_claim.get((claim_id, verdict.variant))) is not None
        ]
        yield (
            msgspec.structs.replace(verdict, why=f"{verdict.why} Against it: {'; '.join(remarks)}.")
            if remarks
            else verdict
        )
