"""Answers to claims that compare variants of one run: other drafts, or other windows.

Invariant: variants are compared with each other prompt by prompt, as a variant is with the
baseline.
"""

from __future__ import annotations

import math

import numpy as np

from tandem.judge.interval import LogRatioEstimate, estimate_log_ratio
from tandem.judge.text_format import format_interval, format_number, format_times
from tandem.post.claim_answer import ClaimAnswer
from tandem.post.register import Claim
from tandem.post.variant_results import VariantResults


def answer_drafts(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by two variants that differ in their draft alone."""
    arms = {}
    for arm in results.table.run.arms:
        if arm.name in results.table.variants:
            arms[results.drafts.get(arm.name)] = arm
    large, small = (arms.get(model) for model in claim.drafts)
    if large is None or small is None or large.speculation != small.speculation:
        reason = "this run has no two variants that differ in these drafts alone"
        return ClaimAnswer("not comparable", f"{reason}: {', '.join(claim.drafts)}")

    large_tokens = _count_accepted(results, large.name)
    small_tokens = _count_accepted(results, small.name)
    tokens_text = f"{format_number(large_tokens)} to {format_number(small_tokens)}"
    text = f"accepted tokens a step: {tokens_text} from the larger to the smaller draft"
    if large_tokens and small_tokens is not None:
        text += f", {100 * (1 - small_tokens / large_tokens):.0f} % less"
    speed = _compare_variants(results, large.name, small.name, claim.metrics[0])
    if speed is not None:
        text += f"; TPOT of the smaller against the larger: {_describe_speed(speed)}"
    if speed is None or large_tokens is None or small_tokens is None:
        return ClaimAnswer("no evidence", text)

    log_margin = math.log1p(results.verdict.margin)
    if speed.low > log_margin or small_tokens >= large_tokens:
        return ClaimAnswer("contradicted", text)
    if speed.high <= log_margin:
        return ClaimAnswer("confirmed", text)
    return ClaimAnswer("no evidence", text)


def _count_accepted(results: VariantResults, arm: str) -> float | None:
    """Return the draft's tokens that a step accepted; None where nobody counted them."""
    row = results.find_acceptance(arm)
    if row and row.acceptance_length:
        return row.acceptance_length - 1
    return None


def answer_windows(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by variants that have the post's draft and differ in their window alone."""
    draft = results.set_up.draft
    names = {}
    for arm in results.table.run.arms:
        if arm.speculation is not None and results.drafts.get(arm.name) == draft:
            names[arm.speculation.num_speculative_tokens] = arm.name
    missing = [str(size) for size in claim.windows if size not in names]
    if missing:
        sizes = ", ".join(map(str, claim.windows))
        reason = f"this run has no variant with {', '.join(missing)} and the draft {draft}"
        return ClaimAnswer("not comparable", f"the windows {sizes} are compared, and {reason}")

    best, *others = (names[size] for size in claim.windows)
    speeds = []
    texts = []
    for other in others:
        speed = _compare_variants(results, other, best, claim.metrics[0])
        if speed is not None:
            speeds.append(speed)
            texts.append(f"{best} against {other}: {_describe_speed(speed)}")
    text = "; ".join(texts) or "too few prompts"
    if any(speed.high < 0 for speed in speeds):
        return ClaimAnswer("contradicted", text)
    is_sure = len(speeds) == len(others) and all(speed.low > 0 for speed in speeds)
    if is_sure:
        return ClaimAnswer("confirmed", text)
    return ClaimAnswer("no evidence", text)


def _describe_speed(speed: LogRatioEstimate) -> str:
    ratio = speed.convert()
    return f"{format_times(ratio.value)} ({format_interval(ratio)})"


def _compare_variants(
    results: VariantResults, first: str, second: str, metric: str
) -> LogRatioEstimate | None:
    """Return how much faster the second of two variants is over all classes; None if too few.

    A prompt at several loads is one value, the mean over the loads.
    """
    pairing = results.pairing
    cells = [cell for cell in pairing.known_cells() if pairing.cell_place(cell)[1] in results.loads]
    pairs = pairing.join_cells((first, second), cells, metric)
    owner = np.unique(pairs.prompts, return_inverse=True)[1]
    return estimate_log_ratio(np.bincount(owner, pairs.logs) / np.bincount(owner))
