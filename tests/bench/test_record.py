from __future__ import annotations

import errno
import json
import math
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from measured import chunks, record

from tandem.bench.fault import BenchError, ExternalBenchError
from tandem.bench.record import Chunk, RecordWriter, RequestRecord, TornLine, read_records


def written(path: Path, *records: RequestRecord) -> Path:
    with RecordWriter(path) as writer:
        for one in records:
            writer.write(one)
    return path


def read(path: Path) -> tuple[list[RequestRecord], list[TornLine]]:
    torn: list[TornLine] = []
    return list(read_records(path, torn.append)), torn


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    full = record(
        token_ids=(1, 2), logprobs=msgspec.Raw(b'{"content": [{"logprob": -0.25}]}'), reasoning="why", due_s=999.5,
        retry_after_s=1.5, cached_tokens=3, text='"quoted"\n\u2028é',
    )  # fmt: skip

    assert read(written(tmp_path / "records.jsonl", full))[0] == [full]


def test_every_field_is_written_and_null_where_it_is_not_known(tmp_path: Path) -> None:
    line = json.loads(written(tmp_path / "records.jsonl", record(model=None)).read_text())

    assert {field.encode_name for field in msgspec.structs.fields(RequestRecord)} == line.keys()
    assert line["class"] == "repeat"
    assert (line["model"], line["error"], line["token_ids"], line["logprobs"]) == (None, None, None, None)


def test_record_of_older_version_was_not_reconnected(tmp_path: Path) -> None:
    path = written(tmp_path / "records.jsonl", record(reconnected=1))
    path.write_text(path.read_text().replace('"reconnected":1,', ""))

    assert read(path)[0] == [record()]


def test_chunks_are_three_arrays(tmp_path: Path) -> None:
    path = written(tmp_path / "records.jsonl", record(chunks=chunks((0.25, "text"), (0.5, "end", 0))))
    line = json.loads(path.read_text())

    assert (line["chunk_s"], line["chunk_kind"], line["chunk_tokens"]) == ([0.25, 0.5], ["text", "end"], [None, 0])


def test_arrays_of_different_length_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "records.jsonl", record())
    path.write_text(path.read_text().replace('"chunk_s":[0.1,', '"chunk_s":['))

    with pytest.raises(BenchError, match="differ in length"):
        read(path)


@pytest.mark.parametrize(
    ("chunk", "bears"),
    [
        (Chunk(0.0, "text", None), True), (Chunk(0.0, "reasoning", None), True), (Chunk(0.0, "role", None), False),
        (Chunk(0.0, "end", None), False), (Chunk(0.0, "empty", 2), True), (Chunk(0.0, "end", 1), True),
        (Chunk(0.0, "text", 0), False), (Chunk(0.0, "usage", None), False), (Chunk(0.0, "usage", 1), False),
    ],
)  # fmt: skip
def test_a_chunk_bears_tokens_by_count_or_else_by_kind(chunk: Chunk, bears: bool) -> None:
    assert chunk.bears_tokens is bears


def test_a_torn_last_line_is_named_and_skipped(tmp_path: Path) -> None:
    path = written(tmp_path / "records.jsonl", record(), record(request_id="r-1"))
    path.write_bytes(path.read_bytes()[:-40])
    cut = len(path.read_bytes().splitlines()[1])

    records, torn = read(path)

    assert [one.request_id for one in records] == ["r-0"]
    assert torn == [TornLine(path, 2, cut)]
    assert str(torn[0]) == f"{path}:2: the last line is torn after {cut} bytes and was skipped"


@pytest.mark.parametrize("cut", range(1, 620, 37))
def test_a_file_cut_anywhere_in_its_last_line_gives_the_lines_before(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path / "records.jsonl", record(), record(request_id="r-1"))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    path.write_bytes(whole[: first + cut])

    records, torn = read(path)

    assert [one.request_id for one in records] == ["r-0"]
    assert len(torn) == 1


def test_a_torn_line_is_told_on_standard_error_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'{"schema":2')

    assert list(read_records(path)) == []
    assert f"{path}:1: the last line is torn after 11 bytes" in capsys.readouterr().err


def test_a_last_line_that_lacks_only_its_end_is_torn(tmp_path: Path) -> None:
    path = written(tmp_path / "records.jsonl", record())
    path.write_bytes(path.read_bytes()[:-1])

    assert read(path) == ([], [TornLine(path, 1, len(path.read_bytes()))])


@pytest.mark.parametrize(
    "line", [b"{}\n", b"\n", b"not json\n", b'{"schema":2,"request_id":"\xff"}\n', b"[1]\n", b"\x00\x00\n"]
)
def test_a_bad_line_in_the_middle_is_refused_by_file_and_line(tmp_path: Path, line: bytes) -> None:
    path = written(tmp_path / "records.jsonl", record(), record(request_id="r-1"))
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + line + second)

    with pytest.raises(BenchError, match="this is no record") as refused:
        read(path)

    assert refused.value.where == f"{path}:2"
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e300"])
@pytest.mark.parametrize("field", ["start_s", "end_s", "chunk"])
def test_a_number_that_is_not_finite_is_refused(tmp_path: Path, field: str, number: str) -> None:
    path = written(tmp_path / "records.jsonl", record())
    before = '"chunk_s":[0.1' if field == "chunk" else f'"{field}":{getattr(record(), field)}'
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, f'"chunk_s":[{number}' if field == "chunk" else f'"{field}":{number}'))

    with pytest.raises(BenchError, match="this is no record"):
        read(path)


def test_a_count_that_no_float_can_hold_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "records.jsonl", record())
    path.write_text(path.read_text().replace('"completion_tokens":8', f'"completion_tokens":1{"0" * 400}'))

    with pytest.raises(BenchError, match="this is no record"):
        read(path)


def test_a_newer_schema_is_refused_even_where_the_rest_still_fits(tmp_path: Path) -> None:
    path = written(tmp_path / "records.jsonl", record())
    path.write_text(path.read_text().replace('"schema":2', '"schema":3'))

    with pytest.raises(BenchError, match="schema 3, and this Tandem knows up to 2"):
        read(path)


def test_a_newer_schema_is_named_where_the_rest_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"schema": 7, "something": "else"}\n')

    with pytest.raises(BenchError, match="schema 7"):
        read(path)


def test_a_field_that_this_version_does_not_know_is_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path / "records.jsonl", record())
    path.write_text(path.read_text().replace('{"schema":2', '{"added":[1,{"a":2}],"schema":2'))

    assert read(path)[0] == [record()]


def test_a_file_that_is_not_there_is_a_fault_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"nothing\.jsonl: the records cannot be read: No such file"):
        read(tmp_path / "nothing.jsonl")


def test_a_writer_never_writes_a_time_that_is_not_finite(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "records.jsonl") as writer:
        for bad in (record(end_s=math.nan), record(chunks=chunks((math.inf, "text"))), record(due_s=-math.inf)):
            with pytest.raises(BenchError, match="r-0 is not a finite number"):
                writer.write(bad)

    assert (tmp_path / "records.jsonl").read_bytes() == b""


def test_a_wait_without_end_that_a_server_asks_for_is_not_known_and_stops_no_run(tmp_path: Path) -> None:
    path = written(tmp_path / "records.jsonl", record(retry_after_s=math.inf))

    assert read(path)[0] == [record(retry_after_s=None)]


def test_a_writer_sets_a_torn_line_aside_before_it_appends(tmp_path: Path) -> None:
    path = written(tmp_path / "records.jsonl", record())
    with path.open("ab") as file:
        file.write(b'{"schema":2,"request_')

    written(path, record(request_id="r-1"))

    assert [one.request_id for one in read(path)[0]] == ["r-0", "r-1"]
    assert (tmp_path / "records.jsonl.torn").read_bytes() == b'{"schema":2,"request_\n'


def test_a_writer_sets_a_record_that_lacks_only_its_end_aside(tmp_path: Path) -> None:
    path = written(tmp_path / "records.jsonl", record())
    line = path.read_bytes()
    path.write_bytes(line[:-1])

    written(path, record(request_id="r-1"))

    assert [one.request_id for one in read(path)[0]] == ["r-1"]
    assert (tmp_path / "records.jsonl.torn").read_bytes() == line


def test_a_torn_line_longer_than_a_block_is_set_aside_whole(tmp_path: Path) -> None:
    path = written(tmp_path / "records.jsonl", record())
    tail = b'{"text":"' + b"x" * 200_000
    with path.open("ab") as file:
        file.write(tail)

    RecordWriter(path).close()

    assert read(path) == ([record()], [])
    assert (tmp_path / "records.jsonl.torn").read_bytes() == tail + b"\n"


def test_a_record_is_in_the_file_before_the_writer_is_closed(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "records.jsonl")

    writer.write(record())

    assert read(tmp_path / "records.jsonl")[0] == [record()]
    writer.close()


def test_a_full_disk_is_said_with_what_is_kept() -> None:
    with (
        RecordWriter(Path("/dev/full")) as writer,
        pytest.raises(ExternalBenchError, match="the disk is full; the 0 records") as full,
    ):
        writer.write(record())

    assert full.value.exit_code == 3
    assert "--resume" in full.value.change


def test_a_writer_that_failed_takes_no_shorter_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "records.jsonl"
    with RecordWriter(path) as writer:
        writer.write(record())
        with monkeypatch.context() as patched:
            patched.setattr(writer._file, "write", fill)
            with pytest.raises(ExternalBenchError, match="the 1 records written before are kept"):
                writer.write(record(request_id="r-1"))
        with pytest.raises(ExternalBenchError, match="the 1 records written before are kept"):
            writer.write(record(request_id="r-2"))

    assert read(path) == ([record()], [])


def test_bytes_changed_at_random_give_records_or_a_fault_with_its_line_and_nothing_else(tmp_path: Path) -> None:
    rng = random.Random(11)  # noqa: S311 - repeatable
    path = written(tmp_path / "records.jsonl", *(record(request_id=f"r-{number}") for number in range(3)))
    whole = path.read_bytes()
    faults: list[BenchError] = []
    for _ in range(400):
        broken = bytearray(whole)
        for _ in range(rng.choice([1, 1, 5])):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        path.write_bytes(broken)
        try:
            read(path)
        except BenchError as fault:
            faults.append(fault)

    assert 100 < len(faults) < 400
    assert all(fault.where.startswith(f"{path}:") for fault in faults)


LIMITED = """
import resource, sys
from pathlib import Path
from measured import record
from tandem.bench.fault import ExternalBenchError
from tandem.bench.record import RecordWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
with RecordWriter(Path(sys.argv[1])) as writer:
    try:
        for number in range(9):
            writer.write(record(request_id=f"r-{number}"))
    except ExternalBenchError as error:
        print(error)
"""


def test_a_write_that_stops_half_way_leaves_whole_records_only(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"

    done = subprocess.run(
        [sys.executable, "-B", "-c", LIMITED, str(path)], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": f"{Path(__file__).parent}:{Path.cwd()}"},
    )  # fmt: skip

    records, torn = read(path)
    assert len(records) >= 1
    assert torn == []
    assert path.read_bytes().endswith(b"\n")
    assert f"the {len(records)} records written before are kept" in done.stdout


def test_a_folder_that_cannot_take_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExternalBenchError, match=r"nowhere/records\.jsonl: the file cannot be written"):
        RecordWriter(tmp_path / "nowhere" / "records.jsonl")
