"""From a run's requests to what is published of it: the values behind every cell, round by round and minute by minute.

Invariant: all values of a cell over all rounds are exactly those that summary.json's cell is spread over, for they come
from the same table; nothing is rounded here, nothing is NaN, and what a summary leaves out is left out here.

A value stands at the calendar minute in which its request was begun; a turn's in which the turn began; a round's count
in which the first request of its cell began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tandem.bench import counters, manifest, throughput
from tandem.bench.clocks import compute_utc_s
from tandem.bench.columns import BoolArray, IntArray
from tandem.bench.counters import CounterChange
from tandem.bench.manifest import RunManifest
from tandem.bench.quantiles import Values
from tandem.bench.request_table import RequestTable, read_request_table
from tandem.bench.schedule import ArmLoad, TurnKey
from tandem.bench.summary import check_limits
from tandem.bench.throughput import TurnRequests
from tandem.metrics import ALL_VALUES, list_published_metrics

MINUTE_S = 60
_PUBLISHED_METRICS = {one.name for one in list_published_metrics()}

ByteRanges = tuple[tuple[int, int], ...]
"""Bytes of records.jsonl, in its order: each from the first to the one behind the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatapointRow:
    """Values of one metric of one cell in one minute.

    Args:
        arm: name of the server.
        class_: of the prompts; `all` for all classes together.
        concurrency, rate_per_s: the load; both None where `all_loads`.
        all_loads: whether it pools every class at every load of the arm.
        metric: as the catalogue has it.
        at_s: when the minute began, in seconds of Unix time.
        values: in the metric's unit; at least one.
    """

    arm: str
    class_: str
    concurrency: int | None
    rate_per_s: float | None
    all_loads: bool
    metric: str
    at_s: int
    values: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundDatapoints:
    """What is published of one round; `unpublished_rounds` is known only to who publishes and is not here.

    Args:
        number: from 0.
        is_complete: whether nothing of it is missing: every planned request has a record that no interrupt cut. Where
            the
            manifest does not say how many were planned (llmperf, runs by the clock of an earlier version): whether a
            later round was begun, or the run has reached its end.
        rows: by minute, load and metric; a control round has none, for it holds the baseline against itself alone.
        ranges: where its records stand in the file.
    """

    number: int
    is_complete: bool
    rows: tuple[DatapointRow, ...]
    ranges: ByteRanges


def read_rounds(folder: Path, skip_numbers: Collection[int] = ()) -> Iterator[RoundDatapoints]:
    """Yield what is published of each round, in order; a folder that is still written to gives what it holds by now.

    Args:
        folder: what a run wrote.
        skip_numbers: numbers of rounds that are not wanted.

    Raises:
        BenchError: a file is missing, or a line is not what it must be; it is named.
    """
    table = read_request_table(folder)
    check_limits(table.run, folder)
    index = _RunIndex.read(table)
    for number in sorted({*np.unique(table.round).tolist(), *index.changes}.difference(skip_numbers)):
        yield _build_round(index, number)


@dataclass(frozen=True)
class _RunIndex:
    """A run and its calendar.

    Args:
        table: its requests.
        minutes: of each request, the minute in which it was begun.
        turn_minutes: the minute of each turn's first request, or scrape where it has no request; of all classes too.
        changes: what the servers counted, by round.
    """

    table: RequestTable
    minutes: IntArray
    turn_minutes: Mapping[TurnKey, int]
    changes: Mapping[int, Sequence[tuple[TurnKey, CounterChange]]]

    @classmethod
    def read(cls, table: RequestTable) -> _RunIndex:
        """Read the scrapes beside `table`, and the clocks of both."""
        scrapes = list(counters.read_scrapes(table.folder / counters.FILE))
        changes: dict[int, list[tuple[TurnKey, CounterChange]]] = defaultdict(list)
        for turn, change in counters.pair_scrapes(iter(scrapes))[0]:
            changes[turn.round].append((turn, change))
        scrape_minutes = _find_minutes(table.run, *[np.array([scrape.at_s for scrape in scrapes])] * 2)
        turn_minutes: dict[TurnKey, int] = {}
        for scrape, minute in zip(scrapes, scrape_minutes.tolist(), strict=True):
            turn_minutes.setdefault(scrape.turn, minute)
        minutes = _find_minutes(table.run, table.start_s, table.end_s)
        turns, codes = table.turn_groups
        first_minutes = np.full(len(turns), np.iinfo(np.intp).max)
        np.minimum.at(first_minutes, codes, minutes)
        record_minutes: dict[TurnKey, int] = {}
        for turn, minute in zip(turns, first_minutes.tolist(), strict=True):
            for key in (turn, turn.pool_classes()):
                record_minutes[key] = min(record_minutes.get(key, minute), minute)
        return cls(table, minutes, turn_minutes | record_minutes, changes)


def _find_minutes(run: RunManifest, start_s: Values, end_s: Values) -> IntArray:
    minutes: IntArray = (np.floor(compute_utc_s(run, start_s, end_s) / MINUTE_S) * MINUTE_S).astype(np.intp)
    return minutes


def _build_round(index: _RunIndex, number: int) -> RoundDatapoints:
    table, is_control = index.table, number in manifest.control_round_numbers(index.table.run)
    rows = np.flatnonzero(table.round == number)
    rows_by_minute = sorted(
        (minute, rows[index.minutes[rows] == minute]) for minute in np.unique(index.minutes[rows]).tolist()
    )
    points = chain(
        chain.from_iterable(_list_request_points(index, minute, minute_rows) for minute, minute_rows in rows_by_minute),
        _count_requests(index, rows),
        _list_turn_points(index, number),
    )
    return RoundDatapoints(
        number=number,
        is_complete=_is_round_complete(table, number, is_control=is_control),
        rows=() if is_control else tuple(_join_rows(points)),
        ranges=_join_ranges(table, rows),
    )


def _join_ranges(table: RequestTable, rows: IntArray) -> ByteRanges:
    """Return where some requests stand in the file, neighbours joined."""
    if not len(rows):
        return ()
    edges = np.append(table.line_offsets, table.end_offset)
    is_first = np.append(True, np.diff(rows) != 1)
    is_last = np.append(is_first[1:], True)
    return tuple(zip(edges[rows[is_first]].tolist(), edges[rows[is_last] + 1].tolist(), strict=True))


def _is_round_complete(table: RequestTable, number: int, *, is_control: bool) -> bool:
    run, rows = table.run, table.round == number
    has_later_round = bool((table.round > number).any())
    planned_requests = run.plan.requests_per_round
    if is_control and planned_requests is not None:
        planned_requests = 2 * planned_requests // len(run.arms)
    if planned_requests is None and run.generator == "tandem" and run.rounds:
        planned_requests = (run.plan.requests or 0) // run.rounds or None
    if planned_requests is not None:
        is_interrupted = np.isin(table.error, [code for code, word in enumerate(table.errors) if word == "interrupted"])
        if len(np.unique(table.request_digest[rows])) - int((rows & is_interrupted).sum()) >= planned_requests:
            return True
        return run.ended is not None and run.ended.reason == "duration" and not has_later_round
    is_over = run.ended is not None and (run.generator == "llmperf" or run.ended.reason in {"done", "duration"})
    return has_later_round or is_over


class _Datapoint(NamedTuple):
    """Values of one cell in one minute; load None is every load of the arm."""

    arm: str
    load: ArmLoad | None
    metric: str
    minute: int
    values: Values


def _list_request_points(index: _RunIndex, minute: int, rows: IntArray) -> Iterator[_Datapoint]:
    """Yield the values of requests that were begun in one minute, and of their gaps."""
    table, (turns, codes) = index.table, index.table.turn_groups
    rows_by_load: dict[ArmLoad, list[IntArray]] = defaultdict(list)
    for code in np.unique(codes[rows]).tolist():
        rows_by_load[turns[code].load].append(rows[codes[rows] == code])
    for load, parts in rows_by_load.items():
        load_rows = np.sort(np.concatenate(parts))
        first_gap, end_gap = np.searchsorted(table.gap_owners, (load_rows[0], load_rows[-1] + 1))
        owners, gaps_ms = table.gap_owners[first_gap:end_gap], table.gaps_ms[first_gap:end_gap]
        values_by_name = {name: values[load_rows] for name, values in table.figures.items()}
        values_by_name["chunk_gap_ms"] = gaps_ms[np.isin(owners, load_rows)]
        for name, values in values_by_name.items():
            finite_values = values[~np.isnan(values)]
            if name in _PUBLISHED_METRICS and len(finite_values):
                yield _Datapoint(load.arm, load, name, minute, finite_values)
                yield _Datapoint(load.arm, load.pool_classes(), name, minute, finite_values)


def _count_requests(index: _RunIndex, rows: IntArray) -> Iterator[_Datapoint]:
    """Yield how many requests there were and how many failed, of each load, its classes together, and each arm."""
    table, (turns, codes) = index.table, index.table.turn_groups
    cells: dict[tuple[str, ArmLoad | None], BoolArray] = {}
    for code in np.unique(codes[rows]).tolist():
        load, mask = turns[code].load, codes[rows] == code
        for cell_load in (load, load.pool_classes(), None):
            cells[load.arm, cell_load] = cells.get((load.arm, cell_load), np.zeros(len(rows), bool)) | mask
    for (arm, cell), mask in cells.items():
        minute = int(index.minutes[rows[mask]].min())
        failure_count = float(table.failed[rows[mask]].sum())
        yield _Datapoint(arm, cell, "requests", minute, np.array([float(mask.sum())]))
        yield _Datapoint(arm, cell, "failed_requests", minute, np.array([failure_count]))


def _list_turn_points(index: _RunIndex, number: int) -> Iterator[_Datapoint]:
    table = index.table
    requests = TurnRequests.select(table, table.round == number)
    metrics = (
        throughput.compute_throughput(requests, has_limits=bool(table.run.goodput)),
        throughput.compute_acceptance(
            index.changes.get(number, ()), {arm.name: arm for arm in table.run.arms}, requests
        ),
    )
    for (load, name), turn_values in chain.from_iterable(turn_metrics.values.items() for turn_metrics in metrics):
        if name not in _PUBLISHED_METRICS:
            continue
        for turn, value in zip(turn_values.turns, turn_values.values, strict=True):
            point = _Datapoint(load.arm, load, name, index.turn_minutes[turn], np.array([value]))
            yield point
            if name == "acceptance_length" and load.class_ is None:
                yield point._replace(load=None)


def _join_rows(points: Iterable[_Datapoint]) -> Iterator[DatapointRow]:
    """Join points of one cell and minute, in the order of minutes."""
    values_by_key: dict[tuple[int, str, ArmLoad | None, str], list[Values]] = defaultdict(list)
    for point in points:
        values_by_key[point.minute, point.arm, point.load, point.metric].append(point.values)
    for (minute, arm, load, name), arrays in sorted(values_by_key.items(), key=lambda item: item[0][0]):
        yield DatapointRow(
            arm=arm,
            class_=(load and load.class_) or ALL_VALUES,
            concurrency=load.concurrency if load else None,
            rate_per_s=load.rate_per_s if load else None,
            all_loads=load is None,
            metric=name,
            at_s=minute,
            values=np.concatenate(arrays),
        )
