"""Which class to which arm at each load, and what that saves against one arm for all.

Invariant: one half of a class's prompts chooses its arm and the other half measures the saving, and the reverse, so
that a choice made by chance saves nothing. Intervals are over prompts. A class of too few prompts goes with the arm
that is better over all classes. Prompts count alike: a run's mix of classes is that of its suites, not that of a user.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tandem.bench.columns import BoolArray, IntArray
from tandem.bench.quantiles import Values
from tandem.bench.request_table import RequestTable
from tandem.judge.interval import FEWEST_PROMPTS, LEVEL, estimate_log_ratio
from tandem.judge.pairs import DECIDING_METRIC, RequestPairing
from tandem.judge.schema import ClassRoute, LoadRouting, RatioEstimate, RoutingSaving, RoutingWord, RunControls
from tandem.judge.tails import QUANTILE

_RESAMPLES, _FEWEST_RESAMPLES, _SEED = 2_000, 200, 20
_NUMBERS = 4_000_000  # of resampled prompts: 32 MB
_HOUR_S, _THOUSAND = 3600.0, 1000


class PromptTimes(NamedTuple):
    """Every prompt that both arms answered at a load; one value a prompt.

    Args:
        class_: code of its class.
        times_ms: E2E of the baseline and of the variant. Shape: (prompts, 2).
    """

    class_: IntArray
    times_ms: Values


def route_classes(
    table: RequestTable, variant: str, *, usd_per_hour: float | None, controls: RunControls
) -> tuple[LoadRouting, ...]:
    """Return a route at each load at which both arms answered.

    Args:
        table: the run.
        variant: the arm beside the baseline.
        usd_per_hour: of all that the run occupies; None where nobody gave a price.
        controls: rounds that they mark are left out.
    """
    pairing, arms = RequestPairing(table, controls.marked_rounds), (table.baseline, variant)
    share_usd = None if usd_per_hour is None else usd_per_hour / (1 + len(table.variants))
    routes = []
    for load in table.loads:
        classes, logs, times = [], [], []
        for cell in pairing.known_cells():
            class_, cell_load = pairing.cell_place(cell)
            pairs = pairing.pairs(arms, cell, DECIDING_METRIC)
            if cell_load == load and len(pairs.logs):
                classes.append(class_)
                logs.append(pairs.logs)
                times.append(np.column_stack([pairs.baseline_medians, pairs.variant_medians]))
        if classes:
            prompts = PromptTimes(np.repeat(np.arange(len(times)), [len(part) for part in times]), np.vstack(times))
            usd = None if share_usd is None or load.concurrency is None else share_usd / _HOUR_S / load.concurrency
            chosen = choose_arms(prompts)
            routes.append(
                LoadRouting(
                    variant=variant,
                    load=load,
                    routes=tuple(_describe_routes(classes, logs, chosen, arms)),
                    savings=tuple(
                        _estimate_saving(prompts, arm, name, usd_per_ms=usd and usd / 1e3)
                        for arm, name in enumerate(arms)
                    ),
                )
            )
    return tuple(routes)


def choose_arms(prompts: PromptTimes) -> IntArray:
    """Return the arm of each class: 0 the baseline, 1 the variant."""
    return _choose_by_logs(prompts, np.ones(len(prompts.class_), bool), FEWEST_PROMPTS)


def _choose_by_logs(prompts: PromptTimes, mask: BoolArray, fewest: int) -> IntArray:
    """Return the arm of each class by the mean log speed-up of some prompts, of all classes where they are too few."""
    class_count = int(prompts.class_.max()) + 1
    logs = np.log(prompts.times_ms[:, 0]) - np.log(prompts.times_ms[:, 1])
    counts = np.bincount(prompts.class_[mask], minlength=class_count)
    sums = np.bincount(prompts.class_[mask], logs[mask], minlength=class_count)
    overall = logs[mask].sum() if mask.any() else logs.sum()
    sums = np.where(counts >= fewest, sums, overall)
    arms: IntArray = (sums > 0).astype(np.intp)
    return arms


def hold_out_arms(prompts: PromptTimes) -> IntArray:
    """Return the arm of each prompt, chosen for its class by prompts of the other half."""
    places = np.zeros(len(prompts.class_), np.intp)
    for class_ in np.unique(prompts.class_):
        rows = np.flatnonzero(prompts.class_ == class_)
        places[rows] = np.arange(len(rows))
    arms = np.empty(len(prompts.class_), np.intp)
    for half in (0, 1):
        own = places % 2 == half
        arms[own] = _choose_by_logs(prompts, ~own, FEWEST_PROMPTS // 2)[prompts.class_[own]]
    return arms


def _estimate_saving(prompts: PromptTimes, arm: int, name: str, *, usd_per_ms: float | None) -> RoutingSaving:
    """Return what the held-out route saves against one arm for all classes."""
    count = len(prompts.class_)
    routed_ms = prompts.times_ms[np.arange(count), hold_out_arms(prompts)]
    single_ms = prompts.times_ms[:, arm]
    draws = min(_RESAMPLES, max(_NUMBERS // count, _FEWEST_RESAMPLES))
    rows = np.random.default_rng([_SEED, count]).integers(0, count, (draws, count))
    rows[0] = np.arange(count)  # the first is the sample itself
    means = single_ms[rows].mean(axis=1) / routed_ms[rows].mean(axis=1)
    tails = np.quantile(single_ms[rows], QUANTILE, axis=1) / np.quantile(routed_ms[rows], QUANTILE, axis=1)
    mean, p90 = (_find_interval(values) for values in (means, tails))
    saved_usd = None if usd_per_ms is None else _THOUSAND * usd_per_ms * float(single_ms.mean() - routed_ms.mean())
    word: RoutingWord = "no evidence"
    if count >= FEWEST_PROMPTS and mean.low is not None and mean.high is not None:
        word = "saves" if mean.low > 1 else "costs" if mean.high < 1 else "no evidence"
    return RoutingSaving(against=name, mean=mean, p90=p90, usd_per_1000_requests=saved_usd, word=word)


def _find_interval(values: Values) -> RatioEstimate:
    low, high = np.quantile(values[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return RatioEstimate(value=float(values[0]), low=float(low), high=float(high))


def _describe_routes(
    classes: list[str], logs: list[Values], chosen: IntArray, arms: tuple[str, str]
) -> Iterator[ClassRoute]:
    for class_, values, arm in zip(classes, logs, chosen.tolist(), strict=True):
        estimate = estimate_log_ratio(values)
        yield ClassRoute(
            class_=class_, arm=arms[arm], prompts=len(values), speed_up=estimate.convert() if estimate else None
        )
