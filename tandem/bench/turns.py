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

from tandem.bench.columns import Mask, Whole
from tandem.bench.counters import NOTHING_KNOWN, Change, Known, Rates, Turn, rates
from tandem.bench.manifest import Arm
from tandem.bench.quantiles import Spread, Values, spread
from tandem.bench.tally import Load, Place, Rows, Tally

Spreads = dict[tuple[Load, str], Spread]
_APART = 1.01  # a server's count and the records' that differ by more than this factor cannot both be right


class OfTurns(NamedTuple):
    """One figure turn by turn: whose turns, and the value of each."""

    turns: Sequence[tuple[Load, Place]]
    values: Values


@dataclass
class Measured:
    """Figures of turns.

    Args:
        spreads: by load and metric.
        values: what each spread is over. Throughput of all classes together is that of their turns at one place, taken
            as one turn; what a server counted stands under the turn's own class there too.
        said: by arm and sentence, in how many turns a sentence held.
    """

    spreads: Spreads = field(default_factory=dict)
    values: dict[tuple[Load, str], OfTurns] = field(default_factory=dict)
    said: Counter[tuple[str, str]] = field(default_factory=Counter)


def throughput(tally: Tally, *, limited: bool) -> Measured:
    """Return system_output_tokens_per_s and, with limits, goodput_per_s of every load and of all classes together."""
    found = Measured()
    if not tally.rows:
        return found
    rows = Rows.joined(tally.rows)
    turns = list(tally.turns)
    _add(found, turns, rows, limited=limited)
    pooled: dict[tuple[Load, Place], int] = {}
    renamed = np.array([pooled.setdefault((load.pooled(), place), len(pooled)) for load, place in turns], dtype=np.intp)
    everything = Rows(renamed[rows.turn], *(getattr(rows, name) for name in list(Rows.__annotations__)[1:]))
    _add(found, list(pooled), everything, limited=limited)
    return found


class _Turns(NamedTuple):
    """Turns with their busy time; every column has one value a turn."""

    turns: Sequence[tuple[Load, Place]]
    busy_s: Values
    rows: Rows

    def sum_of(self, column: Values | Mask) -> Values:
        """Sum a column of requests to one of turns."""
        summed: Values = np.bincount(self.rows.turn, column, minlength=len(self.turns)).astype(float)
        return summed


def _add(found: Measured, turns: Sequence[tuple[Load, Place]], rows: Rows, *, limited: bool) -> None:
    busy_s = busy_time_s(rows.turn, rows.start_s, rows.end_s, len(turns))
    timed = _Turns(turns, busy_s, rows)
    untold = np.isnan(rows.tokens) & ~rows.failed
    _spread(found, "system_output_tokens_per_s", timed, np.where(rows.failed, 0.0, np.nan_to_num(rows.tokens)), untold)
    if limited:
        _spread(found, "goodput_per_s", timed, rows.good, rows.unjudged)


def _spread(found: Measured, name: str, turns: _Turns, amounts: Values | Mask, unknowns: Mask) -> None:
    amount, unknown = turns.sum_of(amounts), turns.sum_of(unknowns)
    by_load: dict[Load, list[int]] = defaultdict(list)
    for index, (load, _) in enumerate(turns.turns):
        by_load[load].append(index)
    for load, places in by_load.items():
        usable = [place for place in places if not unknown[place] and turns.busy_s[place] > 0]
        if load.class_ is None and len(usable) < len(places):
            found.said[load.arm, f"{name} leaves out turns in which a request has no usable figure"] += len(
                places
            ) - len(usable)
        values = amount[usable] / turns.busy_s[usable]
        across = spread(values.copy())
        if across:
            found.values[load, name] = OfTurns([turns.turns[place] for place in usable], values)
            mean = float(amount[usable].sum() / turns.busy_s[usable].sum())
            found.spreads[load, name] = across._replace(mean=mean)


def busy_time_s(turn: Whole, start_s: Values, end_s: Values, number: int) -> Values:
    """Return, for each turn, the time in which at least one of its requests ran."""
    order = np.lexsort((start_s, turn))
    turn, start_s, end_s = turn[order], start_s[order], end_s[order]
    new = np.append(True, turn[1:] != turn[:-1])
    group = np.cumsum(new) - 1
    began = start_s[new][group]
    start_s, end_s = start_s - began, np.maximum(end_s - began, 0.0)
    stride = end_s.max() + 1.0  # sets the groups apart, so that one running maximum serves all
    latest = np.maximum.accumulate(end_s + group * stride) - group * stride
    idle = np.append(0.0, np.maximum(start_s[1:] - latest[:-1], 0.0))
    idle[new] = 0.0
    last = np.append(new[1:], True)
    busy = np.zeros(number)
    busy[turn[last]] = latest[last] - np.bincount(group, idle)
    return busy


def acceptance(changes: Sequence[tuple[Turn, Change]], arms: Mapping[str, Arm], tally: Tally) -> Measured:
    """Return what the servers' counters say, by load and for all classes together.

    Args:
        changes: one for each turn that was scraped before and after.
        arms: by name; an arm that is not here is read by its page alone.
        tally: tells which turns had failures, and how many tokens their records hold.
    """
    found = Measured()
    recorded = _recorded(tally)
    by_load: dict[Load, list[_Seen]] = defaultdict(list)
    for turn, change in changes:
        load, place = Load(*turn[:4]), Place(*turn[4:])
        known = recorded.get((load, place), _Known())
        for doubt in _doubts(change, known):
            found.said[load.arm, doubt] += 1
        for mine in {load, load.pooled()}:
            by_load[mine].append(_Seen((load, place), change, known.failed))
    for load, seen in by_load.items():
        _add_rates(found, load, seen, arms.get(load.arm))
    return found


class _Seen(NamedTuple):
    """What was counted in one turn, and how many of its requests failed."""

    turn: tuple[Load, Place]
    change: Change
    failed: int


class _Known(NamedTuple):
    """What the records of a turn hold: tokens, requests that failed, and answers whose tokens are not known."""

    tokens: float = 0.0
    failed: int = 0
    untold: int = 0


def _recorded(tally: Tally) -> dict[tuple[Load, Place], _Known]:
    """Return what each turn's records hold, by class and for all classes."""
    if not tally.rows:
        return {}
    rows, number = Rows.joined(tally.rows), len(tally.turns)
    columns = (np.nan_to_num(rows.tokens), rows.failed, np.isnan(rows.tokens) & ~rows.failed)
    summed = [np.bincount(rows.turn, column, minlength=number).tolist() for column in columns]
    told: dict[tuple[Load, Place], _Known] = {}
    for (load, place), tokens, failed, untold in zip(tally.turns, *summed, strict=True):
        for key in {(load, place), (load.pooled(), place)}:
            before = told.get(key, _Known())
            told[key] = _Known(before.tokens + tokens, before.failed + int(failed), before.untold + int(untold))
    return told


def _doubts(change: Change, known: _Known) -> Iterator[str]:
    counted = change.counts.get("request_tokens_sum", change.counts.get("generation_tokens", 0.0))
    if counted and known.tokens and not known.failed and not known.untold:
        if counted > _APART * known.tokens:
            yield "its counters hold more tokens than the records: another client asked it, and is in its acceptance"
        elif known.tokens > _APART * counted:
            yield "the records hold more tokens than its counters: its usage counts too many, and its TPOT is too low"
    if not change.idle:
        yield "requests were running while its counters were read"


def _add_rates(found: Measured, load: Load, seen: Sequence[_Seen], arm: Arm | None) -> None:
    known = _known(arm)
    values: dict[str, list[tuple[tuple[Load, Place], float]]] = defaultdict(list)
    summed: dict[str, Change] = {}
    for turn, change, failed in seen:
        said = rates(change, known, failed=failed)
        for name, value in said.values.items():
            values[name].append((turn, value))
            summed[name] = summed[name] + change if name in summed else change
        if load.class_ is None:
            found.said.update((load.arm, sentence) for sentence in _explained(said))
    for name, single in values.items():
        of_turns = OfTurns([turn for turn, _ in single], np.array([value for _, value in single]))
        across, mean = spread(of_turns.values.copy()), rates(summed[name], known).values.get(name)
        if across and mean is not None:
            found.values[load, name] = of_turns
            found.spreads[load, name] = across._replace(mean=mean)


def _explained(said: Rates) -> Iterator[str]:
    if said.derived:
        yield "acceptance_length is derived from its steps, because it counts no drafts"
    absent = "target_steps_per_token" if "acceptance_length" in said.values else "acceptance_length"
    yield from (f"{absent} is absent: {reason}" for reason in said.absent)


def _known(arm: Arm | None) -> Known:
    if arm is None:
        return NOTHING_KNOWN
    if arm.speculation is None:
        return Known(runtime=arm.runtime)
    speculation = arm.speculation
    return Known(arm.runtime, speculation.method is not None, speculation.num_speculative_tokens)
