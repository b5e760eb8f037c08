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

import numpy as np

from tandem.bench import counters, manifest, throughput
from tandem.bench.clocks import compute_utc_s
from tandem.bench.columns import IntArray
from tandem.bench.counters import CounterChange, MetricsScrape
from tandem.bench.manifest import RunManifest
from tandem.bench.quantiles import Values
from tandem.bench.request_table import RequestTable, read_request_table
from tandem.bench.schedule import ArmLoad, TurnKey
from tandem.bench.summary import check_limits
from tandem.bench.throughput import TurnRequests
from tandem.metrics import ALL_VALUES, list_published_metrics

MINUTE_S = 60
_PUBLISHED_METRICS = {metric.name for metric in list_published_metrics()}

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
            the manifest does not say how many were planned (llmperf, runs by the clock of an earlier version): whether
            a later round was begun, or the run has reached its end.
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
    run = table.run
    check_limits(run, folder)
    scrapes = list(counters.read_scrapes(folder / counters.FILE))
    changes: dict[int, list[tuple[TurnKey, CounterChange]]] = defaultdict(list)
    for turn, change in counters.pair_scrapes(iter(scrapes))[0]:
        changes[turn.round].append((turn, change))
    minutes = _find_minutes(run, table.start_s, table.end_s)
    turn_minutes = _find_turn_minutes(table, minutes, scrapes)
    controls, edges = manifest.control_round_numbers(run), np.append(table.line_offsets, table.end_offset)
    for number in sorted({*np.unique(table.round).tolist(), *changes}.difference(skip_numbers)):
        is_control, rows = number in controls, np.flatnonzero(table.round == number)
        parts = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)  # lines that follow each other
        points = chain(
            _list_request_points(table, minutes, rows),
            _count_requests(table, minutes, rows),
            _list_turn_points(table, number, changes[number], turn_minutes),
        )
        yield RoundDatapoints(
            number=number,
            is_complete=_is_round_complete(table, number, is_control=is_control),
            rows=() if is_control else tuple(_join_rows(points)),
            ranges=tuple((int(edges[part[0]]), int(edges[part[-1] + 1])) for part in parts if len(part)),
        )


def _find_minutes(run: RunManifest, start_s: Values, end_s: Values) -> IntArray:
    minutes: IntArray = (np.floor(compute_utc_s(run, start_s, end_s) / MINUTE_S) * MINUTE_S).astype(np.intp)
    return minutes


def _find_turn_minutes(table: RequestTable, minutes: IntArray, scrapes: Sequence[MetricsScrape]) -> dict[TurnKey, int]:
    """Return the minute of each turn's first request, or scrape where it has no request; of all classes too."""
    scrape_minutes = _find_minutes(table.run, *[np.array([scrape.at_s for scrape in scrapes])] * 2)
    turn_minutes: dict[TurnKey, int] = {}
    for scrape, minute in zip(scrapes, scrape_minutes.tolist(), strict=True):
        turn_minutes.setdefault(scrape.turn, minute)
    turns, codes = table.turn_groups
    first_minutes = np.full(len(turns), np.iinfo(np.intp).max)
    np.minimum.at(first_minutes, codes, minutes)
    record_minutes: dict[TurnKey, int] = {}
    for turn, minute in zip(turns, first_minutes.tolist(), strict=True):
        for key in (turn, turn.pool_classes()):
            record_minutes[key] = min(record_minutes.get(key, minute), minute)
    return turn_minutes | record_minutes


def _is_round_complete(table: RequestTable, number: int, *, is_control: bool) -> bool:
    run, rows = table.run, table.round == number
    has_later_round, ending = bool((table.round > number).any()), run.ended.reason if run.ended else None
    planned_requests = run.plan.requests_per_round
    if is_control and planned_requests is not None:
        planned_requests = 2 * planned_requests // len(run.arms)
    if planned_requests is None and run.generator == "tandem" and run.rounds:
        planned_requests = (run.plan.requests or 0) // run.rounds or None
    if planned_requests is None:
        is_over = ending is not None and (run.generator == "llmperf" or ending in {"done", "duration"})
        return has_later_round or is_over
    is_interrupted = np.isin(table.error, [code for code, word in enumerate(table.errors) if word == "interrupted"])
    request_count = len(np.unique(table.request_digest[rows])) - int((rows & is_interrupted).sum())
    return request_count >= planned_requests or (ending == "duration" and not has_later_round)


_Cell = tuple[int, str, ArmLoad | None, str]
"""Minute, arm, load and metric of some values; load None is every load of the arm."""


def _list_request_points(table: RequestTable, minutes: IntArray, rows: IntArray) -> Iterator[tuple[_Cell, Values]]:
    """Yield the values of requests that were begun in one minute, and of their gaps."""
    turns, codes = table.turn_groups
    groups: dict[tuple[int, ArmLoad], list[int]] = defaultdict(list)
    for row, minute, code in zip(rows.tolist(), minutes[rows].tolist(), codes[rows].tolist(), strict=True):
        groups[minute, turns[code].load].append(row)
    for (minute, load), load_rows in sorted(groups.items(), key=lambda item: item[0][0]):
        first_gap, end_gap = np.searchsorted(table.gap_owners, (load_rows[0], load_rows[-1] + 1))
        is_owned = np.isin(table.gap_owners[first_gap:end_gap], load_rows)
        values_by_name = {name: values[load_rows] for name, values in table.figures.items()}
        values_by_name["chunk_gap_ms"] = table.gaps_ms[first_gap:end_gap][is_owned]
        for name, values in values_by_name.items():
            finite_values = values[~np.isnan(values)]
            if name in _PUBLISHED_METRICS and len(finite_values):
                yield (minute, load.arm, load, name), finite_values
                yield (minute, load.arm, load.pool_classes(), name), finite_values


def _count_requests(table: RequestTable, minutes: IntArray, rows: IntArray) -> Iterator[tuple[_Cell, Values]]:
    """Yield how many requests there were and how many failed, of each load, its classes together, and each arm."""
    turns, codes = table.turn_groups
    cells: dict[tuple[str, ArmLoad | None], list[IntArray]] = defaultdict(list)
    for code in np.unique(codes[rows]).tolist():
        load, turn_rows = turns[code].load, rows[codes[rows] == code]
        for cell_load in dict.fromkeys((load, load.pool_classes(), None)):
            cells[load.arm, cell_load].append(turn_rows)
    for (arm, cell), parts in cells.items():
        cell_rows = np.concatenate(parts)
        minute = int(minutes[cell_rows].min())
        yield (minute, arm, cell, "requests"), np.array([float(len(cell_rows))])
        yield (minute, arm, cell, "failed_requests"), np.array([float(table.failed[cell_rows].sum())])


def _list_turn_points(
    table: RequestTable,
    number: int,
    changes: Sequence[tuple[TurnKey, CounterChange]],
    turn_minutes: Mapping[TurnKey, int],
) -> Iterator[tuple[_Cell, Values]]:
    requests = TurnRequests.select(table, table.round == number)
    system = throughput.compute_throughput(requests, has_limits=bool(table.run.goodput))
    acceptance = throughput.compute_acceptance(changes, {arm.name: arm for arm in table.run.arms}, requests)
    for (load, name), turn_values in chain(system.values.items(), acceptance.values.items()):
        is_pooled = name == "acceptance_length" and load.class_ is None
        for turn, value in zip(*turn_values, strict=True) if name in _PUBLISHED_METRICS else ():
            for cell_load in (load, None) if is_pooled else (load,):
                yield (turn_minutes[turn], load.arm, cell_load, name), np.array([value])


def _join_rows(points: Iterable[tuple[_Cell, Values]]) -> Iterator[DatapointRow]:
    """Join points of one cell and minute, in the order of minutes."""
    values_by_cell: dict[_Cell, list[Values]] = defaultdict(list)
    for cell, values in points:
        values_by_cell[cell].append(values)
    for (minute, arm, load, name), arrays in sorted(values_by_cell.items(), key=lambda item: item[0][0]):
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
