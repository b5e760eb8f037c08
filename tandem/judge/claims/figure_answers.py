"""Answers to claims about figures: speed, output, target steps, cost, and tuning between variants.

Invariant: a claim of a difference is confirmed if a cell has that word and no cell has another. A
claim of equality is confirmed if every cell lies inside the margin, never because nothing was
found. Variants are compared with each other prompt by prompt, as a variant is with the baseline. A
figure that a server does not give is no evidence, whichever way the figure would have pointed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from tandem.judge.claims.register import AnswerWord, Claim, ClaimAnswer
from tandem.judge.claims.variant_results import (
    VariantResults,
    describe_cell,
    find_draft,
    is_over_rounds,
    join_first,
    model_slug,
)
from tandem.judge.cost import measure_work
from tandem.judge.interval import FEWEST_STARTS, LEVEL, estimate_log_ratio
from tandem.judge.schema import CellVerdict, RatioEstimate
from tandem.judge.text_format import (
    count_things,
    format_interval,
    format_load,
    format_number,
    format_times,
)

DECISIVE_WORDS = ("faster", "slower", "same")
"""Words of cells that answer; `mixed` answers neither way."""

ABOUT_SHARE = 0.2
"""A figure agrees with an "about" of the post within this share of it; our own reading of the
word."""

MOST_WINDOWS = 12
"""Most stretches of time that a run is cut into."""


def answer_cells(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by the words of the cells in the claim's classes."""
    cells = results.find_metric(claim.metrics[0], claim.classes)
    if not cells:
        return _answer_missing_classes(claim, results)
    claim_word = "same" if claim.direction == "same" else "faster"
    decisive_cells = [cell for cell in cells if cell.verdict in DECISIVE_WORDS]
    is_contradicted = any(cell.verdict != claim_word for cell in decisive_cells)
    # cells that contradict the claim come first
    text = _join_cells(
        sorted(cells, key=lambda cell: cell.verdict in {claim_word, "mixed", "no evidence"})
    )
    if is_contradicted:
        answer = ClaimAnswer("contradicted", text)
    elif decisive_cells and (not claim.every or len(decisive_cells) == len(cells)):
        answer = ClaimAnswer("confirmed", text)
    else:
        counts = f"{len(decisive_cells)} of {len(cells)} cells are shown to be the same"
        suffix = f"; {counts}: to find no difference shows nothing" if claim_word == "same" else ""
        answer = ClaimAnswer("no evidence", f"{text}{suffix}")
    return answer if claim.level_ms is None else _answer_levels(claim, results, answer)


def _join_cells(cells: Sequence[CellVerdict]) -> str:
    return join_first([describe_cell(cell) for cell in cells])


def _answer_levels(claim: Claim, results: VariantResults, answer: ClaimAnswer) -> ClaimAnswer:
    """Compare the post's milliseconds with the run's."""
    levels = [
        (claim.classes, claim.level_ms, claim.level_of_both),
        (claim.beside, claim.beside_ms, False),
    ]
    deviations = []
    missing = []
    for classes, level_ms, is_of_both in levels:
        if not classes or level_ms is None:
            continue
        cells = results.find_metric(claim.metrics[0], classes)
        for cell in cells:
            figures = (cell.baseline, cell.measured) if is_of_both else (cell.measured,)
            if not all(figure and abs(figure / level_ms - 1) <= ABOUT_SHARE for figure in figures):
                place = f"{cell.class_} at {format_load(cell.load)}"
                deviations.append(
                    f"{place}: {format_number(cell.measured)} ms, the post about {level_ms:g}"
                )
        missing += [] if cells else [", ".join(classes)]
    if deviations and answer.answer != "no evidence":
        return ClaimAnswer("contradicted", f"{answer.reason}; {join_first(deviations)}")
    return answer.add_sentence(f"Not asked: {', '.join(missing)}") if missing else answer


def answer_best_class(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether any class reaches the factor."""
    all_cells = [
        cell for metric in claim.metrics for cell in results.find_metric(metric, claim.classes)
    ]
    cells = [cell for cell in all_cells if cell.speed_up and cell.speed_up.low is not None]
    if not cells or claim.factor is None:
        return ClaimAnswer("no evidence", "no class has an interval")
    least_ratio = claim.factor / (1 + results.margin)
    low, best = max(
        ((_widen_low_end(cell, len(cells)), cell) for cell in cells), key=lambda entry: entry[0]
    )
    text = (
        f"of {len(cells)} cells the best is {describe_cell(best)}; made wider for the choice, it"
        " begins at "
    )
    text += format_times(low)
    if low >= least_ratio and best.verdict == "faster":
        return ClaimAnswer("confirmed", text)
    # a single prompt without an interval may reach the factor
    ratios = [cell.speed_up for cell in all_cells if cell.speed_up]
    if (
        max(ratio.high or (math.inf if ratio.value >= least_ratio else 0.0) for ratio in ratios)
        < claim.factor
    ):
        return ClaimAnswer(
            "contradicted", f"{text}; every interval ends below {format_times(claim.factor)}"
        )
    return ClaimAnswer(
        "no evidence", f"{text}, and some class may reach {format_times(claim.factor)}"
    )


def _widen_low_end(cell: CellVerdict, choice_count: int) -> float:
    """Return a cell's low end, widened as it is the best of so many (Bonferroni)."""
    ratio = cell.speed_up
    df = (cell.rounds if is_over_rounds(cell) else cell.prompts) - 1
    if ratio is None or ratio.low is None or df < 1:
        return 0.0
    tail = (1 - LEVEL) / 2
    stretch = float(special.stdtrit(df, 1 - tail / choice_count) / special.stdtrit(df, 1 - tail))
    return float(ratio.value * (ratio.low / ratio.value) ** stretch)


def answer_over_time(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether the variant stays ahead in every stretch of the run."""
    cells = results.find_metric(claim.metrics[0], claim.classes)
    if not cells:
        return _answer_missing_classes(claim, results)
    answers = [_answer_windows(results, cell) for cell in cells]
    seconds = float(np.nanmax(results.table.end_s) - np.nanmin(results.table.start_s))
    duration_text = (
        f"the run lasted {format_number(seconds / 3600)} h, the post's about"
        f" {results.set_up.hours:g} h"
    )
    contrary_reasons = [entry.reason for entry in answers if entry.answer == "contradicted"]
    open_reasons = [entry.reason for entry in answers if entry.answer == "no evidence"]
    word: AnswerWord = (
        "contradicted" if contrary_reasons else "no evidence" if open_reasons else "confirmed"
    )
    reasons = contrary_reasons or open_reasons or [entry.reason for entry in answers]
    return ClaimAnswer(word, f"{join_first(reasons)}; {duration_text}")


def _answer_windows(results: VariantResults, cell: CellVerdict) -> ClaimAnswer:
    (logs, _), place = (
        results.compare_rounds(results.variant, cell),
        f"{cell.class_} at {format_load(cell.load)}",
    )
    if cell.verdict in {"slower", "same"}:
        return ClaimAnswer("contradicted", describe_cell(cell))
    if len(logs) < FEWEST_STARTS:
        counts = (
            f"{count_things(len(logs), 'round')},"
            f" and {FEWEST_STARTS} are the least that show a time"
        )
        return ClaimAnswer("no evidence", f"{place}: {counts}: --rounds, --duration")
    windows = [math.exp(part.mean()) for part in np.array_split(logs, min(MOST_WINDOWS, len(logs)))]
    worst = min(windows)
    text = (
        f"{place}: the least of {len(windows)} windows is {format_times(worst)} ({cell.verdict} in"
        " all)"
    )
    text += "" if cell.noise_floor is not None else ", without a noise floor"
    if worst * (cell.noise_floor or 1.0) < 1:
        return ClaimAnswer("contradicted", text)
    return ClaimAnswer(
        "confirmed" if worst > 1 and cell.verdict == "faster" else "no evidence", text
    )


def answer_pattern(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether the first metric is faster and no other is."""
    overall, *parts = (results.find_metric(metric, claim.classes) for metric in claim.metrics)
    if not overall:
        return _answer_missing_classes(claim, results)
    part_cells = [cell for part in parts for cell in part]
    text = _join_cells([*overall, *part_cells])
    if any(cell.verdict in {"slower", "same"} for cell in overall):
        return ClaimAnswer("contradicted", f"there is no gain end to end: {text}")
    if any(cell.verdict == "faster" for cell in part_cells):
        return ClaimAnswer("contradicted", f"the gain is not absent from the parts: {text}")
    is_decisive = all(parts) and all(
        cell.verdict in DECISIVE_WORDS for cell in [*overall, *part_cells]
    )
    return ClaimAnswer("confirmed" if is_decisive else "no evidence", text)


def _answer_missing_classes(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer that the run has no requests of the claim's classes."""
    suites = [suite.name for suite in results.table.run.suites] or ["none"]
    class_text = (
        f"none of its classes ({', '.join(claim.classes)})"
        if claim.classes
        else "no class with such a figure"
    )
    reason = (
        f"{results.variant} was asked {class_text}; the suites of this run: {', '.join(suites)}"
    )
    return ClaimAnswer("not comparable", reason)


def answer_equality(_: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by comparing greedy outputs; a task that came out worse contradicts the claim."""
    equality = results.equality
    if equality is None:
        return ClaimAnswer("no evidence", "outputs were not compared")
    tasks = ", ".join(f"{task.task} {task.word}" for task in results.quality)
    text = (
        f"{equality.sentence.rstrip('.')} (compared by {equality.by}); quality by tasks:"
        f" {tasks or 'not measured'}"
    )
    if any(task.word == "worse" for task in results.quality):
        return ClaimAnswer("contradicted", text)
    if equality.result == "no evidence":
        return ClaimAnswer("no evidence", text)
    return ClaimAnswer("confirmed" if equality.result == "the same" else "contradicted", text)


def answer_steps(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by target steps an output token, by the time of a step, and by TTFT."""
    row = results.find_acceptance(results.variant)
    baseline_row = results.find_acceptance(results.table.baseline)
    if row is None or row.target_steps_per_token is None:
        reason = (row.sentence if row else "") or "the target's steps are not known"
        return ClaimAnswer("no evidence", f"{results.variant}: {reason.rstrip('.')}")
    before = (baseline_row.target_steps_per_token if baseline_row else None) or 1.0
    after = row.target_steps_per_token
    most = 1 + results.margin
    text = (
        f"target steps an output token: {format_number(before)} to {format_number(after)} (by"
        f" {row.method})"
    )
    cells = results.find_metric("tpot_ms")
    ratios = [
        cell.measured / after / (cell.baseline / before)
        for cell in cells
        if cell.baseline and cell.measured
    ]
    step_ratio = float(np.median(ratios)) if ratios else None
    if step_ratio is not None:
        text += (
            f"; a step took {format_times(step_ratio)} the baseline's time,"
            " by TPOT over steps a token"
        )
    prefill = results.find_metric(claim.metrics[0])
    quicker_cells = [cell for cell in prefill if cell.verdict == "faster"]
    if quicker_cells:
        return ClaimAnswer(
            "contradicted", f"{text}; the first token comes earlier: {_join_cells(quicker_cells)}"
        )
    if after * most >= before:
        return ClaimAnswer("contradicted", f"{text}: not fewer")
    if step_ratio is not None and step_ratio * most < 1:
        return ClaimAnswer("contradicted", f"{text}: the step itself is faster")
    highs = [(cell.speed_up.high if cell.speed_up else None) or math.inf for cell in prefill]
    if step_ratio is None or max(highs, default=math.inf) > most:
        return ClaimAnswer(
            "no evidence", f"{text}; the first token may come earlier, for all that is known"
        )
    reason = f"TTFT is faster in no class, each interval ends below {format_times(most)}"
    return ClaimAnswer("confirmed", f"{text}; {reason}")


def answer_cost(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by throughput in the predictable classes, and by the servers' time for good tokens."""
    answer = answer_cells(claim, results)
    table = results.table
    if answer.answer == "not comparable":
        return answer
    classes = [code for code, name in enumerate(table.classes) if name in claim.classes]
    loads = [table.loads.index(load) for load in results.loads]
    rows = results.pairing.row_mask() & np.isin(table.class_, classes) & np.isin(table.load, loads)
    works = [measure_work(table, rows & table.arm_mask(arm)) for arm in results.arms]
    before, after = (
        1e6 * work.busy_s / work.good_tokens if work.good_tokens else None for work in works
    )
    text = (
        f"seconds of the server for a million good tokens: {format_number(before)} to"
        f" {format_number(after)}"
    )
    is_cheaper = before is not None and after is not None and after * (1 + results.margin) < before
    if answer.answer == "confirmed" and not is_cheaper:
        return ClaimAnswer("no evidence", f"{answer.reason}; {text}")
    return answer.add_sentence(text[0].upper() + text[1:])


def answer_drafts(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by two variants that differ in their draft alone."""
    arms = {
        find_draft(arm): arm for arm in results.table.run.arms if arm.name in results.table.variants
    }
    large, small = (arms.get(model_slug(model)) for model in claim.drafts)
    if large is None or small is None or large.speculation != small.speculation:
        reason = (
            "this run has no two variants that differ in these drafts alone:"
            f" {', '.join(claim.drafts)}"
        )
        return ClaimAnswer("not comparable", reason)
    rows = [results.find_acceptance(arm.name) for arm in (large, small)]
    tokens = [row.acceptance_length - 1 if row and row.acceptance_length else None for row in rows]
    speed = _compare_variants(results, large.name, small.name, claim.metrics[0])
    text = (
        f"accepted tokens a step: {' to '.join(map(format_number, tokens))} from the larger to the"
        " smaller draft"
    )
    if tokens[0] and tokens[1] is not None:
        text += f", {1 - tokens[1] / tokens[0]:.0%} less".replace("%", " %")
    if speed:
        text += (
            f"; TPOT of the smaller against the larger: {format_times(speed.value)}"
            f" ({format_interval(speed)})"
        )
    if (
        speed is None
        or speed.low is None
        or speed.high is None
        or tokens[0] is None
        or tokens[1] is None
    ):
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
        reason = (
            f"this run has no variant with {', '.join(missing)} and the draft"
            f" {results.set_up.draft}"
        )
        sizes = ", ".join(map(str, claim.windows))
        return ClaimAnswer("not comparable", f"the windows {sizes} are compared, and {reason}")
    best, *others = (names[size] for size in claim.windows)
    ratios = [_compare_variants(results, other, best, claim.metrics[0]) for other in others]
    text = "; ".join(
        f"{best} against {other}: {format_times(ratio.value)} ({format_interval(ratio)})"
        for other, ratio in zip(others, ratios, strict=True)
        if ratio is not None
    )
    if any(ratio is not None and (ratio.high or 1.0) < 1 for ratio in ratios):
        return ClaimAnswer("contradicted", text)
    is_sure = all(ratio is not None and (ratio.low or 0.0) > 1 for ratio in ratios)
    return ClaimAnswer("confirmed" if is_sure else "no evidence", text or "too few prompts")


def _compare_variants(
    results: VariantResults, first: str, second: str, metric: str
) -> RatioEstimate | None:
    """Return how much faster the second of two variants is over all classes; None if too few.

    A prompt at several loads is one value, the mean over the loads.
    """
    pairing = results.pairing
    cells = [cell for cell in pairing.known_cells() if pairing.cell_place(cell)[1] in results.loads]
    pairs = [pairing.pairs((first, second), cell, metric) for cell in cells]
    owner = np.unique(np.concatenate([part.prompts for part in pairs]), return_inverse=True)[1]
    logs = np.concatenate([part.logs for part in pairs])
    estimate = estimate_log_ratio(np.bincount(owner, logs) / np.bincount(owner))
    return estimate.convert() if estimate else None
