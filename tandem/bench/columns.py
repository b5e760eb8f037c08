"""The chunks of many records as columns of numbers: when, what, how many tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from tandem.bench.quantiles import Values
from tandem.bench.record import ChunkKind, RequestRecord

IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

KIND_CODES: dict[str, int] = {kind: code for code, kind in enumerate(get_args(ChunkKind))}
"""The code of each kind in a column."""


class ChunkTable(NamedTuple):
    """All chunks of a sequence of records, end to end.

    Args:
        first, last: the places of each record's own first and last chunk; -1 where it has none.
        owner: of each chunk, the place of its record.
        at_s: when each arrived, in seconds after its record's start_s.
        kind: what each was, by KIND_CODES.
        tokens: how many each carried; NaN where the server did not say.
        record_count: how many records there are.
    """

    first: IntArray
    last: IntArray
    owner: IntArray
    at_s: Values
    kind: NDArray[np.int8]
    tokens: Values
    record_count: int


def collect_chunks(records: Sequence[RequestRecord]) -> ChunkTable:
    """Return the chunks of `records`."""
    numbers = np.array([len(record.chunk_s) for record in records], np.intp)
    ends, count = np.cumsum(numbers), int(numbers.sum())
    kinds = chain.from_iterable(record.chunk_kind for record in records)
    return ChunkTable(
        first=np.where(numbers > 0, ends - numbers, -1),
        last=np.where(numbers > 0, ends - 1, -1),
        owner=np.repeat(np.arange(len(numbers)), numbers),
        at_s=np.fromiter(chain.from_iterable(record.chunk_s for record in records), float, count),
        kind=np.fromiter(map(KIND_CODES.__getitem__, kinds), np.int8, count),
        tokens=np.array(list(chain.from_iterable(record.chunk_tokens for record in records)), float),
        record_count=len(numbers),
    )
