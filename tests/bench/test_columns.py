from __future__ import annotations

import random
from typing import get_args

import msgspec
import numpy as np
import pytest

from tandem.bench.columns import KIND_CODES, ChunkColumns, convert_chunks, parse_chunk_text
from tandem.bench.record import Chunk, ChunkKind

WRITTEN = '[[0.25,"role",0],[12.5,"text",3],[300.125,"usage",null]]'


def raw(*texts: str) -> list[msgspec.Raw]:
    return [msgspec.Raw(text.encode()) for text in texts]


def same(one: ChunkColumns | None, other: ChunkColumns) -> bool:
    """Whether columns are alike to the bit; NaN is like NaN."""
    return one is not None and all(
        mine.dtype == others.dtype and mine.tobytes() == others.tobytes()
        for mine, others in zip(one, other, strict=True)
    )


def drawn(rng: random.Random) -> tuple[Chunk, ...]:
    """Chunks as a clock with nanoseconds gives them, of any kind and number."""
    return tuple(
        Chunk(
            round(rng.choice([0.001, 1.0, 90.0, 3600.0]) * (0.1 + rng.random()), rng.randint(1, 9)),
            rng.choice(get_args(ChunkKind)),
            rng.choice([None, 0, 1, 7, 12, 131072]),
        )
        for _ in range(rng.choice([0, 1, 2, 17]))
    )


def test_chunks_as_they_are_written_are_read_to_the_bit_that_a_decoder_gives() -> None:
    rng = random.Random(3)  # noqa: S311 - repeatable
    owned = [chunks for chunks in (drawn(rng) for _ in range(2000)) if all(one.at_s > 1e-3 for one in chunks)]

    assert same(parse_chunk_text([msgspec.Raw(msgspec.json.encode(chunks)) for chunks in owned]), convert_chunks(owned))


def test_each_field_stands_in_its_column() -> None:
    read = parse_chunk_text(raw(WRITTEN, "[]", '[[0.5,"end",1]]'))

    assert read is not None
    assert read.numbers.tolist() == [3, 0, 1]
    assert read.at_s.tolist() == [0.25, 12.5, 300.125, 0.5]
    assert read.kind.tolist() == [KIND_CODES["role"], KIND_CODES["text"], KIND_CODES["usage"], KIND_CODES["end"]]
    assert np.array_equal(read.tokens, [0, 3, np.nan, 1], equal_nan=True)


@pytest.mark.parametrize("texts", [(), ("[]",), ("[]", "[]")])
def test_records_without_chunks_have_empty_columns(texts: tuple[str, ...]) -> None:
    assert same(parse_chunk_text(raw(*texts)), convert_chunks([()] * len(texts)))


@pytest.mark.parametrize("kind", get_args(ChunkKind))
def test_every_kind_is_read(kind: ChunkKind) -> None:
    assert same(parse_chunk_text(raw(f'[[0.5,"{kind}",1]]')), convert_chunks([(Chunk(0.5, kind, 1),)]))


@pytest.mark.parametrize(
    "text",
    [
        '[[0.25,"text"]]', '[[0.25,"text",3,4]]', "[[0.25]]", "[[]]", "null", "{}", "12", '""', '"aa"',
        '[0.25,"text",3]',
        '[[0.25,"text",3],[]]', '[[0.25,"text",3],null,1,2]', '[[[0.25,"text",3]]]', '[[0.25,"text",[3]]]',
        '[[0.25,"text",3],0.25,"text",3]', '[0.25,"text",[3]]', '[[0.25,["text"],3]]', '[[[0.25],"text",3]]',
        '[[0.25,"t,xt",3,"a,b"]]', '{"a":[0.25,"text",3]}', '[{"a":0.25},"text",3]',
    ],
)  # fmt: skip
def test_what_has_another_shape_is_left_to_the_decoder(text: str) -> None:
    assert parse_chunk_text(raw(text)) is None
    assert parse_chunk_text(raw(WRITTEN, text, WRITTEN)) is None


@pytest.mark.parametrize("time", ["1", "-0.5", "1e-5", "1.5e-5", "1.5E2", "0.1234567890123456", "1234567890123456.5",
                                  '"0.5"', "null", "true", " 0.5", "0.5 ", "1234567890123456789"])  # fmt: skip
def test_a_time_of_another_spelling_is_left_to_the_decoder(time: str) -> None:
    assert parse_chunk_text(raw(WRITTEN, f'[[{time},"text",3]]', WRITTEN)) is None


@pytest.mark.parametrize("kind", ['"taxt"', '"Text"', '"texts"', '"tex"', '""', '"t\\u0065xt"', "1", "null", "text",
                                  ' "text"', '"text" ', '"reasoninG"', '"' + "r" * 300 + '"', '"é"'])  # fmt: skip
def test_a_kind_of_another_spelling_is_left_to_the_decoder(kind: str) -> None:
    assert parse_chunk_text(raw(WRITTEN, f"[[0.5,{kind},3]]", WRITTEN)) is None


@pytest.mark.parametrize("tokens", ["-1", "1.0", "1e3", '"1"', "true", "1234567890123456", " 1", "1 ", "{}"])
def test_a_count_of_another_spelling_is_left_to_the_decoder(tokens: str) -> None:
    assert parse_chunk_text(raw(WRITTEN, f'[[0.5,"text",{tokens}]]', WRITTEN)) is None


@pytest.mark.parametrize(
    "digits", ["0.00000000000001", "0.1", "123456789.12345", "99999999999999.9", "0.30000000000000"]
)
def test_a_time_of_up_to_fifteen_digits_is_rounded_once(digits: str) -> None:
    read = parse_chunk_text(raw(f'[[{digits},"text",1]]'))

    assert read is not None
    assert read.at_s[0] == float(digits)
