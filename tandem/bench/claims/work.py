"""Answers to claims about what the servers did and gave: output, target steps, cost, and tuning between variants.

Invariant: variants are held against each other prompt by prompt, as a variant is against the baseline; a figure that a
server does not tell is no evidence, whichever way it would have pointed.
"""

from __future__ import annotations

import numpy as np

from tandem.bench.claims.case import ALL, Case, draft, listed, slug
from tandem.bench.claims.register import Claim
from tandem.bench.claims.said import Said
from tandem.bench.claims.speed import cells
from tandem.bench.judge.cost import work
from tandem.bench.judge.form import Acceptance, Ratio
from tandem.bench.judge.interval import estimate
from tandem.bench.judge.ratio import ratio_of
from tandem.bench.judge.words import interval, number, times


def equality(_: Claim, case: Case) -> Said:
    """Answer by the comparison of greedy outputs."""
    if case.equality is None:
        return Said("no evidence", "outputs were not compared")
    told = f"{case.equality.sentence.rstrip('.')} (compared by {case.equality.by}); quality by tasks is not measured"
    if case.equality.result == "the same":
        return Said("confirmed", told)
    return Said("contradicted" if case.equality.result == "differs" else "no evidence", told)


def steps(claim: Claim, case: Case) -> Said:
    """Answer by target steps an output token, by the time of a step, and by TTFT."""
    mine, base = accepted(case, case.variant), accepted(case, case.seen.baseline)
    if mine is None or mine.target_steps_per_token is None:
        why = mine.sentence if mine is not None and mine.sentence else "the target's steps are not known"
        return Said("no evidence", f"{case.variant}: {why.rstrip('.')}")
    before = base.target_steps_per_token if base is not None and base.target_steps_per_token else 1.0
    after, edge = mine.target_steps_per_token, 1 + case.margin
    told = f"target steps an output token: {number(before)} to {number(after)} (by {mine.method})"
    slower = _of_a_step(case, before, after)
    if slower is not None:
        told += f"; a step took {times(slower)} the baseline's time, by TPOT over steps a token"
    prefill = case.found(claim.metrics[0])
    quicker = [one for one in prefill if one.word == "faster"]
    if quicker:
        return Said("contradicted", f"{told}; the first token comes earlier: {listed(quicker)}")
    if after * edge >= before:
        return Said("contradicted", f"{told}: not fewer")
    if slower is not None and slower * edge < 1:
        return Said("contradicted", f"{told}: the step itself is faster")
    high = [one.speed_up.high if one.speed_up else None for one in prefill]
    unsure = [one for one, end in zip(prefill, high, strict=True) if end is None or end > edge]
    if unsure or not prefill or slower is None:
        lack = f"{len(unsure)} of {len(prefill)} classes" if prefill else "every class"
        return Said("no evidence", f"{told}; the first token may come earlier in {lack}, for all that is known")
    return Said("confirmed", f"{told}; TTFT is faster in no class, each interval ends below {times(edge)}")


def _of_a_step(case: Case, before: float, after: float) -> float | None:
    """Return how many times the baseline's time a step of the variant took; None without TPOT."""
    found = [(one.baseline, one.measured) for one in case.found("tpot_ms")]
    ratios = [measured / after / (baseline / before) for baseline, measured in found if baseline and measured]
    return float(np.median(ratios)) if ratios else None


def cost(claim: Claim, case: Case) -> Said:
    """Answer by throughput in the predictable classes, and by what good tokens took of the servers' time."""
    said = cells(claim, case)
    if said.answer == "not comparable":
        return said
    seconds = [_seconds(case, arm, claim) for arm in (case.seen.baseline, case.variant)]
    told = f"seconds of the server for a million good tokens: {' to '.join(map(number, seconds))}"
    cheaper = None not in seconds and seconds[1] * (1 + case.margin) < seconds[0]  # type: ignore[operator]
    if said.answer == "confirmed" and not cheaper:
        return Said("no evidence", f"{said.why}; {told}")
    return said.and_(told[0].upper() + told[1:])


def drafts(claim: Claim, case: Case) -> Said:
    """Answer by two variants that differ in their draft alone."""
    by_draft = {draft(arm): arm for arm in case.seen.run.arms if arm.name in case.seen.variants}
    large, small = (by_draft.get(slug(model)) for model in claim.drafts)
    if large is None or small is None:
        return Said("not comparable", f"this run has not both drafts as variants: {', '.join(claim.drafts)}")
    if large.speculation != small.speculation:
        return Said("not comparable", f"{large.name} and {small.name} differ in more than their draft")
    lengths = [accepted(case, arm.name) for arm in (large, small)]
    taken = [one.acceptance_length - 1 if one and one.acceptance_length else None for one in lengths]
    speed = between(case, large.name, small.name, claim.metrics[0])
    told = f"accepted tokens a step: {' to '.join(map(number, taken))} from the larger to the smaller draft"
    told += f"; TPOT of the smaller against the larger: {times(speed.value)} ({interval(speed)})" if speed else ""
    if speed is None or speed.low is None or speed.high is None or taken[0] is None or taken[1] is None:
        return Said("no evidence", told)
    if speed.low > 1 + case.margin or taken[1] >= taken[0]:
        return Said("contradicted", told)
    return Said("confirmed" if speed.high <= 1 + case.margin else "no evidence", told)


def windows(claim: Claim, case: Case) -> Said:
    """Answer by variants that have the post's draft and differ in their window alone."""
    mine = slug(case.set_up.draft)
    same = [arm for arm in case.seen.run.arms if arm.name in case.seen.variants and draft(arm) == mine]
    by_window = {arm.speculation.num_speculative_tokens: arm for arm in same if arm.speculation is not None}
    missing = [str(size) for size in claim.windows if size not in by_window]
    if missing:
        sizes = ", ".join(str(size) for size in claim.windows)
        lack = f"this run has no variant with {', '.join(missing)} and the draft {case.set_up.draft}"
        return Said("not comparable", f"the windows {sizes} are compared, and {lack}")
    best, *others = (by_window[size].name for size in claim.windows)
    found = [between(case, other, best, claim.metrics[0]) for other in others]
    told = listed(
        f"{best} against {other}: {times(ratio.value)} ({interval(ratio)})"
        for other, ratio in zip(others, found, strict=True)
        if ratio is not None
    )
    known = [ratio for ratio in found if ratio is not None and ratio.low and ratio.high]
    if any(ratio.high is not None and ratio.high < 1 for ratio in known):
        return Said("contradicted", told)
    sure = len(known) == len(found) and all(ratio.low is not None and ratio.low > 1 for ratio in known)
    return Said("confirmed" if sure else "no evidence", told or "too few prompts")


def accepted(case: Case, arm: str) -> Acceptance | None:
    """Return the acceptance of an arm over all classes."""
    return next((one for one in case.acceptance if one.arm == arm and one.class_ == ALL), None)


def between(case: Case, baseline: str, variant: str, metric: str) -> Ratio | None:
    """Return how much faster one variant is than another over the prompts of all classes; None of too few.

    A prompt that was asked at several loads is one value, the mean of them.
    """
    seen, logs, prompts = case.seen, [], []
    for load in case.loads():
        for class_ in range(len(seen.classes)):
            found = case.grouped.pairs(
                baseline=baseline, variant=variant, class_=class_, load=seen.loads.index(load), metric=metric
            )
            logs.append(found.logs)
            prompts.append(found.prompts)
    if not logs:
        return None
    owner = np.unique(np.concatenate(prompts), return_inverse=True)[1]
    return ratio_of(estimate(np.bincount(owner, np.concatenate(logs)) / np.bincount(owner)))


def _seconds(case: Case, arm: str, claim: Claim) -> float | None:
    seen = case.seen
    classes = [code for code, name in enumerate(seen.classes) if name in claim.classes]
    loads = [seen.loads.index(one) for one in case.loads()]
    rows = case.grouped.rows() & seen.of_arm(arm) & np.isin(seen.class_, classes) & np.isin(seen.load, loads)
    done = work(seen, rows)
    return 1e6 * done.busy_s / done.tokens if done.tokens else None
