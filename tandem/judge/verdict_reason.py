"""Why a cell is judged as it is, in a sentence for a person.

Invariant: every sentence has its figures in it, and says no more than the cell does; an absent figure is traced to the
arm that lacks it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tandem.bench.columns import IntArray
from tandem.bench.schedule import FEWEST_ROUNDS
from tandem.judge.decision import SpeedUpDecision
from tandem.judge.interval import FEWEST_PROMPTS
from tandem.judge.pairs import JUDGED_METRICS, RequestPairing
from tandem.judge.power import MOST_PROMPTS, MOST_ROUNDS
from tandem.judge.schema import CellVerdict, RatioEstimate
from tandem.judge.text_format import format_ratio

_METRIC_NEEDS = {
    "tpot_ms": "it takes two tokens that the server counted",
    "e2e_ms": "it takes an answer",
    "ttft_ms": "it takes a token",
    "output_tokens_per_s": "it takes tokens that the server counted",
}
_SMALLEST_P = 0.001


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
    prompts_text = "1 prompt was" if prompt_count == 1 else f"{prompt_count} prompts were"
    return f"{prompts_text} answered by both arms, and fewer than {FEWEST_PROMPTS} have no spread"


def explain_few_rounds(round_count: int) -> str:
    """Return why nothing is said of so few rounds; empty where they are enough, and where there is none at all."""
    if not 0 < round_count < FEWEST_ROUNDS:
        return ""
    rounds_text = "1 round" if round_count == 1 else f"{round_count} rounds"
    return f"{rounds_text} cannot tell a difference from noise that outlasts a turn: {FEWEST_ROUNDS} can (--rounds)"


def explain_decision(cell: CellVerdict, decision: SpeedUpDecision, *, test_count: int, margin: float) -> str:
    """Return why a cell has its word.

    Args:
        cell: with its word and figures.
        decision: on its median alone.
        test_count: tests of the report.
        margin: within which a speed-up is the same.
    """
    speed_up, floor = cell.speed_up, cell.noise_floor
    assert speed_up is not None  # a cell without an interval is not decided
    speed_up_text = f"speed-up {format_ratio(speed_up.value)} ({_format_ends(speed_up)})"
    p_text = _format_p_value(cell.adjusted_p or 0.0, test_count)
    floor_text = "no noise floor" if floor is None else f"beyond the noise floor of {format_ratio(floor)}"
    difference = f"{speed_up_text}; {p_text}; {floor_text}"
    if cell.opposition:
        conjunction = "but" if cell.verdict == "no evidence" else "and"
        median_text = "the same" if decision.word == "same" else decision.word
        return f"the median is {median_text}, {conjunction} {cell.opposition}; median {difference}"
    if cell.verdict == "same":
        return f"the whole interval, {_format_ends(speed_up)}, lies inside the margin of {100 * margin:g} %"
    if cell.verdict != "no evidence":
        return difference
    is_within_floor = abs(math.log(speed_up.value)) <= math.log(floor or 1.0)
    if decision.ground == "floor":
        reason = f"{speed_up_text} is within the noise floor of {format_ratio(floor)}"
    else:
        holds_one = (speed_up.low or 0.0) <= 1 <= (speed_up.high or 0.0)
        interval_text = f"the interval, {_format_ends(speed_up)}, holds 1 and reaches beyond the margin"
        reason = interval_text if holds_one else f"{speed_up_text} may be chance: {p_text}"
        if floor is None:
            reason += "; no noise floor"
        elif is_within_floor:
            reason += f"; within the noise floor of {format_ratio(floor)}"
    return f"{reason}; {_suggest_sample_size(cell, is_within_floor=is_within_floor)}"


def describe_sample_sizes(cell: CellVerdict) -> list[str]:
    """Return how many prompts, and how many rounds, would decide an open cell; nothing where no number would."""
    counts = ((cell.more_prompts, "prompts"), (cell.more_rounds, "rounds"))
    return [f"{count:,} {unit}" for count, unit in counts if count is not None]


def _suggest_sample_size(cell: CellVerdict, *, is_within_floor: bool) -> str:
    sizes = describe_sample_sizes(cell)
    if sizes:
        return f"about {' or '.join(sizes)} in all would decide it"
    if is_within_floor:
        return "what would decide it is not known: more control rounds may lower the floor"
    return f"neither {MOST_PROMPTS:,} prompts nor {MOST_ROUNDS:,} rounds would decide it"


def _format_ends(speed_up: RatioEstimate) -> str:
    return f"{format_ratio(speed_up.low)} to {format_ratio(speed_up.high)}"


def _format_p_value(adjusted_p: float, test_count: int) -> str:
    p_text = f"below {_SMALLEST_P}" if adjusted_p < _SMALLEST_P else f"{adjusted_p:.2g}"
    return f"p {p_text} among {test_count} tests" if test_count > 1 else f"p {p_text}"
