"""Answers to claims about figures of one variant: speed, output, target steps, cost.

Invariant: a claim of a difference is confirmed if a cell has that word and no cell has another. A
claim of equality is confirmed if every cell lies inside the margin, never because nothing was
found. A figure that a server does not give is no evidence, whichever way it would have pointed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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

DECISIVE_WORDS = frozenset({"faster", "slower", "same"})
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
    answer = _answer_words(claim, cells)
    if claim.level_ms is None:
        return answer

    deviations = _list_deviations(cells, claim.level_ms, of_both=claim.level_of_both)
    missing_classes = ""
    if claim.beside_ms is not None:
        beside_cells = results.select_cells(claim.metrics[:1], claim.beside)
        deviations += _list_deviations(beside_cells, claim.beside_ms, of_both=False)
        if not beside_cells:
            missing_classes = ", ".join(claim.beside)
    if deviations and answer.word != "no evidence":
        return ClaimAnswer("contradicted", f"{answer.reason}; {join_first(deviations)}")
    if missing_classes:
        return answer.add_sentence(f"Not asked: {missing_classes}")
    return answer


def _answer_words(claim: Claim, cells: Sequence[CellVerdict]) -> ClaimAnswer:
    """Answer by the words alone; the cells that contradict the claim come first in the reason."""
    claim_word = "same" if claim.direction == "same" else "faster"
    contrary_words = DECISIVE_WORDS - {claim_word}
    contrary_cells = [cell for cell in cells if cell.verdict in contrary_words]
    other_cells = [cell for cell in cells if cell.verdict not in contrary_words]
    text = _join_cells(contrary_cells + other_cells)
    if contrary_cells:
        return ClaimAnswer("contradicted", text)

    agreement_count = sum(cell.verdict == claim_word for cell in cells)
    is_enough = agreement_count > 0 and not claim.every
    if is_enough or agreement_count == len(cells):
        return ClaimAnswer("confirmed", text)
    if claim_word == "same":
        counts = f"{agreement_count} of {len(cells)} cells are shown to be the same"
        text += f"; {counts}: to find no difference shows nothing"
    return ClaimAnswer("no evidence", text)


def _list_deviations(cells: Sequence[CellVerdict], level_ms: float, *, of_both: bool) -> list[str]:
    """Return the cells that are not about as fast as the post says, of the variant or both arms."""
    deviations = []
    for cell in cells:
        figures = (cell.baseline, cell.measured) if of_both else (cell.measured,)
        if not all(figure and abs(figure / level_ms - 1) <= ABOUT_SHARE for figure in figures):
            own_text = f"{describe_place(cell)}: {format_number(cell.measured)} ms"
            deviations.append(f"{own_text}, the post about {level_ms:g}")
    return deviations


def _join_cells(cells: Sequence[CellVerdict]) -> str:
    return join_first([describe_cell(cell) for cell in cells])


def answer_best_class(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether any class reaches the factor."""
    all_cells = results.select_cells(claim.metrics, claim.classes)
    cells = [cell for cell in all_cells if cell.speed_up and cell.speed_up.low is not None]
    factor = claim.factor
    if not cells or factor is None:
        return ClaimAnswer("no evidence", "no class has an interval")

    low_ends = [_widen_low_end(cell, len(cells)) for cell in cells]
    low_end = max(low_ends)
    best = cells[low_ends.index(low_end)]
    text = (
        f"of {len(cells)} cells the best is {describe_cell(best)};"
        f" made wider for the choice, it begins at {format_times(low_end)}"
    )
    least_ratio = factor / (1 + results.verdict.margin)
    if low_end >= least_ratio and best.verdict == "faster":
        return ClaimAnswer("confirmed", text)

    factor_text = format_times(factor)
    for cell in all_cells:
        ratio = cell.speed_up
        if ratio is None:
            continue
        # a single prompt without an interval may reach the factor
        may_reach = ratio.high >= factor if ratio.high else ratio.value >= least_ratio
        if may_reach:
            return ClaimAnswer("no evidence", f"{text}, and some class may reach {factor_text}")
    return ClaimAnswer("contradicted", f"{text}; every interval ends below {factor_text}")


def _widen_low_end(cell: CellVerdict, choice_count: int) -> float:
    """Return a cell's low end, widened as it is the best of so many (Bonferroni)."""
    ratio = cell.speed_up
    count = cell.rounds if is_over_rounds(cell) else cell.prompts
    df = count - 1
    if ratio is None or ratio.low is None or df < 1:
        return 0.0
    tail = (1 - LEVEL) / 2
    quantile = special.stdtrit(df, 1 - tail)
    wider_quantile = special.stdtrit(df, 1 - tail / choice_count)
    stretch = float(wider_quantile / quantile)
    return float(ratio.value * (ratio.low / ratio.value) ** stretch)


def answer_over_time(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether the variant stays ahead in every stretch of the run."""
    cells = results.select_cells(claim.metrics[:1], claim.classes)
    if not cells:
        return _answer_missing_classes(claim, results)
    # the answer of the run is the worst of its cells
    reasons: dict[AnswerWord, list[str]] = {"contradicted": [], "no evidence": [], "confirmed": []}
    for cell in cells:
        answer = _answer_stretches(results, cell)
        reasons[answer.word].append(answer.reason)
    word = next(word for word, texts in reasons.items() if texts)

    seconds = float(np.nanmax(results.table.end_s) - np.nanmin(results.table.start_s))
    hours = f"{format_number(seconds / 3600)} h, the post's about {results.set_up.hours:g} h"
    return ClaimAnswer(word, f"{join_first(reasons[word])}; the run lasted {hours}")


def _answer_stretches(results: VariantResults, cell: CellVerdict) -> ClaimAnswer:
    if cell.verdict in {"slower", "same"}:
        return ClaimAnswer("contradicted", describe_cell(cell))
    place = describe_place(cell)
    logs = results.compare_rounds(results.variant, cell)
    if len(logs) < FEWEST_STARTS:
        rounds_text = count_things(len(logs), "round")
        reason = f"{rounds_text}, and {FEWEST_STARTS} are the least that show a time"
        return ClaimAnswer("no evidence", f"{place}: {reason}: --rounds, --duration")

    windows = np.array_split(logs, min(MOST_WINDOWS, len(logs)))
    worst = math.exp(min(window.mean() for window in windows))
    window_text = f"the least of {len(windows)} windows is {format_times(worst)}"
    text = f"{place}: {window_text} ({cell.verdict} in all)"
    if cell.noise_floor is None:
        text += ", without a noise floor"
    if worst * (cell.noise_floor or 1.0) < 1:
        return ClaimAnswer("contradicted", text)
    if worst > 1 and cell.verdict == "faster":
        return ClaimAnswer("confirmed", text)
    return ClaimAnswer("no evidence", text)


def answer_pattern(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether the first metric is faster and no other is."""
    overall_metric, *part_metrics = claim.metrics
    overall_cells = results.select_cells([overall_metric], claim.classes)
    if not overall_cells:
        return _answer_missing_classes(claim, results)
    part_cells = []
    for metric in part_metrics:
        part_cells += results.select_cells([metric], claim.classes)

    cells = overall_cells + part_cells
    text = _join_cells(cells)
    if any(cell.verdict in {"slower", "same"} for cell in overall_cells):
        return ClaimAnswer("contradicted", f"there is no gain end to end: {text}")
    if any(cell.verdict == "faster" for cell in part_cells):
        return ClaimAnswer("contradicted", f"the gain is not absent from the parts: {text}")
    has_all_parts = {cell.metric for cell in part_cells} == {*part_metrics}
    if has_all_parts and all(cell.verdict in DECISIVE_WORDS for cell in cells):
        return ClaimAnswer("confirmed", text)
    return ClaimAnswer("no evidence", text)


def _answer_missing_classes(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer that the run has no requests of the claim's classes."""
    class_text = "no class with such a figure"
    if claim.classes:
        class_text = f"none of its classes ({', '.join(claim.classes)})"
    suites = ", ".join(suite.name for suite in results.table.run.suites)
    reason = f"{results.variant} was asked {class_text}; the suites of this run: {suites}"
    return ClaimAnswer("not comparable", reason)


def answer_equality(_: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by comparing greedy outputs; a task that came out worse contradicts the claim."""
    equality = results.equality
    if equality is None:
        return ClaimAnswer("no evidence", "outputs were not compared")
    task_words = {
        task.task: task.word for task in results.verdict.quality if task.variant == results.variant
    }
    tasks_text = ", ".join(f"{task} {word}" for task, word in task_words.items())
    text = (
        f"{equality.sentence.rstrip('.')} (compared by {equality.by});"
        f" quality by tasks: {tasks_text or 'not measured'}"
    )
    if "worse" in task_words.values() or equality.result == "differs":
        return ClaimAnswer("contradicted", text)
    if equality.result == "no evidence":
        return ClaimAnswer("no evidence", text)
    return ClaimAnswer("confirmed", text)


def answer_steps(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by target steps an output token, by the time of a step, and by TTFT."""
    row = results.find_acceptance(results.variant)
    if row is None or row.target_steps_per_token is None:
        reason = (row and row.sentence) or "the target's steps are not known"
        return ClaimAnswer("no evidence", f"{results.variant}: {reason}")
    after = row.target_steps_per_token
    before = 1.0
    baseline_row = results.find_acceptance(results.table.baseline)
    if baseline_row and baseline_row.target_steps_per_token:
        before = baseline_row.target_steps_per_token

    steps_text = f"{format_number(before)} to {format_number(after)}"
    text = f"target steps an output token: {steps_text} (by {row.method})"
    step_ratio = _compare_step_times(results, before / after)
    if step_ratio is not None:
        step_text = f"a step took {format_times(step_ratio)} the baseline's time"
        text += f"; {step_text}, by TPOT over steps a token"

    prefill_cells = results.select_cells(claim.metrics[:1])
    quicker_cells = [cell for cell in prefill_cells if cell.verdict == "faster"]
    most = 1 + results.verdict.margin
    if quicker_cells:
        reason = f"; the first token comes earlier: {_join_cells(quicker_cells)}"
        return ClaimAnswer("contradicted", text + reason)
    if after * most >= before:
        return ClaimAnswer("contradicted", f"{text}: not fewer")
    if step_ratio is not None and step_ratio * most < 1:
        return ClaimAnswer("contradicted", f"{text}: the step itself is faster")
    if step_ratio is None or not _ends_below(prefill_cells, most):
        reason = "; the first token may come earlier, for all that is known"
        return ClaimAnswer("no evidence", text + reason)
    reason = f"; TTFT is faster in no class, each interval ends below {format_times(most)}"
    return ClaimAnswer("confirmed", text + reason)


def _ends_below(cells: Sequence[CellVerdict], most: float) -> bool:
    """Return whether there are cells, and the interval of each ends at `most` or below."""
    for cell in cells:
        high_end = cell.speed_up.high if cell.speed_up else None
        if high_end is None or high_end > most:
            return False
    return bool(cells)


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
        own_seconds = None
        if work.good_tokens:
            own_seconds = 1e6 * work.busy_s / work.good_tokens
        seconds.append(own_seconds)

    before, after = seconds
    seconds_text = f"{format_number(before)} to {format_number(after)}"
    text = f"seconds of the server for a million good tokens: {seconds_text}"
    margin = results.verdict.margin
    is_cheaper = before is not None and after is not None and after * (1 + margin) < before
    if answer.word == "confirmed" and not is_cheaper:
        return ClaimAnswer("no evidence", f"{answer.reason}; {text}")
    return answer.add_sentence(text.capitalize())
