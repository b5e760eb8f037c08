"""Answers to claims about speed, from the cells of one variant.

Invariant: a claim of a difference is confirmed where a cell was called so and none was called otherwise; a claim of
equality where every cell lies inside the margin, never because nothing was found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from tandem.judge.claims.register import AnswerWord, Claim, ClaimAnswer
from tandem.judge.claims.variant_results import MetricFinding, VariantResults, join_first
from tandem.judge.interval import FEWEST_STARTS, LEVEL
from tandem.judge.text_format import count_things, format_load, format_number, format_times

DECISIVE_WORDS = ("faster", "slower", "same")
"""Words of cells that answer; `mixed` answers neither way."""

ABOUT_SHARE = 0.2
"""A figure that the post gives as "about" is met within this share of it; our own reading of the word."""

MOST_WINDOWS = 12
"""Into so many stretches of time a run is cut at most."""


def answer_cells(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer by what was called in the claim's classes."""
    findings = results.find_metric(claim.metrics[0], claim.classes)
    if not findings:
        return _answer_missing_classes(claim, results)
    claim_word = "same" if claim.direction == "same" else "faster"
    decisive_findings = [finding for finding in findings if finding.cell.verdict in DECISIVE_WORDS]
    contrary_findings = [finding for finding in decisive_findings if finding.cell.verdict != claim_word]
    text = join_first([*contrary_findings, *(finding for finding in findings if finding not in contrary_findings)])
    if contrary_findings:
        answer = ClaimAnswer("contradicted", text)
    elif decisive_findings and (not claim.every or len(decisive_findings) == len(findings)):
        answer = ClaimAnswer("confirmed", text)
    else:
        counts = f"{len(decisive_findings)} of {len(findings)} cells are shown to be the same"
        suffix = f"; {counts}: to find no difference shows nothing" if claim_word == "same" else ""
        answer = ClaimAnswer("no evidence", f"{text}{suffix}")
    if claim.level_ms is None:
        return answer
    if results.explain_difference():
        remark = "The milliseconds are of the post's models on its accelerators, and not held against this run"
        return answer.add_sentence(remark)
    return _answer_levels(claim, results, answer)


def _answer_levels(claim: Claim, results: VariantResults, answer: ClaimAnswer) -> ClaimAnswer:
    """Hold the post's milliseconds against a run of its own set-up."""
    levels = [(claim.classes, claim.level_ms, claim.level_of_both), (claim.beside, claim.beside_ms, False)]
    deviations, missing = [], []
    for classes, level_ms, is_of_both in levels:
        findings = results.find_metric(claim.metrics[0], classes) if classes and level_ms is not None else []
        for cell in (finding.cell for finding in findings):
            figures = (cell.baseline, cell.measured) if is_of_both else (cell.measured,)
            is_near = [figure and level_ms and abs(figure / level_ms - 1) <= ABOUT_SHARE for figure in figures]
            if level_ms and not all(is_near):
                place = f"{cell.class_} at {format_load(cell.load)}"
                deviations.append(f"{place}: {format_number(cell.measured)} ms, the post about {level_ms:g}")
        if classes and not findings:
            missing.append(", ".join(classes))
    if deviations and answer.answer != "no evidence":
        return ClaimAnswer("contradicted", f"{answer.reason}; {join_first(deviations)}")
    return answer.add_sentence(f"Not asked: {', '.join(missing)}") if missing else answer


def answer_best_class(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether any class reaches the factor."""
    all_findings = [finding for metric in claim.metrics for finding in results.find_metric(metric, claim.classes)]
    findings = [finding for finding in all_findings if finding.cell.speed_up and finding.cell.speed_up.low is not None]
    if not findings or claim.factor is None:
        return ClaimAnswer("no evidence", "no class has an interval")
    least_ratio = claim.factor / (1 + results.margin)
    low, best = max(
        ((_widen_low_end(finding, len(findings)), finding) for finding in findings), key=lambda entry: entry[0]
    )
    wide_text = f"made wider for the choice, its interval begins at {format_times(low)}"
    text = f"of {len(findings)} cells the best is {best}; {wide_text}"
    if low >= least_ratio and best.cell.verdict == "faster":
        return ClaimAnswer("confirmed", text)
    unsure_findings = [
        finding
        for finding in all_findings
        if finding not in findings and finding.cell.speed_up and finding.cell.speed_up.value >= least_ratio
    ]
    if unsure_findings:
        return ClaimAnswer("no evidence", f"{text}; without an interval, {join_first(unsure_findings)}")
    highs = [(finding.cell.speed_up.high if finding.cell.speed_up else None) or math.inf for finding in findings]
    if max(highs) < claim.factor:
        return ClaimAnswer("contradicted", f"{text}; every interval ends below {format_times(claim.factor)}")
    return ClaimAnswer("no evidence", f"{text}, and some interval reaches {format_times(claim.factor)}")


def _widen_low_end(finding: MetricFinding, choice_count: int) -> float:
    """Return the low end of an interval that allows for having been picked from so many (Bonferroni)."""
    ratio, df = finding.cell.speed_up, (finding.round_count or finding.cell.prompts) - 1
    if ratio is None or ratio.low is None or df < 1:
        return 0.0
    tail = (1 - LEVEL) / 2
    stretch = float(special.stdtrit(df, 1 - tail / choice_count) / special.stdtrit(df, 1 - tail))
    return float(ratio.value * (ratio.low / ratio.value) ** stretch)


def answer_over_time(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether the variant stays ahead in every stretch of the run."""
    findings = results.find_metric(claim.metrics[0], claim.classes)
    if not findings:
        return _answer_missing_classes(claim, results)
    answers = [_answer_windows(results, finding) for finding in findings]
    seconds = float(np.nanmax(results.table.end_s) - np.nanmin(results.table.start_s))
    size, unit = next((scale for scale in ((3600, "h"), (60, "min")) if seconds >= scale[0]), (1, "s"))
    duration_text = (
        f"the run lasted {format_number(seconds / size)} {unit}, the post's about {results.set_up.hours:g} h"
    )
    contrary_reasons = [entry.reason for entry in answers if entry.answer == "contradicted"]
    open_reasons = [entry.reason for entry in answers if entry.answer == "no evidence"]
    word: AnswerWord = "contradicted" if contrary_reasons else "no evidence" if open_reasons else "confirmed"
    reasons = contrary_reasons or open_reasons or [entry.reason for entry in answers]
    return ClaimAnswer(word, f"{join_first(reasons)}; {duration_text}")


def _answer_windows(results: VariantResults, finding: MetricFinding) -> ClaimAnswer:
    cell = finding.cell
    (logs, _), place = results.compare_rounds(results.variant, cell), f"{cell.class_} at {format_load(cell.load)}"
    if cell.verdict in {"slower", "same"}:
        return ClaimAnswer("contradicted", f"{finding}")
    if len(logs) < FEWEST_STARTS:
        counts = f"{count_things(len(logs), 'round')}, and {FEWEST_STARTS} are the least that show a time"
        return ClaimAnswer("no evidence", f"{place}: {counts}: --rounds, --duration")
    windows = [math.exp(part.mean()) for part in np.array_split(logs, min(MOST_WINDOWS, len(logs)))]
    worst = min(windows)
    text = f"{place}: the least of {len(windows)} windows is {format_times(worst)} ({cell.verdict} in all)"
    text += "" if cell.noise_floor is not None else ", without a noise floor"
    if worst * (cell.noise_floor or 1.0) < 1:
        return ClaimAnswer("contradicted", text)
    return ClaimAnswer("confirmed" if worst > 1 and cell.verdict == "faster" else "no evidence", text)


def answer_pattern(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether the first metric is faster and no other is."""
    overall, *parts = (results.find_metric(metric, claim.classes) for metric in claim.metrics)
    if not overall:
        return _answer_missing_classes(claim, results)
    part_findings = [finding for part in parts for finding in part]
    findings = [*overall, *part_findings]
    text = join_first(findings)
    if any(finding.cell.verdict in {"slower", "same"} for finding in overall):
        return ClaimAnswer("contradicted", f"there is no gain end to end: {text}")
    if any(finding.cell.verdict == "faster" for finding in part_findings):
        return ClaimAnswer("contradicted", f"the gain is not absent from the parts: {text}")
    is_decisive = all(parts) and all(finding.cell.verdict in DECISIVE_WORDS for finding in findings)
    return ClaimAnswer("confirmed" if is_decisive else "no evidence", text)


def _answer_missing_classes(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Say that the run did not ask what the claim is about."""
    suites: Sequence[str] = [suite.name for suite in results.table.run.suites] or ["none"]
    class_text = f"none of its classes ({', '.join(claim.classes)})" if claim.classes else "no class with such a figure"
    reason = f"{results.variant} was asked {class_text}; the suites of this run: {', '.join(suites)}"
    return ClaimAnswer("not comparable", reason)
