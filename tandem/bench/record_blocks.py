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

from tandem.bench.columns import (
    ChunkColumns,
    IntArray,
    RecordFields,
    convert_chunks,
    parse_chunk_text,
    split_fields,
)
from tandem.bench.record import (
    DECODE_ERRORS,
    SCHEMA,
    MetricRecord,
    RawChunkRecord,
    TornLine,
    bad_line_error,
    is_torn,
)

BLOCK_BYTES = 1 << 21  # bytes read at once: enough that the calls of numpy cost little, few enough for the caches


@dataclass(frozen=True)
class RecordsRange:
    """A range of a records file; `first` and `end` are places where lines begin.

    `controls` are the numbers of control rounds, of which a summary has no figure.
    """

    path: Path
    first: int
    end: int
    limits: Mapping[str, float] | None = None
    controls: frozenset[int] = frozenset()


def split_file(
    path: Path, max_parts: int, limits: Mapping[str, float] | None, controls: frozenset[int] = frozenset()
) -> list[RecordsRange]:
    """Cut the file into at most `max_parts` parts of about one size.

    Raises:
        OSError: the file cannot be read.
    """
    size = path.stat().st_size
    offsets = {0, size}
    with path.open("rb") as file:
        for index in range(1, max_parts):
            file.seek(size * index // max_parts)
            file.readline()
            offsets.add(file.tell())
    edges = sorted(offsets)
    return [RecordsRange(path, first, end, limits, controls) for first, end in pairwise(edges)]


class RecordTypes(NamedTuple):
    """Which fields of a record are decoded: `quick` leaves its chunks as text, `full` has the same and the chunks."""

    quick: type[RawChunkRecord] = RawChunkRecord
    full: type[MetricRecord] = MetricRecord


class RecordBlock(NamedTuple):
    """Records decoded at once, as columns; `line_offsets`: where in the file the line of each begins, bytes."""

    fields: RecordFields
    chunks: ChunkColumns
    line_offsets: IntArray
    torn: TornLine | None = None


def read_blocks(part: RecordsRange, types: RecordTypes = RecordTypes()) -> Iterator[RecordBlock]:  # noqa: B008 - frozen
    """Yield the records of a part in order, some thousands at a time.

    Raises:
        BenchError: a line that is no record of this schema, with its number.
        OSError: the file cannot be read.
    """
    quick, full = msgspec.json.Decoder(types.quick), msgspec.json.Decoder(types.full)
    with part.path.open("rb") as file:
        file.seek(part.first)
        offset = part.first
        while offset < part.end:
            text = file.read(min(BLOCK_BYTES, part.end - offset))
            if not text.endswith(b"\n"):
                text += file.readline()
            block = _decode_columns(quick, text, offset) or _decode_objects(full, text, part.path, offset)
            if set(block.fields["schema"]) - {SCHEMA}:
                _refuse_schema(full, text, part.path, offset)
            offset += len(text)
            yield block


def _decode_columns(decoder: msgspec.json.Decoder[RawChunkRecord], text: bytes, offset: int) -> RecordBlock | None:
    """Decode all but the chunks, and read those as columns; None where a line or a chunk is not as we write it."""
    if is_torn(text):
        return None
    try:
        records = decoder.decode_lines(text)
    except DECODE_ERRORS:
        return None
    if len(records) != _count_lines(text):
        return None
    record_fields = split_fields(records)
    chunks = parse_chunk_text(record_fields["chunks"])
    return None if chunks is None else RecordBlock(record_fields, chunks, _line_offsets(text, offset, len(records)))


def _decode_objects(decoder: msgspec.json.Decoder[MetricRecord], text: bytes, path: Path, offset: int) -> RecordBlock:
    records, torn = _decode_lines(decoder, text, path, offset)
    record_fields = split_fields(records, decoder.type)
    return RecordBlock(
        record_fields, convert_chunks(record_fields["chunks"]), _line_offsets(text, offset, len(records)), torn
    )


def _decode_lines(
    decoder: msgspec.json.Decoder[MetricRecord], text: bytes, path: Path, offset: int
) -> tuple[list[MetricRecord], TornLine | None]:
    if is_torn(text):
        return _decode_single_lines(decoder, text, path, offset)
    try:
        records = decoder.decode_lines(text)
    except DECODE_ERRORS:
        return _decode_single_lines(decoder, text, path, offset)
    return (records, None) if len(records) == _count_lines(text) else _decode_single_lines(decoder, text, path, offset)


def _count_lines(text: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))  # a fifth of the time of bytes.count


def _line_offsets(text: bytes, offset: int, number: int) -> IntArray:
    """Return where each of the first `number` lines begins."""
    offsets: IntArray = np.append(-1, np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")))[:number] + offset + 1
    return offsets


def _decode_single_lines(
    decoder: msgspec.json.Decoder[MetricRecord], text: bytes, path: Path, offset: int
) -> tuple[list[MetricRecord], TornLine | None]:
    records: list[MetricRecord] = []
    for line in BytesIO(text):
        if is_torn(line):
            return records, TornLine(path, _line_number(path, offset), len(line))
        try:
            records.append(decoder.decode(line))
        except DECODE_ERRORS as error:
            raise bad_line_error(line, path, _line_number(path, offset), error) from error
        offset += len(line)
    return records, None


def _refuse_schema(decoder: msgspec.json.Decoder[MetricRecord], text: bytes, path: Path, offset: int) -> None:
    for line in BytesIO(text):
        if decoder.decode(line).schema != SCHEMA:
            raise bad_line_error(line, path, _line_number(path, offset), None)
        offset += len(line)


def _line_number(path: Path, offset: int) -> int:
    """Return the number of the line that begins at byte `offset`."""
    number, remaining = 1, offset
    with path.open("rb") as file:
        while remaining:
            block = file.read(min(BLOCK_BYTES, remaining))
            number, remaining = number + block.count(b"\n"), remaining - len(block)
    return number
