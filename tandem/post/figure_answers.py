"""Answers to claims about figures of one variant: speed, output, target steps, cost.

Invariant: a claim of a difference is confirmed if a cell has that word and no cell has another. A
claim of equality is confirmed if every cell lies inside the margin, never because nothing was
found. A figure that a server does not give is no evidence, whichever way it would have pointed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain

import numpy as np
from scipy import special

from tandem.judge.cost import measure_work
from tandem.judge.interval import FEWEST_STARTS
from tandem.judge.schema import LEVEL, CellVerdict
from tandem.judge.text_format import count_things, format_number, format_times
from tandem.post.claim_answer import ClaimAnswer, join_first
from tandem.post.register import Claim
from tandem.post.schema import AnswerWord
from tandem.post.variant_results import (
    VariantResults,
    describe_cell,
    describe_place,
    is_over_rounds,
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
    cells = results.select_cells(claim.metrics[:1], claim.classes)
    if not cells:
        return _answer_missing_classes(claim, results)
    claim_word = "same" if claim.direction == "same" else "faster"
    decisive_cells = [cell for cell in cells if cell.verdict in DECISIVE_WORDS]
    # cells that contradict the claim come first
    text = _join_cells(
        sorted(cells, key=lambda cell: cell.verdict in {claim_word, "mixed", "no evidence"})
    )
    answer = ClaimAnswer("no evidence", text)
    if any(cell.verdict != claim_word for cell in decisive_cells):
        answer = ClaimAnswer("contradicted", text)
    elif decisive_cells and (not claim.every or len(decisive_cells) == len(cells)):
        answer = ClaimAnswer("confirmed", text)
    elif claim_word == "same":
        counts = f"{len(decisive_cells)} of {len(cells)} cells are shown to be the same"
        answer = ClaimAnswer(
            "no evidence", f"{text}; {counts}: to find no difference shows nothing"
        )
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
        cells = results.select_cells(claim.metrics[:1], classes)
        missing += [] if cells else [", ".join(classes)]
        for cell in cells:
            figures = (cell.baseline, cell.measured) if is_of_both else (cell.measured,)
            if not all(figure and abs(figure / level_ms - 1) <= ABOUT_SHARE for figure in figures):
                own_text = f"{describe_place(cell)}: {format_number(cell.measured)} ms"
                deviations.append(f"{own_text}, the post about {level_ms:g}")
    if deviations and answer.word != "no evidence":
        return ClaimAnswer("contradicted", f"{answer.reason}; {join_first(deviations)}")
    return answer.add_sentence(f"Not asked: {', '.join(missing)}") if missing else answer


def answer_best_class(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether any class reaches the factor."""
    all_cells = results.select_cells(claim.metrics, claim.classes)
    cells = [cell for cell in all_cells if cell.speed_up and cell.speed_up.low is not None]
    factor = claim.factor
    if not cells or factor is None:
        return ClaimAnswer("no evidence", "no class has an interval")
    least_ratio = factor / (1 + results.verdict.margin)
    best = max(cells, key=lambda cell: _widen_low_end(cell, len(cells)))
    low = _widen_low_end(best, len(cells))
    text = (
        f"of {len(cells)} cells the best is {describe_cell(best)};"
        f" made wider for the choice, it begins at {format_times(low)}"
    )
    if low >= least_ratio and best.verdict == "faster":
        return ClaimAnswer("confirmed", text)

    factor_text = format_times(factor)
    ratios = [cell.speed_up for cell in all_cells if cell.speed_up]
    # a single prompt without an interval may reach the factor
    may_reach = any(
        ratio.high >= factor if ratio.high else ratio.value >= least_ratio for ratio in ratios
    )
    if may_reach:
        return ClaimAnswer("no evidence", f"{text}, and some class may reach {factor_text}")
    return ClaimAnswer("contradicted", f"{text}; every interval ends below {factor_text}")


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
    cells = results.select_cells(claim.metrics[:1], claim.classes)
    if not cells:
        return _answer_missing_classes(claim, results)
    reasons: dict[AnswerWord, list[str]] = {"contradicted": [], "no evidence": [], "confirmed": []}
    for cell in cells:
        answer = _answer_stretches(results, cell)
        reasons[answer.word].append(answer.reason)
    word = next(word for word, texts in reasons.items() if texts)

    seconds = float(np.nanmax(results.table.end_s) - np.nanmin(results.table.start_s))
    duration_text = (
        f"the run lasted {format_number(seconds / 3600)} h, the post's about"
        f" {results.set_up.hours:g} h"
    )
    return ClaimAnswer(word, f"{join_first(reasons[word])}; {duration_text}")


def _answer_stretches(results: VariantResults, cell: CellVerdict) -> ClaimAnswer:
    if cell.verdict in {"slower", "same"}:
        return ClaimAnswer("contradicted", describe_cell(cell))
    logs, _ = results.compare_rounds(results.variant, cell)
    if len(logs) < FEWEST_STARTS:
        rounds_text = count_things(len(logs), "round")
        reason = f"{rounds_text}, and {FEWEST_STARTS} are the least that show a time"
        return ClaimAnswer("no evidence", f"{describe_place(cell)}: {reason}: --rounds, --duration")

    windows = [math.exp(part.mean()) for part in np.array_split(logs, min(MOST_WINDOWS, len(logs)))]
    worst = min(windows)
    floor_text = "" if cell.noise_floor is not None else ", without a noise floor"
    text = (
        f"{describe_place(cell)}: the least of {len(windows)} windows is {format_times(worst)}"
        f" ({cell.verdict} in all){floor_text}"
    )
    if worst * (cell.noise_floor or 1.0) < 1:
        return ClaimAnswer("contradicted", text)
    is_ahead = worst > 1 and cell.verdict == "faster"
    return ClaimAnswer("confirmed" if is_ahead else "no evidence", text)


def answer_pattern(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether the first metric is faster and no other is."""
    overall, *parts = (results.select_cells([metric], claim.classes) for metric in claim.metrics)
    if not overall:
        return _answer_missing_classes(claim, results)
    part_cells = list(chain(*parts))
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
    suites = ", ".join(suite.name for suite in results.table.run.suites)
    class_text = "no class with such a figure"
    if claim.classes:
        class_text = f"none of its classes ({', '.join(claim.classes)})"
    reason = f"{results.variant} was asked {class_text}; the suites of this run: {suites}"
    return ClaimAnswer("not comparable", reason)


def answer_equality(_: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by comparing greedy outputs; a task that came out worse contradicts the claim."""
    equality = results.equality
    if equality is None:
        return ClaimAnswer("no evidence", "outputs were not compared")
    tasks = [task for task in results.verdict.quality if task.variant == results.variant]
    tasks_text = ", ".join(f"{task.task} {task.word}" for task in tasks) or "not measured"
    text = (
        f"{equality.sentence.rstrip('.')} (compared by {equality.by});"
        f" quality by tasks: {tasks_text}"
    )
    if any(task.word == "worse" for task in tasks):
        return ClaimAnswer("contradicted", text)
    if equality.result == "no evidence":
        return ClaimAnswer("no evidence", text)
    return ClaimAnswer("confirmed" if equality.result == "the same" else "contradicted", text)


def answer_steps(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by target steps an output token, by the time of a step, and by TTFT."""
    row = results.find_acceptance(results.variant)
    if row is None or row.target_steps_per_token is None:
        reason = (row.sentence if row else "") or "the target's steps are not known"
        return ClaimAnswer("no evidence", f"{results.variant}: {reason}")
    baseline_row = results.find_acceptance(results.table.baseline)
    before = (baseline_row.target_steps_per_token if baseline_row else None) or 1.0
    after = row.target_steps_per_token
    most = 1 + results.verdict.margin

    steps_text = f"{format_number(before)} to {format_number(after)}"
    text = f"target steps an output token: {steps_text} (by {row.method})"
    step_ratio = _compare_step_times(results, before / after)
    if step_ratio is not None:
        step_text = f"a step took {format_times(step_ratio)} the baseline's time"
        text += f"; {step_text}, by TPOT over steps a token"

    prefill = results.select_cells(claim.metrics[:1])
    quicker_cells = [cell for cell in prefill if cell.verdict == "faster"]
    if quicker_cells:
        reason = f"; the first token comes earlier: {_join_cells(quicker_cells)}"
        return ClaimAnswer("contradicted", text + reason)
    if after * most >= before:
        return ClaimAnswer("contradicted", f"{text}: not fewer")
    if step_ratio is not None and step_ratio * most < 1:
        return ClaimAnswer("contradicted", f"{text}: the step itself is faster")
    highs = [(cell.speed_up.high if cell.speed_up else None) or math.inf for cell in prefill]
    if step_ratio is None or max(highs, default=math.inf) > most:
        reason = "; the first token may come earlier, for all that is known"
        return ClaimAnswer("no evidence", text + reason)
    reason = f"; TTFT is faster in no class, each interval ends below {format_times(most)}"
    return ClaimAnswer("confirmed", text + reason)


def _compare_step_times(results: VariantResults, step_share: float) -> float | None:
    """Return a step's time as a ratio of the baseline's, the median of the classes.

    Args:
        results: of the variant.
        step_share: steps a token of the baseline over those of the variant.
    """
    ratios = [
        cell.measured / cell.baseline * step_share
        for cell in results.select_cells(["tpot_ms"])
        if cell.baseline and cell.measured
    ]
    return float(np.median(ratios)) if ratios else None


def answer_cost(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by throughput in the predictable classes, and by the servers' time for good tokens."""
    answer = answer_cells(claim, results)
    if answer.word == "not comparable":
        return answer
    table = results.table
    classes = [code for code, name in enumerate(table.classes) if name in claim.classes]
    loads = [table.loads.index(load) for load in results.loads]
    rows = results.pairing.row_mask() & np.isin(table.class_, classes) & np.isin(table.load, loads)
    seconds = []
    for arm in results.arms:
        work = measure_work(table, rows & table.arm_mask(arm))
        seconds.append(1e6 * work.busy_s / work.good_tokens if work.good_tokens else None)

    before, after = seconds
    text = (
        "seconds of the server for a million good tokens:"
        f" {format_number(before)} to {format_number(after)}"
    )
    margin = results.verdict.margin
    is_cheaper = before is not None and after is not None and after * (1 + margin) < before
    if answer.word == "confirmed" and not is_cheaper:
        return ClaimAnswer("no evidence", f"{answer.reason}; {text}")
    return answer.add_sentence(text[0].upper() + text[1:])
