"""The reason for a cell's word, in a sentence for a person.

Invariant: every sentence contains its figures and says no more than the cell. For an absent figure
the sentence names the arm that lacks it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.judge.decision import SpeedUpDecision
from tandem.judge.pairs import RequestPairing
from tandem.judge.power import MOST_PROMPTS, MOST_ROUNDS
from tandem.judge.quantile_curve import FEWEST_PROMPTS
from tandem.judge.schema import CellVerdict
from tandem.judge.text_format import count_things, format_ratio

_SMALLEST_P = 0.001


def explain_absence(
    pairing: RequestPairing,
    arms: Sequence[str],
    cells: Sequence[int],
    metric: str,
    prompt_count: int,
) -> str:
    """Return why a cell has no estimate.

    Args:
        pairing: the rounds that count.
        arms: the baseline and the variant.
        cells: codes of the cells that it is of.
        metric: its name.
        prompt_count: how many both answered.
    """
    has_figure = pairing.row_mask() & ~pairing.table.failed & pairing.metric_mask(metric)
    answers = np.isin(pairing.cell_codes(), cells) & has_figure
    for arm in arms:
        if not (answers & pairing.table.arm_mask(arm)).any():
            return f"{arm} has no answer with {metric} here in a round that counts"
    prompts_text = count_things(prompt_count, "prompt")
    return f"both arms answered {prompts_text}; an interval needs {FEWEST_PROMPTS}"


def explain_few_rounds(round_count: int) -> str:
    """Return why so few rounds decide nothing; empty if they are enough, or if there is none."""
    if not 0 < round_count < FEWEST_ROUNDS:
        return ""
    rounds_text = count_things(round_count, "round")
    return (
        f"{rounds_text} cannot tell a difference from noise that outlasts a turn: {FEWEST_ROUNDS}"
        " can (--rounds)"
    )


def explain_decision(
    cell: CellVerdict, decision: SpeedUpDecision, *, test_count: int, margin: float
) -> str:
    """Return why a cell has its word.

    Args:
        cell: with its word and figures.
        decision: on its median alone.
        test_count: tests of the report.
        margin: within which a speed-up is the same.
    """
    speed_up = cell.speed_up
    floor = cell.noise_floor
    p = cell.adjusted_p or 0.0
    assert speed_up is not None  # a cell without an interval is not decided
    is_within_floor = abs(math.log(speed_up.value)) <= math.log(floor or 1.0)
    ends = f"{format_ratio(speed_up.low)} to {format_ratio(speed_up.high)}"
    speed_up_text = f"speed-up {format_ratio(speed_up.value)} ({ends})"
    p_text = _describe_p(p, test_count)
    floor_text = "no noise floor"
    if floor is not None:
        side = "within" if is_within_floor else "beyond"
        floor_text = f"{side} the noise floor of {format_ratio(floor)}"
    if cell.opposition:
        conjunction = "but" if cell.verdict == "no evidence" else "and"
        word = "the same" if decision.word == "same" else decision.word
        return (
            f"the median is {word}, {conjunction} {cell.opposition}; median {speed_up_text};"
            f" {p_text}; {floor_text}"
        )
    if decision.ground == "margin":
        return (
            f"the whole interval, {ends}, lies inside the equivalence margin of {100 * margin:g} %"
        )
    if decision.ground == "difference":
        return f"{speed_up_text}; {p_text}; {floor_text}"
    doubt = ""
    if decision.ground != "floor":
        doubt = f", not significant ({p_text})"
    return (
        f"{speed_up_text}{doubt}; {floor_text};"
        f" {_suggest_sample_size(cell, is_within_floor=is_within_floor)}"
    )


def _describe_p(p: float, test_count: int) -> str:
    """Return `p = 1.0, corrected for 18 tests`."""
    text = f"p < {_SMALLEST_P}" if p < _SMALLEST_P else f"p = {p:#.2g}"
    if test_count > 1:
        return f"{text}, corrected for {test_count} tests"
    return text


def _suggest_sample_size(cell: CellVerdict, *, is_within_floor: bool) -> str:
    counts = ((cell.more_prompts, "prompts"), (cell.more_rounds, "rounds"))
    sizes = [f"{count:,} {unit}" for count, unit in counts if count is not None]
    if sizes:
        return f"about {' or '.join(sizes)} in all would decide it"
    if is_within_floor:
        return "what would decide it is not known: more control rounds may lower the floor"
    return f"neither {MOST_PROMPTS:,} prompts nor {MOST_ROUNDS:,} rounds would decide it"
