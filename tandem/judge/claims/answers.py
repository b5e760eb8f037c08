"""Answers of a run to the post's claims: confirmed, contradicted, no evidence, not comparable.

Invariant: only variants of the post's own set-up answer, as far as the manifest says it. Simulated
servers, and servers that nobody declared, never answer. Each of these variants has an answer to
every claim of the register. No gain is confirmed if the variant's output differs or the variant
failed requests that the baseline answered. A run that is void, or whose answers are no text, says
nothing. A run with too few rounds for a verdict says nothing of speed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tandem.bench.figures.request_table import RequestTable
from tandem.judge import verdict_reason
from tandem.judge.claims import figure_answers
from tandem.judge.claims.register import Claim, ClaimAnswer, read_register
from tandem.judge.claims.variant_results import VariantResults, list_differences
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import (
    CellVerdict,
    ClaimVerdict,
    ClassAcceptance,
    OutputEquality,
    RunControls,
    TaskQuality,
)

RUN_CLAIMS = ("drafts", "windows of speculation", "declared", "months")
"""Claims with one answer a run: they compare variants, or no run can answer them."""

_MANIFEST_CLAIMS = ("declared", "months", "set-up", "image")
_MANIFEST_FIELDS = {
    "set-up": {
        "model": "model",
        "image": "image",
        "server_version": "server version",
        "runtime": "runtime",
    },
    "image": {"model": "model", "image": "image"},
}


def find_post_variants(table: RequestTable) -> tuple[tuple[str, ...], str | None]:
    """Return the variants of the post's own set-up, which answer its claims; else why not."""
    run = table.run
    set_up = read_register().set_up
    variants: tuple[str, ...] = ()
    arms = {arm.name: arm for arm in run.arms}
    if run.simulated is not False:
        obstacle: str | None = (
            "they are simulated" if run.simulated else "whether they are simulated is not known"
        )
    elif run.environment is None or run.experiment is None:
        obstacle = "they were named by address, not by --env and --experiment"
    elif run.instance_type != set_up.instance_type:
        obstacle = (
            f"they run on {run.instance_type or 'an unknown instance type'}, not on"
            f" {set_up.instance_type}"
        )
    else:
        obstacles = {
            variant: next(list_differences(set_up, arms[table.baseline], arms[variant]), None)
            for variant in table.variants
            if {table.baseline, variant} <= arms.keys()
        }
        variants = tuple(variant for variant, difference in obstacles.items() if difference is None)
        obstacle = (
            None
            if variants
            else next(iter(obstacles.values()), "the manifest does not know both arms")
        )
    return variants, obstacle and f"The post's claims are not asked of these servers: {obstacle}."


def answer_claims(  # noqa: PLR0913 - the signature is a sentence: a run, what was found of it, how to answer
    pairing: RequestPairing,
    variants: Sequence[str],
    cells: Sequence[CellVerdict],
    equality: Sequence[OutputEquality],
    acceptance: Sequence[ClassAcceptance],
    *,
    margin: float,
    controls: RunControls,
    claims: Sequence[Claim] | None = None,
    quality: Sequence[TaskQuality] = (),
) -> tuple[ClaimVerdict, ...]:
    """Return the answers in the register's order: one a variant, or one a run for RUN_CLAIMS.

    Args:
        pairing: the rounds of the run that count.
        variants: of the post's set-up.
        cells: every judged cell of the run.
        equality: of each variant.
        acceptance: of each arm.
        margin: within which a speed-up is the same.
        controls: where they void the run, nothing is concluded.
        claims: None for all of the register.
        quality: of each variant on each task that the arms were asked.
    """
    claim_register = read_register()
    variant_results = [
        VariantResults(
            pairing=pairing,
            variant=variant,
            cells=tuple(cell for cell in cells if cell.variant == variant),
            equality=next((outputs for outputs in equality if outputs.variant == variant), None),
            quality=tuple(task for task in quality if task.variant == variant),
            acceptance=tuple(acceptance),
            margin=margin,
            set_up=claim_register.set_up,
            test_count=max(sum(cell.prompts > 0 for cell in cells), 1),
        )
        for variant in variants
    ]
    verdicts = []
    for claim in claim_register.claim if claims is None else claims:
        for results in variant_results[:1] if claim.asks in RUN_CLAIMS else variant_results:
            answer = _answer_claim(claim, results, controls.void[0] if controls.void else "")
            verdicts.append(
                ClaimVerdict(
                    claim=claim.id,
                    text=claim.text,
                    where=claim.where,
                    answer=answer.answer,
                    why=f"{answer.reason.rstrip('.')}.",
                    against=claim.against,
                    variant=None if claim.asks in RUN_CLAIMS else results.variant,
                )
            )
    return tuple(verdicts)


def _answer_claim(claim: Claim, results: VariantResults, void_reason: str) -> ClaimAnswer:
    """Answer a claim, and withdraw an answer that this run cannot give."""
    if claim.asks in _MANIFEST_CLAIMS:
        return ANSWER_FUNCTIONS[claim.asks](claim, results)
    if void_reason or results.invalid_reason:
        return ClaimAnswer(
            "no evidence",
            f"the run is void: {void_reason}" if void_reason else results.invalid_reason,
        )
    answer = ANSWER_FUNCTIONS[claim.asks](claim, results)
    rounds = [cell.rounds for cell in results.select_cells(claim.metrics, claim.classes)]
    few_reason = verdict_reason.explain_few_rounds(max(rounds, default=0))
    if few_reason and claim.asks != "equality" and answer.answer != "not comparable":
        return ClaimAnswer("no evidence", few_reason)
    if answer.answer == "confirmed" and claim.direction == "faster":
        if results.explain_bias():
            reason = f"{results.explain_bias()}, so only survivors are compared; {answer.reason}"
            return ClaimAnswer("not comparable", reason)
        if results.equality is not None and results.equality.result == "differs":
            reason = (
                f"its output is not the baseline's, so its speed is of another; {answer.reason}"
            )
            return ClaimAnswer("not comparable", reason)
    return answer


def _answer_setup(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether the arms differ in decoding alone; for the image, by model and image."""
    table = results.table
    differences = []
    unknown = []
    for field, name in _MANIFEST_FIELDS[claim.asks].items():
        before, after = (getattr(arm, field) for arm in results.manifest_arms)
        if before is None or after is None:
            unknown.append(f"{name} of an arm")
        elif before != after:
            differences.append(f"{name}: {before} and {after}")
    if differences:
        return ClaimAnswer("contradicted", "; ".join(differences))
    if unknown:
        return ClaimAnswer(
            "no evidence", f"not known: {', '.join(unknown)}; what is known is equal"
        )
    text = f"{', '.join(_MANIFEST_FIELDS[claim.asks].values())} of both arms are equal"
    if claim.asks == "image":
        keys = " and ".join(arm.artifact_key or "-" for arm in results.manifest_arms)
        return ClaimAnswer("confirmed", f"{text}; compiled before, as artifacts {keys}")
    declared_text = f"experiment {table.run.experiment} declares the rest once"
    return ClaimAnswer(
        "confirmed", f"{text}, and {declared_text}; samplers of the arms' engines are not compared"
    )


def _answer_never(claim: Claim, _: VariantResults) -> ClaimAnswer:
    """Answer a claim that one run cannot decide."""
    return ClaimAnswer("not comparable", claim.confirms)


ANSWER_FUNCTIONS: Mapping[str, Callable[[Claim, VariantResults], ClaimAnswer]] = {
    "best class": figure_answers.answer_best_class,
    "cells": figure_answers.answer_cells,
    "over time": figure_answers.answer_over_time,
    "pattern": figure_answers.answer_pattern,
    "drafts": figure_answers.answer_drafts,
    "windows of speculation": figure_answers.answer_windows,
    "cost": figure_answers.answer_cost,
    "equality": figure_answers.answer_equality,
    "steps": figure_answers.answer_steps,
    "declared": _answer_never,
    "set-up": _answer_setup,
    "months": _answer_never,
    "image": _answer_setup,
}
"""The function that answers each kind of claim (`asks`)."""
