"""Whole reports in a few worlds at fixed seeds, and how the table of false words is made of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import worlds
from world_records import World
from worlds import WORLDS, ReportSummary, WorldRow

BY_NAME = {world.name: world for world in WORLDS}


def summary(**changes: Any) -> ReportSummary:
    stated: dict[str, Any] = {
        "word": "same within one start", "false_word": False, "false_cell": False, "unreserved": False, "cautions": (),
        "held": 14, "intervals": 14,
    }  # fmt: skip
    return ReportSummary(**{**stated, **changes})


def missed(world: World, *reports: ReportSummary) -> set[str]:
    return set(WorldRow(world, reports).misses)


@pytest.mark.parametrize("name", ["plain", "own 2 %, 20 s"])
def test_no_report_of_equal_servers_has_a_false_word(name: str) -> None:
    reports = worlds.judge_runs(BY_NAME[name], range(3))
    assert [(report.false_word, report.false_cell) for report in reports] == [(False, False)] * 3


def test_gain_of_a_half_is_said_faster() -> None:
    assert WorldRow(BY_NAME["true 1.5"], worlds.judge_runs(BY_NAME["true 1.5"], range(3))).found == 1


def test_plain_intervals_hold_the_truth() -> None:
    assert WorldRow(BY_NAME["plain"], worlds.judge_runs(BY_NAME["plain"], range(3))).covered > 0.85


def test_word_is_held_against_the_truth_of_its_world() -> None:
    """Judged as equal, servers of which one is faster have false words."""
    faster = replace(BY_NAME["true 1.5"], true_speed_up=2.0)
    verdict = worlds.judge_run(worlds.simulate_run(faster, 1), worlds.JudgeOptions(), ())
    false = worlds.summarize_verdict(verdict, BY_NAME["plain"])
    true = worlds.summarize_verdict(verdict, faster)

    assert (false.false_word, false.false_cell, false.held) == (True, True, 0)
    assert (true.false_word, true.false_cell) == (False, False)


def test_faster_is_the_false_word_of_a_slower_mean() -> None:
    assert worlds.list_false_words(BY_NAME["15 % at 4 times"]) == {"faster"}


@pytest.mark.parametrize("name", ["plain", "own 5 %, 30 s"])
def test_reserved_false_cell_misses_the_promise_up_to_30_s(name: str) -> None:
    assert missed(BY_NAME[name], summary(false_cell=True), summary()) == {"anywhere"}


def test_reserved_false_word_beyond_a_run_is_allowed() -> None:
    assert missed(BY_NAME["own 5 %, 200 s"], summary(false_word=True)) == set()


def test_unreserved_false_word_misses_the_promise_everywhere() -> None:
    assert missed(BY_NAME["own 5 %, 200 s"], summary(false_word=True, unreserved=True)) == {"unreserved"}


def test_cautions_in_most_reports_of_a_benign_world_miss_the_promise() -> None:
    reports = [summary(cautions=("drift",))] * 2
    assert missed(BY_NAME["plain"], *reports, summary()) == {"cautions"}
    assert missed(BY_NAME["plain"], *reports, summary(), summary()) == set()


def test_gain_found_in_98_of_100_reports_misses_the_promise() -> None:
    found = [summary(word="faster within one start")]
    assert missed(BY_NAME["true 1.5"], *found * 98, summary(), summary()) == {"words"}
    assert missed(BY_NAME["true 1.5"], *found * 99, summary()) == set()
