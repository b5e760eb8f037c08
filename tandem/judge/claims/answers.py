"""What a run says to each claim of the post: confirmed, contradicted, no evidence, not comparable, and why.

Invariant: every claim of the register has an answer for every variant, with figures where there are any; a claim about
the size of a figure is answered by a run of the post's own set-up alone; no gain is confirmed of a variant whose output
differs or that failed what the baseline answered; a run that is void, or whose answers are no text, says nothing; of
speed, neither does one of too few rounds for a verdict.
Claims that contradict each other are told against each other. What a manifest does not know confirms nothing; what it
knows to differ contradicts. A simulated server answers no claim, and neither does one of which nobody declared what it
is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import msgspec
import numpy as np

from tandem.bench.request_table import UNKNOWN, RequestTable
from tandem.judge import verdict_reason
from tandem.judge.claims import figure_answers
from tandem.judge.claims.register import Claim, ClaimAnswer, read_register
from tandem.judge.claims.variant_results import VariantResults, find_manifest_arm, join_first, list_differences
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import CellVerdict, ClaimVerdict, ClassAcceptance, OutputEquality, RunControls
from tandem.judge.text_format import format_load, format_number

RUN_CLAIMS = ("drafts", "windows of speculation", "declared", "months")
"""What is answered once a run: it compares variants, or no run can answer it."""

_MANIFEST_CLAIMS = ("declared", "months", "set-up", "image")
_MANIFEST_FIELDS = {"model": "model", "image": "image", "server_version": "server version", "runtime": "runtime"}
_NEVER_REASONS = {
    "declared": (
        "a run asks servers that already serve; `tandem check` refuses a pair of other tokenizers or vocabularies "
        "(rules tokenizer-equal, vocabulary-equal) and warns of another family (draft-family)"
    ),
    "months": (
        "one run is one moment of one pair of models: hold two runs beside each other with `tandem bench compare`, and "
        "watch acceptance on the dashboard"
    ),
}
"""Why no run answers such a claim."""

_ANSWER_WORDS = {
    "confirmed": "is confirmed",
    "contradicted": "is contradicted",
    "no evidence": "finds no evidence",
    "not comparable": "is not comparable with this run",
}


def explain_unasked(table: RequestTable) -> str | None:
    """Return the sentence that says why the post's claims are not asked of a run's servers; None where they are.

    One variant with the post's draft and window is enough: claims about tuning compare others with it.

    Raises:
        BenchError: the register of claims is not as it must be.
    """
    run, set_up = table.run, read_register().set_up
    obstacle: str | None = None
    if run.simulated is not False:
        obstacle = "they are simulated" if run.simulated else "whether they are simulated is not known"
    elif run.environment is None or run.experiment is None:
        obstacle = "they were named by address, not by --env and --experiment"
    elif run.instance_type != set_up.instance_type:
        obstacle = f"they run on {run.instance_type or 'an unknown instance type'}, not on {set_up.instance_type}"
    else:
        baseline, *variants = (find_manifest_arm(table, name) for name in (table.baseline, *table.variants))
        differences = [
            next(list_differences(set_up, baseline, variant, allow_tuning=False), None)
            for variant in variants
            if baseline is not None and variant is not None
        ]
        obstacle = next(iter(differences), "the manifest does not know both arms")
        obstacle = None if None in differences else obstacle
    return None if obstacle is None else f"The post's claims are not asked of these servers: {obstacle}."


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
    answers = {(verdict.claim, verdict.variant): verdict.answer for verdict in verdicts}
    return tuple(_add_contradictions(verdict, answers) for verdict in verdicts)


def _answer_claim(claim: Claim, results: VariantResults | None, void_reason: str) -> ClaimVerdict:
    answer, llmperf = ClaimAnswer("not comparable", "this run has no variant to hold against a baseline"), None
    is_of_run = results is None or claim.asks in RUN_CLAIMS
    if results is not None:
        answer = _answer_by_results(claim, results, void_reason)
        if claim.llmperf and not is_of_run:
            llmperf = _describe_llmperf(results, (*claim.classes, *claim.beside))
    return ClaimVerdict(
        claim=claim.id,
        text=claim.text,
        where=claim.where,
        answer=answer.answer,
        why=f"{answer.reason.rstrip('.')}.",
        against=claim.against,
        llmperf=llmperf,
        variant=None if results is None or is_of_run else results.variant,
    )


def _answer_by_results(claim: Claim, results: VariantResults, void_reason: str) -> ClaimAnswer:
    """Answer a claim, and take back an answer that this run cannot give, whatever its figures are."""
    is_of_manifest = claim.asks in _MANIFEST_CLAIMS
    if not is_of_manifest and (void_reason or results.invalid_reason):
        return ClaimAnswer("no evidence", f"the run is void: {void_reason}" if void_reason else results.invalid_reason)
    answer = ANSWER_FUNCTIONS[claim.asks](claim, results)
    rounds = [cell.rounds for cell in results.select_cells(claim.metrics, claim.classes)]
    few_reason = verdict_reason.explain_few_rounds(max(rounds, default=0))
    if few_reason and not is_of_manifest and claim.asks != "equality" and answer.answer != "not comparable":
        answer = ClaimAnswer("no evidence", few_reason)
    reason, difference = "", results.explain_difference(allow_tuning=claim.asks in RUN_CLAIMS)
    if claim.carries == "the post's set-up" and difference:
        reason = f"it is about the post's set-up, and {difference}"
    if answer.answer == "confirmed" and claim.direction == "faster":
        if results.explain_bias():
            reason = f"{results.explain_bias()}, so only survivors are compared"
        elif results.equality is not None and results.equality.result == "differs":
            reason = "its output is not the baseline's, so its speed is of another"
    if reason:
        return ClaimAnswer("not comparable", f"{reason}; {answer.reason}")
    difference = results.explain_difference()
    if not is_of_manifest and difference and answer.answer in {"confirmed", "contradicted"}:
        return answer.add_sentence(f"This is said of this run's servers, not of the post's: {difference}")
    return answer


def _describe_llmperf(results: VariantResults, classes: Sequence[str]) -> str | None:
    """Return the figures of some classes by llmperf's definition beside the true ones; None where nobody has them."""
    table, texts = results.table, []
    names = {"llmperf_inter_token_latency_ms": "by llmperf's definition", "tpot_ms": "TPOT"}
    for class_, load in product([name for name in classes if name in table.classes], results.loads):
        cell_mask = (table.class_ == table.classes.index(class_)) & (table.load == table.loads.index(load))
        cell_mask &= results.pairing.row_mask() & ~table.failed
        figures = []
        for metric in filter(table.figures.__contains__, names):
            is_known = cell_mask & np.isfinite(table.figures[metric])
            values = [table.figures[metric][is_known & table.arm_mask(arm)] for arm in results.arms]
            if all(map(len, values)):
                before, after = (format_number(float(np.median(side))) for side in values)
                figures.append(f"{names[metric]} {before} to {after} ms")
        if figures:
            texts.append(f"{class_} at {format_load(load)}: {', '.join(figures)}")
    return join_first(texts) or None


def _add_contradictions(verdict: ClaimVerdict, answers: Mapping[tuple[str, str | None], str]) -> ClaimVerdict:
    """Tell a claim what became of those that contradict it."""
    words = {claim_id: answers.get((claim_id, verdict.variant)) for claim_id in verdict.against}
    remarks = [f"{claim_id} says otherwise, and {_ANSWER_WORDS[word]}" for claim_id, word in words.items() if word]
    if not remarks:
        return verdict
    return msgspec.structs.replace(verdict, why=f"{verdict.why} Against it: {'; '.join(remarks)}.")


def _answer_setup(_: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether the arms differ in their decoding alone."""
    if results.manifest_arms is None:
        return ClaimAnswer("no evidence", "the manifest does not know both arms")
    table, differences, unknown = results.table, [], []
    for field, name in _MANIFEST_FIELDS.items():
        before, after = (getattr(arm, field) for arm in results.manifest_arms)
        if before is None or after is None:
            unknown.append(f"{name} of an arm")
        elif before != after:
            differences.append(f"{name}: {before} and {after}")
    places = [set(table.placement[table.arm_mask(arm)].tolist()) - {UNKNOWN} for arm in results.arms]
    place_text = "; where each arm ran is not recorded"
    if all(places):
        own_text = "; each arm stayed on a place of its own, so what differs between them is in every figure"
        place_text = own_text if places[0].isdisjoint(places[1]) else ""
    if differences:
        return ClaimAnswer("contradicted", f"{'; '.join(differences)}{place_text}")
    if table.run.experiment is None:
        unknown.append("tensor parallelism, lengths and batch, since servers were named by address")
    if unknown:
        return ClaimAnswer("no evidence", f"not known: {', '.join(unknown)}; what is known is equal{place_text}")
    declared_text = f"experiment {table.run.experiment} declares the rest once"
    text = f"model, image, server version and runtime are equal, and {declared_text}"
    return ClaimAnswer("confirmed", f"{text}; samplers of the arms' engines are not compared{place_text}")


def _answer_image(_: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether the same image serves both arms."""
    if results.manifest_arms is None or not all(arm.image for arm in results.manifest_arms):
        return ClaimAnswer("no evidence", "the manifest does not know the images of both arms")
    base, variant = results.manifest_arms
    if (base.image, base.model) != (variant.image, variant.model):
        return ClaimAnswer("contradicted", f"{base.name} and {variant.name} are not the same image and model")
    if variant.speculation is None or variant.speculation.method is None:
        return ClaimAnswer("no evidence", f"the manifest does not say that {variant.name} speculates")
    text, keys = f"both arms serve {base.model} from {base.image}", (base.artifact_key, variant.artifact_key)
    if all(keys) and keys[0] != keys[1]:
        text += f"; each has a compiled artifact of its own, {keys[0]} and {keys[1]}, compiled before"
    return ClaimAnswer("confirmed", text)


def _answer_never(claim: Claim, _: VariantResults) -> ClaimAnswer:
    """Answer what one run cannot."""
    return ClaimAnswer("not comparable", _NEVER_REASONS[claim.asks])


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
    "image": _answer_image,
}
"""What answers each word of tandem.judge.claims.register.AnswerMethod."""
