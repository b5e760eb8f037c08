"""Which class to which arm at each load, and what that saves against one arm for all.

Invariant: each round's route is chosen on the other rounds, so a choice made by chance saves
nothing, and every round is measured. The saving is judged as every other speed-up:
`decide_speed_up`, with the noise of the rounds, the noise floor over all classes and a p-value
adjusted for every saving of the report. It is judged only where the report calls a class, or all
classes, faster, slower or mixed. So equal servers get no word here that they do not get there.

A class of too few prompts goes with the arm that is better over all classes. Prompts count alike: a
run's mix of classes is that of its suites, not that of a user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tandem.bench.figures.columns import IntArray
from tandem.bench.figures.quantiles import Values
from tandem.bench.plan.schedule import FEWEST_ROUNDS, LoadLevel
from tandem.judge import comparability, interval
from tandem.judge.cells import SpeedUpVerdicts
from tandem.judge.decision import adjust_p_values, decide_speed_up
from tandem.judge.interval import RoundNoise, estimate_log_ratio
from tandem.judge.pairs import DECIDING_METRIC, CellPairs, CellRequests, RequestPairing
from tandem.judge.quantile_curve import FEWEST_PROMPTS
from tandem.judge.schema import (
    CellWord,
    ClassRoute,
    LoadRouting,
    RatioEstimate,
    RoutingSaving,
    RoutingWord,
    RunControls,
)
from tandem.judge.tails import TailEstimate, estimate_tails

_HOUR_MS = 3.6e6
_THOUSAND = 1000
_DIFFERENCES: tuple[CellWord, ...] = ("faster", "slower", "mixed")
_WORDS: Mapping[CellWord, RoutingWord] = {"faster": "saves", "slower": "costs", "same": "same"}


def route_classes(
    pairing: RequestPairing,
    speed_ups: SpeedUpVerdicts,
    *,
    usd_per_hour: float | None,
    controls: RunControls,
    margin: float,
) -> tuple[LoadRouting, ...]:
    """Return the route of each variant at each load at which both arms answered.

    Args:
        pairing: the rounds of the run that count.
        speed_ups: its verdicts.
        usd_per_hour: of all that the run occupies; None where nobody gave a price.
        controls: their noise floor hides a saving.
        margin: a saving within 1 / (1 + margin) to 1 + margin is none.
    """
    table = pairing.table
    arm_usd_per_ms = None
    if usd_per_hour is not None:
        arm_usd_per_ms = usd_per_hour / (1 + len(table.variants)) / _HOUR_MS

    deciding_cells = [cell for cell in speed_ups.cells if cell.metric == DECIDING_METRIC]
    deciding_cells += [load.deciding for load in speed_ups.overall]
    different_loads = {
        (cell.variant, cell.load) for cell in deciding_cells if cell.verdict in _DIFFERENCES
    }
    routers = []
    for variant in table.variants:
        for load in table.loads:
            arms = (table.baseline, variant)
            has_difference = (variant, load) in different_loads
            router = _LoadRouter(pairing, arms, load, arm_usd_per_ms, has_difference)
            if len(router.pairs.logs):
                routers.append(router)

    p_values = []
    for router in routers:
        estimates = [saving.estimate for saving in router.savings if saving.estimate is not None]
        p_values += [mean.estimate.p for mean, _ in estimates]
    adjusted_p_values = iter(adjust_p_values(np.array(p_values)).tolist())
    floors = controls.overall_floor_ratios()
    return tuple(
        router.describe(adjusted_p_values, floor=floors.get(router.load), margin=margin)
        for router in routers
    )


def choose_arms(classes: IntArray, logs: Values) -> IntArray:
    """Return the arm of each class: 0 the baseline, 1 the variant.

    Args:
        classes: code of each prompt's class, from 0.
        logs: log speed-up of each prompt; NaN where it is absent.
    """
    is_known = np.isfinite(logs)
    class_count = int(classes.max()) + 1
    counts = np.bincount(classes[is_known], minlength=class_count)
    sums = np.bincount(classes[is_known], logs[is_known], minlength=class_count)
    sums = np.where(counts >= FEWEST_PROMPTS, sums, logs[is_known].sum())
    return (sums > 0).astype(np.intp)


def choose_by_other_rounds(classes: IntArray, by_round: Values) -> IntArray:
    """Return the arm of each prompt in each round, chosen for its class by the other rounds.

    Args:
        classes: code of each prompt's class, from 0.
        by_round: log speed-up of each prompt in each round, NaN where absent. Shapes: (prompts,
            rounds).
    """
    arms = np.empty(by_round.shape, np.intp)
    for round_ in range(by_round.shape[1]):
        other_rounds = np.ma.masked_invalid(np.delete(by_round, round_, axis=1))
        logs = other_rounds.mean(axis=1).filled(np.nan)
        arms[:, round_] = choose_arms(classes, logs)[classes]
    return arms


@dataclass(frozen=True)
class _SavingEstimate:
    """What the route saves against one arm: mean and 90th percentile; None without an interval."""

    against: str
    estimate: tuple[TailEstimate, TailEstimate] | None


@dataclass(frozen=True)
class _LoadRouter:
    """The route between two arms at one load.

    Args:
        pairing: the run.
        arms: the baseline and the variant.
        load: the one.
        arm_usd_per_ms: price of an arm; None without one.
        has_difference: whether the report calls a class, or all classes, faster, slower or mixed.
    """

    pairing: RequestPairing
    arms: tuple[str, str]
    load: LoadLevel
    arm_usd_per_ms: float | None
    has_difference: bool

    @cached_property
    def codes(self) -> list[int]:
        """The cells that have pairs, one a class."""
        return [
            code
            for code in self.pairing.known_cells()
            if self.pairing.cell_place(code)[1] == self.load
            and len(self.pairing.pairs(self.arms, code, DECIDING_METRIC).logs)
        ]

    @cached_property
    def cells(self) -> list[CellPairs]:
        return [self.pairing.pairs(self.arms, code, DECIDING_METRIC) for code in self.codes]

    @cached_property
    def pairs(self) -> CellPairs:
        """All classes as one."""
        return self.pairing.join_cells(self.arms, self.codes, DECIDING_METRIC)

    @cached_property
    def classes(self) -> IntArray:
        """Place of each prompt's class among `codes`."""
        return np.repeat(np.arange(len(self.cells)), [len(cell.prompts) for cell in self.cells])

    @cached_property
    def bar_reason(self) -> str:
        """Why no saving may be judged; empty if it may be."""
        if int(interval.mask_full_rounds(self.pairs.by_round).sum()) < FEWEST_ROUNDS:
            return f"fewer than {FEWEST_ROUNDS} rounds"
        failures = comparability.count_failures(self.pairing, *self.arms).count()
        if failures.is_biased:
            return f"only survivors could be compared: {failures.describe(*self.arms)}"
        invalid_reason = comparability.explain_invalidity(self.pairing, *self.arms)
        if invalid_reason or self.has_difference:
            return invalid_reason
        return "no class is called faster or slower, so no route is shown to differ"

    @cached_property
    def savings(self) -> tuple[_SavingEstimate, ...]:
        """What the route saves against each arm."""
        if self.pairs.by_round.shape[1] < 2:  # noqa: PLR2004 - a route is chosen on another round
            return tuple(_SavingEstimate(arm, None) for arm in self.arms)
        routes = choose_by_other_rounds(self.classes, self.pairs.by_round)
        noise = interval.pool_round_noise(cell.by_round for cell in self.cells)
        return tuple(self._estimate_saving(routes, arm, noise) for arm in (0, 1))

    def _estimate_saving(self, routes: IntArray, arm: int, noise: RoundNoise) -> _SavingEstimate:
        """Return what a route saves against one arm for all classes.

        Args:
            routes: the arm of each prompt in each round. Shapes: (prompts, rounds).
            arm: the one.
            noise: that prompts of a class share in a round.
        """
        requests = self.pairs.requests
        is_single = requests.arm == arm
        is_routed = requests.arm == routes[requests.prompt, requests.round]
        rows = np.concatenate([np.flatnonzero(is_single), np.flatnonzero(is_routed)])
        sides = np.repeat([0, 1], [is_single.sum(), is_routed.sum()])
        joined_requests = CellRequests(
            requests.prompt[rows], requests.round[rows], sides.astype(np.intp), requests.value[rows]
        )

        # only classes that go to the other arm differ from it
        differing_noise = RoundNoise(noise.variance * float(np.mean(routes != arm)), noise.df)
        own_noise = self.pairing.average_noise(differing_noise, self.pairs)
        shared_noise = RoundNoise(own_noise.variance / routes.shape[1], noise.df)

        estimate = None
        if len(self.pairs.logs) >= FEWEST_PROMPTS:
            pairs = replace(self.pairs, requests=joined_requests)
            estimate = estimate_tails(pairs, shared_noise, own_noise, None)
        return _SavingEstimate(self.arms[arm], estimate)

    def describe(
        self, adjusted_p_values: Iterator[float], *, floor: float | None, margin: float
    ) -> LoadRouting:
        """Return the route and its savings; it takes their p-values from the iterator."""
        return LoadRouting(
            variant=self.arms[1],
            load=self.load,
            routes=tuple(self._describe_routes()),
            savings=tuple(
                self._describe_saving(saving, adjusted_p_values, floor=floor, margin=margin)
                for saving in self.savings
            ),
            why=self.bar_reason,
        )

    def _describe_routes(self) -> Iterator[ClassRoute]:
        chosen_arms = choose_arms(self.classes, self.pairs.logs).tolist()
        for code, cell, arm in zip(self.codes, self.cells, chosen_arms, strict=True):
            estimate = estimate_log_ratio(cell.logs)
            yield ClassRoute(
                class_=self.pairing.cell_place(code)[0],
                arm=self.arms[arm],
                prompts=len(cell.logs),
                speed_up=estimate.convert() if estimate else None,
            )

    def _describe_saving(
        self,
        saving: _SavingEstimate,
        adjusted_p_values: Iterator[float],
        *,
        floor: float | None,
        margin: float,
    ) -> RoutingSaving:
        if saving.estimate is None:
            none = RatioEstimate(value=1.0)
            return RoutingSaving(against=saving.against, mean=none, p90=none, word="no evidence")

        mean, p90 = saving.estimate
        allowed_estimate = None if self.bar_reason else mean.estimate
        decision = decide_speed_up(
            allowed_estimate, next(adjusted_p_values), floor=floor, margin=margin
        )
        return RoutingSaving(
            against=saving.against,
            mean=mean.estimate.convert(),
            p90=p90.estimate.convert(),
            usd_per_1000_requests=self._price(mean.baseline_value - mean.variant_value),
            evidence=mean.estimate.evidence,
            word=_WORDS.get(decision.word, "no evidence"),
        )

    def _price(self, saved_ms: float) -> float | None:
        """Return what 1,000 requests save, each of them with its share of its arm."""
        if self.arm_usd_per_ms is None or self.load.concurrency is None:
            return None
        return _THOUSAND * saved_ms * self.arm_usd_per_ms / self.load.concurrency
