"""The figures of turns: the system's throughput in an arm's turn, and the server's counters.

Invariant: busy time is the time in which at least one of the requests ran, so it includes neither
the other arm's turns nor the pause before a resume; a turn with an unknown value gives no figure,
and a note counts such turns.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tandem.bench.figures.columns import IntArray
from tandem.bench.figures.quantiles import Values, ValueSpread, compute_spread
from tandem.bench.figures.request_table import RequestTable, RowGroups
from tandem.bench.plan.schedule import ArmLoad, TurnKey
from tandem.bench.records.counters import CounterChange, compute_rates
from tandem.bench.records.manifest import ManifestArm

Spreads = dict[tuple[ArmLoad, str], ValueSpread]
# counts of one turn, and the number of its failed requests
_TurnChange = tuple[TurnKey, CounterChange, int]
# if the server's and the records' counts differ by more than this factor, one is wrong
_MAX_COUNT_RATIO = 1.01
_FOREIGN_TOKENS = (
    "its counters hold more tokens than the records:"
    " another client asked it, and is in its acceptance"
)
_MISSING_TOKENS = (
    "the records hold more tokens than its counters: its usage counts too many, and its TPOT is too"
    " low; or other servers answer at its address"
)


@dataclass(frozen=True)
class TurnMetrics:
    """Figures of turns.

    Args:
        spreads: by load and metric.
        values: values of each spread, turn by turn. Throughput of all classes together joins their
            turns of one round and slot into one turn; figures from counters keep the turn's own
            class there.
        sentences: number of turns by arm and sentence.
    """

    spreads: Spreads = field(default_factory=dict)
    values: dict[tuple[ArmLoad, str], Sequence[tuple[TurnKey, float]]] = field(default_factory=dict)
    sentences: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(
        self, load: ArmLoad, name: str, values: Sequence[tuple[TurnKey, float]], mean: float
    ) -> None:
        """Add a figure's values turn by turn, with the mean over the pooled counts of the turns."""
        if spread := compute_spread(np.array([value for _, value in values])):
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
    """Add system_output_tokens_per_s and, with limits, goodput_per_s."""
    is_unknown = np.isnan(table.tokens) & ~table.failed
    turns = table.turn_groups
    columns = {
        "system_output_tokens_per_s": (
            np.where(table.failed, 0.0, np.nan_to_num(table.tokens)),
            is_unknown,
        )
    }
    if table.run.goodput:
        columns["goodput_per_s"] = table.limit_masks()
    for groups in (turns, turns.rename(turn.pool_classes() for turn in turns.keys)):
        busy_s = compute_busy_s(groups.codes, table.start_s, table.end_s, len(groups.keys))
        by_load: dict[ArmLoad, list[int]] = defaultdict(list)
        for place, turn in enumerate(groups.keys):
            by_load[turn.load].append(place)
        for name, (amount, unknown_mask) in columns.items():
            amounts = groups.sum(amount)
            is_usable = (groups.sum(unknown_mask) == 0) & (busy_s > 0)
            for load, places in by_load.items():
                usable = [place for place in places if is_usable[place]]
                if load.class_ is None and len(usable) < len(places):
                    sentence = f"{name} leaves out turns in which a request has no usable figure"
                    metrics.sentences[load.arm, sentence] += len(places) - len(usable)
                if usable:
                    values = [
                        (groups.keys[place], float(amounts[place] / busy_s[place]))
                        for place in usable
                    ]
                    metrics.add(
                        load, name, values, float(amounts[usable].sum() / busy_s[usable].sum())
                    )


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
    # tokens, failures, answers with unknown tokens
    turn_sums: dict[TurnKey, tuple[float, ...]] = {}
    columns = (np.nan_to_num(table.tokens), table.failed, np.isnan(table.tokens) & ~table.failed)
    for turns in (groups.rename(turn.pool_classes() for turn in groups.keys), groups):
        turn_sums |= zip(
            turns.keys,
            zip(*(turns.sum(column).tolist() for column in columns), strict=True),
            strict=True,
        )
    by_load: dict[ArmLoad, list[_TurnChange]] = defaultdict(list)
    for turn, change in changes:
        tokens, failure_count, unknown_count = turn_sums.get(turn, (0.0, 0, 0))
        server_tokens = change.counts.get(
            "request_tokens_sum", change.counts.get("generation_tokens", 0.0)
        )
        if server_tokens and tokens and not failure_count and not unknown_count:
            if server_tokens > _MAX_COUNT_RATIO * tokens:
                metrics.sentences[turn.arm, _FOREIGN_TOKENS] += 1
            elif tokens > _MAX_COUNT_RATIO * server_tokens:
                metrics.sentences[turn.arm, _MISSING_TOKENS] += 1
        if not change.is_idle:
            metrics.sentences[turn.arm, "requests were running while its counters were read"] += 1
        for load in {turn.load, turn.load.pool_classes()}:
            by_load[load].append((turn, change, int(failure_count)))
    for load, turn_changes in by_load.items():
        _add_rates(metrics, load, turn_changes, arms.get(load.arm))
    return metrics


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
            absent = (
                "target_steps_per_token"
                if "acceptance_length" in rates.values
                else "acceptance_length"
            )
            sentences = [
                "acceptance_length is derived from its steps, because it counts no drafts"
            ] * rates.is_indirect
            sentences += [f"{absent} is absent: {reason}" for reason in rates.absence_reasons]
            metrics.sentences.update((load.arm, sentence) for sentence in sentences)
    for name, pairs in values.items():
        mean = compute_rates(change_sums[name], arm).values.get(name)
        if mean is not None:
            metrics.add(load, name, pairs, mean)
