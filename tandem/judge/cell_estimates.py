"""The estimates of a variant's speed-ups: of every cell, and of all classes of a load.

Invariant: a cell is barred from a word if only survivors could be compared, if neither arm gives
text, or below FEWEST_ROUNDS rounds; the estimate says why. A cell without an estimate says why too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tandem.bench.figures.summary import ALL_CLASSES
from tandem.judge import comparability, interval, verdict_reason
from tandem.judge.decision import SpeedUpDecision, decide_speed_up
from tandem.judge.interval import LogRatioEstimate, RoundNoise, convert_log_ratio
from tandem.judge.pairs import DECIDING_METRIC, JUDGED_METRICS, CellPairs, RequestPairing
from tandem.judge.quantile_curve import ResidualPool, pool_residuals
from tandem.judge.schema import CellVerdict, MetricSpeedUp, RatioEstimate, RunControls
from tandem.judge.tails import TailEstimate, estimate_tails


@dataclass(frozen=True, kw_only=True)
class CellEstimate:
    """A cell with an interval, before its p-value is adjusted for the other cells.

    Args:
        draft: the verdict as far as the cell alone decides it.
        codes: of the cells that it is of: one, or all classes of a load.
        is_overall: whether it is all classes of a load.
        pairs, estimate: of its requests.
        class_noise: what the prompts of a class share in a round.
        pool: the residuals of all prompts; None where they are not skewed.
        tails: mean and 90th percentile, of E2E in a class alone.
        failures: of both arms in the run.
        bar_reason: why the cell must not be judged; empty if it may be.
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
        """The log of the noise floor, 0 without one."""
        return math.log(self.draft.noise_floor or 1.0)

    def decide(
        self, estimate: LogRatioEstimate, adjusted_p: float, margin: float
    ) -> SpeedUpDecision:
        """Return the decision on the cell, or on its mean or percentile, from an estimate."""
        allowed_estimate = None if self.bar_reason else estimate
        return decide_speed_up(
            allowed_estimate, adjusted_p, floor=self.draft.noise_floor, margin=margin
        )


class LoadEstimate(NamedTuple):
    """All classes at a load: the deciding metric's estimate or its absence; other metrics."""

    deciding: CellVerdict | CellEstimate
    beside: tuple[MetricSpeedUp, ...]


class _MetricPairs(NamedTuple):
    """The pairs of every cell by one metric.

    Args:
        cells: in the order of their codes.
        noise: what the prompts of a class share in a round.
        pool: the residuals of all prompts; None where they are not skewed.
    """

    cells: list[CellPairs]
    noise: RoundNoise
    pool: ResidualPool | None


@dataclass(frozen=True)
class SpeedUpEstimator:
    """The estimates of one variant.

    Args:
        pairing: the rounds of the run that count.
        variant: its arm.
        controls: the noise floors, and what voids the run.
    """

    pairing: RequestPairing
    variant: str
    controls: RunControls

    @cached_property
    def _arms(self) -> tuple[str, str]:
        return self.pairing.table.baseline, self.variant

    @cached_property
    def _run_bar_reason(self) -> str:
        """Why no cell of the run may be judged; empty if they may be."""
        return comparability.explain_bar(self.pairing, self.controls, *self._arms)

    @cached_property
    def _failures(self) -> comparability.CellFailures:
        return comparability.count_failures(self.pairing, *self._arms)

    @cached_property
    def _metrics(self) -> dict[str, _MetricPairs]:
        metrics = {}
        codes = self.pairing.known_cells()
        for metric in JUDGED_METRICS:
            cells = [self.pairing.pairs(self._arms, code, metric) for code in codes]
            noise = interval.pool_round_noise([pairs.by_round for pairs in cells])
            pool = pool_residuals([pairs.logs for pairs in cells])
            metrics[metric] = _MetricPairs(cells, noise, pool)
        return metrics

    def estimate_cells(self) -> Iterator[CellVerdict | CellEstimate]:
        """Yield the cells: with an estimate, or as the verdict that says why there is none."""
        floors = self.controls.floor_ratios()
        for place, code in enumerate(self.pairing.known_cells()):
            for metric in JUDGED_METRICS:
                floor = floors.get((*self.pairing.cell_place(code), metric))
                yield self._estimate_cell(
                    self._metrics[metric].cells[place], (code,), metric, floor
                )

    def estimate_loads(self) -> Iterator[LoadEstimate]:
        """Yield all classes of each load as one cell."""
        floors = self.controls.overall_floor_ratios()
        for load, codes in self.pairing.group_loads().items():
            cells = {}
            for metric in JUDGED_METRICS:
                pairs = self.pairing.join_cells(self._arms, codes, metric)
                floor = floors.get(load) if metric == DECIDING_METRIC else None
                cells[metric] = self._estimate_cell(
                    pairs, tuple(codes), metric, floor, is_overall=True
                )
            deciding = cells.pop(DECIDING_METRIC)
            yield LoadEstimate(deciding, tuple(map(_extract_speed_up, cells.values())))

    def _estimate_cell(
        self,
        pairs: CellPairs,
        codes: tuple[int, ...],
        metric: str,
        floor: float | None,
        *,
        is_overall: bool = False,
    ) -> CellVerdict | CellEstimate:
        """Return the estimate of one cell or several as one, or the verdict on its absence."""
        _, class_noise, pool = self._metrics[metric]
        noise = self.pairing.average_noise(class_noise, pairs)
        estimate = pairs.estimate(noise, pool)
        draft = self._draft_verdict(pairs, estimate, codes[0], metric)
        draft = replace(draft, noise_floor=floor)
        if is_overall:
            draft = replace(draft, class_=ALL_CLASSES)
        if estimate is None:
            reason = verdict_reason.explain_absence(
                self.pairing, self._arms, codes, metric, len(pairs.logs)
            )
            return replace(draft, why=reason)

        tails: tuple[TailEstimate, ...] = ()
        if metric == DECIDING_METRIC and not is_overall:
            tails = estimate_tails(pairs, estimate.shared_noise, noise, pool)
        round_count = int(interval.mask_full_rounds(pairs.by_round).sum())
        return CellEstimate(
            draft=draft,
            codes=codes,
            is_overall=is_overall,
            pairs=pairs,
            estimate=estimate,
            class_noise=class_noise,
            pool=pool,
            tails=tails,
            failures=self._failures.count(),
            bar_reason=self._run_bar_reason
            or self._explain_bias(codes)
            or verdict_reason.explain_few_rounds(round_count),
        )

    def _draft_verdict(
        self, pairs: CellPairs, estimate: LogRatioEstimate | None, code: int, metric: str
    ) -> CellVerdict:
        """Return what is known of a cell without a word."""
        class_, load = self.pairing.cell_place(code)
        draft = CellVerdict(
            variant=self.variant,
            class_=class_,
            load=load,
            metric=metric,
            prompts=len(pairs.logs),
            rounds=len(pairs.rounds),
            verdict="no evidence",
            why="",
        )
        if not len(pairs.logs):
            return draft
        ratio = RatioEstimate(value=convert_log_ratio(float(np.mean(pairs.logs))))
        return replace(
            draft,
            baseline=float(np.median(pairs.baseline_medians)),
            measured=float(np.median(pairs.variant_medians)),
            speed_up=estimate.convert() if estimate else ratio,
            p=estimate.p if estimate else None,
            evidence=estimate.evidence if estimate else "one-start",
        )

    def _explain_bias(self, codes: Sequence[int]) -> str:
        """Return why only survivors of some cells could be compared; empty where all could."""
        bias = self._failures.find_bias(codes)
        if bias is None:
            return ""
        reason = f"only survivors could be compared: {bias.failures.describe(*self._arms)}"
        if bias.cell is None or len(codes) == 1:
            return reason
        return f"{reason} (class {self.pairing.cell_place(bias.cell)[0]})"


def _extract_speed_up(cell: CellVerdict | CellEstimate) -> MetricSpeedUp:
    draft = cell.draft if isinstance(cell, CellEstimate) else cell
    return MetricSpeedUp(
        metric=draft.metric,
        baseline=draft.baseline,
        measured=draft.measured,
        speed_up=draft.speed_up,
    )
