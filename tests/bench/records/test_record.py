"""Records as they are written and read: whole lines, refused lines, torn lines, full disks."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import msgspec
import pytest
from measured import chunks, record

from tandem.bench.records.record import Chunk, RecordWriter, RequestRecord, read_records
from tandem.errors import ExternalError, InputError

FILE = "records.jsonl"


def written(folder: Path, *records: RequestRecord) -> Path:
    with RecordWriter(folder / FILE) as writer:
        for entry in records:
            writer.write(entry)
    return folder / FILE


def rewritten(folder: Path, old: str, new: str) -> Path:
    """Return a file of one record in which a text stands in place of another."""
    path = written(folder, record())
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def read(path: Path) -> tuple[list[RequestRecord], list[str]]:
    torn: list[str] = []
    return list(read_records(path, torn.append)), torn


def test_a_record_is_read_as_it_was_written(tmp_path):
    full = record(
        token_ids=(1, 2),
        logprobs=msgspec.Raw(b'{"content": [{"logprob": -0.25}]}'),
        reasoning="why",
        due_s=999.5,
        retry_after_s=1.5,
        cached_tokens=3,
        text='"quoted"\n\u2028é',
    )

    assert read(written(tmp_path, full)) == ([full], [])


def test_every_field_is_written_and_null_where_unknown(tmp_path):
    path = written(tmp_path, record(model=None, chunks=chunks((0.25, "text"), (0.5, "end", 0))))
    line = json.loads(path.read_text())

    assert {field.encode_name for field in msgspec.structs.fields(RequestRecord)} == line.keys()
    assert (line["class"], line["model"], line["logprobs"]) == ("repeat", None, None)
    assert (line["chunk_kind"], line["chunk_tokens"]) == (["text", "end"], [None, 0])


def test_an_unknown_key_is_skipped(tmp_path):
    path = rewritten(tmp_path, '{"schema":2', '{"added":[1,{"a":2}],"schema":2')
    assert read(path)[0] == [record()]


@pytest.mark.parametrize(
    ("chunk", "bears"),
    [
        (Chunk(0.0, "text", None), True),
        (Chunk(0.0, "role", None), False),
        (Chunk(0.0, "empty", 2), True),
        (Chunk(0.0, "end", 1), True),
        (Chunk(0.0, "text", 0), False),
        (Chunk(0.0, "usage", None), False),
    ],
)
def test_a_chunk_bears_tokens_by_count_or_else_by_kind(chunk, bears):
    assert chunk.bears_tokens is bears


# Refused


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"chunk_s":[0.1,', '"chunk_s":[', "differ in length"),
        # no float holds it
        ('"completion_tokens":8', f'"completion_tokens":1{"0" * 400}', "this is no record"),
        *(
            (
                '"schema":2',
                f'"schema":{second}',
                f"schema {second}; this version of Tandem reads schema 2; use",
            )
            for second in (1, 3)
        ),  # the rest still fits
        ('"schema":2,', "", "the record has no schema; this version of Tandem reads schema 2"),
        ('"reconnected":0,', "", "missing required field `reconnected`"),
        ('"start_s":1000.0', '"start_s":NaN', "no record"),
        ('"end_s":0.3', '"end_s":1e300', "no record"),
        ('"chunk_s":[0.1', '"chunk_s":[Infinity', "no record"),
    ],
)
def test_a_record_of_another_form_is_refused(tmp_path, old, new, problem):
    path = rewritten(tmp_path, old, new)
    with pytest.raises(InputError, match=problem) as refusal:
        read(path)
    assert refusal.value.where == f"{path}:1"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        *((line, "this is no record") for line in (b"\n", b"not json\n", b"[1]\n", b"\x00\x00\n")),
        (b'{"schema":2,"request_id":"\xff"}\n', "this is no record"),
        (b'{"schema": 7, "something": "else"}\n', "schema 7"),
        (b"{}\n", "the record has no schema; this version of Tandem reads schema 2"),
    ],
)
def test_a_bad_line_is_refused_by_file_and_number(tmp_path, line, problem):
    path = written(tmp_path, record(), record(request_id="r-1"))
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + line + second)

    with pytest.raises(InputError, match=problem) as refusal:
        read(path)

    assert (refusal.value.where, refusal.value.exit_code) == (f"{path}:2", 2)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(
        InputError, match=r"nothing\.jsonl: the records cannot be read: No such file"
    ):
        read(tmp_path / "nothing.jsonl")


# Torn


@pytest.mark.parametrize("cut", [1, 2, 300, 600])
def test_a_torn_last_line_is_named_and_skipped(tmp_path, cut):
    path = written(tmp_path, record(), record(request_id="r-1"))
    first, second = path.read_bytes().splitlines(keepends=True)
    tail = second[:-cut]
    path.write_bytes(first + tail)

    assert read(path) == (
        [record()],
        [f"{FILE}:2: the last line is torn after {len(tail)} bytes and was skipped"],
    )


def test_a_torn_line_is_told_on_standard_error_by_default(tmp_path, capsys):
    path = tmp_path / FILE
    path.write_bytes(b'{"schema":2')
    assert list(read_records(path)) == []
    assert f"{FILE}:1: the last line is torn after 11 bytes" in capsys.readouterr().err


# Written


def test_a_record_is_on_disk_before_the_writer_closes(tmp_path):
    with RecordWriter(tmp_path / FILE) as writer:
        writer.write(record(retry_after_s=float("inf")))
        # a wait without end is not known
        assert read(tmp_path / FILE)[0] == [record(retry_after_s=None)]


def test_a_full_disk_is_said_with_what_is_kept():
    with (
        RecordWriter(Path("/dev/full")) as writer,
        pytest.raises(ExternalError, match="the records cannot be written: No space left") as full,
    ):
        writer.write(record())

    assert (full.value.exit_code, "--resume" in full.value.change) == (3, True)


def test_a_write_that_stops_half_way_leaves_whole_records(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RecordWriter(tmp_path / FILE) as writer:
        writer.write(record())
        resource.setrlimit(resource.RLIMIT_FSIZE, (800, hard))
        try:
            with pytest.raises(ExternalError, match="the records written before are kept"):
                writer.write(record(request_id="r-1"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert read(tmp_path / FILE) == ([record()], [])


def test_a_folder_that_cannot_take_the_file_is_named(tmp_path):
    with pytest.raises(
        ExternalError, match=r"nowhere/records\.jsonl: the records cannot be written"
    ):
        RecordWriter(tmp_path / "nowhere" / FILE)
