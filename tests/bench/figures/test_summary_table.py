from __future__ import annotations

from pathlib import Path

import pytest
from measured import arm, chunks, failed, record, write_run

from tandem.bench.figures import summary, summary_table
from tandem.bench.records.record import RequestRecord


def printed(folder: Path, *records: RequestRecord, **changes: object) -> list[str]:
    """The table of these records, line by line."""
    return list(
        summary_table.format_lines(
            summary.summarize_run(write_run(folder, list(records), **changes))
        )
    )


def row(lines: list[str], *names: str, title: str = "latencies") -> list[str]:
    """The row of the first table with this title that begins with these names."""
    start = next(number for number, line in enumerate(lines) if line.endswith(title))
    table = lines[start : lines.index("", start)]
    (result,) = [line.split() for line in table if tuple(line.split()[: len(names)]) == names]
    return result[len(names) :]


SILENT = record(chunks=chunks((0.1, "text")), completion_tokens=None)


@pytest.mark.parametrize(
    ("request_", "latencies"),
    [
        (record(), "1 200.0 200.0 200.0 12.9 12.9 12.9 290.0 290.0 290.0"),
        (SILENT, "1 100.0 100.0 100.0 - - - 100.0 100.0 100.0"),
        (failed(), "0 - - - - - - - - -"),
    ],
    ids=["whole", "no usage", "failed"],
)
def test_a_row_has_latencies_and_a_dash_where_absent(tmp_path, request_, latencies):
    assert row(printed(tmp_path, request_), "repeat", "base") == latencies.split()


def test_goodput_and_other_medians_have_a_table_of_their_own(tmp_path):
    lines = printed(tmp_path, record(), goodput={"ttft_ms": 500.0})
    figures = row(lines, "repeat", "base", title="summary.json)")
    assert figures == ["1", "3.33", "3.33", "3.33", "45.0", "2.67", "27.6", "26.7", "58.0"]


def test_each_load_has_a_table_of_its_own(tmp_path):
    records = [
        record(concurrency=1),
        record(),
        record(concurrency=None, rate_per_s=2.5, due_s=1000.0),
    ]

    lines = printed(tmp_path, *records)

    assert [line.partition(":")[0] for line in lines if "latencies" in line] == [
        "2.5 requests/s, open loop",
        "concurrency 1",
        "concurrency 4",
    ]


@pytest.mark.parametrize("length", [1, 9, 10, 11, 40])
def test_no_line_is_wider_than_100_columns(tmp_path, length):
    name = "a" * length
    class_ = "c" * length
    records = [
        record(arm=name, class_=class_),
        failed(arm=name, class_=class_),
        record(arm=name, chunks=chunks((9e7, "text", 8)), end_s=9e7),
    ]

    lines = printed(tmp_path, *records, arms=(arm(name),))

    assert max(map(len, lines)) <= 100


def test_notes_stand_below_whole(tmp_path):
    text = " ".join(line.strip() for line in printed(tmp_path, record()))
    assert all(f"note: {note}" in text for note in summary.summarize_run(tmp_path).notes)
