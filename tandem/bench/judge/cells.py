"""The verdict on every cell: one metric of one variant in one class at one load.

Invariant: `faster` and `slower` are said only of what chance does not explain with every cell of the report taken into
account (Holm 1979, Scandinavian Journal of Statistics 6, 65), and only beyond what the baseline differs from itself;
`same` only where the whole interval lies inside the margin; nothing is said of survivors, nor where neither arm gives
text, nor of fewer than FEWEST_ROUNDS rounds. So at a true speed-up of 1 no more than 1 - level of whole reports say
faster or slower anywhere. Of E2E the mean and the 90th percentile are tested too: where the median is faster and one of
these slower, the cell is `mixed`. A cell that cannot be judged says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tandem.bench.columns import Mask
from tandem.bench.judge import because, survivors
from tandem.bench.judge.form import Cell, Controls, Evidence, Load, Ratio, TailSpeedUp, Word
from tandem.bench.judge.interval import (
    FEWEST_STARTS,
    LEVEL,
    Estimate,
    RoundNoise,
    estimate,
    full_rounds,
    pool_round_noise,
)
from tandem.bench.judge.observations import UNKNOWN, Observations
from tandem.bench.judge.pairs import DECIDING, JUDGED, Grouped, Pairs
from tandem.bench.judge.power import Asked, detectable, prompts_to_decide, rounds_to_decide, spread
from tandem.bench.judge.ratio import exp, make_ratio
from tandem.bench.judge.tails import TailEstimate, TailVerdict, WordLimits, estimate_tails, pool_tails, weigh_tails
from tandem.bench.judge.worth import worthless
from tandem.bench.quantiles import Values


def cells(seen: Observations, controls: Controls, *, margin: float, level: float = LEVEL) -> tuple[Cell, ...]:
    """Return the cells of all variants, by variant, class, load and metric.

    Args:
        seen: the run.
        controls: which rounds are left out, and the noise floors.
        margin: a speed-up within 1 / (1 + margin) to 1 + margin is `same`; above 0.
        level: of the intervals; 1 - level is how often a whole report may call a difference that is none.
    """
    grouped = Grouped(seen, counted_rounds(seen, controls))
    measured = [each for variant in seen.variants for each in _measured(grouped, variant, controls, level)]
    judged = iter(_judged([each for each in measured if each.found], margin, level))
    return tuple(_cell(each, next(judged) if each.found else None, margin) for each in measured)


def counted_rounds(seen: Observations, controls: Controls) -> Mask:
    """Return which rounds count, by their number: not those in which the measuring machine was the bottleneck."""
    marked = np.array([one.round for one in controls.marked if 0 <= one.round <= seen.round.max(initial=-1)], np.intp)
    counted = np.ones(int(marked.max(initial=-1)) + 1, bool)  # no longer than needed: a round's number may be anything
    counted[marked] = False
    return counted


def holm(p: Values) -> Values:
    """Return each p with all of them taken into account."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """A cell before it is held against the others.

    `floor` is a ratio, 1 or more; `absent` is why there is no estimate, `barred` why nothing may be said of one.
    """

    baseline: str
    variant: str
    class_: str
    load: Load
    metric: str
    pairs: Pairs
    starts: int | None
    evidence: Evidence
    floor: float | None
    barred: str
    found: Estimate | None
    noise: RoundNoise
    tails: tuple[TailEstimate, ...]
    absent: str

    @property
    def log_floor(self) -> float:
        return math.log(self.floor or 1.0)


def _measured(grouped: Grouped, variant: str, controls: Controls, level: float) -> Iterator[_Measured]:
    seen, baseline = grouped.seen, grouped.seen.baseline
    floors = {(one.class_, one.load, one.metric): one.ratio for one in controls.floors if not math.isnan(one.ratio)}
    failures, starts = survivors.count(grouped, baseline, variant), _starts(grouped, variant)
    void = because.void(controls) or worthless(grouped, baseline, variant)
    tallies = because.tally(grouped, baseline), because.tally(grouped, variant)
    places = np.unique(grouped.cells()).tolist()
    pairs_of = {
        (place, metric): grouped.pairs(
            baseline=baseline, variant=variant, class_=place // len(seen.loads), load=place % len(seen.loads),
            metric=metric,
        )
        for place in places for metric in JUDGED
    }  # fmt: skip
    noise = {metric: pool_round_noise(pairs_of[place, metric].by_round for place in places) for metric in JUDGED}
    for cell in places:
        class_, load = divmod(cell, len(seen.loads))
        for metric in JUDGED:
            pairs = pairs_of[cell, metric]
            found = estimate(
                pairs.logs, pairs.by_round, pairs.starts, placements=pairs.placements, noise=noise[metric], level=level
            )
            floor = floors.get((seen.classes[class_], seen.loads[load], metric))
            crossed = found is not None and found.starts >= FEWEST_STARTS
            rounds = int(full_rounds(pairs.by_round).sum())
            yield _Measured(
                baseline=baseline, variant=variant, class_=seen.classes[class_], load=seen.loads[load], metric=metric,
                pairs=pairs, starts=starts[cell], evidence="across-starts" if crossed else "one-start",
                floor=None if floor is None else max(floor, 1.0),
                barred=void or failures.barred(cell, baseline, variant) or because.few_rounds(rounds),
                found=found, noise=noise[metric], tails=estimate_tails(pairs, found, noise[metric], level)
                if found is not None and metric == DECIDING else (),
                absent="" if found else because.absent(*tallies, cell, metric, len(pairs.logs)),
            )  # fmt: skip


def _starts(grouped: Grouped, arm: str) -> list[int | None]:
    """Return how many starts each cell's answers of an arm come from; None where one does not say."""
    seen, cells = grouped.seen, grouped.number_of_cells
    rows = grouped.rows() & seen.of_arm(arm) & ~seen.failed
    cell, start = grouped.cells()[rows], seen.start[rows]
    number = np.bincount(np.unique(np.column_stack([cell, start]), axis=0)[:, 0], minlength=cells)
    known = np.bincount(cell[start == UNKNOWN], minlength=cells) == 0
    return [int(count) if count and all_ else None for count, all_ in zip(number, known, strict=True)]


class _Judged(NamedTuple):
    """What an estimate is called with all `tests` of the report taken into account, and what would decide it.

    `median` is the word without its mean and percentile, `opposition` what they say against it; empty of nothing.
    """

    word: Word
    tests: int
    adjusted_p: float
    told: bool
    median: Word
    opposition: str
    tails: tuple[TailSpeedUp, ...]
    detectable: float
    prompts: int | None
    rounds: int | None


def _judged(some: Sequence[_Measured], margin: float, level: float) -> Iterator[_Judged]:
    found = [each.found for each in some if each.found]
    tails = [tail.estimate for each in some for tail in each.tails]
    adjusted = holm(np.array([one.p for one in [*found, *tails]]))
    of_tails = iter(adjusted[len(found) :].tolist())
    adjusted, tests = adjusted[: len(found)], len(adjusted)
    told = adjusted < 1 - level
    asked = Asked(
        logs=np.array([one.log for one in found]),
        floors=np.array([each.log_floor for each in some]),
        # where Holm's procedure would hold this p, the others as they are
        alpha=(1 - level) / np.maximum(np.sum(~told) + told, 1),
        margin=math.log1p(margin),
        level=level,
    )
    least = detectable(np.array([one.se for one in found]), np.array([one.df for one in found]), asked)
    words = [_word(each, each.found, told=sure, margin=asked.margin) for each, sure in zip(some, told, strict=True)]
    spoken = [_speak_tails(each, of_tails, asked.margin, level) for each in some]
    weighed = _weigh(some, words, spoken, asked.margin, level)
    further = _further(some, weighed, asked)
    for place, left in enumerate(weighed):
        yield _Judged(
            left.word, tests, float(adjusted[place]), bool(told[place]), words[place], left.opposition, spoken[place],
            exp(least[place]), *further[place],
        )  # fmt: skip


def _word(each: _Measured, found: Estimate | None, *, told: bool, margin: float) -> Word:
    if each.barred or found is None:
        return "no evidence"
    if -margin <= found.low and found.high <= margin:
        return "same"
    if told and abs(found.log) > each.log_floor:
        return "faster" if found.log > 0 else "slower"
    return "no evidence"


def _speak_tails(each: _Measured, adjusted: Iterator[float], margin: float, level: float) -> tuple[TailSpeedUp, ...]:
    """Return mean and 90th percentile of a cell with what each is called; `adjusted` has the p of the next ones."""
    return tuple(
        TailSpeedUp(
            statistic=tail.statistic, baseline=tail.baseline, measured=tail.measured,
            speed_up=make_ratio(tail.estimate), adjusted_p=(p := next(adjusted)),
            verdict=_word(each, tail.estimate, told=p < 1 - level, margin=margin),
        )
        for tail in each.tails
    )  # fmt: skip


def _weigh(
    some: Sequence[_Measured], words: Sequence[Word], spoken: Sequence[Sequence[TailSpeedUp]], margin: float,
    level: float,
) -> list[TailVerdict]:  # fmt: skip
    """Return the words that are left once means and 90th percentiles were looked at."""
    pooled: dict[tuple[str, Word], tuple[TailEstimate, ...]] = {}
    for variant, word in {(each.variant, word) for each, word in zip(some, words, strict=True) if each.tails}:
        if word != "no evidence":
            alike = [
                each
                for each, own in zip(some, words, strict=True)
                if each.variant == variant and each.tails and each.found is not None and not each.barred
                # medians that go this way, called or not
                and (own == "same" if word == "same" else (each.found.log > 0) == (word == "faster"))
            ]  # fmt: skip
            pooled[variant, word] = pool_tails([each.pairs for each in alike], alike[0].noise, level)
    return [
        weigh_tails(
            word, each.tails, [tail.verdict for tail in tails], pooled.get((each.variant, word), ()),
            WordLimits(each.log_floor, margin),
        )
        if each.tails
        else TailVerdict(word, "")
        for each, word, tails in zip(some, words, spoken, strict=True)
    ]  # fmt: skip


def _further(
    some: Sequence[_Measured], weighed: Sequence[TailVerdict], asked: Asked
) -> list[tuple[int | None, int | None]]:
    """Return how many prompts, and how many rounds, would decide each cell that is open; no number mends a tail."""
    open_ = [
        place
        for place, left in enumerate(weighed)
        if left.word == "no evidence" and not left.opposition and not some[place].barred
    ]
    spreads = [spread(some[place].pairs, found) for place in open_ if (found := some[place].found)]
    plans = prompts_to_decide(spreads, asked.of(open_)), rounds_to_decide(spreads, asked.of(open_))
    further: list[tuple[int | None, int | None]] = [(None, None)] * len(some)
    for place, *numbers in zip(open_, *plans, strict=True):
        further[place] = numbers[0], numbers[1]
    return further


def _cell(each: _Measured, judged: _Judged | None, margin: float) -> Cell:
    found, pairs = each.found, each.pairs
    return Cell(
        variant=each.variant, class_=each.class_, load=each.load, metric=each.metric,
        prompts=len(pairs.logs), rounds=len(pairs.rounds), starts=each.starts,
        baseline=_median(pairs.baseline), measured=_median(pairs.measured),
        speed_up=_speed_up(pairs, found), p=found.p if found else None,
        adjusted_p=judged.adjusted_p if judged else None, noise_floor=each.floor,
        tails=judged.tails if judged else (), evidence=each.evidence,
        opposition=(judged.opposition or None) if judged else None,
        verdict=judged.word if judged else "no evidence", why=_why(each, judged, margin),
        detectable=judged.detectable if judged else None,
        more_prompts=judged.prompts if judged else None, more_rounds=judged.rounds if judged else None,
    )  # fmt: skip


def _why(each: _Measured, judged: _Judged | None, margin: float) -> str:
    speed_up = _speed_up(each.pairs, each.found)
    if judged is None or speed_up is None:
        return each.absent
    if each.barred:
        return each.barred
    if judged.opposition:
        joined = "but" if judged.word == "no evidence" else "and"
        median = "the same" if judged.median == "same" else judged.median
        opposed = f"the median is {median}, {joined} {judged.opposition}"
        return f"{opposed}; median {because.called(speed_up, judged.adjusted_p, judged.tests, each.floor)}"
    if judged.word == "same":
        return because.same(speed_up, margin)
    if judged.word != "no evidence":
        return because.called(speed_up, judged.adjusted_p, judged.tests, each.floor)
    reason = because.undecided(speed_up, judged.adjusted_p, judged.tests, each.floor, told=judged.told)
    within = each.found is not None and abs(each.found.log) <= each.log_floor
    return f"{reason}; {because.further(judged.prompts, judged.rounds, within=within)}"


def _speed_up(pairs: Pairs, found: Estimate | None) -> Ratio | None:
    if found:
        return make_ratio(found)
    return Ratio(value=exp(float(np.mean(pairs.logs)))) if len(pairs.logs) else None


def _median(values: Values) -> float | None:
    """Return the median of figures above 0; None of none."""
    if not len(values):
        return None
    low, high = np.sort(values)[[(len(values) - 1) // 2, len(values) // 2]]
    return float(low + (high - low) / 2)  # so that two large ones do not overflow
