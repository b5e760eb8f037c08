"""First screens of an account's commands at 80 columns, as tests/frozen/screens has them; `make
golden` writes them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from run_records import (
    RUN,
    STEPS,
    VERDICT,
    answering,
    fill_bucket,
    make_record,
    make_step,
    put_beat,
    put_run,
    tandem,
)
from test_runs_command import put_results

from tandem.cli.fleet import format_distance

pytestmark = [pytest.mark.endpoint, pytest.mark.usefixtures("quick")]
SCREENS = Path(__file__).parents[1] / "frozen" / "screens"
CHANGING = (  # what differs from one time to the next, and what stands for it
    (r"\d{2}:\d{2}:\d{2}", "HH:MM:SS"),
    (r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}", "YYYY-MM-DD HH:MM"),
    (r"\d{2}:\d{2} UTC \(in 6 h 00 min\)|\d{2}:\d{2} UTC \(in 5 h 59 min\)", "HH:MM UTC (in SPAN)"),
    (r"looked [^,]+,", "looked SPAN,"),
)
ENDED_STEPS = tuple(
    make_step(index, step, note=f"{step} is fine") for index, step in enumerate(STEPS)
)


def format_dated_moment(moment, now):
    """Write the day always: the lines of a screen are the same at every hour."""
    return f"{moment:%Y-%m-%d %H:%M} UTC ({format_distance(moment, now)})"


@pytest.fixture
def hold_screen(fleet, monkeypatch, capsys):
    """Run a command at 80 columns, and hold what it prints against its file."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("tandem.cli.run_draft.RUN_CHECKS", frozenset({"fleet"}))
    monkeypatch.setattr("tandem.cli.run_draft.STAGE_CHECKS", frozenset({"stacks"}))
    monkeypatch.setattr("tandem.cli.raise_check.format_moment", format_dated_moment)

    def hold(name, words, *more):
        capsys.readouterr()
        code = tandem(fleet, words, *more)
        out, err = capsys.readouterr()
        text = (
            f"$ tandem {words} --env ENV {' '.join(more)}".rstrip()
            + f"\n{out}{err}exit code {code}\n"
        )
        text = text.replace(fleet.name, "ENV")
        for pattern, word in CHANGING:
            text = re.sub(pattern, word, text)
        path = SCREENS / f"{name}.txt"
        if os.environ.get("TANDEM_GOLDEN") == "write":
            path.write_text(text)
        assert text == path.read_text()

    return hold


def test_status_of_a_parked_fleet(hold_screen):
    hold_screen("status_parked", "status")


def test_runs_that_were(fleet, hold_screen):
    put_run(fleet, make_record(fleet, "old", state="judged", verdict=VERDICT))
    hold_screen("runs_list", "runs")


def test_a_run_that_was_judged(fleet, hold_screen):
    put_run(fleet, make_record(fleet, state="judged", verdict=VERDICT), ENDED_STEPS)
    hold_screen("runs_show_judged", f"runs show {RUN}")


def test_a_run_that_failed(fleet, hold_screen):
    put_run(
        fleet, make_record(fleet, state="failed", reason="the node never came"), ENDED_STEPS[:2]
    )
    hold_screen("runs_show_failed", f"runs show {RUN}")


def test_results_of_a_run(fleet, hold_screen):
    put_results(fleet)
    hold_screen("results_judged", f"results {RUN}")


def test_a_plan_and_a_run_to_its_verdict(fleet, hold_screen):
    fill_bucket(fleet)
    put_beat(fleet)
    flags = ("--hours", "6", "--run", RUN)
    hold_screen("run_dry_run", "run post", *flags, "--dry-run")

    def finish(_):
        put_run(fleet, make_record(fleet, state="judged", verdict=VERDICT), ENDED_STEPS)

    with answering(fleet, finish):
        hold_screen("run_judged", "run post", *flags, "--yes")


def test_plan_of_a_staging(fleet, hold_screen):
    put_beat(fleet)
    hold_screen("run_until_stage", "run post", "--until", "stage", "--run", RUN, "--dry-run")


def test_plan_of_a_compile(fleet, hold_screen):
    put_beat(fleet)
    hold_screen(
        "run_until_compile",
        "run post",
        "--until",
        "compile",
        "--hours",
        "6",
        "--run",
        RUN,
        "--dry-run",
    )


def test_a_stop_of_a_parked_fleet(hold_screen):
    hold_screen("stop_parked", "stop")
