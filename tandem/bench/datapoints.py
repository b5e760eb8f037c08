"""From a run's folder to what is published of it: the values behind every cell, round by round and minute by minute.

Invariant: all values of a cell over all rounds are exactly those that summary.json's cell is spread over, for they come
from the same tallies; nothing is rounded here, nothing is NaN, and what a summary leaves out is left out here.

A value stands at the calendar minute in which its request was begun; a turn's in which the turn began; a round's count
in which the first request of its cell began. The file is read twice: once for the place of each line, its round and
its minute; then round by round, so that no more than one round's figures are held.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from tandem.bench import counters, manifest, throughput
from tandem.bench.aggregate import ArmLoad, RequestTally, TurnPosition, tally_part
from tandem.bench.clocks import compute_utc_s
from tandem.bench.columns import IntArray
from tandem.bench.counters import CounterChange, TurnKey
from tandem.bench.fault import BenchError
from tandem.bench.folder import RECORDS_FILE
from tandem.bench.manifest import RunManifest
from tandem.bench.quantiles import Values
from tandem.bench.record import bad_line_error, is_torn
from tandem.bench.record_blocks import RecordsRange
from tandem.bench.summary import check_limits
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
        skip_numbers: numbers of rounds that are not wanted, and not read.

    Raises:
        BenchError: a file is missing, or a line is not what it must be; it is named.
    """
    run = manifest.read_manifest(folder)
    check_limits(run, folder)
    line_index = _LineIndex.read(folder / RECORDS_FILE, run)
    counter_index = _CounterIndex.read(folder / counters.FILE, run)
    for number in sorted({*line_index.byte_ranges, *counter_index.changes}.difference(skip_numbers)):
        yield _build_round(run, folder / RECORDS_FILE, number, line_index, counter_index)


def read_round_lines(folder: Path, number: int) -> Iterator[bytes]:
    """Yield the records of one round as they stand in the file, each with its line's end; a torn last line is left out.

    Raises:
        BenchError: as of `read_rounds`.
    """
    return read_lines(folder, _LineIndex.read(folder / RECORDS_FILE, manifest.read_manifest(folder)).ranges(number))


def read_lines(folder: Path, ranges: ByteRanges) -> Iterator[bytes]:
    """Yield the lines of some bytes of the records, each with its line's end."""
    with (folder / RECORDS_FILE).open("rb") as file:
        for first, end in ranges:
            file.seek(first)
            while file.tell() < end:
                yield file.readline()


class _LineHeader(msgspec.Struct):
    """What the place of a record is found by."""

    round: int = 0
    start_s: float = 0.0
    end_s: float = 0.0


@dataclass(frozen=True)
class _LineIndex:
    """Where the records of each round and minute stand: round to minute to ranges of bytes."""

    byte_ranges: Mapping[int, Mapping[int, Sequence[tuple[int, int]]]]

    @classmethod
    def read(cls, path: Path, run: RunManifest) -> _LineIndex:
        """Read the places of all whole lines."""
        ends, numbers, start_s, end_s = array("q", [0]), array("q"), array("d"), array("d")
        try:
            with path.open("rb") as file:
                for line in file:
                    header = _decode_line(line, path, len(ends))
                    if header is not None:
                        ends.append(ends[-1] + len(line))
                        numbers.append(header.round)
                        start_s.append(header.start_s)
                        end_s.append(header.start_s + header.end_s)
        except OSError as error:
            raise BenchError(
                f"the records cannot be read: {error.strerror or error}",
                where=str(path),
                change="name the folder that a run wrote, and see that its files may be read",
            ) from error
        minutes = _floor_to_minute(compute_utc_s(run, np.array(start_s), np.array(end_s)))
        return cls(_group_ranges(np.array(ends), np.array(numbers), minutes))

    def ranges(self, number: int) -> ByteRanges:
        """Return all ranges of a round in the order of the file, neighbours joined."""
        merge: list[tuple[int, int]] = []
        for first, end in sorted(chain.from_iterable(self.byte_ranges.get(number, {}).values())):
            if merge and merge[-1][1] == first:
                merge[-1] = (merge[-1][0], end)
            else:
                merge.append((first, end))
        return tuple(merge)


_DECODER = msgspec.json.Decoder(_LineHeader)


def _decode_line(line: bytes, path: Path, number: int) -> _LineHeader | None:
    """Return what a line says of its place, None of a torn last one."""
    if is_torn(line):
        return None
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_line_error(line, path, number, error) from error


def _floor_to_minute(at_s: Values) -> IntArray:
    minutes: IntArray = (np.floor(at_s / MINUTE_S) * MINUTE_S).astype(np.intp)
    return minutes


def _group_ranges(ends: IntArray, numbers: IntArray, minutes: IntArray) -> dict[int, dict[int, list[tuple[int, int]]]]:
    """Join lines that follow each other in one round and minute to ranges of bytes."""
    ranges: dict[int, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    if not len(numbers):
        return ranges
    starts = np.flatnonzero(np.append(True, (np.diff(numbers) != 0) | (np.diff(minutes) != 0)))
    edges = np.append(ends[starts], ends[-1]).tolist()
    for place, (number, minute) in enumerate(zip(numbers[starts].tolist(), minutes[starts].tolist(), strict=True)):
        ranges[number][minute].append((edges[place], edges[place + 1]))
    return ranges


@dataclass(frozen=True)
class _CounterIndex:
    """What the servers counted, by round; and the minute of each turn's first scrape."""

    changes: Mapping[int, Sequence[tuple[TurnKey, CounterChange]]]
    minutes: Mapping[tuple[ArmLoad, TurnPosition], int]

    @classmethod
    def read(cls, path: Path, run: RunManifest) -> _CounterIndex:
        """Read the scrapes of all turns."""
        scrapes = list(counters.read_scrapes(path))
        changes: dict[int, list[tuple[TurnKey, CounterChange]]] = defaultdict(list)
        for turn, change in counters.pair_scrapes(iter(scrapes))[0]:
            changes[TurnPosition(*turn[4:]).round].append((turn, change))
        at_s = np.array([scrape.at_s for scrape in scrapes])
        minutes: dict[tuple[ArmLoad, TurnPosition], int] = {}
        for scrape, minute in zip(scrapes, _floor_to_minute(compute_utc_s(run, at_s, at_s)).tolist(), strict=True):
            load = ArmLoad(scrape.arm, scrape.class_, scrape.concurrency, scrape.rate_per_s)
            minutes.setdefault((load, TurnPosition(scrape.round, scrape.slot)), minute)
        return cls(changes, minutes)


def _build_round(
    run: RunManifest, path: Path, number: int, line_index: _LineIndex, counter_index: _CounterIndex
) -> RoundDatapoints:
    reader, is_control = (
        _RoundReader(turn_minutes=dict(counter_index.minutes)),
        number in manifest.control_round_numbers(run),
    )
    for minute, ranges in sorted(line_index.byte_ranges.get(number, {}).items()):
        reader.add(minute, (RecordsRange(path, first, end, run.goodput) for first, end in ranges))
    has_later_round = any(round_number > number for round_number in line_index.byte_ranges)
    points = chain(
        reader.points, reader.count_requests(), _turn_datapoints(run, reader, counter_index.changes.get(number, ()))
    )
    return RoundDatapoints(
        number=number,
        is_complete=_is_round_complete(run, reader.total, has_later_round=has_later_round, is_control=is_control),
        rows=() if is_control else tuple(_join_rows(points)),
        ranges=line_index.ranges(number),
    )


def _is_round_complete(run: RunManifest, total: RequestTally, *, has_later_round: bool, is_control: bool) -> bool:
    planned_requests = run.plan.requests_per_round
    if is_control and planned_requests is not None:
        planned_requests = 2 * planned_requests // len(run.arms)
    if planned_requests is None and run.generator == "tandem" and run.rounds:
        planned_requests = (run.plan.requests or 0) // run.rounds or None
    if planned_requests is not None:
        interrupt_count = sum(times for (_, word), times in total.errors.items() if word == "interrupted")
        ids = np.concatenate(total.id_hashes) if total.id_hashes else np.zeros(0, np.uint64)
        if len(np.unique(ids)) - interrupt_count >= planned_requests:
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


@dataclass
class _RoundReader:
    """One round while it is read, minute by minute.

    Args:
        total: all of it, without the values of requests and gaps.
        points: these values.
        turn_minutes: the minute in which each turn began, of all classes together too.
        first_minutes: the minute in which the first request of each load began.
    """

    turn_minutes: dict[tuple[ArmLoad, TurnPosition], int]
    total: RequestTally = field(default_factory=RequestTally)
    points: list[_Datapoint] = field(default_factory=list)
    first_minutes: dict[ArmLoad, int] = field(default_factory=dict)
    _recorded_turns: set[tuple[ArmLoad, TurnPosition]] = field(default_factory=set)

    def add(self, minute: int, parts: Iterable[RecordsRange]) -> None:
        """Read what began in a minute; minutes come in order."""
        minute_tally = RequestTally()
        for part in parts:
            minute_tally.add(tally_part(part))
        self.points += _request_datapoints(minute_tally, minute)
        for load, place in minute_tally.turns:
            for turn in ((load, place), (load.pool_classes(), place)):
                if turn not in self._recorded_turns:  # a scrape gives the minute only of a turn without a record
                    self._recorded_turns.add(turn)
                    self.turn_minutes[turn] = minute
        for load in minute_tally.requests:
            self.first_minutes.setdefault(load, minute)
        minute_tally.values = {}
        self.total.add(minute_tally)

    def count_requests(self) -> Iterator[_Datapoint]:
        """Yield how many requests there were and how many failed, of each load, its classes together, and each arm."""
        failures: dict[ArmLoad, int] = defaultdict(int)
        for (load, _), times in self.total.errors.items():
            failures[load] += times
        cells: dict[tuple[str, ArmLoad | None], tuple[int, int, int]] = {}
        for load, request_count in self.total.requests.items():
            for cell_load in (load, load.pool_classes(), None):
                minute, earlier_count, failure_count = cells.get(
                    (load.arm, cell_load), (self.first_minutes[load], 0, 0)
                )
                cells[load.arm, cell_load] = (
                    min(minute, self.first_minutes[load]),
                    earlier_count + request_count,
                    failure_count + failures[load],
                )
        for (arm, cell), (minute, request_count, failure_count) in cells.items():
            yield _Datapoint(arm, cell, "requests", minute, np.array([float(request_count)]))
            yield _Datapoint(arm, cell, "failed_requests", minute, np.array([float(failure_count)]))


def _request_datapoints(minute_tally: RequestTally, minute: int) -> Iterator[_Datapoint]:
    for (load, name), arrays in minute_tally.values.items():
        if name in _PUBLISHED_METRICS:
            values = np.concatenate(arrays)
            yield _Datapoint(load.arm, load, name, minute, values)
            yield _Datapoint(load.arm, load.pool_classes(), name, minute, values)


def _turn_datapoints(
    run: RunManifest, reader: _RoundReader, changes: Sequence[tuple[TurnKey, CounterChange]]
) -> Iterator[_Datapoint]:
    throughput_metrics = throughput.compute_throughput(reader.total, has_limits=bool(run.goodput))
    acceptance_metrics = throughput.compute_acceptance(changes, {arm.name: arm for arm in run.arms}, reader.total)
    for (load, name), turn_values in (*throughput_metrics.values.items(), *acceptance_metrics.values.items()):
        if name not in _PUBLISHED_METRICS:
            continue
        for turn, value in zip(turn_values.turns, turn_values.values, strict=True):
            point = _Datapoint(load.arm, load, name, reader.turn_minutes[turn], np.array([value]))
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
