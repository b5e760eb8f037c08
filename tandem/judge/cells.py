"""The verdict on every cell (metric, variant, class, load), and on all classes of a load.

Invariant: `decide_speed_up` gives each word, with p adjusted for every test of the report. The E2E
of all classes together is tested first and has its own share of the level. Every other test shares
the rest (Holm); a test of E2E has twice the weight of another, because E2E decides the headline.
Whichever succeeds leaves its share to the other. So at a true speed-up of 1 at most 1 - level of
whole reports say faster or slower anywhere. The other metrics of all classes have intervals and are
not tested. A cell is `no evidence` if only survivors could be compared, if neither arm gives text,
or below FEWEST_ROUNDS rounds. The mean and the 90th percentile of E2E are tested too: if the median
is faster and one of these slower, the cell is `mixed`. Over all classes the mean alone counts: a
percentile over prompts of other speed-ups shows how they differ. A cell that is not judged says
why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tandem.bench.figures.columns import IntArray
from tandem.bench.figures.quantiles import Values
from tandem.bench.figures.summary import ALL_CLASSES
from tandem.bench.plan.schedule import LoadLevel
from tandem.judge import comparability, interval, power, verdict_reason
from tandem.judge.decision import (
    OVERALL_SHARE,
    SpeedUpDecision,
    adjust_with_fallback,
    decide_speed_up,
)
from tandem.judge.interval import (
    LEVEL,
    LogRatioEstimate,
    ResidualPool,
    RoundNoise,
    convert_log_ratio,
)
from tandem.judge.pairs import (
    DECIDING_METRIC,
    JUDGED_METRICS,
    WAIT_METRIC,
    CellPairs,
    RequestPairing,
    weigh_metric,
)
from tandem.judge.schema import (
    CellVerdict,
    CellWord,
    LoadVerdict,
    MetricSpeedUp,
    RatioEstimate,
    RunControls,
    TailSpeedUp,
)
from tandem.judge.tails import TailEstimate, TailVerdict, estimate_tails, pool_mean, weigh_tails


class SpeedUpVerdicts(NamedTuple):
    """The verdicts on a run's speed-ups.

    Args:
        cells: by variant, class, load and metric.
        overall: over all classes, by variant and load.
    """

    cells: tuple[CellVerdict, ...]
    overall: tuple[LoadVerdict, ...]


def judge_speed_ups(
    pairing: RequestPairing, controls: RunControls, *, margin: float, level: float = LEVEL
) -> SpeedUpVerdicts:
    """Return the verdicts on the cells of all variants, and on all classes at each load.

    Args:
        pairing: the rounds of the run that count.
        controls: the noise floors, and what voids the run.
        margin: a speed-up within 1 / (1 + margin) to 1 + margin is `same`; above 0.
        level: of the intervals; 1 - level is the share of whole reports that may call a difference
            where there is none.
    """
    cells: list[CellVerdict | _CellEstimate] = []
    overall: list[_LoadEstimate] = []
    for variant in pairing.table.variants:
        estimator = _SpeedUpEstimator(pairing, variant, controls, level)
        cells += estimator.estimate_cells()
        overall += estimator.estimate_loads()

    drafts = [*(load.deciding for load in overall), *cells]
    estimates = [draft for draft in drafts if isinstance(draft, _CellEstimate)]
    decided_cells = _decide_cells(pairing, estimates, margin, level)
    verdicts = [
        next(decided_cells) if isinstance(draft, _CellEstimate) else draft for draft in drafts
    ]
    return SpeedUpVerdicts(
        cells=tuple(verdicts[len(overall) :]),
        overall=tuple(
            LoadVerdict(deciding=verdict, beside=load.beside)
            for verdict, load in zip(verdicts, overall, strict=False)
        ),
    )


@dataclass(frozen=True, kw_only=True)
class _CellEstimate:
    """A cell with an interval, before its p-value is adjusted for the other cells.

    `draft` is the verdict as far as the cell alone decides it. `codes` are the cells that it is of:
    one, or all classes of a load. `class_noise` is what the prompts of a class share in a round.
    `bar_reason` says why the cell must not be judged; empty if it may be.
    """

    draft: CellVerdict
    codes: tuple[int, ...]
    is_overall: bool
    pairs: CellPairs
    estimate: LogRatioEstimate
    class_noise: RoundNoise
    pool: ResidualPool | None
    tails: tuple[TailEstimate, ...]
    failures: comparability.FailureCounts
    bar_reason: str

    @property
    def log_floor(self) -> float:
        return math.log(self.draft.noise_floor or 1.0)

    def decide(
        self, estimate: LogRatioEstimate, adjusted_p: float, margin: float, level: float
    ) -> SpeedUpDecision:
        """Return the decision on the cell, or on its mean or percentile, from an estimate."""
        allowed_estimate = None if self.bar_reason else estimate
        return decide_speed_up(
            allowed_estimate, adjusted_p, floor=self.draft.noise_floor, margin=margin, level=level
        )


class _LoadEstimate(NamedTuple):
    """All classes at a load: the deciding metric's estimate or its absence; other metrics."""

    deciding: CellVerdict | _CellEstimate
    beside: tuple[MetricSpeedUp, ...]


@dataclass(frozen=True)
class _SpeedUpEstimator:
    """The estimates of one variant."""

    pairing: RequestPairing
    variant: str
    controls: RunControls
    level: float

    @cached_property
    def arms(self) -> tuple[str, str]:
        return self.pairing.table.baseline, self.variant

    @cached_property
    def floors(self) -> dict[tuple[str, LoadLevel, str], float]:
        return self.controls.floor_ratios()

    @cached_property
    def overall_floors(self) -> dict[LoadLevel, float]:
        return self.controls.overall_floor_ratios()

    @cached_property
    def run_bar_reason(self) -> str:
        """Why no cell of the run may be judged; empty if they may be."""
        if self.controls.void:
            return f"void: {self.controls.void[0]}"
        return comparability.explain_invalidity(self.pairing, *self.arms)

    @cached_property
    def failures(self) -> comparability.CellFailures:
        return comparability.count_failures(self.pairing, *self.arms)

    @cached_property
    def metric_pairs(self) -> dict[str, list[CellPairs]]:
        """The pairs of every cell, by metric."""
        codes = self.pairing.known_cells()
        return {
            metric: [self.pairing.pairs(self.arms, code, metric) for code in codes]
            for metric in JUDGED_METRICS
        }

    @cached_property
    def noises(self) -> dict[str, RoundNoise]:
        """The noise that prompts of a class share in a round, by metric."""
        return {
            metric: interval.pool_round_noise(pairs.by_round for pairs in cell_pairs)
            for metric, cell_pairs in self.metric_pairs.items()
        }

    @cached_property
    def pools(self) -> dict[str, ResidualPool | None]:
        """The residuals of all prompts where they are skewed, by metric."""
        return {
            metric: interval.pool_residuals(pairs.logs for pairs in cell_pairs)
            for metric, cell_pairs in self.metric_pairs.items()
        }

    def estimate_cells(self) -> Iterator[CellVerdict | _CellEstimate]:
        """Yield the cells: with an estimate, or as the verdict that says why there is none."""
        for place, code in enumerate(self.pairing.known_cells()):
            for metric in JUDGED_METRICS:
                pairs = self.metric_pairs[metric][place]
                yield self._estimate_cell(pairs, (code,), metric)

    def estimate_loads(self) -> Iterator[_LoadEstimate]:
        """Yield all classes of each load as one cell."""
        codes_by_load: dict[LoadLevel, list[int]] = {}
        for code in self.pairing.known_cells():
            codes_by_load.setdefault(self.pairing.cell_place(code)[1], []).append(code)

        for codes in codes_by_load.values():
            cells = {}
            for metric in JUDGED_METRICS:
                pairs = self.pairing.join_cells(self.arms, codes, metric)
                cells[metric] = self._estimate_cell(pairs, tuple(codes), metric, is_overall=True)
            deciding = cells.pop(DECIDING_METRIC)
            yield _LoadEstimate(deciding, tuple(map(_describe_metric, cells.values())))

    def _estimate_cell(
        self, pairs: CellPairs, codes: tuple[int, ...], metric: str, *, is_overall: bool = False
    ) -> CellVerdict | _CellEstimate:
        """Return the estimate of one cell or several as one, or the verdict on its absence."""
        class_, load = self.pairing.cell_place(codes[0])
        floor = self.floors.get((class_, load, metric))
        if is_overall:
            class_ = ALL_CLASSES
            floor = self.overall_floors.get(load) if metric == DECIDING_METRIC else None
        class_noise = self.noises[metric]
        block_count = self.pairing.count_blocks(pairs)
        noise = RoundNoise(class_noise.variance / block_count, class_noise.df)
        pool = self.pools[metric]
        estimate = interval.estimate_log_ratio(
            pairs.logs,
            pairs.by_round,
            pairs.starts,
            placements=pairs.placements,
            noise=noise,
            pool=pool,
            level=self.level,
        )
        has_many_starts = estimate is not None and estimate.start_count >= interval.FEWEST_STARTS
        has_prompts = len(pairs.logs) > 0
        ratio = (
            RatioEstimate(value=convert_log_ratio(float(np.mean(pairs.logs))))
            if has_prompts
            else None
        )
        draft = CellVerdict(
            variant=self.variant,
            class_=class_,
            load=load,
            metric=metric,
            prompts=len(pairs.logs),
            rounds=len(pairs.rounds),
            baseline=float(np.median(pairs.baseline_medians)) if has_prompts else None,
            measured=float(np.median(pairs.variant_medians)) if has_prompts else None,
            speed_up=estimate.convert() if estimate else ratio,
            p=estimate.p if estimate else None,
            noise_floor=floor,
            evidence="across-starts" if has_many_starts else "one-start",
            verdict="no evidence",
            why="",
        )
        if estimate is None:
            reason = verdict_reason.explain_absence(
                self.pairing, self.arms, codes, metric, len(pairs.logs)
            )
            return replace(draft, why=reason)

        tails: tuple[TailEstimate, ...] = ()
        if metric == DECIDING_METRIC and not is_overall:
            tails = estimate_tails(pairs, estimate.shared_noise, noise, pool, self.level)
        round_count = int(interval.mask_full_rounds(pairs.by_round).sum())
        return _CellEstimate(
            draft=draft,
            codes=codes,
            is_overall=is_overall,
            pairs=pairs,
            estimate=estimate,
            class_noise=class_noise,
            pool=pool,
            tails=tails,
            failures=self.failures.count(),
            bar_reason=self.run_bar_reason
            or self._explain_bias(codes)
            or verdict_reason.explain_few_rounds(round_count),
        )

    def _explain_bias(self, codes: Sequence[int]) -> str:
        """Return why only survivors of some cells could be compared; empty where all could."""
        bias = self.failures.find_bias(codes)
        if bias is None:
            return ""
        reason = f"only survivors could be compared: {bias.failures.describe(*self.arms)}"
        if bias.cell is None or len(codes) == 1:
            return reason
        return f"{reason} (class {self.pairing.cell_place(bias.cell)[0]})"


def _describe_metric(cell: CellVerdict | _CellEstimate) -> MetricSpeedUp:
    draft = cell.draft if isinstance(cell, _CellEstimate) else cell
    return MetricSpeedUp(
        metric=draft.metric,
        baseline=draft.baseline,
        measured=draft.measured,
        speed_up=draft.speed_up,
    )


def _decide_cells(
    pairing: RequestPairing, cells: Sequence[_CellEstimate], margin: float, level: float
) -> Iterator[CellVerdict]:
    """Yield the verdicts, with every test of the report taken into account.

    Args:
        pairing: the run.
        cells: the loads first.
        margin, level: as for `judge_speed_ups`.
    """
    load_count = sum(cell.is_overall for cell in cells)
    tests, test_places = _list_tests(cells)
    own_p_values = np.array([test.estimate.p for test in tests])
    weights = np.array([test.weight for test in tests])
    test_p_values = np.concatenate(
        adjust_with_fallback(
            own_p_values[:load_count], own_p_values[load_count:], weights[load_count:]
        )
    )
    test_alphas = _find_alphas(test_p_values, weights, load_count, level)
    p_values = test_p_values[test_places]
    tail_count = sum(len(cell.tails) for cell in cells)
    tail_p_values = iter(test_p_values[len(tests) - tail_count :].tolist())

    targets = power.DecisionTargets(
        logs=np.array([cell.estimate.log for cell in cells]),
        floors=np.array([cell.log_floor for cell in cells]),
        alpha=test_alphas[test_places],
        margin=math.log1p(margin),
        level=level,
    )
    se = np.array([cell.estimate.se for cell in cells])
    df = np.array([cell.estimate.df for cell in cells])
    detectable_logs = power.compute_detectable_effect(se, df, targets)

    decisions = [
        cell.decide(cell.estimate, p, margin, level)
        for cell, p in zip(cells, p_values.tolist(), strict=True)
    ]
    tail_speed_ups = [_decide_tails(cell, tail_p_values, margin, level) for cell in cells]
    words = [decision.word for decision in decisions]
    tail_verdicts = _judge_tails(pairing, cells, words, tail_speed_ups, targets)
    sample_sizes = _plan_samples(cells, tail_verdicts, targets)

    for place, (cell, decision, tail_verdict) in enumerate(
        zip(cells, decisions, tail_verdicts, strict=True)
    ):
        prompt_count, round_count = sample_sizes.get(place, (None, None))
        verdict = replace(
            cell.draft,
            adjusted_p=float(p_values[place]),
            tails=tail_speed_ups[place],
            opposition=tail_verdict.opposition or None,
            verdict=tail_verdict.word,
            detectable=convert_log_ratio(detectable_logs[place]),
            more_prompts=prompt_count,
            more_rounds=round_count,
        )
        reason = cell.bar_reason or verdict_reason.explain_decision(
            verdict, decision, test_count=len(tests), margin=margin
        )
        yield replace(verdict, why=reason)


class _WeightedTest(NamedTuple):
    """A test of the report, and its weight in Holm's procedure."""

    estimate: LogRatioEstimate
    weight: float


def _list_tests(cells: Sequence[_CellEstimate]) -> tuple[list[_WeightedTest], IntArray]:
    """Return the tests of the report, the tails last, and the place of each cell's test among them.

    A load of one class is that class: it is tested once, with the loads.

    Args:
        cells: the loads first.
    """
    tests: list[_WeightedTest] = []
    places = []
    load_places = {}
    for cell in cells:
        key = (cell.draft.variant, cell.draft.metric, cell.codes)
        if cell.is_overall:
            load_places[key] = len(tests)
        if key in load_places and not cell.is_overall:
            places.append(load_places[key])
            continue
        places.append(len(tests))
        tests.append(_WeightedTest(cell.estimate, weigh_metric(cell.draft.metric)))

    for cell in cells:
        tests += [
            _WeightedTest(tail.estimate, weigh_metric(cell.draft.metric)) for tail in cell.tails
        ]
    return tests, np.array(places, np.intp)


def _find_alphas(p_values: Values, weights: Values, load_count: int, level: float) -> Values:
    """Return the level at which Holm's procedure tests each p, the other p-values as they are.

    Args:
        p_values: of all tests, adjusted, those of the loads first.
        weights: of the tests.
        load_count: how many these are.
        level: of the report.
    """
    alphas = np.empty(len(p_values))
    is_significant = p_values < 1 - level
    groups = (slice(0, load_count), slice(load_count, None))
    shares = (OVERALL_SHARE, 1 - OVERALL_SHARE)
    for own, other, share in zip(groups, groups[::-1], shares, strict=True):
        has_whole_level = bool(is_significant[other].all())
        own_level = (1 - level) * (1.0 if has_whole_level else share)
        open_weights = weights[own][~is_significant[own]].sum() + weights[own] * is_significant[own]
        alphas[own] = own_level * weights[own] / open_weights
    return alphas


def _decide_tails(
    cell: _CellEstimate, adjusted_p_values: Iterator[float], margin: float, level: float
) -> tuple[TailSpeedUp, ...]:
    """Return the tails of a cell with their words; it takes their p-values from the iterator."""
    speed_ups = []
    for tail in cell.tails:
        adjusted_p = next(adjusted_p_values)
        speed_ups.append(
            TailSpeedUp(
                statistic=tail.statistic,
                baseline=tail.baseline_value,
                measured=tail.variant_value,
                speed_up=tail.estimate.convert(),
                adjusted_p=adjusted_p,
                verdict=cell.decide(tail.estimate, adjusted_p, margin, level).word,
            )
        )
    return tuple(speed_ups)


def _judge_tails(
    pairing: RequestPairing,
    cells: Sequence[_CellEstimate],
    words: Sequence[CellWord],
    tail_speed_ups: Sequence[Sequence[TailSpeedUp]],
    targets: power.DecisionTargets,
) -> list[TailVerdict]:
    """Return the word of each cell after a look at its mean and 90th percentile."""
    verdicts = []
    pooled_means: dict[tuple[str, CellWord], TailEstimate] = {}
    # a load of one class has the tails of that class, which alone are estimated and tested
    words_by_cell: dict[tuple[str, tuple[int, ...]], dict[TailEstimate, CellWord]] = {}
    for cell, speed_ups in zip(cells, tail_speed_ups, strict=True):
        if cell.tails:
            tail_words = {
                tail: speed_up.verdict for tail, speed_up in zip(cell.tails, speed_ups, strict=True)
            }
            words_by_cell[cell.draft.variant, cell.codes] = tail_words

    for cell, word in zip(cells, words, strict=True):
        if word == "no evidence" or not (cell.tails or cell.is_overall):
            verdicts.append(TailVerdict(word))
            continue
        if cell.is_overall:
            pooled_mean = _pool_cells(pairing, [cell], targets.level)
        else:
            key = (cell.draft.variant, word)
            if key not in pooled_means:
                similar_cells = _select_similar(cells, words, *key)
                pooled_means[key] = _pool_cells(pairing, similar_cells, targets.level)
            pooled_mean = pooled_means[key]
        tail_words = words_by_cell.get((cell.draft.variant, cell.codes), {})
        verdict = weigh_tails(
            word,
            tail_words,
            pooled_mean,
            is_overall=cell.is_overall,
            floor=cell.log_floor,
            margin=targets.margin,
            failures=cell.failures,
        )
        verdicts.append(verdict)
    return verdicts


def _select_similar(
    cells: Sequence[_CellEstimate], words: Sequence[CellWord], variant: str, word: CellWord
) -> list[_CellEstimate]:
    """Return the cells of a variant whose medians go the way of a word, called or not."""
    similar_cells = []
    for cell, cell_word in zip(cells, words, strict=True):
        if not cell.tails or cell.draft.variant != variant or cell.bar_reason:
            continue
        goes_this_way = (cell.estimate.log > 0) == (word == "faster")
        if cell_word == "same" if word == "same" else goes_this_way:
            similar_cells.append(cell)
    return similar_cells


def _pool_cells(
    pairing: RequestPairing, cells: Sequence[_CellEstimate], level: float
) -> TailEstimate:
    """Return the mean over all requests of some cells of one variant, failed ones included."""
    first = cells[0]
    arms = (pairing.table.baseline, first.draft.variant)
    codes = [code for cell in cells for code in cell.codes]
    joined_pairs = pairing.join_cells(arms, codes, WAIT_METRIC)
    block_count = pairing.count_blocks(joined_pairs)
    noise = RoundNoise(first.class_noise.variance / block_count, first.class_noise.df)
    return pool_mean(joined_pairs, noise, first.pool, level)


def _plan_samples(
    cells: Sequence[_CellEstimate],
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
