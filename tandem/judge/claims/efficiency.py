"""Answers to claims about what the servers did and gave: output, target steps, cost, and tuning between variants.

Invariant: variants are held against each other prompt by prompt, as a variant is against the baseline; a figure that a
server does not tell is no evidence, whichever way it would have pointed.
"""

from __future__ import annotations

import numpy as np

from tandem.judge.claims.register import Claim, ClaimAnswer
from tandem.judge.claims.speed import answer_cells
from tandem.judge.claims.variant_results import VariantResults, find_draft, join_first, model_slug
from tandem.judge.cost import measure_work
from tandem.judge.interval import estimate_log_ratio
from tandem.judge.schema import RatioEstimate
from tandem.judge.text_format import format_interval, format_number, format_times


def answer_equality(_: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by the comparison of greedy outputs."""
    equality = results.equality
    if equality is None:
        return ClaimAnswer("no evidence", "outputs were not compared")
    text = f"{equality.sentence.rstrip('.')} (compared by {equality.by}); quality by tasks is not measured"
    if equality.result == "no evidence":
        return ClaimAnswer("no evidence", text)
    return ClaimAnswer("confirmed" if equality.result == "the same" else "contradicted", text)


def answer_steps(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by target steps an output token, by the time of a step, and by TTFT."""
    row, baseline_row = results.find_acceptance(results.variant), results.find_acceptance(results.table.baseline)
    if row is None or row.target_steps_per_token is None:
        reason = (row.sentence if row else "") or "the target's steps are not known"
        return ClaimAnswer("no evidence", f"{results.variant}: {reason.rstrip('.')}")
    before = (baseline_row.target_steps_per_token if baseline_row else None) or 1.0
    after, most = row.target_steps_per_token, 1 + results.margin
    text = f"target steps an output token: {format_number(before)} to {format_number(after)} (by {row.method})"
    cells = [finding.cell for finding in results.find_metric("tpot_ms")]
    ratios = [cell.measured / after / (cell.baseline / before) for cell in cells if cell.baseline and cell.measured]
    step_ratio = float(np.median(ratios)) if ratios else None
    if step_ratio is not None:
        text += f"; a step took {format_times(step_ratio)} the baseline's time, by TPOT over steps a token"
    prefill = results.find_metric(claim.metrics[0])
    quicker_findings = [finding for finding in prefill if finding.cell.verdict == "faster"]
    if quicker_findings:
        return ClaimAnswer("contradicted", f"{text}; the first token comes earlier: {join_first(quicker_findings)}")
    if after * most >= before:
        return ClaimAnswer("contradicted", f"{text}: not fewer")
    if step_ratio is not None and step_ratio * most < 1:
        return ClaimAnswer("contradicted", f"{text}: the step itself is faster")
    highs = [finding.cell.speed_up.high if finding.cell.speed_up else None for finding in prefill]
    unsure_count = sum(high is None or high > most for high in highs)
    if unsure_count or not prefill or step_ratio is None:
        scope = f"{unsure_count} of {len(prefill)} classes" if prefill else "every class"
        return ClaimAnswer("no evidence", f"{text}; the first token may come earlier in {scope}, for all that is known")
    reason = f"TTFT is faster in no class, each interval ends below {format_times(most)}"
    return ClaimAnswer("confirmed", f"{text}; {reason}")


def answer_cost(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by throughput in the predictable classes, and by what good tokens took of the servers' time."""
    answer, table = answer_cells(claim, results), results.table
    if answer.answer == "not comparable":
        return answer
    classes = [code for code, name in enumerate(table.classes) if name in claim.classes]
    loads = [table.loads.index(load) for load in results.loads]
    rows = results.pairing.row_mask() & np.isin(table.class_, classes) & np.isin(table.load, loads)
    works = [measure_work(table, rows & table.arm_mask(arm)) for arm in results.arms]
    before, after = (1e6 * work.busy_s / work.good_tokens if work.good_tokens else None for work in works)
    text = f"seconds of the server for a million good tokens: {format_number(before)} to {format_number(after)}"
    is_cheaper = before is not None and after is not None and after * (1 + results.margin) < before
    if answer.answer == "confirmed" and not is_cheaper:
        return ClaimAnswer("no evidence", f"{answer.reason}; {text}")
    return answer.add_sentence(text[0].upper() + text[1:])


def answer_drafts(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by two variants that differ in their draft alone."""
    arms = {find_draft(arm): arm for arm in results.table.run.arms if arm.name in results.table.variants}
    large, small = (arms.get(model_slug(model)) for model in claim.drafts)
    if large is None or small is None:
        return ClaimAnswer("not comparable", f"this run has not both drafts as variants: {', '.join(claim.drafts)}")
    if large.speculation != small.speculation:
        return ClaimAnswer("not comparable", f"{large.name} and {small.name} differ in more than their draft")
    rows = [results.find_acceptance(arm.name) for arm in (large, small)]
    tokens = [row.acceptance_length - 1 if row and row.acceptance_length else None for row in rows]
    speed = _compare_variants(results, large.name, small.name, claim.metrics[0])
    text = f"accepted tokens a step: {' to '.join(map(format_number, tokens))} from the larger to the smaller draft"
    if speed:
        text += f"; TPOT of the smaller against the larger: {format_times(speed.value)} ({format_interval(speed)})"
    if speed is None or speed.low is None or speed.high is None or tokens[0] is None or tokens[1] is None:
        return ClaimAnswer("no evidence", text)
    if speed.low > 1 + results.margin or tokens[1] >= tokens[0]:
        return ClaimAnswer("contradicted", text)
    return ClaimAnswer("confirmed" if speed.high <= 1 + results.margin else "no evidence", text)


def answer_windows(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by variants that have the post's draft and differ in their window alone."""
    names = {
        arm.speculation.num_speculative_tokens: arm.name
        for arm in results.table.run.arms
        if arm.name in results.table.variants
        and arm.speculation is not None
        and find_draft(arm) == model_slug(results.set_up.draft)
    }
    missing = [str(size) for size in claim.windows if size not in names]
    if missing:
        reason = f"this run has no variant with {', '.join(missing)} and the draft {results.set_up.draft}"
        sizes = ", ".join(map(str, claim.windows))
        return ClaimAnswer("not comparable", f"the windows {sizes} are compared, and {reason}")
    best, *others = (names[size] for size in claim.windows)
    ratios = [_compare_variants(results, other, best, claim.metrics[0]) for other in others]
    text = join_first(
        f"{best} against {other}: {format_times(ratio.value)} ({format_interval(ratio)})"
        for other, ratio in zip(others, ratios, strict=True)
        if ratio is not None
    )
    if any(ratio is not None and (ratio.high or 1.0) < 1 for ratio in ratios):
        return ClaimAnswer("contradicted", text)
    is_sure = all(ratio is not None and (ratio.low or 0.0) > 1 for ratio in ratios)
    return ClaimAnswer("confirmed" if is_sure else "no evidence", text or "too few prompts")


def _compare_variants(results: VariantResults, first: str, second: str, metric: str) -> RatioEstimate | None:
    """Return how much faster the second of two variants is over the prompts of all classes; None of too few.

    A prompt that was asked at several loads is one value, the mean of them.
    """
    table = results.table
    cells = [(class_, table.loads.index(load)) for load in results.loads for class_ in range(len(table.classes))]
    pairs = [
        results.pairing.pairs(baseline=first, variant=second, class_=class_, load=load, metric=metric)
        for class_, load in cells
    ]
    if not pairs:
        return None
    owner = np.unique(np.concatenate([part.prompts for part in pairs]), return_inverse=True)[1]
    logs = np.concatenate([part.logs for part in pairs])
    estimate = estimate_log_ratio(np.bincount(owner, logs) / np.bincount(owner))
    return estimate.convert() if estimate else None
