"""What the time and the order of asking did to a variant against the baseline: drift, first round, place in a pass.

Invariant: a prompt is compared with itself alone, in the same class and load, so its length is in no figure; a prompt
is one value. What touches both arms alike, such as a machine that warms up, is in no speed-up and so in no figure here.
Every figure is a share of e2e_ms, the deciding metric.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tandem.bench.columns import Mask, Whole
from tandem.bench.judge.form import MARGIN, Check
from tandem.bench.judge.interval import FEWEST_ROUNDS, Estimate, estimate, interval_at
from tandem.bench.judge.observations import Observations
from tandem.bench.judge.pairs import DECIDING
from tandem.bench.judge.ratio import exp
from tandem.bench.quantiles import Values

FLAGGED = 0.01
"""Most healthy runs in which one of these checks cautions, all arms taken together."""

_TWO = 2  # rounds, or orders


@dataclass(frozen=True)
class Course:
    """Medians of one arm's prompts, round by round; columns have one value a prompt and round.

    Args:
        arms: names.
        arm: code of the arm.
        unit: code of class, load and prompt together; `cell` of class and load.
        round: its number. slot: mean place in it. at_s: mean moment of asking.
        log: mean of the logs of e2e_ms.
    """

    arms: tuple[str, ...]
    arm: Whole
    unit: Whole
    cell: Whole
    round: Whole
    slot: Values
    at_s: Values
    log: Values

    @classmethod
    def of(cls, seen: Observations, counted: Mask) -> Course:
        """Group the requests that succeeded and stand in rounds that count.

        Args:
            seen: the run.
            counted: which requests count.
        """
        value = seen.figures.get(DECIDING, np.full(len(seen), np.nan))
        with np.errstate(invalid="ignore"):
            rows = counted & ~seen.failed & np.isfinite(value) & (value > 0) & np.isfinite(seen.start_s)
        cells = seen.class_[rows] * len(seen.loads) + seen.load[rows]
        units = cells * len(seen.prompts) + seen.prompt[rows]
        rounds, round_ = np.unique(seen.round[rows], return_inverse=True)
        number = max(len(rounds), 1)
        arms = len(seen.arms)
        keys, group = np.unique((units * arms + seen.arm[rows]) * number + round_, return_inverse=True)
        times = np.bincount(group, minlength=len(keys))

        def mean(values: Values | Whole) -> Values:
            summed: Values = np.bincount(group, values, minlength=len(keys)) / times
            return summed

        unit = keys // (number * arms)
        return cls(
            arms=seen.arms, arm=keys // number % arms, unit=unit, cell=unit // max(len(seen.prompts), 1),
            round=rounds[keys % number] if len(keys) else np.empty(0, np.intp), slot=mean(seen.slot[rows]),
            at_s=mean(seen.start_s[rows]), log=mean(np.log(value[rows])),
        )  # fmt: skip

    def only(self, which: Mask) -> Course:
        """Return some lines of it."""
        return Course(
            self.arms, self.arm[which], self.unit[which], self.cell[which], self.round[which], self.slot[which],
            self.at_s[which], self.log[which],
        )  # fmt: skip

    def repeated(self) -> Iterator[tuple[str, Course]]:
        """Yield each arm but the baseline, its times as a share of the baseline's, of prompts with several rounds."""
        number = 1 + int(self.round.max(initial=0))
        base = self.only(self.arm == 0)
        for code, name in enumerate(self.arms[1:], start=1):
            other = self.only(self.arm == code)
            _, mine, theirs = np.intersect1d(
                base.unit * number + base.round, other.unit * number + other.round, assume_unique=True,
                return_indices=True,
            )  # fmt: skip
            base_rows, rows = base.only(mine), other.only(theirs)
            ratio = replace(rows, log=rows.log - base_rows.log, at_s=(rows.at_s + base_rows.at_s) / 2)
            times = np.unique(ratio.unit, return_inverse=True, return_counts=True)
            ratio = ratio.only(times[2][times[1]] >= _TWO)
            if len(ratio.log):
                yield name, ratio


def drift(course: Course) -> Check:
    """Return whether an arm became slower or faster against the baseline while the run went on."""
    found = {name: _drift(arm) for name, arm in course.repeated()}
    known = {name: each for name, each in found.items() if each is not None}
    if not known:
        return _absent(
            "drift",
            f"no variant was asked 3 prompts in two rounds, so a drift cannot be seen: --rounds {FEWEST_ROUNDS}",
        )
    says = f"from its first round to its last, {{arm}} became {{change}} against {course.arms[0]}"
    return _judged("drift", known, says, "; the speed-up depends on when it was measured")


def _drift(arm: Course) -> Estimate | None:
    """Return the log change from first to last request, of the line through each prompt's rounds."""
    prompts, owner = np.unique(arm.unit, return_inverse=True)
    time, log = arm.at_s - _means(owner, arm.at_s)[owner], arm.log - _means(owner, arm.log)[owner]
    squares = np.bincount(owner, time * time).mean()
    if squares <= 0 or not len(prompts):
        return None
    first, last = _means(owner, arm.at_s, np.minimum), _means(owner, arm.at_s, np.maximum)
    return estimate(np.bincount(owner, time * log) / squares * float(np.mean(last - first)))


def first_round(course: Course) -> dict[str, Estimate]:
    """Return how much slower each variant was, against the baseline, in its first round than in its later ones."""
    found = {}
    for name, arm in course.repeated():
        first = arm.round == arm.round.min()
        owner = np.unique(arm.unit, return_inverse=True)[1]
        number = int(owner.max()) + 1
        both = [np.bincount(owner[part], minlength=number) for part in (first, ~first)]
        with np.errstate(invalid="ignore", divide="ignore"):
            early, late = (
                np.bincount(owner[part], arm.log[part], minlength=number) / times
                for part, times in zip((first, ~first), both, strict=True)
            )
        made = estimate((early - late)[(both[0] > 0) & (both[1] > 0)])
        if made is not None:
            found[name] = made
    return found


def order(seen: Observations, course: Course) -> Check:
    """Return whether a prompt takes longer for whoever is asked it second."""
    if seen.run.schedule == "simultaneous" and seen.control is None:
        return _absent("order", "all arms were asked at once")
    contributions = _of_order(course)
    if isinstance(contributions, str):
        if contributions == "none":
            return _absent("order", "no prompt was asked of one arm before another, so there is no order")
        return Check(
            name="order", result="caution",
            sentence="every class was asked of the arms in one order only, so what an order does is in every speed-up: "
            f"ask {FEWEST_ROUNDS} rounds, or so many prompts that half of them fill the concurrency",
        )  # fmt: skip
    found = estimate(contributions)
    if found is None:
        return _absent("order", "fewer than 3 prompts were asked of two arms, so an order's effect cannot be seen")
    return _judged(
        "order", {"": found}, "asked of the second arm of a pass, a prompt was {change} than of the first",
        "; each arm is first as often as second",
    )  # fmt: skip


def _of_order(course: Course) -> Values | Literal["none", "one"]:
    """Return, for each prompt, its share in the log change by being asked later; or how many orders there were.

    The difference of two arms is held against which of them came later, inside one class at one load of one pair of
    arms: the arms' own difference is taken out as the mean of it.
    """
    logs, signs, cells, units = [], [], [], []
    base = course.only(course.arm == 0)
    for code in range(1, len(course.arms)):
        other = course.only(course.arm == code)
        number = 1 + max((int(part.round.max()) for part in (base, other) if len(part.round)), default=0)
        _, mine, theirs = np.intersect1d(
            base.unit * number + base.round, other.unit * number + other.round, assume_unique=True, return_indices=True
        )
        sign = np.sign(other.slot[theirs] - base.slot[mine])
        told = sign != 0  # asked at once, or first as often as second already
        logs.append((other.log[theirs] - base.log[mine])[told])
        signs.append(sign[told])
        cells.append(base.cell[mine][told] * len(course.arms) + code)
        units.append(base.unit[mine][told])
    if not sum(map(len, logs)):
        return "none"
    log, sign, cell, unit = map(np.concatenate, (logs, signs, cells, units))
    owner = np.unique(cell, return_inverse=True)[1]
    log, sign = log - _means(owner, log)[owner], sign - _means(owner, sign)[owner]
    prompt = np.unique(unit, return_inverse=True)[1]
    squares = float((sign * sign).sum())
    if squares < 1:
        return "one"
    shares: Values = np.bincount(prompt, sign * log) * (int(prompt.max()) + 1) / squares
    return shares


def beyond(found: Estimate, checks: int) -> bool:
    """Return whether a change is surely beyond the margin, so many checks taken together."""
    low, high = interval_at(found, 1 - FLAGGED / checks)
    return max(low, -high) > math.log1p(MARGIN)


def changed(found: Estimate) -> str:
    """Return a log change of a time in words, with its interval."""
    low, high = sorted((exp(found.low) - 1, exp(found.high) - 1))
    return f"{abs(exp(found.log) - 1):.1%} {'slower' if found.log > 0 else 'faster'} ({low:+.1%} to {high:+.1%})"


def _judged(name: str, found: dict[str, Estimate], says: str, otherwise: str) -> Check:
    """Return a check that cautions where a change is surely beyond the margin."""
    flagged = {arm: each for arm, each in found.items() if beyond(each, len(found))}
    told = flagged or dict([max(found.items(), key=lambda item: abs(item[1].log))])
    sentence = "; ".join(says.format(arm=arm, change=changed(each)) for arm, each in told.items())
    return Check(
        name="drift" if name == "drift" else "order", result="caution" if flagged else "passed",
        sentence=f"{sentence}{otherwise if flagged else ''}",
    )  # fmt: skip


def _absent(name: str, sentence: str) -> Check:
    return Check(name="drift" if name == "drift" else "order", result="absent", sentence=sentence)


def _means(owner: Whole, values: Values, by: np.ufunc | None = None) -> Values:
    """Return the mean of each owner's values, or what `by` leaves of them."""
    if by is not None:
        found: Values = by.reduceat(values, np.searchsorted(owner, np.arange(int(owner.max()) + 1)))
        return found
    means: Values = np.bincount(owner, values) / np.bincount(owner)
    return means
