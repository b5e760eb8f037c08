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
    if results.equality is None:
        return ClaimAnswer("no evidence", "outputs were not compared")
    text = (
        f"{results.equality.sentence.rstrip('.')} (compared by {results.equality.by}); quality by tasks is not measured"
    )
    if results.equality.result == "the same":
        return ClaimAnswer("confirmed", text)
    return ClaimAnswer("contradicted" if results.equality.result == "differs" else "no evidence", text)


def answer_steps(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by target steps an output token, by the time of a step, and by TTFT."""
    variant_row = results.find_acceptance(results.variant)
    baseline_row = results.find_acceptance(results.table.baseline)
    if variant_row is None or variant_row.target_steps_per_token is None:
        reason = (variant_row.sentence if variant_row else "") or "the target's steps are not known"
        return ClaimAnswer("no evidence", f"{results.variant}: {reason.rstrip('.')}")
    before = (baseline_row.target_steps_per_token if baseline_row else None) or 1.0
    after, margin_ratio = variant_row.target_steps_per_token, 1 + results.margin
    text = f"target steps an output token: {format_number(before)} to {format_number(after)} (by {variant_row.method})"
    step_ratios = [
        finding.variant_value / after / (finding.baseline_value / before)
        for finding in results.find_metric("tpot_ms")
        if finding.baseline_value and finding.variant_value
    ]
    step_ratio = float(np.median(step_ratios)) if step_ratios else None
    if step_ratio is not None:
        text += f"; a step took {format_times(step_ratio)} the baseline's time, by TPOT over steps a token"
    prefill = results.find_metric(claim.metrics[0])
    quicker_findings = [finding for finding in prefill if finding.word == "faster"]
    if quicker_findings:
        return ClaimAnswer("contradicted", f"{text}; the first token comes earlier: {join_first(quicker_findings)}")
    if after * margin_ratio >= before:
        return ClaimAnswer("contradicted", f"{text}: not fewer")
    if step_ratio is not None and step_ratio * margin_ratio < 1:
        return ClaimAnswer("contradicted", f"{text}: the step itself is faster")
    high_ends = [finding.speed_up.high if finding.speed_up else None for finding in prefill]
    unsure_count = sum(end is None or end > margin_ratio for end in high_ends)
    if unsure_count or not prefill or step_ratio is None:
        lack_text = f"{unsure_count} of {len(prefill)} classes" if prefill else "every class"
        reason = f"the first token may come earlier in {lack_text}, for all that is known"
        return ClaimAnswer("no evidence", f"{text}; {reason}")
    reason = f"TTFT is faster in no class, each interval ends below {format_times(margin_ratio)}"
    return ClaimAnswer("confirmed", f"{text}; {reason}")


def answer_cost(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by throughput in the predictable classes, and by what good tokens took of the servers' time."""
    answer = answer_cells(claim, results)
    if answer.answer == "not comparable":
        return answer
    seconds = [_compute_token_cost_s(results, arm, claim) for arm in (results.table.baseline, results.variant)]
    text = f"seconds of the server for a million good tokens: {' to '.join(map(format_number, seconds))}"
    is_cheaper = None not in seconds and seconds[1] * (1 + results.margin) < seconds[0]  # type: ignore[operator]
    if answer.answer == "confirmed" and not is_cheaper:
        return ClaimAnswer("no evidence", f"{answer.reason}; {text}")
    return answer.add_sentence(text[0].upper() + text[1:])


def answer_drafts(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by two variants that differ in their draft alone."""
    by_draft = {find_draft(arm): arm for arm in results.table.run.arms if arm.name in results.table.variants}
    large_arm, small_arm = (by_draft.get(model_slug(model)) for model in claim.drafts)
    if large_arm is None or small_arm is None:
        return ClaimAnswer("not comparable", f"this run has not both drafts as variants: {', '.join(claim.drafts)}")
    if large_arm.speculation != small_arm.speculation:
        return ClaimAnswer("not comparable", f"{large_arm.name} and {small_arm.name} differ in more than their draft")
    rows = [results.find_acceptance(arm.name) for arm in (large_arm, small_arm)]
    draft_tokens = [row.acceptance_length - 1 if row and row.acceptance_length else None for row in rows]
    speed = compare_variants(results, large_arm.name, small_arm.name, claim.metrics[0])
    tokens_text = " to ".join(map(format_number, draft_tokens))
    text = f"accepted tokens a step: {tokens_text} from the larger to the smaller draft"
    if speed:
        text += f"; TPOT of the smaller against the larger: {format_times(speed.value)} ({format_interval(speed)})"
    if speed is None or speed.low is None or speed.high is None or draft_tokens[0] is None or draft_tokens[1] is None:
        return ClaimAnswer("no evidence", text)
    if speed.low > 1 + results.margin or draft_tokens[1] >= draft_tokens[0]:
        return ClaimAnswer("contradicted", text)
    return ClaimAnswer("confirmed" if speed.high <= 1 + results.margin else "no evidence", text)


def answer_windows(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by variants that have the post's draft and differ in their window alone."""
    post_draft = model_slug(results.set_up.draft)
    candidate_arms = [
        arm for arm in results.table.run.arms if arm.name in results.table.variants and find_draft(arm) == post_draft
    ]
    by_window = {arm.speculation.num_speculative_tokens: arm for arm in candidate_arms if arm.speculation is not None}
    missing = [str(size) for size in claim.windows if size not in by_window]
    if missing:
        sizes = ", ".join(str(size) for size in claim.windows)
        lack_text = f"this run has no variant with {', '.join(missing)} and the draft {results.set_up.draft}"
        return ClaimAnswer("not comparable", f"the windows {sizes} are compared, and {lack_text}")
    best_name, *other_names = (by_window[size].name for size in claim.windows)
    ratios = {name: compare_variants(results, name, best_name, claim.metrics[0]) for name in other_names}
    known_ratios = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    text = join_first(
        f"{best_name} against {name}: {format_times(ratio.value)} ({format_interval(ratio)})"
        for name, ratio in known_ratios.items()
    )
    if any((ratio.high or 1.0) < 1 for ratio in known_ratios.values()):
        return ClaimAnswer("contradicted", text)
    is_sure = len(known_ratios) == len(ratios) and all((ratio.low or 0.0) > 1 for ratio in known_ratios.values())
    return ClaimAnswer("confirmed" if is_sure else "no evidence", text or "too few prompts")


def compare_variants(results: VariantResults, baseline: str, variant: str, metric: str) -> RatioEstimate | None:
    """Return how much faster one variant is than another over the prompts of all classes; None of too few.

    A prompt that was asked at several loads is one value, the mean of them.
    """
    table, logs, prompts = results.table, [], []
    for load in results.select_loads():
        for class_ in range(len(table.classes)):
            pairs = results.pairing.pairs(
                baseline=baseline, variant=variant, class_=class_, load=table.loads.index(load), metric=metric
            )
            logs.append(pairs.logs)
            prompts.append(pairs.prompts)
    if not logs:
        return None
    owner = np.unique(np.concatenate(prompts), return_inverse=True)[1]
    estimate = estimate_log_ratio(np.bincount(owner, np.concatenate(logs)) / np.bincount(owner))
    return estimate.convert() if estimate else None


def _compute_token_cost_s(results: VariantResults, arm: str, claim: Claim) -> float | None:
    table = results.table
    classes = [code for code, name in enumerate(table.classes) if name in claim.classes]
    loads = [table.loads.index(load) for load in results.select_loads()]
    rows = (
        results.pairing.row_mask() & table.arm_mask(arm) & np.isin(table.class_, classes) & np.isin(table.load, loads)
    )
    arm_work = measure_work(table, rows)
    return 1e6 * arm_work.busy_s / arm_work.good_tokens if arm_work.good_tokens else None
