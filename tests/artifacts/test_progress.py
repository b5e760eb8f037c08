"""Progress is said now and then, however many files and pieces there are."""

from __future__ import annotations

import json
from types import SimpleNamespace

from tandem.artifacts import stage


def test_a_line_is_written_when_enough_time_has_passed_and_never_more(monkeypatch, capsys):
    clock = SimpleNamespace(s=100.0)
    monkeypatch.setattr(stage, "time", SimpleNamespace(monotonic=lambda: clock.s))
    progress = stage.TransferProgress(files=2, size=50, start_s=100.0, last_log_s=100.0)
    for second in range(12):
        clock.s += 1
        progress.index, progress.file = 1 + second // 6, f"w{second // 6}"
        progress.add_bytes(2)
    progress.add_bytes(-4)  # thrown away

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["seconds"], line["file"], line["received_bytes"]) for line in lines] == [
        (5.0, "w0", 10),
        (10.0, "w1", 20),
    ]
    assert {(line["event"], line["files"], line["of_bytes"]) for line in lines} == {("staging", 2, 50)}
