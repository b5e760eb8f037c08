"""Why a cell is judged as it is, in a sentence for a person.

Invariant: every sentence has its figures in it, and says no more than the cell does; an absent figure is traced to the
arm that lacks it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tandem.bench.columns import Whole
from tandem.bench.judge.form import Controls, Ratio
from tandem.bench.judge.interval import FEWEST_PROMPTS, FEWEST_ROUNDS
from tandem.bench.judge.pairs import JUDGED, Grouped
from tandem.bench.judge.power import MOST_PROMPTS, MOST_ROUNDS
from tandem.bench.judge.words import number

_TAKES = {
    "tpot_ms": "it takes two tokens that the server counted",
    "e2e_ms": "it takes an answer",
    "ttft_ms": "it takes a token",
    "output_tokens_per_s": "it takes tokens that the server counted",
}
_SMALL = 0.001
_NEAR = 0.1


@dataclass(frozen=True)
class Tally:
    """How far the requests of an arm got, by cell: asked, in a round that counts, answered, and with a metric."""

    arm: str
    asked: Whole
    counted: Whole
    answered: Whole
    figures: dict[str, Whole]


def tally(grouped: Grouped, arm: str) -> Tally:
    """Return how far the requests of an arm got."""
    seen, cells = grouped.seen, grouped.cells()

    def count(rows: Whole) -> Whole:
        return np.bincount(rows, minlength=grouped.number_of_cells)

    asked = seen.of_arm(arm)
    counted = asked & grouped.rows()
    answered = counted & ~seen.failed
    figures = {name: count(cells[answered & grouped.has(name)]) for name in JUDGED}
    return Tally(arm, count(cells[asked]), count(cells[counted]), count(cells[answered]), figures)


def absent(baseline: Tally, variant: Tally, cell: int, metric: str, prompts: int) -> str:
    """Return why a cell has no estimate.

    Args:
        baseline, variant: how far their requests got.
        cell: which.
        metric: its name.
        prompts: how many both answered.
    """
    for arm in (baseline, variant):
        if not arm.asked[cell]:
            return f"{arm.arm} was not asked in this class at this load"
        if not arm.counted[cell]:
            return f"every round of {arm.arm} is left out: the measuring machine was the bottleneck"
        if not arm.answered[cell]:
            return f"all {arm.counted[cell]} requests of {arm.arm} failed"
        if not arm.figures[metric][cell]:
            return f"of no answer of {arm.arm} is {metric} known and above 0: {_TAKES[metric]}, and no contradiction"
    if not prompts:
        return "no prompt was answered by both arms in the same round"
    return f"{_prompts(prompts)} answered by both arms, and fewer than {FEWEST_PROMPTS} have no spread"


def void(controls: Controls) -> str:
    """Return why nothing may be said of any cell; empty where it may."""
    return f"void: {controls.void[0]}" if controls.void else ""


def few_rounds(rounds: int) -> str:
    """Return why nothing is said of so few rounds; empty where they are enough, and where there is none at all."""
    if not 0 < rounds < FEWEST_ROUNDS:
        return ""
    many = "1 round" if rounds == 1 else f"{rounds} rounds"
    return f"{many} cannot tell a difference from noise that outlasts a turn: {FEWEST_ROUNDS} can (--rounds)"


def called(speed_up: Ratio, adjusted_p: float, tests: int, floor: float | None) -> str:
    """Return why a cell is faster or slower."""
    beyond = "no noise floor" if floor is None else f"beyond the noise floor of {ratio(floor)}"
    return f"speed-up {_with_interval(speed_up)}; {_chance(adjusted_p, tests)}; {beyond}"


def same(speed_up: Ratio, margin: float) -> str:
    """Return why a cell is the same."""
    return f"the whole interval, {_ends(speed_up)}, lies inside the margin of {100 * margin:g} %"


def undecided(speed_up: Ratio, adjusted_p: float, tests: int, floor: float | None, *, told: bool) -> str:
    """Return why an estimate is no evidence; `told`: chance is ruled out, so it is the noise floor that is not."""
    if told and floor is not None:
        return f"speed-up {_with_interval(speed_up)} is within the noise floor of {ratio(floor)}"
    low, high = speed_up.low or 0.0, speed_up.high or 0.0
    if low <= 1 <= high:
        wide = f"the interval, {_ends(speed_up)}, holds 1 and reaches beyond the margin"
    else:
        wide = f"speed-up {_with_interval(speed_up)} may be chance: {_chance(adjusted_p, tests)}"
    if floor is None:
        return f"{wide}; no noise floor"
    below = 1 / floor <= speed_up.value <= floor
    return f"{wide}; within the noise floor of {ratio(floor)}" if below else wide


def further(prompts: int | None, rounds: int | None, *, within: bool) -> str:
    """Return what would decide a cell; `within`: its estimate lies within the noise floor, which others may lower."""
    ways = [f"{most:,} {unit}" for most, unit in ((prompts, "prompts"), (rounds, "rounds")) if most is not None]
    if ways:
        return f"about {' or '.join(ways)} in all would decide it"
    if within:
        return "what would decide it is not known: more control rounds may lower the floor"
    return f"neither {MOST_PROMPTS:,} prompts nor {MOST_ROUNDS:,} rounds would decide it"


def ratio(value: float | None) -> str:
    """Return a speed-up; finer where it is so near to 1 that two digits could not tell it from a margin's end."""
    near = value is not None and abs(value - 1) < _NEAR
    return f"{value:.3f}" if near else number(value)


def _with_interval(speed_up: Ratio) -> str:
    return f"{ratio(speed_up.value)} ({_ends(speed_up)})"


def _ends(speed_up: Ratio) -> str:
    return f"{ratio(speed_up.low)} to {ratio(speed_up.high)}"


def _chance(adjusted_p: float, tests: int) -> str:
    p = f"below {_SMALL}" if adjusted_p < _SMALL else f"{adjusted_p:.2g}"
    return f"p {p} among {tests} tests" if tests > 1 else f"p {p}"


def _prompts(prompts: int) -> str:
    return "1 prompt was" if prompts == 1 else f"{prompts} prompts were"
