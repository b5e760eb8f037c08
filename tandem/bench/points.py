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

from tandem.bench import counters, manifest, turns
from tandem.bench.clocks import utc_s
from tandem.bench.columns import Whole
from tandem.bench.counters import Change, Turn
from tandem.bench.fault import BenchError
from tandem.bench.folder import RECORDS
from tandem.bench.manifest import Manifest
from tandem.bench.quantiles import Values
from tandem.bench.reading import Part
from tandem.bench.record import bad_line, is_torn
from tandem.bench.summary import check_limits
from tandem.bench.tally import Load, Place, Tally, tally
from tandem.metrics import EVERY, published

MINUTE_S = 60
_PUBLISHED = {one.name for one in published()}

Ranges = tuple[tuple[int, int], ...]
"""Bytes of records.jsonl, in its order: each from the first to the one behind the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
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
class RoundPoints:
    """What is published of one round; `unpublished_rounds` is known only to who publishes and is not here.

    Args:
        number: from 0.
        complete: whether nothing of it is missing: every planned request has a record that no interrupt cut. Where the
            manifest does not say how many were planned (llmperf, runs by the clock of an earlier version): whether a
            later round was begun, or the run has reached its end.
        rows: by minute, load and metric; a control round has none, for it holds the baseline against itself alone.
        ranges: where its records stand in the file.
    """

    number: int
    complete: bool
    rows: tuple[Row, ...]
    ranges: Ranges


def rounds(folder: Path, without: Collection[int] = ()) -> Iterator[RoundPoints]:
    """Yield what is published of each round, in order; a folder that is still written to gives what it holds by now.

    Args:
        folder: what a run wrote.
        without: numbers of rounds that are not wanted, and not read.

    Raises:
        BenchError: a file is missing, or a line is not what it must be; it is named.
    """
    run = manifest.read(folder)
    check_limits(run, folder)
    lines = _Lines.of(folder / RECORDS, run)
    counted = _Counted.of(folder / counters.FILE, run)
    for number in sorted({*lines.places, *counted.changes}.difference(without)):
        yield _round(run, folder / RECORDS, number, lines, counted)


def lines_of_round(folder: Path, number: int) -> Iterator[bytes]:
    """Yield the records of one round as they stand in the file, each with its line's end; a torn last line is left out.

    Raises:
        BenchError: as of `rounds`.
    """
    return lines(folder, _Lines.of(folder / RECORDS, manifest.read(folder)).ranges(number))


def lines(folder: Path, ranges: Ranges) -> Iterator[bytes]:
    """Yield the lines of some bytes of the records, each with its line's end."""
    with (folder / RECORDS).open("rb") as file:
        for first, end in ranges:
            file.seek(first)
            while file.tell() < end:
                yield file.readline()


class _Line(msgspec.Struct):
    """What the place of a record is found by."""

    round: int = 0
    start_s: float = 0.0
    end_s: float = 0.0


@dataclass(frozen=True)
class _Lines:
    """Where the records of each round and minute stand: round to minute to ranges of bytes."""

    places: Mapping[int, Mapping[int, Sequence[tuple[int, int]]]]

    @classmethod
    def of(cls, path: Path, run: Manifest) -> _Lines:
        """Read the places of all whole lines."""
        ends, numbers, start_s, end_s = array("q", [0]), array("q"), array("d"), array("d")
        try:
            with path.open("rb") as file:
                for line in file:
                    found = _line(line, path, len(ends))
                    if found is not None:
                        ends.append(ends[-1] + len(line))
                        numbers.append(found.round)
                        start_s.append(found.start_s)
                        end_s.append(found.start_s + found.end_s)
        except OSError as error:
            raise BenchError(
                f"the records cannot be read: {error.strerror or error}",
                where=str(path),
                change="name the folder that a run wrote, and see that its files may be read",
            ) from error
        minutes = _minute(utc_s(run, np.array(start_s), np.array(end_s)))
        return cls(_places(np.array(ends), np.array(numbers), minutes))

    def ranges(self, number: int) -> Ranges:
        """Return all ranges of a round in the order of the file, neighbours joined."""
        joined: list[tuple[int, int]] = []
        for first, end in sorted(chain.from_iterable(self.places.get(number, {}).values())):
            if joined and joined[-1][1] == first:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((first, end))
        return tuple(joined)


_DECODER = msgspec.json.Decoder(_Line)


def _line(line: bytes, path: Path, number: int) -> _Line | None:
    """Return what a line says of its place, None of a torn last one."""
    if is_torn(line):
        return None
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_line(line, path, number, error) from error


def _minute(at_s: Values) -> Whole:
    minutes: Whole = (np.floor(at_s / MINUTE_S) * MINUTE_S).astype(np.intp)
    return minutes


def _places(ends: Whole, numbers: Whole, minutes: Whole) -> dict[int, dict[int, list[tuple[int, int]]]]:
    """Join lines that follow each other in one round and minute to ranges of bytes."""
    found: dict[int, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    if not len(numbers):
        return found
    new = np.flatnonzero(np.append(True, (np.diff(numbers) != 0) | (np.diff(minutes) != 0)))
    edges = np.append(ends[new], ends[-1]).tolist()
    for place, (number, minute) in enumerate(zip(numbers[new].tolist(), minutes[new].tolist(), strict=True)):
        found[number][minute].append((edges[place], edges[place + 1]))
    return found


@dataclass(frozen=True)
class _Counted:
    """What the servers counted, by round; and the minute of each turn's first scrape."""

    changes: Mapping[int, Sequence[tuple[Turn, Change]]]
    minutes: Mapping[tuple[Load, Place], int]

    @classmethod
    def of(cls, path: Path, run: Manifest) -> _Counted:
        """Read the scrapes of all turns."""
        scrapes = list(counters.read_scrapes(path))
        changes: dict[int, list[tuple[Turn, Change]]] = defaultdict(list)
        for turn, change in counters.changes(iter(scrapes))[0]:
            changes[Place(*turn[4:]).round].append((turn, change))
        at_s = np.array([scrape.at_s for scrape in scrapes])
        minutes: dict[tuple[Load, Place], int] = {}
        for scrape, minute in zip(scrapes, _minute(utc_s(run, at_s, at_s)).tolist(), strict=True):
            load = Load(scrape.arm, scrape.class_, scrape.concurrency, scrape.rate_per_s)
            minutes.setdefault((load, Place(scrape.round, scrape.slot)), minute)
        return cls(changes, minutes)


def _round(run: Manifest, path: Path, number: int, places: _Lines, counted: _Counted) -> RoundPoints:
    read, control = _Round(begun=dict(counted.minutes)), number in manifest.controls(run)
    for minute, ranges in sorted(places.places.get(number, {}).items()):
        read.add(minute, (Part(path, first, end, run.goodput) for first, end in ranges))
    later = any(other > number for other in places.places)
    points = chain(read.points, read.counts(), _of_turns(run, read, counted.changes.get(number, ())))
    return RoundPoints(
        number=number,
        complete=_complete(run, read.total, later=later, control=control),
        rows=() if control else tuple(_rows(points)),
        ranges=places.ranges(number),
    )


def _complete(run: Manifest, total: Tally, *, later: bool, control: bool) -> bool:
    planned = run.plan.requests_per_round
    if control and planned is not None:
        planned = 2 * planned // len(run.arms)
    if planned is None and run.generator == "tandem" and run.rounds:
        planned = (run.plan.requests or 0) // run.rounds or None
    if planned is not None:
        cut = sum(times for (_, word), times in total.errors.items() if word == "interrupted")
        ids = np.concatenate(total.ids) if total.ids else np.zeros(0, np.uint64)
        if len(np.unique(ids)) - cut >= planned:
            return True
        return run.ended is not None and run.ended.reason == "duration" and not later
    over = run.ended is not None and (run.generator == "llmperf" or run.ended.reason in {"done", "duration"})
    return later or over


class _Point(NamedTuple):
    """Values of one cell in one minute; load None is every load of the arm."""

    arm: str
    load: Load | None
    metric: str
    minute: int
    values: Values


@dataclass
class _Round:
    """One round while it is read, minute by minute.

    Args:
        total: all of it, without the values of requests and gaps.
        points: these values.
        begun: the minute in which each turn began, of all classes together too.
        first: the minute in which the first request of each load began.
    """

    begun: dict[tuple[Load, Place], int]
    total: Tally = field(default_factory=Tally)
    points: list[_Point] = field(default_factory=list)
    first: dict[Load, int] = field(default_factory=dict)
    _timed: set[tuple[Load, Place]] = field(default_factory=set)

    def add(self, minute: int, parts: Iterable[Part]) -> None:
        """Read what began in a minute; minutes come in order."""
        found = Tally()
        for part in parts:
            found.add(tally(part))
        self.points += _of_requests(found, minute)
        for load, place in found.turns:
            for turn in ((load, place), (load.pooled(), place)):
                if turn not in self._timed:  # a scrape gives the minute only of a turn without a record
                    self._timed.add(turn)
                    self.begun[turn] = minute
        for load in found.requests:
            self.first.setdefault(load, minute)
        found.values = {}
        self.total.add(found)

    def counts(self) -> Iterator[_Point]:
        """Yield how many requests there were and how many failed, of each load, its classes together, and each arm."""
        failed: dict[Load, int] = defaultdict(int)
        for (load, _), times in self.total.errors.items():
            failed[load] += times
        cells: dict[tuple[str, Load | None], tuple[int, int, int]] = {}
        for load, asked in self.total.requests.items():
            for pooled in (load, load.pooled(), None):
                minute, before, lost = cells.get((load.arm, pooled), (self.first[load], 0, 0))
                cells[load.arm, pooled] = min(minute, self.first[load]), before + asked, lost + failed[load]
        for (arm, cell), (minute, asked, lost) in cells.items():
            yield _Point(arm, cell, "requests", minute, np.array([float(asked)]))
            yield _Point(arm, cell, "failed_requests", minute, np.array([float(lost)]))


def _of_requests(found: Tally, minute: int) -> Iterator[_Point]:
    for (load, name), arrays in found.values.items():
        if name in _PUBLISHED:
            values = np.concatenate(arrays)
            yield _Point(load.arm, load, name, minute, values)
            yield _Point(load.arm, load.pooled(), name, minute, values)


def _of_turns(run: Manifest, read: _Round, changes: Sequence[tuple[Turn, Change]]) -> Iterator[_Point]:
    throughput = turns.throughput(read.total, limited=bool(run.goodput))
    accepted = turns.acceptance(changes, {arm.name: arm for arm in run.arms}, read.total)
    for (load, name), of_turns in (*throughput.values.items(), *accepted.values.items()):
        if name not in _PUBLISHED:
            continue
        for turn, value in zip(of_turns.turns, of_turns.values, strict=True):
            point = _Point(load.arm, load, name, read.begun[turn], np.array([value]))
            yield point
            if name == "acceptance_length" and load.class_ is None:
                yield point._replace(load=None)


def _rows(points: Iterable[_Point]) -> Iterator[Row]:
    """Join points of one cell and minute, in the order of minutes."""
    joined: dict[tuple[int, str, Load | None, str], list[Values]] = defaultdict(list)
    for point in points:
        joined[point.minute, point.arm, point.load, point.metric].append(point.values)
    for (minute, arm, load, name), arrays in sorted(joined.items(), key=lambda item: item[0][0]):
        yield Row(
            arm=arm,
            class_=(load and load.class_) or EVERY,
            concurrency=load.concurrency if load else None,
            rate_per_s=load.rate_per_s if load else None,
            all_loads=load is None,
            metric=name,
            at_s=minute,
            values=np.concatenate(arrays),
        )
