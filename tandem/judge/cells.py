"""The verdict on every cell: one metric of one variant in one class at one load.

Invariant: `decide_speed_up` gives each word, with p adjusted for every test of the report (Holm). So at a true speed-up
of 1 at most 1 - level of whole reports say faster or slower anywhere. A cell is `no evidence` if only survivors could
be compared, if neither arm gives text, or below FEWEST_ROUNDS rounds. The mean and the 90th percentile of E2E are
tested too: if the median is faster and one of these slower, the cell is `mixed`. A cell that is not judged says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from msgspec.structs import replace

from tandem.bench.request_table import RequestTable
from tandem.judge import comparability, interval, power, verdict_reason
from tandem.judge.decision import SpeedUpDecision, adjust_p_values, decide_speed_up
from tandem.judge.interval import LEVEL, LogRatioEstimate, RoundNoise, convert_log_ratio
from tandem.judge.pairs import DECIDING_METRIC, JUDGED_METRICS, CellPairs, RequestPairing
from tandem.judge.schema import CellVerdict, CellWord, RatioEstimate, RunControls, TailSpeedUp
from tandem.judge.tails import TailEstimate, TailVerdict, estimate_tails, pool_tails, weigh_tails


def judge_cells(
    table: RequestTable, controls: RunControls, *, margin: float, level: float = LEVEL
) -> tuple[CellVerdict, ...]:
    """Return the cells of all variants, by variant, class, load and metric.

    Args:
        table: the run.
        controls: which rounds are left out, and the noise floors.
        margin: a speed-up within 1 / (1 + margin) to 1 + margin is `same`; above 0.
        level: of the intervals; 1 - level is the share of whole reports that may call a difference where there is none.
    """
    pairing = RequestPairing(table, controls.marked_rounds)
    cells = [cell for variant in table.variants for cell in _estimate_cells(pairing, variant, controls, level)]
    verdicts = _decide_cells([cell for cell in cells if isinstance(cell, _CellEstimate)], margin, level)
    return tuple(next(verdicts) if isinstance(cell, _CellEstimate) else cell for cell in cells)


@dataclass(frozen=True, kw_only=True)
class _CellEstimate:
    """A cell with an interval, before its p-value is adjusted for the other cells.

    `draft` is the verdict as far as the cell alone decides it. `bar_reason` says why the cell must not be judged; empty
    if it may be.
    """

    draft: CellVerdict
    pairs: CellPairs
    estimate: LogRatioEstimate
    round_noise: RoundNoise
    tails: tuple[TailEstimate, ...]
    bar_reason: str

    @property
    def log_floor(self) -> float:
        return math.log(self.draft.noise_floor or 1.0)

    def decide(self, estimate: LogRatioEstimate, adjusted_p: float, margin: float, level: float) -> SpeedUpDecision:
        """Return the decision on the cell, or on its mean or percentile, from an estimate."""
        allowed_estimate = None if self.bar_reason else estimate
        return decide_speed_up(allowed_estimate, adjusted_p, floor=self.draft.noise_floor, margin=margin, level=level)


def _estimate_cells(
    pairing: RequestPairing, variant: str, controls: RunControls, level: float
) -> Iterator[CellVerdict | _CellEstimate]:
    """Yield the cells of a variant: with an estimate, or as the verdict that says why there is none."""
    arms = (pairing.table.baseline, variant)
    floors = controls.floor_ratios()
    failures = comparability.count_failures(pairing, *arms)
    run_bar_reason = comparability.explain_invalidity(pairing, *arms)
    if controls.void:
        run_bar_reason = f"void: {controls.void[0]}"
    keys = list(product(pairing.known_cells(), JUDGED_METRICS))
    cell_pairs = {key: pairing.pairs(arms, *key) for key in keys}
    noises = {
        metric: interval.pool_round_noise(cell_pairs[key].by_round for key in keys if key[1] == metric)
        for metric in JUDGED_METRICS
    }
    for (code, metric), pairs in cell_pairs.items():
        noise, (class_, load) = noises[metric], pairing.cell_place(code)
        estimate = interval.estimate_log_ratio(
            pairs.logs, pairs.by_round, pairs.starts, placements=pairs.placements, noise=noise, level=level
        )
        ratio = RatioEstimate(value=convert_log_ratio(float(np.mean(pairs.logs)))) if len(pairs.logs) else None
        has_many_starts = estimate is not None and estimate.start_count >= interval.FEWEST_STARTS
        draft = CellVerdict(
            variant=variant, class_=class_, load=load, metric=metric, prompts=len(pairs.logs),
            rounds=len(pairs.rounds), baseline=float(np.median(pairs.baseline_medians)) if len(pairs.logs) else None,
            measured=float(np.median(pairs.variant_medians)) if len(pairs.logs) else None,
            speed_up=estimate.convert() if estimate else ratio, p=estimate.p if estimate else None,
            noise_floor=floors.get((class_, load, metric)),
            evidence="across-starts" if has_many_starts else "one-start", verdict="no evidence", why="",
        )  # fmt: skip
        if estimate is None:
            yield replace(draft, why=verdict_reason.explain_absence(pairing, arms, code, metric, len(pairs.logs)))
            continue
        round_count = int(interval.mask_full_rounds(pairs.by_round).sum())
        yield _CellEstimate(
            draft=draft,
            pairs=pairs,
            estimate=estimate,
            round_noise=noise,
            tails=estimate_tails(pairs, estimate.shared_noise, noise, level) if metric == DECIDING_METRIC else (),
            bar_reason=run_bar_reason
            or failures.explain_bias(code, *arms)
            or verdict_reason.explain_few_rounds(round_count),
        )


def _decide_cells(cells: Sequence[_CellEstimate], margin: float, level: float) -> Iterator[CellVerdict]:
    """Yield the verdicts, with every test of the report taken into account."""
    estimates = [cell.estimate for cell in cells]
    tails = [tail.estimate for cell in cells for tail in cell.tails]
    adjusted_p_values = adjust_p_values(np.array([estimate.p for estimate in [*estimates, *tails]]))
    p_values, tail_p_values = adjusted_p_values[: len(cells)], iter(adjusted_p_values[len(cells) :].tolist())
    is_significant = p_values < 1 - level
    targets = power.DecisionTargets(
        logs=np.array([estimate.log for estimate in estimates]),
        floors=np.array([cell.log_floor for cell in cells]),
        # the level at which Holm's procedure tests this p, the other p-values as they are
        alpha=(1 - level) / np.maximum(np.sum(~is_significant) + is_significant, 1),
        margin=math.log1p(margin),
        level=level,
    )
    se, df = (np.array([getattr(estimate, name) for estimate in estimates]) for name in ("se", "df"))
    detectable_logs = power.compute_detectable_effect(se, df, targets)
    decisions = [cell.decide(cell.estimate, p, margin, level) for cell, p in zip(cells, p_values.tolist(), strict=True)]
    tail_speed_ups = [
        tuple(
            TailSpeedUp(
                statistic=tail.statistic,
                baseline=tail.baseline_value,
                measured=tail.variant_value,
                speed_up=tail.estimate.convert(),
                adjusted_p=(p := next(tail_p_values)),
                verdict=cell.decide(tail.estimate, p, margin, level).word,
            )
            for tail in cell.tails
        )
        for cell in cells
    ]
    tail_verdicts = _judge_tails(cells, [decision.word for decision in decisions], tail_speed_ups, targets)
    sample_sizes = _plan_samples(cells, tail_verdicts, targets)
    for place, (cell, decision, tail_verdict) in enumerate(zip(cells, decisions, tail_verdicts, strict=True)):
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
            verdict, decision, test_count=len(adjusted_p_values), margin=margin
        )
        yield replace(verdict, why=reason)


def _judge_tails(
    cells: Sequence[_CellEstimate],
    words: Sequence[CellWord],
    tail_speed_ups: Sequence[Sequence[TailSpeedUp]],
    targets: power.DecisionTargets,
) -> list[TailVerdict]:
    """Return the word of each cell after a look at its mean and 90th percentile."""
    entries = [(cell, word) for cell, word in zip(cells, words, strict=True) if cell.tails]
    pooled_tails: dict[tuple[str, CellWord], tuple[TailEstimate, ...]] = {}
    for variant, word in {(cell.draft.variant, word) for cell, word in entries if word != "no evidence"}:
        similar_cells = [  # those whose medians go this way, called or not
            cell
            for cell, cell_word in entries
            if cell.draft.variant == variant
            and not cell.bar_reason
            and (cell_word == "same" if word == "same" else (cell.estimate.log > 0) == (word == "faster"))
        ]
        pairs = [cell.pairs for cell in similar_cells]
        pooled_tails[variant, word] = pool_tails(pairs, similar_cells[0].round_noise, targets.level)
    return [
        weigh_tails(
            word,
            {tail: speed_up.verdict for tail, speed_up in zip(cell.tails, speed_ups, strict=True)},
            pooled_tails.get((cell.draft.variant, word), ()),
            floor=cell.log_floor,
            margin=targets.margin,
        )
        if cell.tails
        else TailVerdict(word)
        for cell, word, speed_ups in zip(cells, words, tail_speed_ups, strict=True)
    ]


def _plan_samples(
    cells: Sequence[_CellEstimate], tail_verdicts: Sequence[TailVerdict], targets: power.DecisionTargets
) -> dict[int, tuple[int | None, int | None]]:
    """Return how many prompts, and how many rounds, would decide each open cell; no number decides a contrary tail."""
    places = [
        place
        for place, verdict in enumerate(tail_verdicts)
        if verdict.word == "no evidence" and not verdict.opposition and not cells[place].bar_reason
    ]
    spreads = [power.split_variance(cells[place].pairs, cells[place].estimate) for place in places]
    return dict(zip(places, power.plan_samples(spreads, targets.select(places)), strict=True))
