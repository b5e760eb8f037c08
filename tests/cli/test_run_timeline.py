"""The screen of a run that somebody follows: its rows and the line that is written anew, at three
widths."""

from __future__ import annotations

import io
import re
from datetime import timedelta
from types import SimpleNamespace

import msgspec
import pytest
from rich.console import Console
from run_records import VERDICT, make_step

from tandem.cli.run_timeline import RunTimeline
from tandem.ops.status import current_time

WIDTHS = pytest.mark.parametrize("columns", [80, 100, 200])
LONG_NOTE = " ".join(f"stage-model-{number} is begun;" for number in range(12))
ESTIMATE = SimpleNamespace(steps=[SimpleNamespace(step="round-00000", minutes=600.0)])


class StoredRun:
    """A run as the bucket has it: at work at the first look, judged at the second.

    Args:
        steps: of its journal.
    """

    def __init__(self, *steps):
        self.states = iter(["running", "judged"])
        self.steps = steps

    def find_run(self, _run):
        return SimpleNamespace(state=next(self.states))

    def read_steps(self, _run):
        return self.steps

    def read_beat(self):
        return None


def follow(monkeypatch, console, *steps, verbose=False):
    """Follow a run until it is judged, and return what its console shows."""
    monkeypatch.setattr("tandem.cli.run_timeline.POLL_S", 0.2)
    monkeypatch.setattr("tandem.cli.run_timeline.open_console", lambda **_: console)
    monkeypatch.setattr(RunTimeline, "conclude", lambda *_: 0)
    RunTimeline(
        StoredRun(*steps), "mine", estimate=ESTIMATE, as_json=False, verbose=verbose
    ).follow()
    return console.file.getvalue()


def open_log(columns):
    return Console(file=io.StringIO(), width=columns, highlight=False, markup=False)


@WIDTHS
@pytest.mark.parametrize("state", ["running", "done", "failed"])
def test_a_log_has_the_whole_note_of_a_step(state, columns, monkeypatch):
    text = follow(monkeypatch, open_log(columns), make_step(0, "stage", state, note=LONG_NOTE))

    assert LONG_NOTE.rstrip(";") in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= columns


@WIDTHS
def test_a_terminal_keeps_the_time_left_behind_a_long_note(columns, monkeypatch):
    console = Console(
        file=io.StringIO(), width=columns, force_terminal=True, color_system=None, markup=False
    )
    started_at = (current_time() - timedelta(minutes=70)).isoformat()
    step = msgspec.structs.replace(
        make_step(0, "round-00000", "running", note=LONG_NOTE), started_at=started_at
    )

    text = follow(monkeypatch, console, step)

    lines = [
        line for line in re.split(r"[\r\n]|\x1b\[[0-9?]*[A-Za-z]", text) if "round-00000" in line
    ]
    assert lines
    assert [
        line for line in lines if not re.search(r"…, about 8 h \d\d min left ━+ *$", line)
    ] == []
    assert max(map(len, lines)) <= columns


def test_the_verdict_is_left_to_the_end_of_the_screen(monkeypatch):
    step = make_step(0, "judge", note=VERDICT)
    texts = [follow(monkeypatch, open_log(100), step, verbose=verbose) for verbose in (False, True)]
    assert [VERDICT in text for text in texts] == [False, True]
