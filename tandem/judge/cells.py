"""The verdict on every cell (metric, variant, class, load), and on all classes of a load.

Invariant: `decide_speed_up` gives each word, with p adjusted for every test of the report. The E2E
of all classes together is tested first and has its own share of the level. The goodput limits of a
run that has some have another (tandem/judge/attainment.py). Every other test shares the rest
(Holm); a test of E2E has twice the weight of another, because E2E decides the headline. E2E of all
classes and the other tests leave their share to each other where they succeed. So at a true
speed-up of 1 at most 1 - LEVEL of whole reports say faster or slower anywhere. The other metrics of
all classes have intervals and are not tested. The mean and the 90th percentile of E2E are tested
too: if the median is faster and one of these slower, the cell is `mixed`. Over all classes the mean
alone counts: a percentile over prompts of other speed-ups shows how they differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tandem.bench.figures.columns import BoolArray
from tandem.bench.figures.quantiles import Values
from tandem.judge import power, verdict_reason
from tandem.judge.attainment import judge_attainment
from tandem.judge.cell_estimates import CellEstimate, LoadEstimate, SpeedUpEstimator
from tandem.judge.decision import ATTAINMENT_SHARE, OVERALL_SHARE, adjust_groups
from tandem.judge.interval import convert_log_ratio
from tandem.judge.pairs import WAIT_METRIC, RequestPairing, weigh_metric
from tandem.judge.schema import (
    LEVEL,
    AttainmentVerdict,
    CellVerdict,
    CellWord,
    LoadVerdict,
    RunControls,
    TailSpeedUp,
)
from tandem.judge.tails import TailEstimate, TailVerdict, pool_mean, weigh_tails


class SpeedUpVerdicts(NamedTuple):
    """The verdicts on a run's speed-ups.

    Args:
        cells: by variant, class, load and metric.
        overall: over all classes, by variant and load.
        attainment: of the goodput limits, by variant and load; empty without limits.
    """

    cells: tuple[CellVerdict, ...]
    overall: tuple[LoadVerdict, ...]
    attainment: tuple[AttainmentVerdict, ...] = ()


def judge_speed_ups(
    pairing: RequestPairing, controls: RunControls, *, margin: float
) -> SpeedUpVerdicts:
    """Return the verdicts on the cells of all variants, and on all classes at each load.

    Args:
        pairing: the rounds of the run that count.
        controls: the noise floors, and what voids the run.
        margin: a speed-up within 1 / (1 + margin) to 1 + margin is `same`; above 0.
    """
    cells: list[CellVerdict | CellEstimate] = []
    overall: list[LoadEstimate] = []
    for variant in pairing.table.variants:
        estimator = SpeedUpEstimator(pairing, variant, controls)
        cells += estimator.estimate_cells()
        overall += estimator.estimate_loads()

    attainment = judge_attainment(pairing, controls, margin=margin)
    has_limits = any(row.p is not None for row in attainment)
    drafts = [*(load.deciding for load in overall), *cells]
    estimates = [draft for draft in drafts if isinstance(draft, CellEstimate)]
    decided_cells = _decide_cells(pairing, estimates, margin, has_limits)
    verdicts = [
        next(decided_cells) if isinstance(draft, CellEstimate) else draft for draft in drafts
    ]
    return SpeedUpVerdicts(
        cells=tuple(verdicts[len(overall) :]),
        overall=tuple(
            LoadVerdict(deciding=verdict, beside=load.beside)
            for verdict, load in zip(verdicts, overall, strict=False)
        ),
        attainment=attainment,
    )


def _decide_cells(
    pairing: RequestPairing, cells: Sequence[CellEstimate], margin: float, has_limits: bool
) -> Iterator[CellVerdict]:
    """Yield the verdicts, with every test of the report taken into account.

    Args:
        pairing: the run.
        cells: the loads first.
        margin: as for `judge_speed_ups`.
        has_limits: whether the report tests goodput limits too.
    """
    tests = _adjust_tests(cells, has_limits)
    p_values = tests.p_values.tolist()
    decisions = []
    tails = []
    for cell, place, tail_place in zip(cells, tests.places, tests.tail_places, strict=True):
        decisions.append(cell.decide(cell.estimate, p_values[place], margin))
        tail_p_values = p_values[tail_place : tail_place + len(cell.tails)]
        tails.append(_decide_tails(cell, tail_p_values, margin))

    words = [decision.word for decision in decisions]
    tail_verdicts = _judge_tails(pairing, cells, words, tails, math.log1p(margin))
    targets = power.DecisionTargets(
        logs=np.array([cell.estimate.log for cell in cells]),
        floors=np.array([cell.log_floor for cell in cells]),
        alpha=tests.alphas[tests.places],
        margin=math.log1p(margin),
    )
    spreads = [(cell.estimate.se, cell.estimate.df) for cell in cells]
    se, df = np.array(spreads).reshape(-1, 2).T
    detectable_logs = power.compute_detectable_effect(se, df, targets)
    sample_sizes = _plan_samples(cells, tail_verdicts, targets)

    for number, cell in enumerate(cells):
        prompt_count, round_count = sample_sizes.get(number, (None, None))
        verdict = replace(
            cell.draft,
            adjusted_p=p_values[tests.places[number]],
            tails=tails[number],
            opposition=tail_verdicts[number].opposition or None,
            verdict=tail_verdicts[number].word,
            detectable=convert_log_ratio(detectable_logs[number]),
            more_prompts=prompt_count,
            more_rounds=round_count,
        )
        reason = cell.bar_reason or verdict_reason.explain_decision(
            verdict, decisions[number], test_count=len(p_values), margin=margin
        )
        yield replace(verdict, why=reason)


class _AdjustedTests(NamedTuple):
    """The tests of a report, those of the tails last.

    Args:
        p_values: adjusted for each other.
        alphas: the level at which Holm's procedure tests each, the other p-values as they are.
        places: of each cell's test.
        tail_places: of the first test of each cell's tails.
    """

    p_values: Values
    alphas: Values
    places: list[int]
    tail_places: list[int]


def _adjust_tests(cells: Sequence[CellEstimate], has_limits: bool) -> _AdjustedTests:
    """Return the tests of cells, the loads first.

    A load of one class is that class: it is tested once, with the loads.
    """
    own_p_values: list[float] = []
    weights: list[float] = []
    places = []
    tail_places = []
    load_places = {}
    for cell in cells:
        key = (cell.draft.variant, cell.draft.metric, cell.codes)
        if cell.is_overall:
            load_places[key] = len(own_p_values)
        place = load_places.get(key, len(own_p_values))
        places.append(place)
        if place == len(own_p_values):
            own_p_values.append(cell.estimate.p)
            weights.append(weigh_metric(cell.draft.metric, has_limits=has_limits))
    for cell in cells:
        tail_places.append(len(own_p_values))
        own_p_values += [tail.estimate.p for tail in cell.tails]
        weight = weigh_metric(cell.draft.metric, has_limits=has_limits)
        weights += [weight] * len(cell.tails)

    is_overall = np.arange(len(weights)) < sum(cell.is_overall for cell in cells)
    test_weights = np.array(weights)
    level_share = 1 - ATTAINMENT_SHARE if has_limits else 1.0
    p_values = adjust_groups(np.array(own_p_values), test_weights, is_overall, level_share)
    alphas = _find_alphas(p_values, test_weights, is_overall, level_share)
    return _AdjustedTests(p_values, alphas, places, tail_places)


def _find_alphas(
    p_values: Values, weights: Values, is_overall: BoolArray, level_share: float
) -> Values:
    """Return the level at which Holm's procedure tests each p, the other p-values as they are."""
    alphas = np.empty(len(p_values))
    is_significant = p_values < 1 - LEVEL
    for own, share in ((is_overall, OVERALL_SHARE), (~is_overall, level_share - OVERALL_SHARE)):
        has_whole_level = bool(is_significant[~own].all())
        own_level = (1 - LEVEL) * (level_share if has_whole_level else share)
        own_weights = weights[own]
        own_significant = is_significant[own]
        # a p that is rejected already would be tested beside those that are open
        open_weight = own_weights[~own_significant].sum()
        open_weights = open_weight + own_weights * own_significant
        alphas[own] = own_level * own_weights / open_weights
    return alphas


def _decide_tails(
    cell: CellEstimate, adjusted_p_values: Sequence[float], margin: float
) -> tuple[TailSpeedUp, ...]:
    """Return the tails of a cell with their words."""
    return tuple(
        TailSpeedUp(
            statistic=tail.statistic,
            baseline=tail.baseline_value,
            measured=tail.variant_value,
            speed_up=tail.estimate.convert(),
            adjusted_p=adjusted_p,
            verdict=cell.decide(tail.estimate, adjusted_p, margin).word,
        )
        for tail, adjusted_p in zip(cell.tails, adjusted_p_values, strict=True)
    )


def _judge_tails(
    pairing: RequestPairing,
    cells: Sequence[CellEstimate],
    words: Sequence[CellWord],
    tails: Sequence[Sequence[TailSpeedUp]],
    log_margin: float,
) -> list[TailVerdict]:
    """Return the word of each cell after a look at its mean and 90th percentile."""
    # a load of one class has the tails of that class, which alone are estimated and tested
    words_by_cell = {}
    for cell, speed_ups in zip(cells, tails, strict=True):
        if cell.tails:
            tail_words = [speed_up.verdict for speed_up in speed_ups]
            words_by_cell[cell.draft.variant, cell.codes] = dict(
                zip(cell.tails, tail_words, strict=True)
            )

    verdicts = []
    pooled_means = {}
    for cell, word in zip(cells, words, strict=True):
        variant = cell.draft.variant
        if word == "no evidence" or not (cell.tails or cell.is_overall):
            verdicts.append(TailVerdict(word))
            continue
        if cell.is_overall:
            pooled_mean = _pool_cells(pairing, [cell])
        else:
            if (variant, word) not in pooled_means:
                similar_cells = _select_similar(cells, words, variant, word)
                pooled_means[variant, word] = _pool_cells(pairing, similar_cells)
            pooled_mean = pooled_means[variant, word]
        verdict = weigh_tails(
            word,
            words_by_cell.get((variant, cell.codes), {}),
            pooled_mean,
            is_overall=cell.is_overall,
            floor=cell.log_floor,
            margin=log_margin,
            failures=cell.failures,
        )
        verdicts.append(verdict)
    return verdicts


def _select_similar(
    cells: Sequence[CellEstimate], words: Sequence[CellWord], variant: str, word: CellWord
) -> list[CellEstimate]:
    """Return the cells of a variant whose medians go the way of a word, called or not."""
    similar_cells = []
    for cell, cell_word in zip(cells, words, strict=True):
        if not cell.tails or cell.draft.variant != variant or cell.bar_reason:
            continue
        goes_this_way = (cell.estimate.log > 0) == (word == "faster")
        if cell_word == "same" if word == "same" else goes_this_way:
            similar_cells.append(cell)
    return similar_cells


def _pool_cells(pairing: RequestPairing, cells: Sequence[CellEstimate]) -> TailEstimate:
    """Return the mean over all requests of some cells of one variant, failed ones included."""
    first = cells[0]
    arms = (pairing.table.baseline, first.draft.variant)
    codes: list[int] = []
    for cell in cells:
        codes += cell.codes
    pairs = pairing.join_cells(arms, codes, WAIT_METRIC)
    return pool_mean(pairs, pairing.average_noise(first.class_noise, pairs), first.pool)


def _plan_samples(
    cells: Sequence[CellEstimate],
    tail_verdicts: Sequence[TailVerdict],
    targets: power.DecisionTargets,
) -> dict[int, tuple[int | None, int | None]]:
    """Return how many prompts and rounds would decide each open cell, where a number can."""
    places = [
        place
        for place, verdict in enumerate(tail_verdicts)
        if verdict.word == "no evidence" and not verdict.opposition and not cells[place].bar_reason
    ]
    spreads = [power.split_variance(cells[place].pairs, cells[place].estimate) for place in places]
    return dict(zip(places, power.plan_samples(spreads, targets.select(places)), strict=True))
