"""The chunks of many records as columns of numbers: arrival time, kind, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from tandem.bench.figures.quantiles import Values
from tandem.bench.records.record import OUTPUT_KINDS, ChunkKind, RequestRecord

IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

# in a column
KIND_CODES: dict[str, int] = {kind: code for code, kind in enumerate(get_args(ChunkKind))}
_OUTPUT_CODES = sorted(KIND_CODES[kind] for kind in OUTPUT_KINDS)


@dataclass(frozen=True)
class ChunkTable:
    """All chunks of a sequence of records, end to end.

    Args:
        record_count: number of records.
        owner: index of each chunk's record.
        at_s: arrival of each chunk, in seconds after its record's start_s.
        kind: kind of each chunk, by KIND_CODES.
        tokens: number of tokens of each chunk; NaN if the server did not report it.
    """

    record_count: int
    owner: IntArray
    at_s: Values
    kind: NDArray[np.int8]
    tokens: Values

    @cached_property
    def bears_tokens(self) -> BoolArray:
        """The mask of chunks with output: by the server's count if any, else by their kind."""
        is_output = np.isin(self.kind, _OUTPUT_CODES)
        is_counted = (self.tokens >= 1) & self.is_choice
        mask: BoolArray = np.where(np.isnan(self.tokens), is_output, is_counted)
        return mask

    @cached_property
    def is_choice(self) -> BoolArray:
        """The mask of chunks that are no usage."""
        mask: BoolArray = self.kind != KIND_CODES["usage"]
        return mask

    def find_ends(self, mask: BoolArray) -> tuple[IntArray, IntArray]:
        """Return the index of each record's first and last chunk in `mask`; -1 without one."""
        first = np.full(self.record_count, -1)
        last = np.full(self.record_count, -1)
        places = np.flatnonzero(mask)
        owners = self.owner[places]

        first[owners[::-1]] = places[::-1]  # of several values for one owner, numpy keeps the last
        last[owners] = places
        return first, last

    def find_end_times_s(self, mask: BoolArray) -> tuple[Values, Values]:
        """Return the time of each record's first and last chunk in `mask`; NaN without one."""
        times_s = np.append(self.at_s, np.nan)
        first, last = self.find_ends(mask)
        return times_s[first], times_s[last]

    def sum_by_record(self, mask: BoolArray, weights: Values | None = None) -> Values:
        """Return each record's number of chunks in `mask`, or the sum of their weights."""
        weights = None if weights is None else weights[mask]
        sums = np.bincount(self.owner[mask], weights, minlength=self.record_count)
        return sums.astype(float)


def collect_column(records: Sequence[RequestRecord], name: str, dtype: Any = float) -> NDArray[Any]:
    """Return one field of `records` as a column; None becomes NaN in a column of numbers."""
    return np.array(list(map(attrgetter(name), records)), dtype)


def collect_chunks(records: Sequence[RequestRecord]) -> ChunkTable:
    """Return the chunks of `records`."""
    numbers = np.array([len(record.chunk_s) for record in records], np.intp)
    count = int(numbers.sum())
    times_s = chain.from_iterable(map(attrgetter("chunk_s"), records))
    kinds = chain.from_iterable(map(attrgetter("chunk_kind"), records))
    tokens = chain.from_iterable(map(attrgetter("chunk_tokens"), records))

    return ChunkTable(
        record_count=len(numbers),
        owner=np.repeat(np.arange(len(numbers)), numbers),
        at_s=np.fromiter(times_s, float, count),
        kind=np.fromiter(map(KIND_CODES.__getitem__, kinds), np.int8, count),
        tokens=np.array(list(tokens), float),
    )
