"""The chunks of many records as columns of numbers: when, what, how many tokens; taken from objects or from JSON text.

Invariant: text that is not spelled exactly as `record.Writer` spells chunks is not read here at all; what is read has
the bits that a JSON decoder gives. An object for each chunk costs more than all that is computed from them: a million
records have 17 million chunks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, get_args

import msgspec
import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from tandem.bench.quantiles import Values
from tandem.bench.record import JSON_EMPTY_LIST, Chunk, ChunkKind, MetricRecord

IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]
_Text = NDArray[np.uint8]

KIND_CODES = {kind: code for code, kind in enumerate(get_args(ChunkKind))}
"""The code of each kind in a column."""

_MAX_DIGITS = 15  # of a number: then its digits are a whole float64, and so is the power of ten they are divided by
_POWERS_OF_TEN = np.array([float(10**power) for power in range(_MAX_DIGITS + 1)])
_POINT, _ZERO, _NULL = (np.uint8(ord(sign)) for sign in ".0n")
_MARGIN = b" " * (
    max(map(len, KIND_CODES)) + 3
)  # behind the last chunk, so that a kind's width can be read anywhere before
_TEN = 10


RecordFields = Mapping[str, Sequence[Any]]
"""By name, one value a record; parted once, because asking each record for each field takes several times longer."""


def split_fields(records: Sequence[MetricRecord], kind: type[MetricRecord] = MetricRecord) -> RecordFields:
    """Return all fields of records of one class, in their order; of none, the fields that `kind` would have."""
    if not records:
        return dict.fromkeys(kind.__struct_fields__, ())
    return dict(zip(records[0].__struct_fields__, zip(*map(astuple, records), strict=True), strict=True))


class ChunkColumns(NamedTuple):
    """All chunks of a sequence of records, end to end.

    Args:
        numbers: how many each record has.
        at_s: when each arrived, in seconds after its record's start_s.
        kind: what each was, by KIND.
        tokens: how many each carried; NaN where the server did not say.
    """

    numbers: IntArray
    at_s: Values
    kind: NDArray[np.int8]
    tokens: Values


def convert_chunks(chunk_lists: Sequence[tuple[Chunk, ...]]) -> ChunkColumns:
    """Return the chunks of each record as columns."""
    chunks = list(chain.from_iterable(chunk_lists))
    return ChunkColumns(
        numbers=np.fromiter(map(len, chunk_lists), np.intp, len(chunk_lists)),
        at_s=np.fromiter([chunk.at_s for chunk in chunks], float, len(chunks)),
        kind=np.frombuffer(bytes([KIND_CODES[chunk.kind] for chunk in chunks]), np.int8),
        tokens=np.fromiter(
            [math.nan if chunk.tokens is None else chunk.tokens for chunk in chunks], float, len(chunks)
        ),
    )


def parse_chunk_text(chunk_texts: Sequence[msgspec.Raw]) -> ChunkColumns | None:
    """Return the chunks of each record as columns; None unless all are spelled `[[0.25,"text",3],[0.3,"usage",null]]`.

    So a time has a point and no exponent, a count is whole or null, no number has a sign or more than 15 digits,
    nothing is left out or added, and there is no space. Whoever gets None has a JSON decoder read the chunks, or say
    what is wrong with them.

    Args:
        chunk_texts: JSON that a decoder has found valid, and passed over.
    """
    lengths = np.fromiter(map(len, chunk_texts), np.intp, len(chunk_texts))
    is_empty = lengths == len(JSON_EMPTY_LIST)
    if any(chunk_texts[index] != JSON_EMPTY_LIST for index in np.flatnonzero(is_empty).tolist()):
        return None
    texts = (
        [text for text, empty in zip(chunk_texts, is_empty.tolist(), strict=True) if not empty]
        if is_empty.any()
        else chunk_texts
    )
    text = np.frombuffer(b",".join([*texts, _MARGIN]), np.uint8)
    commas = np.flatnonzero(text == ord(","))
    positions = _find_positions(text, commas, np.cumsum(lengths[~is_empty] + 1) - 1)
    if positions is None:
        return None
    at_s, kind, tokens = _parse_times(text, positions), _parse_kinds(text, positions), _parse_counts(text, positions)
    if at_s is None or kind is None or tokens is None:
        return None
    numbers = np.zeros(len(chunk_texts), np.intp)
    numbers[~is_empty] = np.diff(positions.lasts, prepend=-1)
    return ChunkColumns(numbers, at_s, kind, tokens)


class _FieldPositions(NamedTuple):
    """Where in the text each chunk's fields begin and end, without the commas that part them.

    Args:
        time, kind, number: first signs.
        time_end, kind_end, number_end: the signs behind the last ones.
        lasts: for each record that has chunks, which of all chunks is its last.
    """

    time: IntArray
    time_end: IntArray
    kind: IntArray
    kind_end: IntArray
    number: IntArray
    number_end: IntArray
    lasts: IntArray


def _find_positions(text: _Text, commas: IntArray, ends: IntArray) -> _FieldPositions | None:
    """Return the places of all fields, None where brackets and commas are not those of chunks.

    Args:
        text: records' chunks, a comma behind each.
        commas: places of all commas: a chunk has two inside and one behind.
        ends: places of the commas behind records.
    """
    if len(commas) % 3:
        return None
    time_end, kind_end, end = np.ascontiguousarray(commas.reshape(-1, 3).T)
    begin = np.append(0, end + 1)[:-1]
    lasts = np.searchsorted(end, ends)
    closes = np.zeros(len(end), np.intp)  # 1 for a record's last chunk, which has one bracket more behind
    closes[lasts] = 1
    opens = np.append(1, closes)[:-1]  # and the chunk behind that one has one more in front
    positions = _FieldPositions(
        begin + 1 + opens, time_end, time_end + 1, kind_end, kind_end + 1, end - 1 - closes, lasts
    )
    has_brackets = (
        np.array_equal(end[lasts], ends)
        and _has_sign(text, "[", begin, positions.time - 1)
        and _has_sign(text, "]", positions.number_end, end - 1)
    )
    return positions if has_brackets else None


def _has_sign(text: _Text, sign: str, *positions: IntArray) -> bool:
    return all(bool((text[indices] == ord(sign)).all()) for indices in positions)


def _parse_times(text: _Text, positions: _FieldPositions) -> Values | None:
    if np.max(positions.time_end - positions.time, initial=0) > _MAX_DIGITS + 1:
        return None
    point = positions.time + 1
    for _ in range(_MAX_DIGITS):
        is_before_point = text.take(point, mode="clip") != _POINT
        if not is_before_point.any():
            break
        point += is_before_point
    integer_part, decimal_part = (
        _parse_digits(text, positions.time, point),
        _parse_digits(text, point + 1, positions.time_end),
    )
    if integer_part is None or decimal_part is None:
        return None
    scale = _POWERS_OF_TEN[positions.time_end - point - 1]
    at_s: Values = (
        integer_part * scale + decimal_part
    ) / scale  # of two whole numbers, so rounded once, as a decoder does
    return at_s


def _parse_counts(text: _Text, positions: _FieldPositions) -> Values | None:
    unknown = text[positions.number] == _NULL
    counts = _parse_digits(text, np.where(unknown, positions.number_end, positions.number), positions.number_end)
    if counts is not None:
        counts[unknown] = np.nan
    return counts


def _parse_digits(text: _Text, first: IntArray, end: IntArray) -> Values | None:
    """Return the whole numbers that text[first:end] spell, 0 for an empty one; None where one has no digit or too many.

    All last digits are read at once, then all last but one, and so on: there are few digits and many numbers.
    """
    width = end - first
    min_width, max_width = np.min(width, initial=_MAX_DIGITS), np.max(width, initial=0)
    if min_width < 0 or max_width > _MAX_DIGITS:
        return None
    numbers, place = np.zeros(len(width)), end.copy()
    for power in range(max_width):
        place -= 1
        digit = text[place] - _ZERO  # unsigned: what comes before 0 is large too
        if power >= min_width:
            digit *= width > power
        if digit.max() >= _TEN:
            return None
        numbers += digit * _POWERS_OF_TEN[power]
    return numbers


def _parse_kinds(text: _Text, positions: _FieldPositions) -> NDArray[np.int8] | None:
    length = positions.kind_end - positions.kind
    if np.max(length, initial=0) >= len(_CODE_BY_SHAPE):
        return None
    codes = _CODE_BY_SHAPE[length, text[positions.kind + 1]]
    for kind, code in KIND_CODES.items():
        pattern = f'"{kind}"'.encode()
        windows = np.ndarray(len(text) - len(pattern) + 1, f"S{len(pattern)}", text.data, strides=(1,))
        if not (windows[positions.kind[codes == code]] == pattern).all():
            return None
    return None if (codes < 0).any() else codes


def _build_shape_table() -> NDArray[np.int8]:
    """Return the code of each kind by its length in quotes and its first letter, alike in no two; -1 elsewhere."""
    codes = np.full((len(_MARGIN), 256), -1, np.int8)
    for kind, code in KIND_CODES.items():
        codes[len(kind) + 2, ord(kind[0])] = code
    return codes


_CODE_BY_SHAPE = _build_shape_table()
