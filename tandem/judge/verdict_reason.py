"""Why a cell is judged as it is, in a sentence for a person.

Invariant: every sentence has its figures in it, and says no more than the cell does; an absent figure is traced to the
arm that lacks it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tandem.bench.columns import IntArray
from tandem.judge.interval import FEWEST_PROMPTS, FEWEST_ROUNDS
from tandem.judge.pairs import JUDGED_METRICS, RequestPairing
from tandem.judge.power import MOST_PROMPTS, MOST_ROUNDS
from tandem.judge.schema import RatioEstimate, RunControls
from tandem.judge.text_format import format_number

_METRIC_NEEDS = {
    "tpot_ms": "it takes two tokens that the server counted",
    "e2e_ms": "it takes an answer",
    "ttft_ms": "it takes a token",
    "output_tokens_per_s": "it takes tokens that the server counted",
}
_SMALLEST_P = 0.001
_NEAR_ONE = 0.1


@dataclass(frozen=True)
class RequestCounts:
    """How far the requests of an arm got, by cell: asked, in a round that counts, answered, and with a metric."""

    arm: str
    requests: IntArray
    valid_requests: IntArray
    answers: IntArray
    metric_counts: dict[str, IntArray]


def count_requests(pairing: RequestPairing, arm: str) -> RequestCounts:
    """Return how far the requests of an arm got."""
    table, cells = pairing.table, pairing.cell_codes()

    def count_by_cell(rows: IntArray) -> IntArray:
        return np.bincount(rows, minlength=pairing.cell_count)

    arm_mask = table.arm_mask(arm)
    valid_mask = arm_mask & pairing.row_mask()
    answer_mask = valid_mask & ~table.failed
    metric_counts = {name: count_by_cell(cells[answer_mask & pairing.metric_mask(name)]) for name in JUDGED_METRICS}
    return RequestCounts(
        arm,
        count_by_cell(cells[arm_mask]),
        count_by_cell(cells[valid_mask]),
        count_by_cell(cells[answer_mask]),
        metric_counts,
    )


def explain_absence(baseline: RequestCounts, variant: RequestCounts, cell: int, metric: str, prompt_count: int) -> str:
    """Return why a cell has no estimate.

    Args:
        baseline, variant: how far their requests got.
        cell: which.
        metric: its name.
        prompt_count: how many both answered.
    """
    for counts in (baseline, variant):
        if not counts.requests[cell]:
            return f"{counts.arm} was not asked in this class at this load"
        if not counts.valid_requests[cell]:
            return f"every round of {counts.arm} is left out: the measuring machine was the bottleneck"
        if not counts.answers[cell]:
            return f"all {counts.valid_requests[cell]} requests of {counts.arm} failed"
        if not counts.metric_counts[metric][cell]:
            return (
                f"of no answer of {counts.arm} is {metric} known and above 0: {_METRIC_NEEDS[metric]}, and "
                "no contradiction"
            )
    if not prompt_count:
        return "no prompt was answered by both arms in the same round"
    return f"{_describe_prompts(prompt_count)} answered by both arms, and fewer than {FEWEST_PROMPTS} have no spread"


def explain_void(controls: RunControls) -> str:
    """Return why nothing may be said of any cell; empty where it may."""
    return f"void: {controls.void[0]}" if controls.void else ""


def explain_few_rounds(round_count: int) -> str:
    """Return why nothing is said of so few rounds; empty where they are enough, and where there is none at all."""
    if not 0 < round_count < FEWEST_ROUNDS:
        return ""
    rounds_text = "1 round" if round_count == 1 else f"{round_count} rounds"
    return f"{rounds_text} cannot tell a difference from noise that outlasts a turn: {FEWEST_ROUNDS} can (--rounds)"


def explain_difference(speed_up: RatioEstimate, adjusted_p: float, test_count: int, floor: float | None) -> str:
    """Return why a cell is faster or slower."""
    floor_text = "no noise floor" if floor is None else f"beyond the noise floor of {format_ratio(floor)}"
    return f"speed-up {_format_speed_up(speed_up)}; {_format_p_value(adjusted_p, test_count)}; {floor_text}"


def explain_sameness(speed_up: RatioEstimate, margin: float) -> str:
    """Return why a cell is the same."""
    return f"the whole interval, {_format_ends(speed_up)}, lies inside the margin of {100 * margin:g} %"


def explain_no_evidence(
    speed_up: RatioEstimate, adjusted_p: float, test_count: int, floor: float | None, *, is_significant: bool
) -> str:
    """Return why an estimate is no evidence; `is_significant`: the noise floor, not chance, stands against it."""
    if is_significant and floor is not None:
        return f"speed-up {_format_speed_up(speed_up)} is within the noise floor of {format_ratio(floor)}"
    low, high = speed_up.low or 0.0, speed_up.high or 0.0
    if low <= 1 <= high:
        reason = f"the interval, {_format_ends(speed_up)}, holds 1 and reaches beyond the margin"
    else:
        reason = f"speed-up {_format_speed_up(speed_up)} may be chance: {_format_p_value(adjusted_p, test_count)}"
    if floor is None:
        return f"{reason}; no noise floor"
    is_within_floor = 1 / floor <= speed_up.value <= floor
    return f"{reason}; within the noise floor of {format_ratio(floor)}" if is_within_floor else reason


def suggest_sample_size(prompt_count: int | None, round_count: int | None, *, is_within_floor: bool) -> str:
    """Return what would decide a cell; `is_within_floor`: its estimate lies within the noise floor."""
    plans = [
        f"{count:,} {unit}" for count, unit in ((prompt_count, "prompts"), (round_count, "rounds")) if count is not None
    ]
    if plans:
        return f"about {' or '.join(plans)} in all would decide it"
    if is_within_floor:
        return "what would decide it is not known: more control rounds may lower the floor"
    return f"neither {MOST_PROMPTS:,} prompts nor {MOST_ROUNDS:,} rounds would decide it"


def format_ratio(value: float | None) -> str:
    """Return a speed-up; finer where it is so near to 1 that two digits could not tell it from a margin's end."""
    is_near_one = value is not None and abs(value - 1) < _NEAR_ONE
    return f"{value:.3f}" if is_near_one else format_number(value)


def _format_speed_up(speed_up: RatioEstimate) -> str:
    return f"{format_ratio(speed_up.value)} ({_format_ends(speed_up)})"


def _format_ends(speed_up: RatioEstimate) -> str:
    return f"{format_ratio(speed_up.low)} to {format_ratio(speed_up.high)}"


def _format_p_value(adjusted_p: float, test_count: int) -> str:
    p_text = f"below {_SMALLEST_P}" if adjusted_p < _SMALLEST_P else f"{adjusted_p:.2g}"
    return f"p {p_text} among {test_count} tests" if test_count > 1 else f"p {p_text}"


def _describe_prompts(prompt_count: int) -> str:
    return "1 prompt was" if prompt_count == 1 else f"{prompt_count} prompts were"
