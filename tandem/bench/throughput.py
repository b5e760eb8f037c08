"""Figures of turns: what a whole system did while an arm had its turn, and what the server counted meanwhile.

Invariant: busy time is the time in which at least one of the requests ran, so neither the other arm's turns nor the
pause before a resumed run is in it; a turn with an unknown in it gives no figure, and is named.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tandem.bench.aggregate import ArmLoad, RequestRows, RequestTally, TurnPosition
from tandem.bench.columns import BoolArray, IntArray
from tandem.bench.counters import (
    NO_SPECULATION_INFO,
    AcceptanceRates,
    CounterChange,
    SpeculationInfo,
    TurnKey,
    compute_rates,
)
from tandem.bench.manifest import ManifestArm
from tandem.bench.quantiles import Values, ValueSpread, compute_spread

Spreads = dict[tuple[ArmLoad, str], ValueSpread]
_MAX_COUNT_RATIO = 1.01  # a server's count and the records' that differ by more than this factor cannot both be right


class TurnValues(NamedTuple):
    """One figure turn by turn: whose turns, and the value of each."""

    turns: Sequence[tuple[ArmLoad, TurnPosition]]
    values: Values


@dataclass
class TurnMetrics:
    """Figures of turns.

    Args:
        spreads: by load and metric.
        values: what each spread is over. Throughput of all classes together is that of their turns at one place, taken
            as one turn; what a server counted stands under the turn's own class there too.
        sentences: by arm and sentence, in how many turns a sentence held.
    """

    spreads: Spreads = field(default_factory=dict)
    values: dict[tuple[ArmLoad, str], TurnValues] = field(default_factory=dict)
    sentences: Counter[tuple[str, str]] = field(default_factory=Counter)


def compute_throughput(tally: RequestTally, *, has_limits: bool) -> TurnMetrics:
    """Return system_output_tokens_per_s and, with limits, goodput_per_s of every load and of all classes together."""
    metrics = TurnMetrics()
    if not tally.rows:
        return metrics
    rows = RequestRows.join(tally.rows)
    turns = list(tally.turns)
    _add_throughput(metrics, turns, rows, has_limits=has_limits)
    pooled_turns: dict[tuple[ArmLoad, TurnPosition], int] = {}
    pooled_codes = np.array(
        [pooled_turns.setdefault((load.pool_classes(), place), len(pooled_turns)) for load, place in turns],
        dtype=np.intp,
    )
    pooled_rows = RequestRows(
        pooled_codes[rows.turn], *(getattr(rows, name) for name in list(RequestRows.__annotations__)[1:])
    )
    _add_throughput(metrics, list(pooled_turns), pooled_rows, has_limits=has_limits)
    return metrics


class _TurnTable(NamedTuple):
    """Turns with their busy time; every column has one value a turn."""

    turns: Sequence[tuple[ArmLoad, TurnPosition]]
    busy_s: Values
    rows: RequestRows

    def sum_column(self, column: Values | BoolArray) -> Values:
        """Sum a column of requests to one of turns."""
        sums: Values = np.bincount(self.rows.turn, column, minlength=len(self.turns)).astype(float)
        return sums


def _add_throughput(
    metrics: TurnMetrics, turns: Sequence[tuple[ArmLoad, TurnPosition]], rows: RequestRows, *, has_limits: bool
) -> None:
    busy_s = compute_busy_s(rows.turn, rows.start_s, rows.end_s, len(turns))
    turn_table = _TurnTable(turns, busy_s, rows)
    unknown_tokens = np.isnan(rows.tokens) & ~rows.failure_mask
    _add_spread(
        metrics,
        "system_output_tokens_per_s",
        turn_table,
        np.where(rows.failure_mask, 0.0, np.nan_to_num(rows.tokens)),
        unknown_tokens,
    )
    if has_limits:
        _add_spread(metrics, "goodput_per_s", turn_table, rows.good_mask, rows.unknown_mask)


def _add_spread(
    metrics: TurnMetrics, name: str, turn_table: _TurnTable, amounts: Values | BoolArray, unknowns: BoolArray
) -> None:
    amount, unknown = turn_table.sum_column(amounts), turn_table.sum_column(unknowns)
    by_load: dict[ArmLoad, list[int]] = defaultdict(list)
    for index, (load, _) in enumerate(turn_table.turns):
        by_load[load].append(index)
    for load, places in by_load.items():
        usable = [place for place in places if not unknown[place] and turn_table.busy_s[place] > 0]
        if load.class_ is None and len(usable) < len(places):
            metrics.sentences[load.arm, f"{name} leaves out turns in which a request has no usable figure"] += len(
                places
            ) - len(usable)
        values = amount[usable] / turn_table.busy_s[usable]
        load_spread = compute_spread(values.copy())
        if load_spread:
            metrics.values[load, name] = TurnValues([turn_table.turns[place] for place in usable], values)
            mean = float(amount[usable].sum() / turn_table.busy_s[usable].sum())
            metrics.spreads[load, name] = load_spread._replace(mean=mean)


def compute_busy_s(turn: IntArray, start_s: Values, end_s: Values, number: int) -> Values:
    """Return, for each turn, the time in which at least one of its requests ran."""
    order = np.lexsort((start_s, turn))
    turn, start_s, end_s = turn[order], start_s[order], end_s[order]
    is_first = np.append(True, turn[1:] != turn[:-1])
    group = np.cumsum(is_first) - 1
    group_start_s = start_s[is_first][group]
    start_s, end_s = start_s - group_start_s, np.maximum(end_s - group_start_s, 0.0)
    stride = end_s.max() + 1.0  # sets the groups apart, so that one running maximum serves all
    latest = np.maximum.accumulate(end_s + group * stride) - group * stride
    idle = np.append(0.0, np.maximum(start_s[1:] - latest[:-1], 0.0))
    idle[is_first] = 0.0
    is_last = np.append(is_first[1:], True)
    busy = np.zeros(number)
    busy[turn[is_last]] = latest[is_last] - np.bincount(group, idle)
    return busy


def compute_acceptance(
    changes: Sequence[tuple[TurnKey, CounterChange]], arms: Mapping[str, ManifestArm], tally: RequestTally
) -> TurnMetrics:
    """Return what the servers' counters say, by load and for all classes together.

    Args:
        changes: one for each turn that was scraped before and after.
        arms: by name; an arm that is not here is read by its page alone.
        tally: tells which turns had failures, and how many tokens their records hold.
    """
    metrics = TurnMetrics()
    record_sums = _sum_records(tally)
    by_load: dict[ArmLoad, list[_TurnChange]] = defaultdict(list)
    for turn, change in changes:
        load, place = ArmLoad(*turn[:4]), TurnPosition(*turn[4:])
        turn_records = record_sums.get((load, place), _TurnRecords())
        for doubt in _find_doubts(change, turn_records):
            metrics.sentences[load.arm, doubt] += 1
        for cell_load in {load, load.pool_classes()}:
            by_load[cell_load].append(_TurnChange((load, place), change, turn_records.failure_count))
    for load, turn_changes in by_load.items():
        _add_rates(metrics, load, turn_changes, arms.get(load.arm))
    return metrics


class _TurnChange(NamedTuple):
    """What was counted in one turn, and how many of its requests failed."""

    turn: tuple[ArmLoad, TurnPosition]
    change: CounterChange
    failure_count: int


class _TurnRecords(NamedTuple):
    """What the records of a turn hold: tokens, requests that failed, and answers whose tokens are not known."""

    tokens: float = 0.0
    failure_count: int = 0
    unknown_answers: int = 0


def _sum_records(tally: RequestTally) -> dict[tuple[ArmLoad, TurnPosition], _TurnRecords]:
    """Return what each turn's records hold, by class and for all classes."""
    if not tally.rows:
        return {}
    rows, number = RequestRows.join(tally.rows), len(tally.turns)
    columns = (np.nan_to_num(rows.tokens), rows.failure_mask, np.isnan(rows.tokens) & ~rows.failure_mask)
    sums = [np.bincount(rows.turn, column, minlength=number).tolist() for column in columns]
    records_by_turn: dict[tuple[ArmLoad, TurnPosition], _TurnRecords] = {}
    for (load, place), tokens, failures, unknowns in zip(tally.turns, *sums, strict=True):
        for key in {(load, place), (load.pool_classes(), place)}:
            earlier = records_by_turn.get(key, _TurnRecords())
            records_by_turn[key] = _TurnRecords(
                earlier.tokens + tokens, earlier.failure_count + int(failures), earlier.unknown_answers + int(unknowns)
            )
    return records_by_turn


def _find_doubts(change: CounterChange, turn_records: _TurnRecords) -> Iterator[str]:
    server_tokens = change.counts.get("request_tokens_sum", change.counts.get("generation_tokens", 0.0))
    if server_tokens and turn_records.tokens and not turn_records.failure_count and not turn_records.unknown_answers:
        if server_tokens > _MAX_COUNT_RATIO * turn_records.tokens:
            yield "its counters hold more tokens than the records: another client asked it, and is in its acceptance"
        elif turn_records.tokens > _MAX_COUNT_RATIO * server_tokens:
            yield "the records hold more tokens than its counters: its usage counts too many, and its TPOT is too low"
    if not change.is_idle:
        yield "requests were running while its counters were read"


def _add_rates(
    metrics: TurnMetrics, load: ArmLoad, turn_changes: Sequence[_TurnChange], arm: ManifestArm | None
) -> None:
    speculation = _speculation_info(arm)
    values: dict[str, list[tuple[tuple[ArmLoad, TurnPosition], float]]] = defaultdict(list)
    change_sums: dict[str, CounterChange] = {}
    for turn, change, failure_count in turn_changes:
        turn_rates = compute_rates(change, speculation, failure_count=failure_count)
        for name, value in turn_rates.values.items():
            values[name].append((turn, value))
            change_sums[name] = change_sums[name] + change if name in change_sums else change
        if load.class_ is None:
            metrics.sentences.update((load.arm, sentence) for sentence in _explain_rates(turn_rates))
    for name, value_pairs in values.items():
        turn_values = TurnValues([turn for turn, _ in value_pairs], np.array([value for _, value in value_pairs]))
        metric_spread, mean = (
            compute_spread(turn_values.values.copy()),
            compute_rates(change_sums[name], speculation).values.get(name),
        )
        if metric_spread and mean is not None:
            metrics.values[load, name] = turn_values
            metrics.spreads[load, name] = metric_spread._replace(mean=mean)


def _explain_rates(turn_rates: AcceptanceRates) -> Iterator[str]:
    if turn_rates.is_indirect:
        yield "acceptance_length is derived from its steps, because it counts no drafts"
    absent = "target_steps_per_token" if "acceptance_length" in turn_rates.values else "acceptance_length"
    yield from (f"{absent} is absent: {reason}" for reason in turn_rates.absence_reasons)


def _speculation_info(arm: ManifestArm | None) -> SpeculationInfo:
    if arm is None:
        return NO_SPECULATION_INFO
    if arm.speculation is None:
        return SpeculationInfo(runtime=arm.runtime)
    speculation = arm.speculation
    return SpeculationInfo(arm.runtime, speculation.method is not None, speculation.num_speculative_tokens)
