"""Figures of turns: what a whole system did while an arm had its turn, and what the server counted meanwhile.

Invariant: busy time is the time in which at least one of the requests ran, so neither the other arm's turns nor the
pause before a resumed run is in it; a turn with an unknown in it gives no figure, and is named.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from tandem.bench.columns import BoolArray, IntArray
from tandem.bench.counters import CounterChange, SpeculationInfo, compute_rates
from tandem.bench.manifest import ManifestArm
from tandem.bench.quantiles import Values, ValueSpread, compute_spread
from tandem.bench.request_table import RequestTable
from tandem.bench.schedule import ArmLoad, TurnKey

Spreads = dict[tuple[ArmLoad, str], ValueSpread]
_TurnChange = tuple[TurnKey, CounterChange, int]  # what was counted in one turn, and how many of its requests failed
_MAX_COUNT_RATIO = 1.01  # a server's count and the records' that differ by more than this factor cannot both be right
_FOREIGN_TOKENS = "its counters hold more tokens than the records: another client asked it, and is in its acceptance"
_MISSING_TOKENS = "the records hold more tokens than its counters: its usage counts too many, and its TPOT is too low"


class TurnValues(NamedTuple):
    """One figure turn by turn: whose turns, and the value of each."""

    turns: Sequence[TurnKey]
    values: Values


@dataclass(frozen=True)
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

    def add(self, load: ArmLoad, name: str, turns: Sequence[TurnKey], values: Values, mean: float) -> None:
        """Add a figure's values turn by turn, with the mean over all that the turns counted."""
        if spread := compute_spread(values.copy()):
            self.values[load, name] = TurnValues(turns, values)
            self.spreads[load, name] = spread._replace(mean=mean)


@dataclass(frozen=True)
class TurnRequests:
    """Requests of some turns, as columns: what figures of turns are summed from.

    Args:
        turns: whose they are.
        turn: of each request, the place of its turn.
        start_s, end_s: absolute.
        tokens: completion tokens; NaN where they are not known or contradict the chunks.
        failed: requests with an error.
        good: requests within every limit.
        lacks_figure: succeeded requests that lack a figure that a limit asks for.
    """

    turns: Sequence[TurnKey]
    turn: IntArray
    start_s: Values
    end_s: Values
    tokens: Values
    failed: BoolArray
    good: BoolArray
    lacks_figure: BoolArray

    @classmethod
    def select(cls, table: RequestTable, mask: BoolArray) -> TurnRequests:
        """Return the requests of `table` that `mask` names."""
        turns, codes = table.turn_groups
        used_codes, places = np.unique(codes[mask], return_inverse=True)
        columns: Sequence[Any] = (table.start_s, table.end_s, table.tokens, table.failed, *table.limit_masks())
        return cls([turns[code] for code in used_codes.tolist()], places, *(column[mask] for column in columns))

    def rename_turns(self, names: Sequence[TurnKey]) -> TurnRequests:
        """Return the same requests with other turns, one for each of the present ones; equal ones are joined."""
        places = {name: place for place, name in enumerate(dict.fromkeys(names))}
        return replace(self, turns=list(places), turn=np.array([places[name] for name in names], np.intp)[self.turn])

    def pool_classes(self) -> TurnRequests:
        """Return the same requests, those of all classes at one place as one turn."""
        return self.rename_turns([turn.pool_classes() for turn in self.turns])

    def sum_by_turn(self, column: Values | BoolArray) -> Values:
        """Sum a column of requests to one of turns."""
        sums: Values = np.bincount(self.turn, column, minlength=len(self.turns)).astype(float)
        return sums


def compute_throughput(requests: TurnRequests, *, has_limits: bool) -> TurnMetrics:
    """Return system_output_tokens_per_s and, with limits, goodput_per_s of every load and of all classes together."""
    metrics = TurnMetrics()
    for group in (requests, requests.pool_classes()) if requests.turns else ():
        busy_s = compute_busy_s(group.turn, group.start_s, group.end_s, len(group.turns))
        tokens = np.where(group.failed, 0.0, np.nan_to_num(group.tokens))
        lacks_tokens = group.sum_by_turn(np.isnan(group.tokens) & ~group.failed) > 0
        rates = {"system_output_tokens_per_s": (group.sum_by_turn(tokens), lacks_tokens)}
        if has_limits:
            rates["goodput_per_s"] = group.sum_by_turn(group.good), group.sum_by_turn(group.lacks_figure) > 0
        by_load: dict[ArmLoad, list[int]] = defaultdict(list)
        for place, turn in enumerate(group.turns):
            by_load[turn.load].append(place)
        for name, (amounts, unknown) in rates.items():
            for load, places in by_load.items():
                usable = [place for place in places if not unknown[place] and busy_s[place] > 0]
                if load.class_ is None and len(usable) < len(places):
                    sentence = f"{name} leaves out turns in which a request has no usable figure"
                    metrics.sentences[load.arm, sentence] += len(places) - len(usable)
                if usable:
                    turns, mean = [group.turns[place] for place in usable], amounts[usable].sum() / busy_s[usable].sum()
                    metrics.add(load, name, turns, amounts[usable] / busy_s[usable], float(mean))
    return metrics


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
    changes: Sequence[tuple[TurnKey, CounterChange]], arms: Mapping[str, ManifestArm], requests: TurnRequests
) -> TurnMetrics:
    """Return what the servers' counters say, by load and for all classes together.

    Args:
        changes: one for each turn that was scraped before and after.
        arms: by name; an arm that is not here is read by its page alone.
        requests: tell which turns had failures, and how many tokens their records hold.
    """
    metrics = TurnMetrics()
    turn_sums: dict[TurnKey, tuple[float, int, int]] = {}  # tokens, failures, answers whose tokens are not known
    for group in (requests.pool_classes(), requests):
        columns = (np.nan_to_num(group.tokens), group.failed, np.isnan(group.tokens) & ~group.failed)
        sums = zip(*(group.sum_by_turn(column).tolist() for column in columns), strict=True)
        turn_sums |= zip(group.turns, sums, strict=True)
    by_load: dict[ArmLoad, list[_TurnChange]] = defaultdict(list)
    for turn, change in changes:
        tokens, failure_count, unknown_count = turn_sums.get(turn, (0.0, 0, 0))
        server_tokens = change.counts.get("request_tokens_sum", change.counts.get("generation_tokens", 0.0))
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
        arm = arms.get(load.arm)
        speculation = SpeculationInfo(runtime=arm.runtime if arm else None)
        if arm and arm.speculation is not None:
            method, window = arm.speculation.method, arm.speculation.num_speculative_tokens
            speculation = replace(speculation, speculates=method is not None, window=window)
        _add_rates(metrics, load, turn_changes, speculation)
    return metrics


def _add_rates(
    metrics: TurnMetrics, load: ArmLoad, turn_changes: Sequence[_TurnChange], speculation: SpeculationInfo
) -> None:
    values: dict[str, list[tuple[TurnKey, float]]] = defaultdict(list)
    change_sums: dict[str, CounterChange] = {}
    for turn, change, failure_count in turn_changes:
        rates = compute_rates(change, speculation, failure_count=failure_count)
        for name, value in rates.values.items():
            values[name].append((turn, value))
            change_sums[name] = change_sums[name] + change if name in change_sums else change
        if load.class_ is None:
            absent = "target_steps_per_token" if "acceptance_length" in rates.values else "acceptance_length"
            sentences = ["acceptance_length is derived from its steps, because it counts no drafts"] * rates.is_indirect
            sentences += [f"{absent} is absent: {reason}" for reason in rates.absence_reasons]
            metrics.sentences.update((load.arm, sentence) for sentence in sentences)
    for name, pairs in values.items():
        mean = compute_rates(change_sums[name], speculation).values.get(name)
        if mean is not None:
            turns, turn_values = zip(*pairs, strict=True)
            metrics.add(load, name, turns, np.array(turn_values), mean)
