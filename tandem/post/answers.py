"""Answers of a run to the post's claims: confirmed, contradicted, no evidence, not comparable.

Invariant: only variants of the post's own set-up answer, as far as manifest and experiment say it.
Simulated servers never answer. Each of these variants has an answer to every claim of the register.
No gain is confirmed if the variant's output differs or the variant failed requests that the
baseline answered. A run that is void, or whose answers are no text, says nothing. A run with too
few rounds for a verdict says nothing of speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tandem.bench.figures.request_table import RequestTable
from tandem.bench.records.manifest import ManifestArm
from tandem.judge import comparability, verdict_reason
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import Verdict
from tandem.post import figure_answers, variant_answers
from tandem.post.claim_answer import ClaimAnswer
from tandem.post.register import Claim, PostSetup, read_register
from tandem.post.schema import ClaimVerdict
from tandem.post.variant_results import VariantResults

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


def find_obstacles(table: RequestTable, drafts: Mapping[str, str]) -> dict[str, str]:
    """Return why each variant is not of the post's set-up; empty where it is."""
    run = table.run
    set_up = read_register().set_up
    arms = {arm.name: arm for arm in run.arms}
    run_obstacle = ""
    if run.simulated is not False:
        run_obstacle = (
            "they are simulated" if run.simulated else "whether they are simulated is not known"
        )
    elif run.instance_type != set_up.instance_type:
        instance_type = run.instance_type or "an unknown instance type"
        run_obstacle = f"they run on {instance_type}, not on {set_up.instance_type}"

    obstacles = {}
    for variant in table.variants:
        pair = (arms[table.baseline], arms[variant])
        differences = _list_differences(set_up, *pair, drafts.get(variant))
        obstacles[variant] = run_obstacle or next(differences, "")
    return obstacles


def _list_differences(
    set_up: PostSetup, base: ManifestArm, variant: ManifestArm, draft: str | None
) -> Iterator[str]:
    """Yield the differences of two arms from the post's set-up, most important first."""
    models = sorted({base.model, variant.model} - {set_up.target})
    if models:
        yield f"the target is {', '.join(models)}, not {set_up.target}"
    runtimes = {arm.runtime or "not known" for arm in (base, variant)} - set(set_up.runtimes)
    if runtimes:
        yield (
            f"the runtime is {', '.join(sorted(runtimes))},"
            " so nothing says that this is the post's accelerator"
        )
    if base.speculation is None or base.speculation.method is not None:
        yield f"nothing says that {base.name} decodes without speculation"
    speculation = variant.speculation
    tuning = speculation and (speculation.method, speculation.num_speculative_tokens)
    if tuning != (set_up.mode, set_up.num_speculative_tokens):
        size = set_up.num_speculative_tokens
        yield f"the variant's speculation is not {set_up.mode} with {size} tokens"
    if draft != set_up.draft:
        yield f"the draft is {draft}, not {set_up.draft}"


def answer_claims(
    pairing: RequestPairing,
    verdict: Verdict,
    drafts: Mapping[str, str],
    claims: Sequence[Claim],
    variants: Sequence[str],
) -> Iterator[ClaimVerdict]:
    """Yield the answers in the claims' order: one a variant, or one a run for RUN_CLAIMS.

    Args:
        pairing: the rounds of the run that count.
        verdict: on the run.
        drafts: the draft of each variant that has one.
        claims: to answer.
        variants: of the post's set-up.
    """
    variant_results = [
        VariantResults(pairing=pairing, verdict=verdict, variant=variant, drafts=drafts)
        for variant in variants
    ]
    for claim in claims:
        is_of_run = claim.asks in RUN_CLAIMS
        for results in variant_results[:1] if is_of_run else variant_results:
            answer = _answer_claim(claim, results)
            yield ClaimVerdict(
                claim=claim.id,
                text=claim.text,
                where=claim.where,
                answer=answer.word,
                why=f"{answer.reason.rstrip('.')}.",
                against=claim.against,
                variant=None if is_of_run else results.variant,
            )


def _answer_claim(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer a claim, and withdraw an answer that this run cannot give."""
    answer_function = ANSWER_FUNCTIONS[claim.asks]
    if claim.asks in _MANIFEST_CLAIMS:
        return answer_function(claim, results)
    void_reasons = results.verdict.controls.void
    if void_reasons:
        return ClaimAnswer("no evidence", f"the run is void: {void_reasons[0]}")
    invalid_reason = comparability.explain_invalidity(results.pairing, *results.arms)
    if invalid_reason:
        return ClaimAnswer("no evidence", invalid_reason)

    answer = answer_function(claim, results)
    rounds = [cell.rounds for cell in results.select_cells(claim.metrics, claim.classes)]
    few_reason = verdict_reason.explain_few_rounds(max(rounds, default=0))
    if few_reason and claim.asks != "equality" and answer.word != "not comparable":
        return ClaimAnswer("no evidence", few_reason)
    reason = ""
    if answer.word == "confirmed" and claim.direction == "faster":
        reason = _explain_other_work(results)
    if not reason:
        return answer
    return ClaimAnswer("not comparable", f"{reason}; {answer.reason}")


def _explain_other_work(results: VariantResults) -> str:
    """Return why a gain is not one of the same work; empty where it is."""
    failures = comparability.count_failures(results.pairing, *results.arms).count()
    if failures.is_biased:
        return f"{failures.describe(*results.arms)}, so only survivors are compared"
    if results.equality is not None and results.equality.result == "differs":
        return "its output is not the baseline's, so its speed is of another"
    return ""


def _answer_setup(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether the arms differ in decoding alone; for the image, by model and image."""
    run = results.table.run
    arms = {arm.name: arm for arm in run.arms}
    base = arms[results.table.baseline]
    variant = arms[results.variant]
    fields = _MANIFEST_FIELDS[claim.asks]
    differences = []
    unknown = []
    for field, name in fields.items():
        before = getattr(base, field)
        after = getattr(variant, field)
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
    text = f"{', '.join(fields.values())} of both arms are equal"
    if claim.asks == "image":
        keys = f"{base.artifact_key or '-'} and {variant.artifact_key or '-'}"
        return ClaimAnswer("confirmed", f"{text}; compiled before, as artifacts {keys}")
    declared_text = f"experiment {run.experiment} declares the rest once"
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
    "drafts": variant_answers.answer_drafts,
    "windows of speculation": variant_answers.answer_windows,
    "cost": figure_answers.answer_cost,
    "equality": figure_answers.answer_equality,
    "steps": figure_answers.answer_steps,
    "declared": _answer_never,
    "set-up": _answer_setup,
    "months": _answer_never,
    "image": _answer_setup,
}
"""The function that answers each kind of claim (`asks`)."""
