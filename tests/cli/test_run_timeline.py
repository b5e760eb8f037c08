"""The screen of a run that somebody follows: its rows at three widths."""

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
from tandem.errors import ExternalError
from tandem.ops.status import current_time

WIDTHS = pytest.mark.parametrize("columns", [80, 100, 200])
LONG_NOTE = " ".join(f"stage-model-{number} is begun;" for number in range(12))


class StoredRun:
    """A run as the bucket has it: at work at each look but the last.

    Args:
        looks: steps of its journal, or why it cannot be read.
        beat: the runner's latest.
    """

    def __init__(self, *looks, beat=None):
        self.looks = list(looks)
        self.beat = beat

    def find_run(self, _run):
        return SimpleNamespace(state="running" if len(self.looks) > 1 else "judged")

    def read_steps(self, _run):
        look = self.looks.pop(0)
        if isinstance(look, ExternalError):
            raise look
        return look

    def read_beat(self):
        return self.beat


def follow(monkeypatch, console, *looks, verbose=False, beat=None, estimate=None):
    """Follow a run until it is judged, and return what its console shows."""
    monkeypatch.setattr("tandem.cli.run_timeline.POLL_S", 0.001)
    monkeypatch.setattr("tandem.cli.run_timeline.open_console", lambda **_: console)
    monkeypatch.setattr(RunTimeline, "conclude", lambda *_: 0)
    run = StoredRun(*looks, beat=beat)
    RunTimeline(run, "mine", estimate=estimate, as_json=False, verbose=verbose).follow()
    return console.file.getvalue()


def open_log(columns):
    return Console(file=io.StringIO(), width=columns, highlight=False, markup=False)


@WIDTHS
@pytest.mark.parametrize("state", ["running", "done", "failed"])
def test_a_log_has_the_whole_note_of_a_step(state, columns, monkeypatch):
    steps = (make_step(0, "stage", state, note=LONG_NOTE),)
    text = follow(monkeypatch, open_log(columns), steps, steps)

    assert LONG_NOTE.rstrip(";") in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= columns


def test_the_verdict_is_left_to_the_end_of_the_screen(monkeypatch):
    steps = (make_step(0, "judge", note=VERDICT),)
    texts = [
        follow(monkeypatch, open_log(100), steps, verbose=verbose) for verbose in (False, True)
    ]
    assert [VERDICT in text for text in texts] == [False, True]


def test_a_log_has_each_step_once(monkeypatch):
    first, second, end = (
        make_step(0, "stage", state, note=note)
        for state, note in (("running", "0 of 2"), ("running", "1 of 2"), ("done", "2 models"))
    )
    looks = ((first,), (second,), (end,), (end, make_step(1, "raise", "failed")))

    text = follow(monkeypatch, open_log(100), *looks)

    assert [" ".join(line.split()[1:3]) for line in text.splitlines()] == [
        "stage begins",
        "stage done",
        "raise failed",
    ]


def test_a_bucket_that_does_not_answer_is_reported_once(monkeypatch):
    fault = ExternalError("S3 is away", change="wait")
    text = follow(monkeypatch, open_log(100), (), fault, fault, ())
    assert text.count("cannot read the run") == 1


def test_a_runner_that_falls_silent_is_told_once(monkeypatch):
    beat = SimpleNamespace(at=(current_time() - timedelta(minutes=7)).isoformat())
    text = follow(monkeypatch, open_log(100), (), (), (), beat=beat)
    assert text.count("the runner has not written for 7 min") == 1


def test_a_terminal_tells_the_time_left_behind_a_long_note(monkeypatch):
    console = Console(
        file=io.StringIO(), width=80, force_terminal=True, color_system=None, markup=False
    )
    estimate = SimpleNamespace(steps=[SimpleNamespace(step="round-00000", minutes=600.0)])
    started_at = (current_time() - timedelta(minutes=70)).isoformat()
    steps = (
        make_step(0, "stage"),
        msgspec.structs.replace(
            make_step(1, "round-00000", "running", note=LONG_NOTE), started_at=started_at
        ),
    )

    text = follow(monkeypatch, console, steps, steps, estimate=estimate)

    assert re.search(r"round-00000: 1 h 10 min, .*…, about 8 h (49|50) min left", text)
