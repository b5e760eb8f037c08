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

from tandem.bench.columns import BoolArray, IntArray, RecordFields
from tandem.bench.quantiles import Values
from tandem.bench.record import TornLine
from tandem.bench.record_blocks import RecordBlock, RecordsRange, read_blocks
from tandem.bench.request_metrics import RequestMetrics, compute_column_metrics
from tandem.metrics import find_metric


class ArmLoad(NamedTuple):
    """What a cell has in common beside its metric; class None is every class together."""

    arm: str
    class_: str | None
    concurrency: int | None
    rate_per_s: float | None

    def pool_classes(self) -> ArmLoad:
        """Return the load of all classes together."""
        return self._replace(class_=None)

    def __str__(self) -> str:
        """Name it for a person."""
        rate = "" if self.rate_per_s is None else f" at {self.rate_per_s:g} requests/s"
        return f"{self.arm}, {self.class_ or 'all classes'}" + (
            rate if self.concurrency is None else f" at concurrency {self.concurrency}"
        )


_CONTROL_SUFFIX = " in a control round"


class TurnPosition(NamedTuple):
    """One turn of an arm: the round and the place in it."""

    round: int
    slot: int


@dataclass(frozen=True)
class RequestRows:
    """What turns are summed from: one value a request, in the order of the file.

    Args:
        turn: place of the request's turn in `Tally.turns`.
        start_s, end_s: absolute.
        tokens: completion tokens; NaN where they are not known or contradict the chunks.
        failure_mask: requests with an error.
        good_mask: requests within every limit.
        unknown_mask: succeeded requests that lack a figure that a limit asks for.
    """

    turn: IntArray
    start_s: Values
    end_s: Values
    tokens: Values
    failure_mask: BoolArray
    good_mask: BoolArray
    unknown_mask: BoolArray

    @staticmethod
    def join(parts: Sequence[RequestRows]) -> RequestRows:
        """Return all parts end to end."""
        return RequestRows(
            *(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(RequestRows))
        )


@dataclass
class RequestTally:
    """A part's sum. Lists of arrays are in the order of the file."""

    values: dict[tuple[ArmLoad, str], list[Values]] = field(default_factory=dict)
    turns: dict[tuple[ArmLoad, TurnPosition], int] = field(default_factory=dict)
    rows: list[RequestRows] = field(default_factory=list)
    requests: Counter[ArmLoad] = field(default_factory=Counter)
    errors: Counter[tuple[ArmLoad, str]] = field(default_factory=Counter)
    content: Counter[tuple[ArmLoad, str]] = field(default_factory=Counter)
    suspects: Counter[tuple[ArmLoad, str]] = field(default_factory=Counter)
    retries: Counter[ArmLoad] = field(default_factory=Counter)
    reconnects: Counter[ArmLoad] = field(default_factory=Counter)
    short_answers: Counter[ArmLoad] = field(default_factory=Counter)
    missing_usage: Counter[ArmLoad] = field(default_factory=Counter)
    generators: Counter[str] = field(default_factory=Counter)
    id_hashes: list[NDArray[np.uint64]] = field(default_factory=list)
    torn_lines: list[TornLine] = field(default_factory=list)

    def add(self, next_tally: Self) -> None:
        """Join the tally of the part that follows."""
        for key, arrays in next_tally.values.items():
            self.values.setdefault(key, []).extend(arrays)
        codes = np.array([self.turns.setdefault(turn, len(self.turns)) for turn in next_tally.turns], dtype=np.intp)
        self.rows += [replace(rows, turn=codes[rows.turn]) for rows in next_tally.rows]
        self.requests.update(next_tally.requests)
        self.retries.update(next_tally.retries)
        self.reconnects.update(next_tally.reconnects)
        self.short_answers.update(next_tally.short_answers)
        self.missing_usage.update(next_tally.missing_usage)
        self.errors.update(next_tally.errors)
        self.content.update(next_tally.content)
        self.suspects.update(next_tally.suspects)
        self.generators.update(next_tally.generators)
        self.id_hashes += next_tally.id_hashes
        self.torn_lines += next_tally.torn_lines


def split_controls(total: RequestTally) -> tuple[RequestTally, RequestTally]:
    """Return what a summary is made of, and apart from it what was asked in control rounds; ids stay together."""
    return _select_rounds(total, is_control=False), replace(
        _select_rounds(total, is_control=True), id_hashes=[], torn_lines=[]
    )


def _select_rounds(total: RequestTally, *, is_control: bool) -> RequestTally:
    def is_selected(load: ArmLoad) -> bool:
        return load.arm.endswith(_CONTROL_SUFFIX) is is_control

    turns = [turn for turn in total.turns if is_selected(turn[0])]
    codes = np.full(len(total.turns), -1, np.intp)
    codes[[total.turns[turn] for turn in turns]] = np.arange(len(turns))
    rows = []
    for request_rows in total.rows:
        mask = codes[request_rows.turn] >= 0
        if mask.any():
            columns = [getattr(request_rows, column_field.name)[mask] for column_field in fields(RequestRows)]
            rows.append(replace(RequestRows(*columns), turn=codes[request_rows.turn[mask]]))

    def select_loads(counts: Counter[ArmLoad]) -> Counter[ArmLoad]:
        return Counter({load: number for load, number in counts.items() if is_selected(load)})

    def select_words(counts: Counter[tuple[ArmLoad, str]]) -> Counter[tuple[ArmLoad, str]]:
        return Counter({key: number for key, number in counts.items() if is_selected(key[0])})

    return replace(
        total,
        values={key: values for key, values in total.values.items() if is_selected(key[0])},
        turns={turn: place for place, turn in enumerate(turns)},
        rows=rows,
        requests=select_loads(total.requests),
        retries=select_loads(total.retries),
        short_answers=select_loads(total.short_answers),
        missing_usage=select_loads(total.missing_usage),
        reconnects=select_loads(total.reconnects),
        errors=select_words(total.errors),
        content=select_words(total.content),
        suspects=select_words(total.suspects),
    )


def tally_part(part: RecordsRange) -> RequestTally:
    """Read one part.

    Raises:
        BenchError: a line that is no record of this schema, with its number.
    """
    total, turns, collector = RequestTally(), _TurnCodes(part.controls), _MetricCollector()
    for block in read_blocks(part):
        if block.torn:
            total.torn_lines.append(block.torn)
        if len(block.chunks.numbers):
            _add_block(total, collector, turns, block, part.limits)
    total.turns = dict(turns.codes())
    collector.split(total, turns)
    total.id_hashes = [np.sort(np.concatenate(total.id_hashes))] if total.id_hashes else []
    total.rows = [RequestRows.join(total.rows)] if total.rows else []
    return total


class _TurnCodes:
    """Which load and turn records belong to, as codes that numpy can group by; the same codes over a whole part."""

    def __init__(self, controls: frozenset[int]) -> None:
        self._controls = controls
        self._codes: dict[tuple[str, str, int | None, float | None, int, int], int] = {}
        self._loads: dict[ArmLoad, int] = {}
        self._load_of_turn: list[int] = []

    def encode(self, record_fields: RecordFields) -> IntArray:
        """Return the code of each record's turn."""
        known_codes = self._codes
        key_names = ("arm", "class_", "concurrency", "rate_per_s", "round", "slot")
        keys = list(zip(*(record_fields[name] for name in key_names), strict=True))
        codes = list(map(known_codes.get, keys))
        if None in codes:
            codes = [known_codes.setdefault(key, len(known_codes)) for key in keys]
        for key in islice(known_codes, len(self._load_of_turn), None):
            self._load_of_turn.append(self._loads.setdefault(self._load(key), len(self._loads)))
        return np.array(codes, np.intp)

    def codes(self) -> Iterator[tuple[tuple[ArmLoad, TurnPosition], int]]:
        """Yield every turn with its code."""
        return (((self._load(key), TurnPosition(*key[4:])), code) for key, code in self._codes.items())

    def _load(self, key: tuple[str, str, int | None, float | None, int, int]) -> ArmLoad:
        load = ArmLoad(*key[:4])
        return load._replace(arm=f"{load.arm}{_CONTROL_SUFFIX}") if key[4] in self._controls else load

    @property
    def loads(self) -> list[ArmLoad]:
        """The loads in the order of their codes."""
        return list(self._loads)

    def load_codes(self, turns: IntArray) -> IntArray:
        """Return the code of the load of each turn."""
        codes: IntArray = np.array(self._load_of_turn, dtype=np.intp)[turns]
        return codes


@dataclass
class _MetricCollector:
    """Figures of a part's blocks, each in one piece, until the part is read and they are split by load."""

    turns: list[IntArray] = field(default_factory=list)
    values: dict[str, list[Values]] = field(default_factory=dict)
    gaps_ms: list[Values] = field(default_factory=list)
    gap_turns: list[IntArray] = field(default_factory=list)

    def add(self, turns: IntArray, metrics: RequestMetrics) -> None:
        """Keep the figures of one block."""
        self.turns.append(turns)
        for name, values in metrics.values.items():
            self.values.setdefault(name, []).append(values)
        self.gaps_ms.append(metrics.gaps_ms)
        self.gap_turns.append(turns[metrics.gap_owners])

    def split(self, total: RequestTally, turns: _TurnCodes) -> None:
        """Put every figure into its cell."""
        if not self.turns:
            return
        cells = _CellSplitter(turns.load_codes(np.concatenate(self.turns)), turns.loads)
        for name, values in self.values.items():
            cells.put(total, name, np.concatenate(values))
        gap_cells = _CellSplitter(turns.load_codes(np.concatenate(self.gap_turns)), turns.loads)
        gap_cells.put(total, "chunk_gap_ms", np.concatenate(self.gaps_ms))


class _CellSplitter:
    """How values in the order of the file are cut into those of each load, worked out once for all metrics."""

    def __init__(self, codes: IntArray, loads: Sequence[ArmLoad]) -> None:
        small = codes.astype(np.min_scalar_type(len(loads)))  # numpy sorts 16 bits and fewer by radix
        self._loads, self._order = loads, np.argsort(small, kind="stable")
        self._edges = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(loads)))])

    def put(self, total: RequestTally, name: str, values: Values) -> None:
        """Append the values that there are to their cells."""
        sorted_values = values[self._order]
        for load, (first, end) in zip(self._loads, pairwise(self._edges), strict=True):
            cell_values = sorted_values[first:end]
            cell_values = cell_values[~np.isnan(cell_values)]
            if len(cell_values):
                total.values.setdefault((load, name), []).append(cell_values)


def _add_block(
    total: RequestTally,
    collector: _MetricCollector,
    turns: _TurnCodes,
    block: RecordBlock,
    limits: Mapping[str, float] | None,
) -> None:
    record_fields, record_turns = block.fields, turns.encode(block.fields)
    metrics = compute_column_metrics(record_fields, block.chunks)
    collector.add(record_turns, metrics)
    _add_counts(total, record_fields, _LoadCodes(turns.loads, turns.load_codes(record_turns)), metrics)
    total.rows.append(_build_rows(record_fields, record_turns, metrics, limits or {}))
    total.id_hashes.append(_hash_ids(record_fields["request_id"]))


def _hash_ids(request_ids: Sequence[str]) -> NDArray[np.uint64]:
    """Return 64 bits of each request's id that two processes make alike; Python's own hash differs between them."""
    names = [request_id.encode() for request_id in request_ids]
    high, low = (np.fromiter(map(checksum, names), np.uint64, len(names)) for checksum in (zlib.crc32, zlib.adler32))
    hashes: NDArray[np.uint64] = (high << np.uint64(32)) | low
    return hashes


class _LoadCodes(NamedTuple):
    """All loads of a part so far, and which of them each record of a block belongs to."""

    loads: list[ArmLoad]
    codes: IntArray

    def find_load(self, index: int) -> ArmLoad:
        """Return the load of a record."""
        code: int = self.codes[index]
        return self.loads[code]


def _add_counts(
    total: RequestTally, record_fields: RecordFields, load_codes: _LoadCodes, metrics: RequestMetrics
) -> None:
    total.generators.update(record_fields["generator"])
    _count_loads(total.requests, load_codes, np.ones(len(metrics.failure_mask), bool))
    for index in np.flatnonzero(metrics.failure_mask).tolist():
        total.errors[load_codes.find_load(index), str(record_fields["error"][index])] += 1
    content_counts = Counter(zip(load_codes.codes.tolist(), record_fields["content"], strict=True))
    for (code, word), number in content_counts.items():
        if word is not None:
            total.content[load_codes.loads[code], word] += number
    lacks_usage = np.isnan(metrics.raw_completion_tokens)
    retry_mask = np.fromiter(record_fields["attempts"], float) > 1
    for counter, mask in (
        (total.retries, retry_mask),
        (total.reconnects, np.fromiter(record_fields["reconnected"], float) > 0),
        (total.short_answers, _find_short_answers(metrics) & ~metrics.failure_mask),
        (total.missing_usage, lacks_usage & ~metrics.failure_mask),
    ):
        _count_loads(counter, load_codes, mask)
    for word, mask in metrics.suspects.items():
        for index in np.flatnonzero(mask).tolist():
            total.suspects[load_codes.find_load(index), word] += 1


def _count_loads(counter: Counter[ArmLoad], load_codes: _LoadCodes, mask: BoolArray) -> None:
    numbers = np.bincount(load_codes.codes[mask], minlength=len(load_codes.loads))
    for code in np.flatnonzero(numbers).tolist():
        counter[load_codes.loads[code]] += int(numbers[code])


def _find_short_answers(metrics: RequestMetrics) -> BoolArray:
    """Return which answers have fewer than two tokens, and so no time per output token."""
    mask: BoolArray = (metrics.raw_completion_tokens == 0) | (metrics.raw_completion_tokens == 1)
    return mask


def _build_rows(
    record_fields: RecordFields, turn: IntArray, metrics: RequestMetrics, limits: Mapping[str, float]
) -> RequestRows:
    start_s = np.fromiter(record_fields["start_s"], float)
    good_mask, unknown_mask = apply_limits(metrics, limits)
    return RequestRows(
        turn=turn,
        start_s=start_s,
        end_s=start_s + np.fromiter(record_fields["end_s"], float),
        tokens=metrics.values["completion_tokens"],
        failure_mask=metrics.failure_mask,
        good_mask=good_mask,
        unknown_mask=unknown_mask,
    )


def apply_limits(metrics: RequestMetrics, limits: Mapping[str, float]) -> tuple[BoolArray, BoolArray]:
    """Return which records are within every limit, and which succeeded but lack a figure that a limit asks for."""
    good_mask, unknown_mask = ~metrics.failure_mask, np.zeros(len(metrics.failure_mask), bool)
    short = _find_short_answers(metrics)
    for name, limit in limits.items():
        values = metrics.values[name]
        is_within = values >= limit if find_metric(name).better == "higher" else values <= limit
        has_no_tpot = short & np.isnan(values) & np.isin(name, ("tpot_ms", "tpot_exact_ms"))
        good_mask &= is_within | has_no_tpot
        unknown_mask |= np.isnan(values) & ~has_no_tpot & ~metrics.failure_mask
    return good_mask, unknown_mask
