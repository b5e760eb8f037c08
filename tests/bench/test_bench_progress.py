"""What the operator reads: plan, estimate, progress."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
from planned import plan, suite

from tandem.bench import progress
from tandem.bench.estimate import DurationEstimate, estimate_request_s, format_duration
from tandem.bench.manifest import ManifestArm
from tandem.bench.progress import RunProgress
from tandem.bench.record import RequestRecord
from tandem.bench.run_description import (
    describe_new_estimate,
    describe_plan,
    note_shared_classes,
    note_thin_loads,
)
from tandem.bench.settings import RunSettings

RECORD = RequestRecord(request_id="x", arm="a", class_="code", suite="s", prompt_id="p", start_s=0.0, end_s=1.0)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(out, done=0, failed=0):
    """A progress over one round of 16 requests, at the second turn."""
    made = plan(classes={"code": 8})
    shows = RunProgress(out, requests=made.request_count, expected_s=DurationEstimate().run_s(made))
    shows.begin_turn(made.round(0)[1], DurationEstimate(), recorded_count=0)
    for number in range(done):
        shows.count_record(msgspec.structs.replace(RECORD, error="closed") if number < failed else RECORD)
    return shows


async def once(shows):
    with shows.show_line():
        await asyncio.sleep(0.03)


def test_a_line_says_requests_failures_place_and_time_left():
    line = shown(io.StringIO(), done=4, failed=1).status_line()

    assert line.startswith("4/16 requests, 1 failed; round 1, code at concurrency 1, ")
    assert line.endswith(" left")


def test_a_log_has_plain_lines(monkeypatch):
    monkeypatch.setattr(progress, "LOG_S", 0.005)
    out = io.StringIO()

    asyncio.run(once(shown(out)))

    assert "\x1b" not in out.getvalue()
    assert "\r" not in out.getvalue()
    assert out.getvalue().count("0/16 requests") >= 1


def test_a_terminal_has_one_line_that_is_written_anew(monkeypatch):
    monkeypatch.setattr(progress, "TERMINAL_S", 0.005)
    out = Terminal()

    asyncio.run(once(shown(out)))

    assert out.getvalue().startswith("\r\x1b[K0/16 requests")
    assert out.getvalue().endswith("\r\x1b[K")
    assert "\n" not in out.getvalue()


def test_a_line_says_arm_time_and_requests_of_a_warm_up(monkeypatch):
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=iter([100.0, 134.0]).__next__))
    shows = RunProgress(io.StringIO(), requests=16, expected_s=1.0)

    with shows.show_warm_up("a"):
        for error in (None, "closed", None):
            shows.count_warm_up(msgspec.structs.replace(RECORD, error=error))

        assert shows.status_line() == "warm-up of a: 34 s gone, requests done: 3 (1 failed)"


def test_a_line_shows_each_arm_that_is_warmed_at_once():
    shows = RunProgress(io.StringIO(), requests=16, expected_s=1.0)

    with shows.show_warm_up("a"), shows.show_warm_up("b"):
        shows.count_warm_up(RECORD)

        assert (
            shows.status_line() == "warm-up of a: 0 s gone, requests done: 1; warm-up of b: 0 s gone, requests done: 0"
        )


def test_nothing_is_shown_before_a_turn_or_a_warm_up(monkeypatch):
    monkeypatch.setattr(progress, "LOG_S", 0.005)
    out = io.StringIO()

    asyncio.run(once(RunProgress(out, requests=16, expected_s=1.0)))

    assert out.getvalue() == ""


def test_what_an_earlier_run_recorded_is_left_out_of_the_count():
    made = plan(classes={"code": 8})
    shows = RunProgress(io.StringIO(), requests=made.request_count, expected_s=1.0)

    shows.begin_turn(made.round(0)[0], DurationEstimate(), recorded_count=3)

    assert shows.status_line().startswith("0/13 requests")


@pytest.mark.parametrize(
    ("seconds", "said"), [(45, "45 s"), (200, "3 min 20 s"), (59.6, "1 min 00 s"), (7500, "2 h 05 min")]
)
def test_times_are_spoken(seconds, said):
    assert format_duration(seconds) == said


def test_a_turn_takes_as_many_waves_as_its_concurrency_needs():
    (first, *_) = plan(classes={"code": 16}, concurrency=(4,)).round(0)

    assert DurationEstimate().turn_s(first) == pytest.approx(2 * estimate_request_s(8))


def test_an_open_turn_takes_until_its_last_arrival_and_one_answer():
    (first, *_) = plan(concurrency=None, rate_per_s=2.0).round(0)

    assert DurationEstimate().turn_s(first) == pytest.approx(first.arrivals_s[-1] + estimate_request_s(8))


def test_arms_that_run_at_once_take_as_long_as_the_slowest():
    (both,) = plan(schedule="simultaneous").round(0)

    assert DurationEstimate(factors={"a": 0.5, "b": 2.0}).turn_s(both) == pytest.approx(
        2 * DurationEstimate().turn_s(both)
    )


def settings(**changed):
    arms = tuple(ManifestArm(name=name, role="baseline", url="http://h", model="m") for name in "ab")
    return RunSettings(**({"arms": arms, "suites": (suite({"code": 4}),), "concurrency": (1,)} | changed))


def test_the_plan_says_requests_minutes_and_cost():
    asked = settings(price_usd_per_hour=36.0)

    text = "\n".join(describe_plan(asked, asked.plan(), 1800.0))

    assert "8 requests in all, 8 a round" in text
    assert "about 30.0 min, 18.00 USD at 36 USD an hour (0.5 s + 45 ms a token" in text


def test_the_plan_says_the_order_of_the_arms():
    asked = settings()

    assert any(", ".join(order) in "\n".join(describe_plan(asked, asked.plan(), 1.0)) for order in ("abba", "baab"))


def test_without_a_price_no_cost_is_told():
    assert "USD" not in describe_new_estimate(settings(), 60.0)


def test_a_suites_notes_are_told_with_the_plan():

    asked = settings(suites=(replace(suite({"code": 4}), notes=("one case is left out",)),))

    assert "  note: one case is left out" in describe_plan(asked, asked.plan(), 1.0)


def test_a_concurrency_that_is_never_reached_is_told():
    (note,) = note_thin_loads(plan(classes={"code": 4}, concurrency=(8,)))

    assert note.startswith("concurrency 8 is never reached where a class has 4 requests a round")


def test_a_class_that_two_suites_share_is_told():
    other = replace(suite({"code": 4}), name="other")

    (note,) = note_shared_classes(settings(suites=(suite({"code": 4, "chat": 4}), other)).plan())

    assert note == "class code is in small and in other: its figures pool both; rename it in one of them"
