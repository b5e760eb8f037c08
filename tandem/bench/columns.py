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
from tandem.bench.record import NONE, Chunk, Kind, Measured

Whole = NDArray[np.intp]
Mask = NDArray[np.bool_]
_Text = NDArray[np.uint8]

KIND = {kind: code for code, kind in enumerate(get_args(Kind))}
"""The code of each kind in a column."""

_MOST_DIGITS = 15  # of a number: then its digits are a whole float64, and so is the power of ten they are divided by
_TENS = np.array([float(10**power) for power in range(_MOST_DIGITS + 1)])
_POINT, _ZERO, _NULL = (np.uint8(ord(sign)) for sign in ".0n")
_MARGIN = b" " * (max(map(len, KIND)) + 3)  # behind the last chunk, so that a kind's width can be read anywhere before
_TEN = 10


Fields = Mapping[str, Sequence[Any]]
"""By name, one value a record; parted once, because asking each record for each field takes several times longer."""


def fields_of(records: Sequence[Measured], kind: type[Measured] = Measured) -> Fields:
    """Return all fields of records of one class, in their order; of none, the fields that `kind` would have."""
    if not records:
        return dict.fromkeys(kind.__struct_fields__, ())
    return dict(zip(records[0].__struct_fields__, zip(*map(astuple, records), strict=True), strict=True))


class Chunks(NamedTuple):
    """All chunks of a sequence of records, end to end.

    Args:
        numbers: how many each record has.
        at_s: when each arrived, in seconds after its record's start_s.
        kind: what each was, by KIND.
        tokens: how many each carried; NaN where the server did not say.
    """

    numbers: Whole
    at_s: Values
    kind: NDArray[np.int8]
    tokens: Values


def of_objects(owned: Sequence[tuple[Chunk, ...]]) -> Chunks:
    """Return the chunks of each record as columns."""
    flat = list(chain.from_iterable(owned))
    return Chunks(
        numbers=np.fromiter(map(len, owned), np.intp, len(owned)),
        at_s=np.fromiter([chunk.at_s for chunk in flat], float, len(flat)),
        kind=np.frombuffer(bytes([KIND[chunk.kind] for chunk in flat]), np.int8),
        tokens=np.fromiter([math.nan if chunk.tokens is None else chunk.tokens for chunk in flat], float, len(flat)),
    )


def of_text(owned: Sequence[msgspec.Raw]) -> Chunks | None:
    """Return the chunks of each record as columns; None unless all are spelled `[[0.25,"text",3],[0.3,"usage",null]]`.

    So a time has a point and no exponent, a count is whole or null, no number has a sign or more than 15 digits,
    nothing is left out or added, and there is no space. Whoever gets None has a JSON decoder read the chunks, or say
    what is wrong with them.

    Args:
        owned: JSON that a decoder has found valid, and passed over.
    """
    lengths = np.fromiter(map(len, owned), np.intp, len(owned))
    bare = lengths == len(NONE)
    if any(owned[index] != NONE for index in np.flatnonzero(bare).tolist()):
        return None
    some = [text for text, empty in zip(owned, bare.tolist(), strict=True) if not empty] if bare.any() else owned
    text = np.frombuffer(b",".join([*some, _MARGIN]), np.uint8)
    commas = np.flatnonzero(text == ord(","))
    places = _places(text, commas, np.cumsum(lengths[~bare] + 1) - 1)
    if places is None:
        return None
    at_s, kind, tokens = _times(text, places), _kinds(text, places), _counts(text, places)
    if at_s is None or kind is None or tokens is None:
        return None
    numbers = np.zeros(len(owned), np.intp)
    numbers[~bare] = np.diff(places.lasts, prepend=-1)
    return Chunks(numbers, at_s, kind, tokens)


class _Places(NamedTuple):
    """Where in the text each chunk's fields begin and end, without the commas that part them.

    Args:
        time, kind, number: first signs.
        time_end, kind_end, number_end: the signs behind the last ones.
        lasts: for each record that has chunks, which of all chunks is its last.
    """

    time: Whole
    time_end: Whole
    kind: Whole
    kind_end: Whole
    number: Whole
    number_end: Whole
    lasts: Whole


def _places(text: _Text, commas: Whole, ends: Whole) -> _Places | None:
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
    places = _Places(begin + 1 + opens, time_end, time_end + 1, kind_end, kind_end + 1, end - 1 - closes, lasts)
    framed = (
        np.array_equal(end[lasts], ends)
        and _all(text, "[", begin, places.time - 1)
        and _all(text, "]", places.number_end, end - 1)
    )
    return places if framed else None


def _all(text: _Text, sign: str, *places: Whole) -> bool:
    return all(bool((text[there] == ord(sign)).all()) for there in places)


def _times(text: _Text, places: _Places) -> Values | None:
    if np.max(places.time_end - places.time, initial=0) > _MOST_DIGITS + 1:
        return None
    point = places.time + 1
    for _ in range(_MOST_DIGITS):
        later = text.take(point, mode="clip") != _POINT
        if not later.any():
            break
        point += later
    whole, decimals = _digits(text, places.time, point), _digits(text, point + 1, places.time_end)
    if whole is None or decimals is None:
        return None
    scale = _TENS[places.time_end - point - 1]
    at_s: Values = (whole * scale + decimals) / scale  # of two whole numbers, so rounded once, as a decoder does
    return at_s


def _counts(text: _Text, places: _Places) -> Values | None:
    unknown = text[places.number] == _NULL
    counts = _digits(text, np.where(unknown, places.number_end, places.number), places.number_end)
    if counts is not None:
        counts[unknown] = np.nan
    return counts


def _digits(text: _Text, first: Whole, end: Whole) -> Values | None:
    """Return the whole numbers that text[first:end] spell, 0 for an empty one; None where one has no digit or too many.

    All last digits are read at once, then all last but one, and so on: there are few digits and many numbers.
    """
    width = end - first
    least, most = np.min(width, initial=_MOST_DIGITS), np.max(width, initial=0)
    if least < 0 or most > _MOST_DIGITS:
        return None
    numbers, place = np.zeros(len(width)), end.copy()
    for back in range(most):
        place -= 1
        digit = text[place] - _ZERO  # unsigned: what comes before 0 is large too
        if back >= least:
            digit *= width > back
        if digit.max() >= _TEN:
            return None
        numbers += digit * _TENS[back]
    return numbers


def _kinds(text: _Text, places: _Places) -> NDArray[np.int8] | None:
    length = places.kind_end - places.kind
    if np.max(length, initial=0) >= len(_BY_SHAPE):
        return None
    codes = _BY_SHAPE[length, text[places.kind + 1]]
    for kind, code in KIND.items():
        quoted = f'"{kind}"'.encode()
        at_each_sign = np.ndarray(len(text) - len(quoted) + 1, f"S{len(quoted)}", text.data, strides=(1,))
        if not (at_each_sign[places.kind[codes == code]] == quoted).all():
            return None
    return None if (codes < 0).any() else codes


def _by_shape() -> NDArray[np.int8]:
    """Return the code of each kind by its length in quotes and its first letter, alike in no two; -1 elsewhere."""
    codes = np.full((len(_MARGIN), 256), -1, np.int8)
    for kind, code in KIND.items():
        codes[len(kind) + 2, ord(kind[0])] = code
    return codes


_BY_SHAPE = _by_shape()
