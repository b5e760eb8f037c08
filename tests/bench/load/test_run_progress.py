"""What the operator reads: plan, estimate, progress."""

from __future__ import annotations

import asyncio
import io
import re
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import pytest
from planned import plan

from tandem.bench.load import progress
from tandem.bench.load.progress import CLEAR_LINE, RunProgress
from tandem.bench.plan.estimate import (
    estimate_run_s,
)
from tandem.bench.records.record import SCHEMA, RequestRecord

RECORD = RequestRecord(
    schema=SCHEMA,
    request_id="x",
    arm="a",
    class_="code",
    suite="s",
    prompt_id="p",
    start_s=0.0,
    end_s=1.0,
    reconnected=0,
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(out, done=0, failed=0):
    """A progress over one round of 16 requests, at the second turn."""
    run_plan = plan(classes={"code": 8})
    shows = RunProgress(out, requests=run_plan.request_count, expected_s=estimate_run_s(run_plan))
    shows.begin_turn(run_plan.round(0)[1], recorded_count=0)
    for number in range(done):
        shows.count_record(
            msgspec.structs.replace(RECORD, error="closed") if number < failed else RECORD
        )
    return shows


async def once(shows):
    with shows.show_line():
        await asyncio.sleep(0.03)


def test_a_line_says_requests_failures_place_and_time_left():
    line = shown(io.StringIO(), done=4, failed=1).status_line()
    assert line.startswith("4/16 requests, 1 failed; round 1, code at concurrency 1, ")
    assert line.endswith(" left")


def test_a_terminal_rewrites_one_line_and_a_log_has_many(monkeypatch):
    monkeypatch.setattr(progress, "TERMINAL_S", 0.005)
    monkeypatch.setattr(progress, "LOG_S", 0.005)
    terminal = Terminal()
    log = io.StringIO()

    asyncio.run(once(shown(terminal)))
    asyncio.run(once(shown(log)))

    assert terminal.getvalue().startswith("\r\x1b[K0/16 requests")
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert "\n" not in terminal.getvalue()
    assert log.getvalue().startswith("0/16 requests")
    assert not {"\x1b", "\r"} & set(log.getvalue())


def read_terminal_line(monkeypatch, columns, arms):
    """Return what a terminal of this width shows of a run's fifth request."""
    monkeypatch.setenv("COLUMNS", str(columns))
    shown_run = shown(Terminal(), done=4)
    turn = plan(classes={"code-edit": 8}).round(0)[1]
    shown_run.begin_turn(replace(turn, arms=arms), recorded_count=0)
    return shown_run._draw_line()


LONG_ARMS = tuple(f"qwen3-32b-fused-window-{window}" for window in range(1, 9))


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_a_terminal_line_ends_with_the_time_left(columns, monkeypatch):
    line = read_terminal_line(monkeypatch, columns, LONG_ARMS)

    assert re.fullmatch(r".*4/16 requests; round 1, code-edit at.*…; about \d+ s left", line)
    assert len(line) < columns


@pytest.mark.parametrize(("columns", "has_bar"), [(60, False), (80, True), (200, True)])
def test_the_bar_gives_way_to_the_name_of_the_turn(columns, has_bar, monkeypatch):
    line = read_terminal_line(monkeypatch, columns, ("a", "b"))
    assert ("━" in line, "round 1, code-edit at" in line) == (has_bar, True)


def test_the_count_of_the_warm_up_ends_with_it(monkeypatch):
    monkeypatch.setattr(
        progress, "time", SimpleNamespace(monotonic=iter([100.0, 134.0, 135.0, 136.0]).__next__)
    )
    shows = RunProgress(io.StringIO(), requests=16, expected_s=1.0)
    shows.begin_warm_up("a and b")
    for error in (None, "closed", None):
        shows.count_record(msgspec.structs.replace(RECORD, error=error))

    assert shows.status_line() == "3 requests, 1 failed; warm-up of a and b; 34 s gone"

    shows.begin_turn(plan(classes={"code": 8}).round(0)[0], recorded_count=0)
    assert shows.status_line().startswith("0/16 requests; round 1")


def test_a_restart_and_its_warm_up_leave_the_count_of_the_run():
    shows = shown(io.StringIO(), done=4, failed=1)
    shows.begin_wait("restart of a")
    assert shows.status_line() == "0 requests; restart of a; 0 s gone"
    shows.begin_warm_up("a")
    shows.count_record(RECORD)
    shows.begin_turn(plan(classes={"code": 8}).round(0)[1], recorded_count=0)
    assert shows.status_line().startswith("4/16 requests, 1 failed; round 1")


def test_progress_moves_the_cursor_and_no_sentence_does():
    out = Terminal()
    RunProgress(out, requests=1, expected_s=1.0).notify("note: \x1b[2J\u202e")
    assert out.getvalue() == f"{CLEAR_LINE}note: ␛[2J<U+202E>\n"


def test_progress_survives_its_reader(monkeypatch):
    monkeypatch.setattr(progress, "LOG_S", 0.005)
    out = io.StringIO()
    shows = shown(out)
    monkeypatch.setattr(out, "flush", Mock(side_effect=BrokenPipeError))
    shows.notify("note: nobody reads this")
    asyncio.run(once(shows))
    assert out.flush.call_count > 2
