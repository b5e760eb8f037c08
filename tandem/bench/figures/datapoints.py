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
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from tandem.bench.figures.columns import IntArray
from tandem.bench.figures.quantiles import Values
from tandem.bench.figures.request_table import Key, RequestTable, RowGroups, read_request_table
from tandem.bench.figures.summary import check_limits
from tandem.bench.figures.throughput import compute_turn_metrics
from tandem.bench.load.clocks import compute_utc_s
from tandem.bench.plan.schedule import ArmLoad, TurnKey
from tandem.bench.records import counters, manifest
from tandem.bench.records.counters import CounterChange, MetricsScrape
from tandem.bench.records.manifest import RunManifest
from tandem.metrics import (
    ALL_VALUES,
    BENCH_DIMENSIONS,
    MINUTE_S,
    RoundFigures,
    SeriesMinute,
    list_published_metrics,
)

_PUBLISHED_METRICS = {metric.name for metric in list_published_metrics()}


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
    run = table.run
    check_limits(run, folder)
    scrapes = list(counters.read_scrapes(folder / counters.FILE))
    changes: dict[int, list[tuple[TurnKey, CounterChange]]] = defaultdict(list)
    for turn, change in counters.pair_scrapes(iter(scrapes), table.dropped_counters)[0]:
        changes[turn.round].append((turn, change))
    minutes = _find_minutes(run, table.start_s, table.end_s)
    turn_minutes = _find_first_turn_minutes(table, minutes, scrapes)
    controls = manifest.control_round_numbers(run)
    for number in sorted({*np.unique(table.round).tolist(), *changes}.difference(skip_numbers)):
        mask = table.round == number
        values = defaultdict[SeriesMinute, list[Values]](list)
        rows = np.flatnonzero(mask)
        round_table = table.select(mask)
        parts = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)  # consecutive lines
        points = chain(
            _list_request_points(round_table, minutes[mask]),
            _count_requests(round_table, minutes[mask]),
            _list_turn_points(round_table, changes[number], turn_minutes),
        )
        for minute, arm, load, name, point_values in points if number not in controls else ():
            dimensions = zip(BENCH_DIMENSIONS, (experiment, arm, *_name_load(load)), strict=True)
            values[SeriesMinute(tuple(dimensions), name, minute)].append(point_values)
        yield RoundFigures(
            number=number,
            is_complete=_is_round_complete(table, number, is_control=number in controls),
            values={minute: np.concatenate(arrays) for minute, arrays in values.items()},
            ranges=tuple(
                (int(table.line_offsets[part[0]]), int(table.line_ends[part[-1]]))
                for part in parts
                if len(part)
            ),
        )


def _name_load(load: ArmLoad | None) -> tuple[str, str]:
    """Return the dimensions of class and load; None means every class at every load."""
    if load is None:
        return ALL_VALUES, ALL_VALUES
    level = (
        f"rate-{load.rate_per_s:g}"
        if load.rate_per_s is not None
        else str(load.concurrency or ALL_VALUES)
    )
    return load.class_ or ALL_VALUES, level


def _find_minutes(run: RunManifest, start_s: Values, end_s: Values) -> IntArray:
    minutes: IntArray = (np.floor(compute_utc_s(run, start_s, end_s) / MINUTE_S) * MINUTE_S).astype(
        np.intp
    )
    return minutes


def _find_first_turn_minutes(
    table: RequestTable, minutes: IntArray, scrapes: Sequence[MetricsScrape]
) -> dict[TurnKey, int]:
    """Return the minute of each turn's first request, else first scrape; also for all classes."""
    scrape_minutes = _find_minutes(table.run, *[np.array([scrape.at_s for scrape in scrapes])] * 2)
    turn_minutes: dict[TurnKey, int] = {}
    for scrape, minute in zip(scrapes, scrape_minutes.tolist(), strict=True):
        turn_minutes.setdefault(scrape.turn, minute)
    record_minutes: dict[TurnKey, int] = {}
    for turn, minute in _find_first_minutes(table.turn_groups, minutes).items():
        for key in (turn, turn.pool_classes()):
            record_minutes[key] = min(record_minutes.get(key, minute), minute)
    return turn_minutes | record_minutes


def _find_first_minutes(groups: RowGroups[Key], minutes: IntArray) -> dict[Key, int]:
    first_minutes = np.full(len(groups.keys), np.iinfo(np.intp).max)
    np.minimum.at(first_minutes, groups.codes, minutes)
    return dict(zip(groups.keys, first_minutes.tolist(), strict=True))


def _is_round_complete(table: RequestTable, number: int, *, is_control: bool) -> bool:
    run = table.run
    rows = table.round == number
    has_later_round = bool((table.round > number).any())
    ending = run.ended.reason if run.ended else None
    planned_requests = run.plan.requests_per_round
    if is_control and planned_requests is not None:
        planned_requests = 2 * planned_requests // len(run.arms)
    if planned_requests is None and run.generator == "tandem" and run.rounds:
        planned_requests = (run.plan.requests or 0) // run.rounds or None
    if planned_requests is None:
        is_whole = ending in {"done", "duration"} or (
            run.generator == "llmperf" and ending is not None
        )
        return has_later_round or is_whole
    is_interrupted = np.isin(
        table.error, [code for code, word in enumerate(table.errors) if word == "interrupted"]
    )
    request_count = len(np.unique(table.request_digest[rows])) - int((rows & is_interrupted).sum())
    return request_count >= planned_requests or (ending == "duration" and not has_later_round)


_Point = tuple[int, str, ArmLoad | None, str, Values]
"""Minute, arm, load and metric of some values, and the values; load None means every load of the
arm."""


def _list_request_points(table: RequestTable, minutes: IntArray) -> Iterator[_Point]:
    """Yield the values of the requests that began in each minute, and of their gaps."""
    turns = table.turn_groups
    loads = [turns.keys[code].load for code in turns.codes.tolist()]
    groups = RowGroups(range(len(loads)), np.arange(len(loads))).rename(
        zip(minutes.tolist(), loads, strict=True)
    )
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
    cells: Sequence[Sequence[ArmLoad | None]] = [
        loads,
        [load.pool_classes() for load in loads],
        [None] * len(loads),
    ]
    for cell_loads in cells:
        groups = turns.rename(
            (load.arm, cell) for load, cell in zip(loads, cell_loads, strict=True)
        )
        first_minutes = _find_first_minutes(groups, minutes)
        counts = groups.sum(minutes >= 0)
        failures = groups.sum(table.failed)
        for place, ((arm, cell), minute) in enumerate(first_minutes.items()):
            yield minute, arm, cell, "requests", counts[place : place + 1]
            yield minute, arm, cell, "failed_requests", failures[place : place + 1]


def _list_turn_points(
    table: RequestTable,
    changes: Sequence[tuple[TurnKey, CounterChange]],
    turn_minutes: Mapping[TurnKey, int],
) -> Iterator[_Point]:
    for (load, name), turn_values in compute_turn_metrics(table, changes).values.items():
        is_pooled = name == "acceptance_length" and load.class_ is None
        for turn, value in turn_values if name in _PUBLISHED_METRICS else ():
            for cell_load in (load, None) if is_pooled else (load,):
                yield turn_minutes[turn], load.arm, cell_load, name, np.array([value])
