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
from tandem.judge.claims.claim_answer import ClaimAnswer
from tandem.judge.claims.register import Claim, ClaimRegister, read_register
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
    variant_results = [
        VariantResults(
            pairing=pairing,
            variant=variant,
            cells=tuple(cell for cell in cells if cell.variant == variant),
            equality=next(
                (variant_equality for variant_equality in equality if variant_equality.variant == variant), None
            ),
            acceptance=tuple(acceptance),
            margin=margin,
            set_up=claim_register.set_up,
            test_count=max(sum(cell.prompts > 0 for cell in cells), 1),
        )
        for variant in table.variants
    ]
    void = controls.void if controls is not None else ()
    return tuple(_add_contradictions(_answer_variants(claim_register, variant_results, void)))


def _answer_variants(
    claim_register: ClaimRegister, variant_results: Sequence[VariantResults], void: Sequence[str]
) -> list[ClaimVerdict]:
    verdicts = []
    for claim in claim_register.claim:
        if not variant_results:
            verdicts.append(
                _build_claim_verdict(
                    claim, ClaimAnswer("not comparable", "this run has no variant to hold against a baseline")
                )
            )
            continue
        if claim.asks in RUN_CLAIMS:
            verdicts.append(_build_claim_verdict(claim, _answer_claim(claim, variant_results[0], void)))
            continue
        verdicts += [
            _build_claim_verdict(
                claim,
                _answer_claim(claim, results, void),
                results.variant,
                _describe_llmperf(claim, results) if claim.llmperf else None,
            )
            for results in variant_results
        ]
    return verdicts


def _build_claim_verdict(
    claim: Claim, answer: ClaimAnswer, variant: str | None = None, llmperf_text: str | None = None
) -> ClaimVerdict:
    reason = f"{answer.reason.rstrip('.')}."
    return ClaimVerdict(
        claim=claim.id, text=claim.text, where=claim.where, answer=answer.answer, why=reason,
        against=claim.against, llmperf=llmperf_text, variant=variant,
    )  # fmt: skip


def _describe_llmperf(claim: Claim, results: VariantResults) -> str | None:
    return describe_llmperf(results, (*claim.classes, *claim.beside))


def _answer_claim(claim: Claim, results: VariantResults, void: Sequence[str]) -> ClaimAnswer:
    if void and claim.asks not in _MANIFEST_CLAIMS:
        return ClaimAnswer("no evidence", f"the run is void: {void[0]}")
    if results.invalid_reason and claim.asks not in _MANIFEST_CLAIMS:
        return ClaimAnswer("no evidence", results.invalid_reason)
    answer = _restrict_answer(claim, results, ANSWER_FUNCTIONS[claim.asks](claim, results))
    if (
        answer.answer in {"confirmed", "contradicted"}
        and claim.asks not in _MANIFEST_CLAIMS
        and results.explain_difference()
    ):
        return answer.add_sentence(
            f"This is said of this run's servers, not of the post's: {results.explain_difference()}"
        )
    return answer


def _restrict_answer(claim: Claim, results: VariantResults, answer: ClaimAnswer) -> ClaimAnswer:
    """Take back an answer that this run cannot give, whatever its figures are."""
    few_reason = verdict_reason.explain_few_rounds(results.count_rounds(claim.metrics, claim.classes))
    if few_reason and claim.asks not in ("equality", *_MANIFEST_CLAIMS) and answer.answer != "not comparable":
        answer = ClaimAnswer("no evidence", few_reason)
    if answer.answer == "confirmed" and claim.direction == "faster":
        if results.explain_bias():
            return ClaimAnswer(
                "not comparable", f"{results.explain_bias()}, so only survivors are compared; {answer.reason}"
            )
        if results.equality is not None and results.equality.result == "differs":
            return ClaimAnswer(
                "not comparable", f"its output is not the baseline's, so its speed is of another; {answer.reason}"
            )
    if claim.carries == "the post's set-up" and _explain_setup_difference(claim, results):
        return ClaimAnswer(
            "not comparable",
            f"it is about the post's set-up, and {_explain_setup_difference(claim, results)}; {answer.reason}",
        )
    return answer


def _explain_setup_difference(claim: Claim, results: VariantResults) -> str:
    """Say in what the run is not what a claim about the post's set-up speaks of; tuning varies some of it."""
    return results.explain_difference(allow_tuning=claim.asks in RUN_CLAIMS)


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
