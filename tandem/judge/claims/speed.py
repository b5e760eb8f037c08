"""Answers to claims about speed, from the cells of one variant.

Invariant: a claim of a difference is confirmed where a cell was called so and none was called otherwise; a claim of
equality where every cell lies inside the margin, never because nothing was found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from tandem.judge.claims.register import Claim, ClaimAnswer
from tandem.judge.claims.variant_results import MetricFinding, VariantResults, join_first
from tandem.judge.interval import FEWEST_STARTS, LEVEL
from tandem.judge.schema import RatioEstimate
from tandem.judge.text_format import format_load, format_number, format_times

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
        return answer_missing_classes(claim, results)
    answer = _answer_direction(claim, findings)
    if claim.level_ms is None:
        return answer
    if results.explain_difference():
        return answer.add_sentence(
            "The milliseconds are of the post's models on its accelerators, and not held against this run"
        )
    return _answer_levels(claim, results, answer)


def answer_best_class(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether any class reaches the factor."""
    all_findings = [finding for metric in claim.metrics for finding in results.find_metric(metric, claim.classes)]
    findings = [finding for finding in all_findings if _has_interval(finding.speed_up)]
    if not findings or claim.factor is None:
        return ClaimAnswer("no evidence", "no class has an interval")
    least_ratio = claim.factor / (1 + results.margin)
    lows = {id(finding): _widen_low_end(finding, len(findings)) for finding in findings}
    best = max(findings, key=lambda finding: lows[id(finding)])
    text = (
        f"of {len(findings)} cells the best is {best}; made wider for the choice, its interval begins at "
        + format_times(lows[id(best)])
    )
    if lows[id(best)] >= least_ratio and best.word == "faster":
        return ClaimAnswer("confirmed", text)
    unsure_findings = [
        finding
        for finding in all_findings
        if finding.speed_up and not _has_interval(finding.speed_up) and finding.speed_up.value >= least_ratio
    ]
    if unsure_findings:
        return ClaimAnswer("no evidence", f"{text}; without an interval, {join_first(unsure_findings)}")
    if all(finding.speed_up is not None and (finding.speed_up.high or math.inf) < claim.factor for finding in findings):
        return ClaimAnswer("contradicted", f"{text}; every interval ends below {format_times(claim.factor)}")
    return ClaimAnswer("no evidence", f"{text}, and some interval reaches {format_times(claim.factor)}")


def answer_over_time(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether the variant stays ahead in every stretch of the run."""
    findings = results.find_metric(claim.metrics[0], claim.classes)
    if not findings:
        return answer_missing_classes(claim, results)
    answers = [_answer_windows(results, entry) for entry in findings]
    seconds = np.nanmax(results.table.end_s) - np.nanmin(results.table.start_s)
    duration_text = f"the run lasted {_format_duration(float(seconds))}, the post's about {results.set_up.hours:g} h"
    contrary_answers = [entry for entry in answers if entry.answer == "contradicted"]
    if contrary_answers:
        return ClaimAnswer("contradicted", f"{join_first(entry.reason for entry in contrary_answers)}; {duration_text}")
    if all(entry.answer == "confirmed" for entry in answers):
        return ClaimAnswer("confirmed", f"{join_first(entry.reason for entry in answers)}; {duration_text}")
    return ClaimAnswer(
        "no evidence",
        f"{join_first(entry.reason for entry in answers if entry.answer != 'confirmed')}; {duration_text}",
    )


def _format_duration(seconds: float) -> str:
    size, unit = next((scale for scale in ((3600, "h"), (60, "min")) if seconds >= scale[0]), (1, "s"))
    return f"{format_number(seconds / size)} {unit}"


def answer_pattern(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether the first metric is faster and no other is."""
    overall_findings, *part_findings = (results.find_metric(metric, claim.classes) for metric in claim.metrics)
    if not overall_findings:
        return answer_missing_classes(claim, results)
    text = join_first([*overall_findings, *(finding for part in part_findings for finding in part)])
    if any(finding.word in {"slower", "same"} for finding in overall_findings):
        return ClaimAnswer("contradicted", f"there is no gain end to end: {text}")
    if any(finding.word == "faster" for part in part_findings for finding in part):
        return ClaimAnswer("contradicted", f"the gain is not absent from the parts: {text}")
    is_decisive = all(
        finding.word in DECISIVE_WORDS
        for finding in [*overall_findings, *(finding for part in part_findings for finding in part)]
    )
    return ClaimAnswer("confirmed" if is_decisive and all(part_findings) else "no evidence", text)


def answer_missing_classes(claim: Claim, results: VariantResults) -> ClaimAnswer:
    """Say that the run did not ask what the claim is about."""
    suites = ", ".join(suite.name for suite in results.table.run.suites) or "none"
    class_text = f"none of its classes ({', '.join(claim.classes)})" if claim.classes else "no class with such a figure"
    return ClaimAnswer("not comparable", f"{results.variant} was asked {class_text}; the suites of this run: {suites}")


def _answer_direction(claim: Claim, findings: Sequence[MetricFinding]) -> ClaimAnswer:
    claim_word = "same" if claim.direction == "same" else "faster"
    decisive_findings = [finding for finding in findings if finding.word in DECISIVE_WORDS]
    contrary_findings = [finding for finding in decisive_findings if finding.word != claim_word]
    text = join_first([*contrary_findings, *(finding for finding in findings if finding not in contrary_findings)])
    if contrary_findings:
        return ClaimAnswer("contradicted", text)
    if decisive_findings and (not claim.every or len(decisive_findings) == len(findings)):
        return ClaimAnswer("confirmed", text)
    if claim_word == "same":
        text += (
            f"; {len(decisive_findings)} of {len(findings)} cells are shown to be the same: to find no "
            "difference shows nothing"
        )
    return ClaimAnswer("no evidence", text)


def _answer_levels(claim: Claim, results: VariantResults, answer: ClaimAnswer) -> ClaimAnswer:
    """Hold the post's milliseconds against a run of its own set-up."""
    levels = [(claim.classes, claim.level_ms, claim.level_of_both), (claim.beside, claim.beside_ms, False)]
    deviations, missing = [], []
    for classes, level_ms, both_arms in levels:
        findings = results.find_metric(claim.metrics[0], classes) if classes and level_ms is not None else []
        for finding in findings:
            figures = (finding.baseline_value, finding.variant_value) if both_arms else (finding.variant_value,)
            if level_ms and not all(_is_near(figure, level_ms) for figure in figures):
                deviations.append(
                    f"{finding.class_} at {format_load(finding.load)}: {format_number(finding.variant_value)} "
                    f"ms, the post about {level_ms:g}"
                )
        if classes and not findings:
            missing.append(", ".join(classes))
    if deviations and answer.answer != "no evidence":
        return ClaimAnswer("contradicted", f"{answer.reason}; {join_first(deviations)}")
    return answer.add_sentence(f"Not asked: {', '.join(missing)}") if missing else answer


def _is_near(figure: float | None, level_ms: float) -> bool:
    return figure is not None and abs(figure / level_ms - 1) <= ABOUT_SHARE


def _has_interval(ratio: RatioEstimate | None) -> bool:
    return ratio is not None and ratio.low is not None and ratio.high is not None


def _widen_low_end(finding: MetricFinding, choice_count: int) -> float:
    """Return the low end of an interval that allows for having been picked from so many (Bonferroni)."""
    ratio = finding.speed_up
    if ratio is None or ratio.low is None or finding.unit_count < 2:  # noqa: PLR2004 - one unit has no spread
        return 0.0
    tail, df = (1 - LEVEL) / 2, finding.unit_count - 1
    stretch = float(special.stdtrit(df, 1 - tail / choice_count) / special.stdtrit(df, 1 - tail))
    return float(ratio.value * (ratio.low / ratio.value) ** stretch)


def _answer_windows(results: VariantResults, finding: MetricFinding) -> ClaimAnswer:
    logs = results.compare_rounds(results.variant, finding).logs
    cell_text = f"{finding.class_} at {format_load(finding.load)}"
    if finding.word in {"slower", "same"}:
        return ClaimAnswer("contradicted", f"{finding}")
    if len(logs) < FEWEST_STARTS:
        rounds_text = f"{len(logs)} round{'' if len(logs) == 1 else 's'}"
        return ClaimAnswer(
            "no evidence",
            f"{cell_text}: {rounds_text}, and {FEWEST_STARTS} are the least that show a time: --rounds, --duration",
        )
    windows = [math.exp(part.mean()) for part in np.array_split(logs, min(MOST_WINDOWS, len(logs)))]
    floor, worst = finding.noise_floor or 1.0, min(windows)
    text = f"{cell_text}: the least of {len(windows)} windows is {format_times(worst)} ({finding.word} in all)"
    text += "" if finding.noise_floor is not None else ", without a noise floor"
    if worst * floor < 1:
        return ClaimAnswer("contradicted", text)
    return ClaimAnswer("confirmed" if worst > 1 and finding.word == "faster" else "no evidence", text)
