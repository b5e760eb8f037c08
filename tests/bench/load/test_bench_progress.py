"""What the operator reads: plan, estimate, progress."""

from __future__ import annotations

import asyncio
import io
import re
import unicodedata
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import pytest
from measured import run_manifest
from planned import plan, suite

from tandem.bench.load import progress
from tandem.bench.load.progress import CLEAR_LINE, RunProgress
from tandem.bench.plan.estimate import (
    estimate_request_s,
    estimate_run_s,
    estimate_turn_s,
    format_duration,
)
from tandem.bench.plan.run_description import describe_plan, note_shared_classes, note_thin_loads
from tandem.bench.plan.settings import RunSettings
from tandem.bench.records.record import SCHEMA, RequestRecord
from tandem.bench.records.terminal_text import PrintableStream, fit_line

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


def test_a_line_without_room_for_the_detail_leaves_it_out():
    assert (
        fit_line("4 requests", "round 1", "9 s left", width=20, separator="; ")
        == "4 requests; 9 s left"
    )


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


def test_earlier_records_are_not_in_the_count_shown(monkeypatch):
    monkeypatch.setattr(progress, "LOG_S", 0.005)
    out = io.StringIO()
    run_plan = plan(classes={"code": 8})
    shows = RunProgress(out, requests=run_plan.request_count, expected_s=1.0)

    asyncio.run(once(shows))
    assert out.getvalue() == ""

    shows.begin_turn(run_plan.round(0)[0], recorded_count=3)
    assert shows.status_line().startswith("0/13 requests")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(45, "45 s"), (200, "3 min 20 s"), (59.6, "1 min 00 s"), (7500, "2 h 05 min")],
)
def test_times_are_spoken(seconds, words):
    assert format_duration(seconds) == words


def test_a_turn_takes_its_waves_or_its_arrivals():
    first, *_ = plan(classes={"code": 16}, concurrency=(4,)).round(0)
    arriving, *_ = plan(concurrency=None, rate_per_s=2.0).round(0)
    answer_s = estimate_request_s(8)

    assert estimate_turn_s(first) == pytest.approx(2 * answer_s)
    assert estimate_turn_s(arriving) == pytest.approx(arriving.arrivals_s[-1] + answer_s)


def settings(**changes):
    suites = changes.pop("suites", (suite({"code": 4}),))
    return RunSettings(manifest=run_manifest(**changes), suites=suites, concurrency=(1,))


def test_the_plan_says_requests_order_minutes_cost_and_notes():
    run_settings = settings(
        price_usd_per_hour=36.0,
        suites=(replace(suite({"code": 4}), notes=("one case is left out",)),),
    )

    text = "\n".join(describe_plan(run_settings, run_settings.plan(), 1800.0))

    assert "8 requests in all, 8 a round" in text
    assert "base, spec, spec, base" in text or "spec, base, base, spec" in text
    assert "about 30.0 min, 18.00 USD at 36 USD an hour (0.5 s + 45 ms a token" in text
    assert "  note: one case is left out" in text
    assert "USD" not in "\n".join(describe_plan(settings(), run_settings.plan(), 60.0))


def test_unreachable_concurrency_and_shared_classes_are_noted():
    second = replace(suite({"code": 4}), name="other")

    (thin,) = note_thin_loads(plan(classes={"code": 4}, concurrency=(8,)))
    (shared,) = note_shared_classes(settings(suites=(suite({"code": 4, "chat": 4}), second)).plan())

    assert thin.startswith("concurrency 8 is never reached where a class has 4 requests a round")
    assert shared.startswith("class code is in small and in other")


# names of others


HIDDEN = "\x00\x07\x08\t\r\x1b\x7f\x85\x9b\u200b\u2028\u202e\u2066\ufeff\ud800"


def printed(text: str) -> str:
    out = io.StringIO()
    PrintableStream(out).write(text)
    return out.getvalue()


def test_a_control_character_becomes_a_sign():
    categories = {unicodedata.category(sign) for sign in printed(HIDDEN)}
    assert categories.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})


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
