"""A records file in blocks of columns: what each line says, when its chunks came, and where it stands.

Invariant: a line that is no record is refused with its number, but for a torn last one, which is named; no more than
one block is decoded at a time. Whoever reads states which fields it needs, and no others are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from tandem.bench.columns import Chunks, Fields, Whole, fields_of, of_objects, of_text
from tandem.bench.record import SCHEMA, UNREADABLE, Measured, Torn, Unparsed, bad_line, is_torn

BLOCK = 1 << 21  # bytes read at once: enough that the calls of numpy cost little, few enough for the caches


@dataclass(frozen=True)
class Part:
    """A range of a records file; `first` and `end` are places where lines begin.

    `controls` are the numbers of control rounds, of which a summary has no figure.
    """

    path: Path
    first: int
    end: int
    limits: Mapping[str, float] | None = None
    controls: frozenset[int] = frozenset()


def parts(
    path: Path, number: int, limits: Mapping[str, float] | None, controls: frozenset[int] = frozenset()
) -> list[Part]:
    """Cut the file into at most `number` parts of about one size.

    Raises:
        OSError: the file cannot be read.
    """
    size = path.stat().st_size
    places = {0, size}
    with path.open("rb") as file:
        for index in range(1, number):
            file.seek(size * index // number)
            file.readline()
            places.add(file.tell())
    edges = sorted(places)
    return [Part(path, first, end, limits, controls) for first, end in pairwise(edges)]


class Form(NamedTuple):
    """Which fields of a record are decoded: `quick` leaves its chunks as text, `whole` has the same and the chunks."""

    quick: type[Unparsed] = Unparsed
    whole: type[Measured] = Measured


class Block(NamedTuple):
    """Records that were decoded at once, as columns; `at` is where in the file the line of each begins, in bytes."""

    told: Fields
    chunks: Chunks
    at: Whole
    torn: Torn | None = None


def blocks(part: Part, form: Form = Form()) -> Iterator[Block]:  # noqa: B008 - frozen
    """Yield the records of a part in order, some thousands at a time.

    Raises:
        BenchError: a line that is no record of this schema, with its number.
        OSError: the file cannot be read.
    """
    quick, whole = msgspec.json.Decoder(form.quick), msgspec.json.Decoder(form.whole)
    with part.path.open("rb") as file:
        file.seek(part.first)
        at = part.first
        while at < part.end:
            text = file.read(min(BLOCK, part.end - at))
            if not text.endswith(b"\n"):
                text += file.readline()
            block = _as_columns(quick, text, at) or _as_objects(whole, text, part.path, at)
            if set(block.told["schema"]) - {SCHEMA}:
                _refuse_schema(whole, text, part.path, at)
            at += len(text)
            yield block


def _as_columns(decoder: msgspec.json.Decoder[Unparsed], text: bytes, at: int) -> Block | None:
    """Decode all but the chunks, and read those as columns; None where a line or a chunk is not as we write it."""
    if is_torn(text):
        return None
    try:
        records = decoder.decode_lines(text)
    except UNREADABLE:
        return None
    if len(records) != _lines(text):
        return None
    told = fields_of(records)
    chunks = of_text(told["chunks"])
    return None if chunks is None else Block(told, chunks, _begins(text, at, len(records)))


def _as_objects(decoder: msgspec.json.Decoder[Measured], text: bytes, path: Path, at: int) -> Block:
    records, torn = _decoded(decoder, text, path, at)
    told = fields_of(records, decoder.type)
    return Block(told, of_objects(told["chunks"]), _begins(text, at, len(records)), torn)


def _decoded(
    decoder: msgspec.json.Decoder[Measured], text: bytes, path: Path, at: int
) -> tuple[list[Measured], Torn | None]:
    if is_torn(text):
        return _line_by_line(decoder, text, path, at)
    try:
        records = decoder.decode_lines(text)
    except UNREADABLE:
        return _line_by_line(decoder, text, path, at)
    return (records, None) if len(records) == _lines(text) else _line_by_line(decoder, text, path, at)


def _lines(text: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))  # a fifth of the time of bytes.count


def _begins(text: bytes, at: int, number: int) -> Whole:
    """Return where each of the first `number` lines begins."""
    begins: Whole = np.append(-1, np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")))[:number] + at + 1
    return begins


def _line_by_line(
    decoder: msgspec.json.Decoder[Measured], text: bytes, path: Path, at: int
) -> tuple[list[Measured], Torn | None]:
    records: list[Measured] = []
    for line in BytesIO(text):
        if is_torn(line):
            return records, Torn(path, _number(path, at), len(line))
        try:
            records.append(decoder.decode(line))
        except UNREADABLE as error:
            raise bad_line(line, path, _number(path, at), error) from error
        at += len(line)
    return records, None


def _refuse_schema(decoder: msgspec.json.Decoder[Measured], text: bytes, path: Path, at: int) -> None:
    for line in BytesIO(text):
        if decoder.decode(line).schema != SCHEMA:
            raise bad_line(line, path, _number(path, at), None)
        at += len(line)


def _number(path: Path, at: int) -> int:
    """Return the number of the line that begins at byte `at`."""
    number, left = 1, at
    with path.open("rb") as file:
        while left:
            block = file.read(min(BLOCK, left))
            number, left = number + block.count(b"\n"), left - len(block)
    return number
