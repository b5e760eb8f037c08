"""The figures of turns: the system's throughput in an arm's turn, and the server's counters.

Invariant: busy time is the time in which at least one of the requests ran, so it includes neither
the other arm's turns nor the pause before a resume; a turn with an unknown value gives no figure,
and a note counts such turns.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tandem.bench.figures.columns import BoolArray, IntArray
from tandem.bench.figures.quantiles import Values, ValueSpread, compute_spread
from tandem.bench.figures.request_table import RequestTable
from tandem.bench.figures.row_groups import RowGroups
from tandem.bench.plan.schedule import ArmLoad, TurnKey
from tandem.bench.records.counters import AcceptanceRates, CounterChange, compute_rates
from tandem.bench.records.manifest import ManifestArm

Spreads = dict[tuple[ArmLoad, str], ValueSpread]
# counts of one turn, and the number of its failed requests
_TurnChange = tuple[TurnKey, CounterChange, int]
LENGTH_METRIC = "acceptance_length"
# if the server's and the records' counts differ by more than this factor, one is wrong
_MAX_COUNT_RATIO = 1.01
_FOREIGN_TOKENS = (
    "its counters hold more tokens than the records:"
    " another client asked it, and is in its acceptance"
)
_RUNNING_REQUESTS = "requests were running while its counters were read"
_MISSING_TOKENS = (
    "the records hold more tokens than its counters: its usage counts too many, and its TPOT is too"
    " low; or other servers answer at its address"
)


class TurnRemark(NamedTuple):
    """A sentence on turns of an arm.

    Args:
        arm: name.
        text: the sentence.
        metric: of acceptance, if it is about one; empty for any other remark.
        absence: why that metric has no figure; empty where it has one.
    """

    arm: str
    text: str
    metric: str = ""
    absence: str = ""


@dataclass(frozen=True)
class TurnMetrics:
    """Figures of turns.

    Args:
        spreads: by load and metric.
        values: values of each spread, turn by turn. Throughput of all classes together joins their
            turns of one round and slot into one turn; figures from counters keep the turn's own
            class there.
        remarks: number of turns of each.
    """

    spreads: Spreads = field(default_factory=dict)
    values: dict[tuple[ArmLoad, str], Sequence[tuple[TurnKey, float]]] = field(default_factory=dict)
    remarks: Counter[TurnRemark] = field(default_factory=Counter)

    def add(
        self, load: ArmLoad, name: str, values: Sequence[tuple[TurnKey, float]], mean: float
    ) -> None:
        """Add a figure's values turn by turn, with the mean over the pooled counts of the turns."""
        spread = compute_spread(np.array([value for _, value in values]))
        if spread is not None:
            self.values[load, name] = values
            self.spreads[load, name] = spread._replace(mean=mean)


def compute_turn_metrics(
    table: RequestTable, changes: Sequence[tuple[TurnKey, CounterChange]]
) -> TurnMetrics:
    """Return throughput and the figures of counters, by load and for all classes together.

    Args:
        table: the requests of the turns.
        changes: one for each turn with a scrape before and after.
    """
    metrics = compute_acceptance(table, table.turn_groups, changes)
    if len(table):
        _add_throughput(metrics, table)
    return metrics


def _add_throughput(metrics: TurnMetrics, table: RequestTable) -> None:
    """Add system_output_tokens_per_s and, with limits, goodput_per_s and goodput_share."""
    turns = table.turn_groups
    tokens = np.where(table.failed, 0.0, np.nan_to_num(table.tokens))
    limit_masks = table.limit_masks()
    for groups in (turns, turns.rename(map(TurnKey.pool_classes, turns.keys))):
        busy_s = compute_busy_s(groups.codes, table.start_s, table.end_s, len(groups.keys))
        rates = _TurnRates(metrics, groups, busy_s)
        rates.add("system_output_tokens_per_s", tokens, _find_uncounted(table))
        if table.run.goodput:
            rates.add("goodput_per_s", *limit_masks)
            request_counts = groups.sum(np.ones(len(table)))
            shares = _TurnRates(metrics, groups, request_counts)
            shares.add("goodput_share", *limit_masks)


@dataclass(frozen=True)
class _TurnRates:
    """Amounts of turns for each second in which a request ran, or for each request.

    Args:
        metrics: get the rates.
        groups: the requests by turn.
        divisors: seconds or requests of each turn.
    """

    metrics: TurnMetrics
    groups: RowGroups[TurnKey]
    divisors: Values

    def add(self, name: str, amounts: Values | BoolArray, unknown_mask: BoolArray) -> None:
        """Add the rate `name` of each load.

        Args:
            name: of the metric.
            amounts: of each request.
            unknown_mask: requests without an amount; their turns give no rate.
        """
        turn_amounts = self.groups.sum(amounts)
        is_usable = (self.groups.sum(unknown_mask) == 0) & (self.divisors > 0)
        places: dict[ArmLoad, list[int]] = defaultdict(list)
        for place, turn in enumerate(self.groups.keys):
            places[turn.load].append(place)

        for load, load_places in places.items():
            usable = [place for place in load_places if is_usable[place]]
            omission_count = len(load_places) - len(usable)
            if omission_count and load.class_ is None:
                sentence = f"{name} leaves out turns in which a request has no usable figure"
                self.metrics.remarks[TurnRemark(load.arm, sentence)] += omission_count
            if usable:
                rates = turn_amounts[usable] / self.divisors[usable]
                turns = [self.groups.keys[place] for place in usable]
                mean = float(turn_amounts[usable].sum() / self.divisors[usable].sum())
                values = list(zip(turns, rates.tolist(), strict=True))
                self.metrics.add(load, name, values, mean)


def _find_uncounted(table: RequestTable) -> BoolArray:
    """Return the mask of answers whose tokens are not known."""
    mask: BoolArray = np.isnan(table.tokens) & ~table.failed
    return mask


def compute_busy_s(turn: IntArray, start_s: Values, end_s: Values, number: int) -> Values:
    """Return, for each turn, the time in which at least one of its requests ran."""
    busy_s = [0.0] * number
    latest_s = [-math.inf] * number
    order = np.argsort(start_s)
    for code, start, end in zip(
        turn[order].tolist(), start_s[order].tolist(), end_s[order].tolist(), strict=True
    ):
        busy_s[code] += max(end - max(start, latest_s[code]), 0.0)
        latest_s[code] = max(latest_s[code], end)
    return np.array(busy_s)


def compute_acceptance(
    table: RequestTable,
    groups: RowGroups[TurnKey],
    changes: Sequence[tuple[TurnKey, CounterChange]],
) -> TurnMetrics:
    """Return the figures of the servers' counters, by load and for all classes together.

    Args:
        table: has the failures and tokens of the turns.
        groups: its requests by the turns of `changes`.
        changes: one for each turn with a scrape before and after.
    """
    metrics = TurnMetrics()
    arms = {arm.name: arm for arm in table.run.arms}
    sums = _sum_turns(table, groups) | _sum_turns(
        table, groups.rename(map(TurnKey.pool_classes, groups.keys))
    )
    by_load: dict[ArmLoad, list[_TurnChange]] = defaultdict(list)
    for turn, change in changes:
        turn_sums = sums.get(turn, _TurnSums())
        if not change.is_idle:
            metrics.remarks[TurnRemark(turn.arm, _RUNNING_REQUESTS)] += 1
        doubt = _doubt_counters(change, turn_sums)
        # in a search for the knee the table lacks the warm-up of each turn
        is_explained = doubt == _FOREIGN_TOKENS and table.run.goodput_share is not None
        if doubt and not is_explained:
            metrics.remarks[TurnRemark(turn.arm, doubt)] += 1
        for load in {turn.load, turn.load.pool_classes()}:
            by_load[load].append((turn, change, int(turn_sums.failed)))

    for load, turn_changes in by_load.items():
        _add_rates(metrics, load, turn_changes, arms.get(load.arm))
    return metrics


class _TurnSums(NamedTuple):
    """Tokens of a turn, failed requests, and answers whose tokens are not known."""

    tokens: float = 0.0
    failed: float = 0.0
    uncounted: float = 0.0


def _sum_turns(table: RequestTable, turns: RowGroups[TurnKey]) -> dict[TurnKey, _TurnSums]:
    columns = (np.nan_to_num(table.tokens), table.failed, _find_uncounted(table))
    sums = zip(*(turns.sum(column).tolist() for column in columns), strict=True)
    return dict(zip(turns.keys, map(_TurnSums._make, sums), strict=True))


def _doubt_counters(change: CounterChange, sums: _TurnSums) -> str:
    """Return why the counters of a turn do not fit its records; empty if they do."""
    server_tokens = change.counts.get(
        "request_tokens_sum", change.counts.get("generation_tokens", 0.0)
    )
    if not server_tokens or not sums.tokens or sums.failed or sums.uncounted:
        return ""
    if server_tokens > _MAX_COUNT_RATIO * sums.tokens:
        return _FOREIGN_TOKENS
    return _MISSING_TOKENS if sums.tokens > _MAX_COUNT_RATIO * server_tokens else ""


def _add_rates(
    metrics: TurnMetrics,
    load: ArmLoad,
    turn_changes: Sequence[_TurnChange],
    arm: ManifestArm | None,
) -> None:
    values: dict[str, list[tuple[TurnKey, float]]] = defaultdict(list)
    change_sums: dict[str, CounterChange] = {}
    for turn, change, failure_count in turn_changes:
        rates = compute_rates(change, arm, failure_count=failure_count)
        for name, value in rates.values.items():
            values[name].append((turn, value))
            change_sums[name] = change_sums[name] + change if name in change_sums else change
        if load.class_ is None:
            metrics.remarks.update(_explain_rates(load.arm, rates))

    for name, pairs in values.items():
        mean = compute_rates(change_sums[name], arm).values.get(name)
        if mean is not None:
            metrics.add(load, name, pairs, mean)


def _explain_rates(arm: str, rates: AcceptanceRates) -> Iterator[TurnRemark]:
    """Yield how acceptance was derived, and why figures of the counters are absent."""
    if rates.is_indirect:
        text = f"{LENGTH_METRIC} is derived from its steps, because it counts no drafts"
        yield TurnRemark(arm, text, LENGTH_METRIC)
    absent = "target_steps_per_token" if LENGTH_METRIC in rates.values else LENGTH_METRIC
    for reason in rates.absence_reasons:
        yield TurnRemark(arm, f"{absent} is absent: {reason}", absent, reason)
