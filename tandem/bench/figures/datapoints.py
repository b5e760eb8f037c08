"""The published values of a run: the values behind every cell, by round and by minute.

Invariant: the values of a cell over all rounds are exactly the values behind summary.json's cell,
because both come from the same table; nothing is rounded here, nothing is NaN, and this module
omits the same values as a summary.

A request's value belongs to the calendar minute in which the request began; a turn's value to the
minute in which the turn began; a round's count to the minute in which the first request of its cell
began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from pathlib import Path

import numpy as np

from tandem.bench.figures.clocks import compute_utc_s
from tandem.bench.figures.columns import IntArray
from tandem.bench.figures.quantiles import Values
from tandem.bench.figures.request_table import RequestTable, read_request_table
from tandem.bench.figures.row_groups import Key, RowGroups
from tandem.bench.figures.throughput import compute_turn_metrics
from tandem.bench.plan.schedule import ArmLoad, TurnKey
from tandem.bench.records import counters, manifest
from tandem.bench.records.counters import CounterChange, MetricsScrape
from tandem.bench.records.manifest import RunManifest
from tandem.cloudwatch_metrics import (
    ALL_VALUES,
    BENCH_DIMENSIONS,
    MINUTE_S,
    RoundFigures,
    SeriesMinute,
)
from tandem.metrics import list_published_metrics

_PUBLISHED_METRICS = {metric.name for metric in list_published_metrics()}


_Point = tuple[int, str, ArmLoad | None, str, Values]
"""Minute, arm, load and metric of some values, and the values; load None means every load of the
arm."""


def read_rounds(
    folder: Path, experiment: str, skip_numbers: Collection[int] = ()
) -> Iterator[RoundFigures]:
    """Yield the published values of each round, in order; of a live run, those so far.

    Args:
        folder: of a run.
        experiment: the dimension.
        skip_numbers: numbers of the rounds to skip.

    Raises:
        InputError: a file is missing or a line is invalid; the error names it.
    """
    table = read_request_table(folder)
    scrapes = list(counters.read_scrapes(folder / counters.FILE))
    changes: dict[int, list[tuple[TurnKey, CounterChange]]] = defaultdict(list)
    for turn, change in counters.pair_scrapes(iter(scrapes), table.dropped_counters)[0]:
        changes[turn.round].append((turn, change))
    minutes = _find_minutes(table.run, table.start_s, table.end_s)
    turn_minutes = _find_first_turn_minutes(table, minutes, scrapes)
    controls = manifest.control_round_numbers(table.run)

    numbers = {*np.unique(table.round).tolist(), *changes}.difference(skip_numbers)
    for number in sorted(numbers):
        mask = table.round == number
        round_table = table.select(mask)
        points = chain(
            _list_request_points(round_table, minutes[mask]),
            _count_requests(round_table, minutes[mask]),
            _list_turn_points(round_table, changes[number], turn_minutes),
        )
        yield RoundFigures(
            number=number,
            is_complete=_is_round_complete(table, number, is_control=number in controls),
            values={} if number in controls else _join_points(points, experiment),
            ranges=_list_ranges(round_table),
        )


def _join_points(points: Iterable[_Point], experiment: str) -> dict[SeriesMinute, Values]:
    """Return the values of each minute of a published series."""
    values: dict[SeriesMinute, list[Values]] = defaultdict(list)
    for minute, arm, load, name, point_values in points:
        names = (experiment, arm, *_name_load(load))
        dimensions = tuple(zip(BENCH_DIMENSIONS, names, strict=True))
        values[SeriesMinute(dimensions, name, minute)].append(point_values)
    return {minute: np.concatenate(parts) for minute, parts in values.items()}


def _list_ranges(table: RequestTable) -> tuple[tuple[int, int], ...]:
    """Return start and end, in bytes, of each run of consecutive lines."""
    ranges: list[tuple[int, int]] = []
    for offset, end in zip(table.line_offsets.tolist(), table.line_ends.tolist(), strict=True):
        is_next = bool(ranges) and ranges[-1][1] == offset
        first, _ = ranges.pop() if is_next else (offset, end)
        ranges.append((first, end))
    return tuple(ranges)


def _name_load(load: ArmLoad | None) -> tuple[str, str]:
    """Return the dimensions of class and load; None means every class at every load."""
    if load is None:
        return ALL_VALUES, ALL_VALUES
    level = str(load.concurrency or ALL_VALUES)
    if load.rate_per_s is not None:
        level = f"rate-{load.rate_per_s:g}"
    return load.class_ or ALL_VALUES, level


def _find_minutes(run: RunManifest, start_s: Values, end_s: Values) -> IntArray:
    utc_s = compute_utc_s(run, start_s, end_s)
    minutes: IntArray = (np.floor(utc_s / MINUTE_S) * MINUTE_S).astype(np.intp)
    return minutes


def _find_first_turn_minutes(
    table: RequestTable, minutes: IntArray, scrapes: Sequence[MetricsScrape]
) -> dict[TurnKey, int]:
    """Return the minute of each turn's first request, else first scrape; also for all classes."""
    at_s = np.array([scrape.at_s for scrape in scrapes])
    scrape_minutes = _find_minutes(table.run, at_s, at_s)
    turn_minutes: dict[TurnKey, int] = {}
    for scrape, minute in zip(scrapes, scrape_minutes.tolist(), strict=True):
        turn_minutes.setdefault(scrape.turn, minute)

    turns = table.turn_groups
    pooled_turns = turns.rename(map(TurnKey.pool_classes, turns.keys))
    for groups in (pooled_turns, turns):
        turn_minutes |= _find_first_minutes(groups, minutes)
    return turn_minutes


def _find_first_minutes(groups: RowGroups[Key], minutes: IntArray) -> dict[Key, int]:
    first_minutes = np.full(len(groups.keys), np.iinfo(np.intp).max)
    np.minimum.at(first_minutes, groups.codes, minutes)
    return dict(zip(groups.keys, first_minutes.tolist(), strict=True))


def _is_round_complete(table: RequestTable, number: int, *, is_control: bool) -> bool:
    has_later_round = bool((table.round > number).any())
    ending = table.run.ended.reason if table.run.ended else None
    planned_requests = _count_planned_requests(table.run, is_control=is_control)
    if planned_requests is None:
        is_whole = ending in {"done", "duration"}
        is_whole |= table.run.generator == "llmperf" and ending is not None
        return has_later_round or is_whole

    rows = table.round == number
    request_count = len(np.unique(table.request_digest[rows]))
    if "interrupted" in table.errors:
        request_count -= int((rows & (table.error == table.errors.index("interrupted"))).sum())
    return request_count >= planned_requests or (ending == "duration" and not has_later_round)


def _count_planned_requests(run: RunManifest, *, is_control: bool) -> int | None:
    """Return the requests that a round of this kind has; None if the manifest does not say."""
    requests = run.plan.requests_per_round
    if requests is not None:
        return 2 * requests // len(run.arms) if is_control else requests
    if run.generator == "tandem" and run.rounds:
        return (run.plan.requests or 0) // run.rounds or None
    return None


def _list_request_points(table: RequestTable, minutes: IntArray) -> Iterator[_Point]:
    """Yield the values of the requests that began in each minute, and of their gaps."""
    turns = table.turn_groups
    loads = [turns.keys[code].load for code in turns.codes.tolist()]
    rows = RowGroups(range(len(loads)), np.arange(len(loads)))
    groups = rows.rename(zip(minutes.tolist(), loads, strict=True))
    parts = {name: groups.split(values) for name, values in table.figures.items()}
    parts["chunk_gap_ms"] = groups.split(table.gaps_ms, table.gap_owners)
    for name in _PUBLISHED_METRICS.intersection(parts):
        for (minute, load), values in parts[name]:
            if len(values):
                yield minute, load.arm, load, name, values
                yield minute, load.arm, load.pool_classes(), name, values


def _count_requests(table: RequestTable, minutes: IntArray) -> Iterator[_Point]:
    """Yield the requests and failures of each load, of its classes together, of each arm."""
    turns = table.turn_groups
    loads = [turn.load for turn in turns.keys]
    arms: list[tuple[str, ArmLoad | None]] = [(load.arm, None) for load in loads]
    cells = [(load.arm, load) for load in loads]
    pooled_cells = [(load.arm, load.pool_classes()) for load in loads]
    for names in (cells, pooled_cells, arms):
        groups = turns.rename(names)
        counts = groups.sum(minutes >= 0)
        failures = groups.sum(table.failed)
        first_minutes = _find_first_minutes(groups, minutes)
        for place, ((arm, cell), minute) in enumerate(first_minutes.items()):
            yield minute, arm, cell, "requests", counts[place : place + 1]
            yield minute, arm, cell, "failed_requests", failures[place : place + 1]


def _list_turn_points(
    table: RequestTable,
    changes: Sequence[tuple[TurnKey, CounterChange]],
    turn_minutes: Mapping[TurnKey, int],
) -> Iterator[_Point]:
    for (load, name), turn_values in compute_turn_metrics(table, changes).values.items():
        if name not in _PUBLISHED_METRICS:
            continue
        is_pooled = name == "acceptance_length" and load.class_ is None
        loads = (load, None) if is_pooled else (load,)
        for (turn, value), cell_load in product(turn_values, loads):
            yield turn_minutes[turn], load.arm, cell_load, name, np.array([value])
