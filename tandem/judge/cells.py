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

from tandem.bench.columns import BoolArray
from tandem.bench.quantiles import Values
from tandem.bench.request_table import UNKNOWN, RequestTable
from tandem.bench.schedule import LoadLevel
from tandem.judge import failure_bias, verdict_reason
from tandem.judge.interval import (
    FEWEST_STARTS,
    LEVEL,
    LogRatioEstimate,
    RoundNoise,
    estimate_log_ratio,
    mask_full_rounds,
    pool_round_noise,
)
from tandem.judge.output_validity import explain_invalidity
from tandem.judge.pairs import DECIDING_METRIC, JUDGED_METRICS, CellPairs, RequestPairing
from tandem.judge.power import (
    DecisionTargets,
    compute_detectable_effect,
    plan_prompts,
    plan_rounds,
    split_variance,
)
from tandem.judge.ratio import convert_estimate, convert_log_ratio
from tandem.judge.schema import CellVerdict, CellWord, EvidenceScope, RatioEstimate, RunControls, TailSpeedUp
from tandem.judge.tails import (
    TailEstimate,
    TailVerdict,
    WordLimits,
    estimate_tails,
    pool_tails,
    weigh_tails,
)


def judge_cells(
    table: RequestTable, controls: RunControls, *, margin: float, level: float = LEVEL
) -> tuple[CellVerdict, ...]:
    """Return the cells of all variants, by variant, class, load and metric.

    Args:
        table: the run.
        controls: which rounds are left out, and the noise floors.
        margin: a speed-up within 1 / (1 + margin) to 1 + margin is `same`; above 0.
        level: of the intervals; 1 - level is how often a whole report may call a difference that is none.
    """
    pairing = RequestPairing(table, mask_valid_rounds(table, controls))
    cell_estimates = [cell for variant in table.variants for cell in _estimate_cells(pairing, variant, controls, level)]
    decisions = iter(_decide_cells([cell for cell in cell_estimates if cell.estimate], margin, level))
    return tuple(_build_cell(cell, next(decisions) if cell.estimate else None, margin) for cell in cell_estimates)


def mask_valid_rounds(table: RequestTable, controls: RunControls) -> BoolArray:
    """Return which rounds count, by their number: not those in which the measuring machine was the bottleneck."""
    bottleneck_rounds = np.array(
        [bottleneck.round for bottleneck in controls.marked if 0 <= bottleneck.round <= table.round.max(initial=-1)],
        np.intp,
    )
    mask = np.ones(
        int(bottleneck_rounds.max(initial=-1)) + 1, bool
    )  # no longer than needed: a round's number may be anything
    mask[bottleneck_rounds] = False
    return mask


def adjust_p_values(p_values: Values) -> Values:
    """Return each p with all of them taken into account."""
    order = np.argsort(p_values, kind="stable")
    adjusted_p_values = np.empty(len(p_values))
    adjusted_p_values[order] = np.minimum(np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1)), 1.0)
    return adjusted_p_values


@dataclass(frozen=True, kw_only=True)
class _CellEstimate:
    """A cell before it is held against the others.

    `noise_floor` is a ratio, 1 or more; `absence_reason` is why there is no estimate, `bar_reason` why nothing may be
    said of one.
    """

    baseline: str
    variant: str
    class_: str
    load: LoadLevel
    metric: str
    pairs: CellPairs
    start_count: int | None
    evidence: EvidenceScope
    noise_floor: float | None
    bar_reason: str
    estimate: LogRatioEstimate | None
    round_noise: RoundNoise
    tails: tuple[TailEstimate, ...]
    absence_reason: str

    @property
    def log_floor(self) -> float:
        return math.log(self.noise_floor or 1.0)


def _estimate_cells(
    pairing: RequestPairing, variant: str, controls: RunControls, level: float
) -> Iterator[_CellEstimate]:
    table, baseline = pairing.table, pairing.table.baseline
    floors = {
        (floor_row.class_, floor_row.load, floor_row.metric): floor_row.ratio
        for floor_row in controls.floors
        if not math.isnan(floor_row.ratio)
    }
    failures, start_counts = failure_bias.count_failures(pairing, baseline, variant), _count_starts(pairing, variant)
    run_bar_reason = verdict_reason.explain_void(controls) or explain_invalidity(pairing, baseline, variant)
    request_counts = verdict_reason.count_requests(pairing, baseline), verdict_reason.count_requests(pairing, variant)
    cell_codes = np.unique(pairing.cell_codes()).tolist()
    pairs_of = {
        (cell_code, metric): pairing.pairs(
            baseline=baseline, variant=variant, class_=cell_code // len(table.loads), load=cell_code % len(table.loads),
            metric=metric,
        )
        for cell_code in cell_codes for metric in JUDGED_METRICS
    }  # fmt: skip
    noise = {
        metric: pool_round_noise(pairs_of[cell_code, metric].by_round for cell_code in cell_codes)
        for metric in JUDGED_METRICS
    }
    for cell in cell_codes:
        class_, load = divmod(cell, len(table.loads))
        for metric in JUDGED_METRICS:
            pairs = pairs_of[cell, metric]
            cell_estimate = estimate_log_ratio(
                pairs.logs, pairs.by_round, pairs.starts, placements=pairs.placements, noise=noise[metric], level=level
            )
            noise_floor = floors.get((table.classes[class_], table.loads[load], metric))
            has_start_factor = cell_estimate is not None and cell_estimate.start_count >= FEWEST_STARTS
            round_count = int(mask_full_rounds(pairs.by_round).sum())
            yield _CellEstimate(
                baseline=baseline,
                variant=variant,
                class_=table.classes[class_],
                load=table.loads[load],
                metric=metric,
                pairs=pairs,
                start_count=start_counts[cell],
                evidence="across-starts" if has_start_factor else "one-start",
                noise_floor=None if noise_floor is None else max(noise_floor, 1.0),
                bar_reason=run_bar_reason
                or failures.explain_bias(cell, baseline, variant)
                or verdict_reason.explain_few_rounds(round_count),
                estimate=cell_estimate,
                round_noise=noise[metric],
                tails=estimate_tails(pairs, cell_estimate, noise[metric], level)
                if cell_estimate is not None and metric == DECIDING_METRIC
                else (),
                absence_reason=""
                if cell_estimate
                else verdict_reason.explain_absence(*request_counts, cell, metric, len(pairs.logs)),
            )


def _count_starts(pairing: RequestPairing, arm: str) -> list[int | None]:
    """Return how many starts each cell's answers of an arm come from; None where one does not say."""
    table, cell_count = pairing.table, pairing.cell_count
    rows = pairing.row_mask() & table.arm_mask(arm) & ~table.failed
    cell, start = pairing.cell_codes()[rows], table.start[rows]
    start_counts = np.bincount(np.unique(np.column_stack([cell, start]), axis=0)[:, 0], minlength=cell_count)
    is_known = np.bincount(cell[start == UNKNOWN], minlength=cell_count) == 0
    return [
        int(count) if count and is_complete else None for count, is_complete in zip(start_counts, is_known, strict=True)
    ]


class _CellDecision(NamedTuple):
    """What an estimate is called with all `test_count` of the report taken into account, and what would decide it.

    `median_word` is the word without its mean and percentile, `opposition` what they say against it; empty of nothing.
    """

    word: CellWord
    test_count: int
    adjusted_p: float
    is_significant: bool
    median_word: CellWord
    opposition: str
    tails: tuple[TailSpeedUp, ...]
    detectable_speed_up: float
    prompt_count: int | None
    round_count: int | None


def _decide_cells(cells: Sequence[_CellEstimate], margin: float, level: float) -> Iterator[_CellDecision]:
    estimates = [cell.estimate for cell in cells if cell.estimate]
    tails = [tail.estimate for cell in cells for tail in cell.tails]
    adjusted_p_values = adjust_p_values(np.array([estimate.p for estimate in [*estimates, *tails]]))
    tail_p_values = iter(adjusted_p_values[len(estimates) :].tolist())
    adjusted_p_values, test_count = adjusted_p_values[: len(estimates)], len(adjusted_p_values)
    is_significant = adjusted_p_values < 1 - level
    targets = DecisionTargets(
        logs=np.array([estimate.log for estimate in estimates]),
        floors=np.array([cell.log_floor for cell in cells]),
        # where Holm's procedure would hold this p, the others as they are
        alpha=(1 - level) / np.maximum(np.sum(~is_significant) + is_significant, 1),
        margin=math.log1p(margin),
        level=level,
    )
    detectable_logs = compute_detectable_effect(
        np.array([estimate.se for estimate in estimates]), np.array([estimate.df for estimate in estimates]), targets
    )
    words = [
        _choose_word(cell, cell.estimate, is_significant=is_sure, margin=targets.margin)
        for cell, is_sure in zip(cells, is_significant, strict=True)
    ]
    tail_speed_ups = [_judge_tails(cell, tail_p_values, targets.margin, level) for cell in cells]
    tail_verdicts = _weigh_cells(cells, words, tail_speed_ups, targets.margin, level)
    sample_sizes = _plan_samples(cells, tail_verdicts, targets)
    for position, verdict in enumerate(tail_verdicts):
        yield _CellDecision(
            verdict.word,
            test_count,
            float(adjusted_p_values[position]),
            bool(is_significant[position]),
            words[position],
            verdict.opposition,
            tail_speed_ups[position],
            convert_log_ratio(detectable_logs[position]),
            *sample_sizes[position],
        )


def _choose_word(
    cell: _CellEstimate, estimate: LogRatioEstimate | None, *, is_significant: bool, margin: float
) -> CellWord:
    if cell.bar_reason or estimate is None:
        return "no evidence"
    if -margin <= estimate.low and estimate.high <= margin:
        return "same"
    if is_significant and abs(estimate.log) > cell.log_floor:
        return "faster" if estimate.log > 0 else "slower"
    return "no evidence"


def _judge_tails(
    cell: _CellEstimate, adjusted_p_values: Iterator[float], margin: float, level: float
) -> tuple[TailSpeedUp, ...]:
    """Return mean and 90th percentile of a cell, each with its word; `adjusted_p_values` goes on with theirs."""
    return tuple(
        TailSpeedUp(
            statistic=tail.statistic,
            baseline=tail.baseline_value,
            measured=tail.variant_value,
            speed_up=convert_estimate(tail.estimate),
            adjusted_p=(p := next(adjusted_p_values)),
            verdict=_choose_word(cell, tail.estimate, is_significant=p < 1 - level, margin=margin),
        )
        for tail in cell.tails
    )


def _weigh_cells(
    cells: Sequence[_CellEstimate],
    words: Sequence[CellWord],
    tail_speed_ups: Sequence[Sequence[TailSpeedUp]],
    margin: float,
    level: float,
) -> list[TailVerdict]:
    """Return the words that are left once means and 90th percentiles were looked at."""
    tails_by_word: dict[tuple[str, CellWord], tuple[TailEstimate, ...]] = {}
    for variant, word in {(cell.variant, word) for cell, word in zip(cells, words, strict=True) if cell.tails}:
        if word != "no evidence":
            similar_cells = [
                cell
                for cell, cell_word in zip(cells, words, strict=True)
                if cell.variant == variant and cell.tails and cell.estimate is not None and not cell.bar_reason
                # medians that go this way, called or not
                and (cell_word == "same" if word == "same" else (cell.estimate.log > 0) == (word == "faster"))
            ]  # fmt: skip
            tails_by_word[variant, word] = pool_tails(
                [cell.pairs for cell in similar_cells], similar_cells[0].round_noise, level
            )
    return [
        weigh_tails(
            word,
            cell.tails,
            [tail.verdict for tail in tails],
            tails_by_word.get((cell.variant, word), ()),
            WordLimits(cell.log_floor, margin),
        )
        if cell.tails
        else TailVerdict(word, "")
        for cell, word, tails in zip(cells, words, tail_speed_ups, strict=True)
    ]


def _plan_samples(
    cells: Sequence[_CellEstimate], tail_verdicts: Sequence[TailVerdict], targets: DecisionTargets
) -> list[tuple[int | None, int | None]]:
    """Return how many prompts, and how many rounds, would decide each cell that is open; no number mends a tail."""
    open_positions = [
        position
        for position, verdict in enumerate(tail_verdicts)
        if verdict.word == "no evidence" and not verdict.opposition and not cells[position].bar_reason
    ]
    spreads = [
        split_variance(cells[position].pairs, estimate)
        for position in open_positions
        if (estimate := cells[position].estimate)
    ]
    plans = plan_prompts(spreads, targets.select(open_positions)), plan_rounds(spreads, targets.select(open_positions))
    sample_sizes: list[tuple[int | None, int | None]] = [(None, None)] * len(cells)
    for position, *counts in zip(open_positions, *plans, strict=True):
        sample_sizes[position] = counts[0], counts[1]
    return sample_sizes


def _build_cell(cell: _CellEstimate, decision: _CellDecision | None, margin: float) -> CellVerdict:
    estimate, pairs = cell.estimate, cell.pairs
    return CellVerdict(
        variant=cell.variant,
        class_=cell.class_,
        load=cell.load,
        metric=cell.metric,
        prompts=len(pairs.logs),
        rounds=len(pairs.rounds),
        starts=cell.start_count,
        baseline=_compute_median(pairs.baseline_medians),
        measured=_compute_median(pairs.variant_medians),
        speed_up=_convert_speed_up(pairs, estimate),
        p=estimate.p if estimate else None,
        adjusted_p=decision.adjusted_p if decision else None,
        noise_floor=cell.noise_floor,
        tails=decision.tails if decision else (),
        evidence=cell.evidence,
        opposition=(decision.opposition or None) if decision else None,
        verdict=decision.word if decision else "no evidence",
        why=_explain_cell(cell, decision, margin),
        detectable=decision.detectable_speed_up if decision else None,
        more_prompts=decision.prompt_count if decision else None,
        more_rounds=decision.round_count if decision else None,
    )


def _explain_cell(cell: _CellEstimate, decision: _CellDecision | None, margin: float) -> str:
    speed_up = _convert_speed_up(cell.pairs, cell.estimate)
    if decision is None or speed_up is None:
        return cell.absence_reason
    if cell.bar_reason:
        return cell.bar_reason
    if decision.opposition:
        conjunction = "but" if decision.word == "no evidence" else "and"
        median_text = "the same" if decision.median_word == "same" else decision.median_word
        opposition = f"the median is {median_text}, {conjunction} {decision.opposition}"
        return (
            f"{opposition}; median "
            f"{verdict_reason.explain_difference(speed_up, decision.adjusted_p, decision.test_count, cell.noise_floor)}"
        )
    if decision.word == "same":
        return verdict_reason.explain_sameness(speed_up, margin)
    if decision.word != "no evidence":
        return verdict_reason.explain_difference(speed_up, decision.adjusted_p, decision.test_count, cell.noise_floor)
    reason = verdict_reason.explain_no_evidence(
        speed_up, decision.adjusted_p, decision.test_count, cell.noise_floor, is_significant=decision.is_significant
    )
    is_within_floor = cell.estimate is not None and abs(cell.estimate.log) <= cell.log_floor
    suggestion = verdict_reason.suggest_sample_size(
        decision.prompt_count, decision.round_count, is_within_floor=is_within_floor
    )
    return f"{reason}; {suggestion}"


def _convert_speed_up(pairs: CellPairs, estimate: LogRatioEstimate | None) -> RatioEstimate | None:
    if estimate:
        return convert_estimate(estimate)
    return RatioEstimate(value=convert_log_ratio(float(np.mean(pairs.logs)))) if len(pairs.logs) else None


def _compute_median(values: Values) -> float | None:
    """Return the median of figures above 0; None of none."""
    if not len(values):
        return None
    low, high = np.sort(values)[[(len(values) - 1) // 2, len(values) // 2]]
    return float(low + (high - low) / 2)  # so that two large ones do not overflow
