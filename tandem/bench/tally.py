"""What a part of a records file adds up to: figures by cell, totals by turn, counts of words.

Invariant: parts are disjoint ranges of bytes that begin and end with lines, so their tallies join to the file's own in
the order of the file, however many processes read it; no more than one block of a part is decoded at a time.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice, pairwise
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tandem.bench.columns import Fields, Mask, Whole
from tandem.bench.derive import Figures, figures
from tandem.bench.quantiles import Values
from tandem.bench.reading import Block, Part, blocks
from tandem.bench.record import Torn
from tandem.metrics import metric


class Load(NamedTuple):
    """What a cell has in common beside its metric; class None is every class together."""

    arm: str
    class_: str | None
    concurrency: int | None
    rate_per_s: float | None

    def pooled(self) -> Load:
        """Return the load of all classes together."""
        return self._replace(class_=None)

    def __str__(self) -> str:
        """Name it for a person."""
        rate = "" if self.rate_per_s is None else f" at {self.rate_per_s:g} requests/s"
        return f"{self.arm}, {self.class_ or 'all classes'}" + (
            rate if self.concurrency is None else f" at concurrency {self.concurrency}"
        )


_ASIDE = " in a control round"


class Place(NamedTuple):
    """One turn of an arm: the round and the place in it."""

    round: int
    slot: int


@dataclass(frozen=True)
class Rows:
    """What turns are summed from: one value a request, in the order of the file.

    Args:
        turn: place of the request's turn in `Tally.turns`.
        start_s, end_s: absolute.
        tokens: completion tokens; NaN where they are not known or contradict the chunks.
        failed: requests with an error.
        good: requests within every limit.
        unjudged: succeeded requests that lack a figure that a limit asks for.
    """

    turn: Whole
    start_s: Values
    end_s: Values
    tokens: Values
    failed: Mask
    good: Mask
    unjudged: Mask

    @staticmethod
    def joined(parts: Sequence[Rows]) -> Rows:
        """Return all parts end to end."""
        return Rows(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Rows)))


@dataclass
class Tally:
    """A part's sum. Lists of arrays are in the order of the file."""

    values: dict[tuple[Load, str], list[Values]] = field(default_factory=dict)
    turns: dict[tuple[Load, Place], int] = field(default_factory=dict)
    rows: list[Rows] = field(default_factory=list)
    requests: Counter[Load] = field(default_factory=Counter)
    errors: Counter[tuple[Load, str]] = field(default_factory=Counter)
    content: Counter[tuple[Load, str]] = field(default_factory=Counter)
    suspects: Counter[tuple[Load, str]] = field(default_factory=Counter)
    retried: Counter[Load] = field(default_factory=Counter)
    reconnected: Counter[Load] = field(default_factory=Counter)
    short: Counter[Load] = field(default_factory=Counter)
    uncounted: Counter[Load] = field(default_factory=Counter)
    generators: Counter[str] = field(default_factory=Counter)
    ids: list[NDArray[np.uint64]] = field(default_factory=list)
    torn: list[Torn] = field(default_factory=list)

    def add(self, other: Self) -> None:
        """Join the tally of the part that follows."""
        for key, arrays in other.values.items():
            self.values.setdefault(key, []).extend(arrays)
        renamed = np.array([self.turns.setdefault(turn, len(self.turns)) for turn in other.turns], dtype=np.intp)
        self.rows += [replace(rows, turn=renamed[rows.turn]) for rows in other.rows]
        self.requests.update(other.requests)
        self.retried.update(other.retried)
        self.reconnected.update(other.reconnected)
        self.short.update(other.short)
        self.uncounted.update(other.uncounted)
        self.errors.update(other.errors)
        self.content.update(other.content)
        self.suspects.update(other.suspects)
        self.generators.update(other.generators)
        self.ids += other.ids
        self.torn += other.torn


def parted(total: Tally) -> tuple[Tally, Tally]:
    """Return what a summary is made of, and apart from it what was asked in control rounds; ids stay together."""
    return _only(total, control=False), replace(_only(total, control=True), ids=[], torn=[])


def _only(total: Tally, *, control: bool) -> Tally:
    def wanted(load: Load) -> bool:
        return load.arm.endswith(_ASIDE) is control

    turns = [turn for turn in total.turns if wanted(turn[0])]
    codes = np.full(len(total.turns), -1, np.intp)
    codes[[total.turns[turn] for turn in turns]] = np.arange(len(turns))
    rows = []
    for each in total.rows:
        mine = codes[each.turn] >= 0
        if mine.any():
            columns = [getattr(each, one.name)[mine] for one in fields(Rows)]
            rows.append(replace(Rows(*columns), turn=codes[each.turn[mine]]))

    def of_loads(counted: Counter[Load]) -> Counter[Load]:
        return Counter({load: number for load, number in counted.items() if wanted(load)})

    def of_words(counted: Counter[tuple[Load, str]]) -> Counter[tuple[Load, str]]:
        return Counter({key: number for key, number in counted.items() if wanted(key[0])})

    return replace(
        total,
        values={key: values for key, values in total.values.items() if wanted(key[0])},
        turns={turn: place for place, turn in enumerate(turns)},
        rows=rows,
        requests=of_loads(total.requests), retried=of_loads(total.retried), short=of_loads(total.short),
        uncounted=of_loads(total.uncounted), reconnected=of_loads(total.reconnected), errors=of_words(total.errors),
        content=of_words(total.content), suspects=of_words(total.suspects),
    )  # fmt: skip


def tally(part: Part) -> Tally:
    """Read one part.

    Raises:
        BenchError: a line that is no record of this schema, with its number.
    """
    sum_, turns, gathered = Tally(), _Turns(part.controls), _Gathered()
    for block in blocks(part):
        if block.torn:
            sum_.torn.append(block.torn)
        if len(block.chunks.numbers):
            _add_block(sum_, gathered, turns, block, part.limits)
    sum_.turns = dict(turns.codes())
    gathered.split(sum_, turns)
    sum_.ids = [np.sort(np.concatenate(sum_.ids))] if sum_.ids else []
    sum_.rows = [Rows.joined(sum_.rows)] if sum_.rows else []
    return sum_


class _Turns:
    """Which load and turn records belong to, as codes that numpy can group by; the same codes over a whole part."""

    def __init__(self, controls: frozenset[int]) -> None:
        self._controls = controls
        self._known: dict[tuple[str, str, int | None, float | None, int, int], int] = {}
        self._loads: dict[Load, int] = {}
        self._load_of_turn: list[int] = []

    def of(self, told: Fields) -> Whole:
        """Return the code of each record's turn."""
        known = self._known
        stated = ("arm", "class_", "concurrency", "rate_per_s", "round", "slot")
        keys = list(zip(*(told[name] for name in stated), strict=True))
        codes = list(map(known.get, keys))
        if None in codes:
            codes = [known.setdefault(key, len(known)) for key in keys]
        for key in islice(known, len(self._load_of_turn), None):
            self._load_of_turn.append(self._loads.setdefault(self._load(key), len(self._loads)))
        return np.array(codes, np.intp)

    def codes(self) -> Iterator[tuple[tuple[Load, Place], int]]:
        """Yield every turn with its code."""
        return (((self._load(key), Place(*key[4:])), code) for key, code in self._known.items())

    def _load(self, key: tuple[str, str, int | None, float | None, int, int]) -> Load:
        load = Load(*key[:4])
        return load._replace(arm=f"{load.arm}{_ASIDE}") if key[4] in self._controls else load

    @property
    def loads(self) -> list[Load]:
        """The loads in the order of their codes."""
        return list(self._loads)

    def load_codes(self, turns: Whole) -> Whole:
        """Return the code of the load of each turn."""
        codes: Whole = np.array(self._load_of_turn, dtype=np.intp)[turns]
        return codes


@dataclass
class _Gathered:
    """Figures of a part's blocks, each in one piece, until the part is read and they are split by load."""

    turns: list[Whole] = field(default_factory=list)
    values: dict[str, list[Values]] = field(default_factory=dict)
    gaps_ms: list[Values] = field(default_factory=list)
    turns_of_gaps: list[Whole] = field(default_factory=list)

    def add(self, turns: Whole, figures: Figures) -> None:
        """Keep the figures of one block."""
        self.turns.append(turns)
        for name, values in figures.values.items():
            self.values.setdefault(name, []).append(values)
        self.gaps_ms.append(figures.gaps_ms)
        self.turns_of_gaps.append(turns[figures.gap_owners])

    def split(self, sum_: Tally, turns: _Turns) -> None:
        """Put every figure into its cell."""
        if not self.turns:
            return
        cells = _Cells(turns.load_codes(np.concatenate(self.turns)), turns.loads)
        for name, values in self.values.items():
            cells.put(sum_, name, np.concatenate(values))
        of_gaps = _Cells(turns.load_codes(np.concatenate(self.turns_of_gaps)), turns.loads)
        of_gaps.put(sum_, "chunk_gap_ms", np.concatenate(self.gaps_ms))


class _Cells:
    """How values in the order of the file are cut into those of each load, worked out once for all metrics."""

    def __init__(self, codes: Whole, loads: Sequence[Load]) -> None:
        small = codes.astype(np.min_scalar_type(len(loads)))  # numpy sorts 16 bits and fewer by radix
        self._loads, self._order = loads, np.argsort(small, kind="stable")
        self._edges = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(loads)))])

    def put(self, sum_: Tally, name: str, values: Values) -> None:
        """Append the values that there are to their cells."""
        ordered = values[self._order]
        for load, (first, end) in zip(self._loads, pairwise(self._edges), strict=True):
            mine = ordered[first:end]
            mine = mine[~np.isnan(mine)]
            if len(mine):
                sum_.values.setdefault((load, name), []).append(mine)


def _add_block(
    sum_: Tally, gathered: _Gathered, turns: _Turns, block: Block, limits: Mapping[str, float] | None
) -> None:
    told, of_records = block.told, turns.of(block.told)
    found = figures(told, block.chunks)
    gathered.add(of_records, found)
    _add_counts(sum_, told, _Loads(turns.loads, turns.load_codes(of_records)), found)
    sum_.rows.append(_rows(told, of_records, found, limits or {}))
    sum_.ids.append(_ids(told["request_id"]))


def _ids(request_ids: Sequence[str]) -> NDArray[np.uint64]:
    """Return 64 bits of each request's id that two processes make alike; Python's own hash differs between them."""
    names = [request_id.encode() for request_id in request_ids]
    high, low = (np.fromiter(map(check, names), np.uint64, len(names)) for check in (zlib.crc32, zlib.adler32))
    both: NDArray[np.uint64] = (high << np.uint64(32)) | low
    return both


class _Loads(NamedTuple):
    """All loads of a part so far, and which of them each record of a block belongs to."""

    loads: list[Load]
    codes: Whole

    def of(self, index: int) -> Load:
        """Return the load of a record."""
        code: int = self.codes[index]
        return self.loads[code]


def _add_counts(sum_: Tally, told: Fields, of: _Loads, found: Figures) -> None:
    sum_.generators.update(told["generator"])
    _count(sum_.requests, of, np.ones(len(found.failed), bool))
    for index in np.flatnonzero(found.failed).tolist():
        sum_.errors[of.of(index), str(told["error"][index])] += 1
    said = Counter(zip(of.codes.tolist(), told["content"], strict=True))
    for (code, word), number in said.items():
        if word is not None:
            sum_.content[of.loads[code], word] += number
    silent = np.isnan(found.counted)
    retried = np.fromiter(told["attempts"], float) > 1
    for counter, mask in (
        (sum_.retried, retried),
        (sum_.reconnected, np.fromiter(told["reconnected"], float) > 0),
        (sum_.short, _short(found) & ~found.failed),
        (sum_.uncounted, silent & ~found.failed),
    ):
        _count(counter, of, mask)
    for word, mask in found.suspects.items():
        for index in np.flatnonzero(mask).tolist():
            sum_.suspects[of.of(index), word] += 1


def _count(counter: Counter[Load], of: _Loads, mask: Mask) -> None:
    numbers = np.bincount(of.codes[mask], minlength=len(of.loads))
    for code in np.flatnonzero(numbers).tolist():
        counter[of.loads[code]] += int(numbers[code])


def _short(found: Figures) -> Mask:
    """Return which answers have fewer than two tokens, and so no time per output token."""
    short: Mask = (found.counted == 0) | (found.counted == 1)
    return short


def _rows(told: Fields, turn: Whole, found: Figures, limits: Mapping[str, float]) -> Rows:
    start_s = np.fromiter(told["start_s"], float)
    good, unjudged = judged(found, limits)
    return Rows(
        turn=turn,
        start_s=start_s,
        end_s=start_s + np.fromiter(told["end_s"], float),
        tokens=found.values["completion_tokens"],
        failed=found.failed,
        good=good,
        unjudged=unjudged,
    )


def judged(found: Figures, limits: Mapping[str, float]) -> tuple[Mask, Mask]:
    """Return which records are within every limit, and which succeeded but lack a figure that a limit asks for."""
    good, unjudged = ~found.failed, np.zeros(len(found.failed), bool)
    short = _short(found)
    for name, limit in limits.items():
        values = found.values[name]
        within = values >= limit if metric(name).better == "higher" else values <= limit
        cannot = short & np.isnan(values) & np.isin(name, ("tpot_ms", "tpot_exact_ms"))
        good &= within | cannot
        unjudged |= np.isnan(values) & ~cannot & ~found.failed
    return good, unjudged
