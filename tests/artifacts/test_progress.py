"""Progress is said now and then, however many files and pieces there are."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tandem.artifacts import progress as module
from tandem.artifacts.progress import LOG_INTERVAL_S, TransferProgress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now.s))
    return now


def said(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [{name: value for name, value in line.items() if name not in {"at", "level"}} for line in lines]


def test_a_line_has_file_count_bytes_and_seconds(clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    progress = TransferProgress(event="staging", files=3, size=300)
    progress.begin(2, "b")
    clock.s += LOG_INTERVAL_S
    progress.add_bytes(120)

    assert said(capsys) == [
        {
            "event": "staging",
            "file": "b",
            "index": 2,
            "files": 3,
            "received_bytes": 120,
            "of_bytes": 300,
            "seconds": 5.0,
        }
    ]


def test_a_thousand_pieces_and_files_in_a_moment_say_nothing(
    clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = TransferProgress(event="staging", files=1000, size=1000)
    for index in range(1000):
        clock.s += 0.001
        progress.begin(index, str(index))
        progress.add_bytes(1)

    assert said(capsys) == []


def test_lines_are_at_least_so_many_seconds_apart(clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    progress = TransferProgress(event="staging", files=1, size=1000)
    for _ in range(40):
        clock.s += 1
        progress.add_bytes(1)

    assert [line["seconds"] for line in said(capsys)] == [5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0]
