"""Whole reports in a few worlds at fixed seeds, and how the table of their words is made."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
import worlds
from world_records import DEFAULT_SHAPE, NO_SUMMARY, QUICK_SHAPE, World
from worlds import ROWS, ReportSummary, ShapeReports

BY_NAME = {row.world.name: row for row in ROWS}


def judge_world(name: str, seeds: int = 4) -> list[ReportSummary]:
    return worlds.judge_runs(BY_NAME[name].world, QUICK_SHAPE, range(seeds))


def summary(**changes: Any) -> ReportSummary:
    fields = {
        "word": "same (one server start; restarts not tested)",
        "false_words": (),
        "is_unreserved": False,
        "is_covered": True,
    }
    return ReportSummary(**{**fields, **changes})


def misses(name: str, *reports: ReportSummary, shape: Any = DEFAULT_SHAPE) -> bool:
    return ShapeReports(BY_NAME[name], shape, reports).misses_promise


@pytest.mark.parametrize("name", ["requests 4 %", "prompts exponential 20 %"])
def test_no_report_of_equal_servers_has_a_false_word(name):
    assert [report.false_words for report in judge_world(name)] == [()] * 4


def test_pooled_interval_holds_the_truth():
    reports = judge_world("true 1.5, prompts 20 %", seeds=6)
    assert sum(bool(report.is_covered) for report in reports) >= 5


def test_word_is_compared_with_the_truth_of_its_world():
    """Judged as equal, servers of which one is faster have false words."""
    faster = World(name="faster", true_speed_up=2.0)
    verdict = worlds.judge_run(
        worlds.simulate_run(faster, 1, QUICK_SHAPE), worlds.JudgeOptions(), NO_SUMMARY
    )
    false = worlds.summarize_verdict(verdict, World(name="equal"))
    true = worlds.summarize_verdict(verdict, faster)

    assert {"headline faster", "class faster"} <= set(false.false_words)
    assert (true.false_words, true.is_covered, false.is_covered) == ((), True, False)


@pytest.mark.parametrize(
    ("true_speed_up", "words"),
    [
        (1.0, {"faster", "slower", "mixed"}),
        (1.02, {"slower", "mixed"}),
        (0.5, {"faster", "mixed", "same"}),
    ],
)
def test_untrue_words(true_speed_up, words):
    assert worlds.list_untrue_words(true_speed_up) == words


def test_false_word_in_a_tenth_of_the_reports_misses_the_promise():
    true = [summary()] * 9
    false = [summary(false_words=("class faster",))]
    assert misses("own 5 %, 30 s", *true, *false)
    assert not misses("own 5 %, 30 s", *true * 2, *false)


def test_reserved_false_word_beyond_a_run_is_allowed():
    assert not misses("own 5 %, 200 s", summary(false_words=("headline faster",)))
    assert misses("own 5 %, 200 s", summary(false_words=("headline faster",), is_unreserved=True))


def test_gain_found_in_90_of_100_reports_misses_the_promise():
    faster = [summary(word="faster (one server start; restarts not tested)")]
    assert misses("true 1.2, prompts 20 %", *faster * 90, *[summary()] * 10)
    assert not misses("true 1.2, prompts 20 %", *faster * 96, *[summary()] * 4)


@pytest.mark.proof
def test_every_promise_holds_at_another_seed():
    # no run of another seed, and none of the table of docs/coverage.md
    seed = max(worlds.SEEDS.values()) * int(os.environ.get("TANDEM_PROOF_SEED") or 100)
    # the limits of the others are shares of the runs of seed 0
    promised_rows = [row for row in ROWS if row.question not in {"mixed", "called faster"}]
    rows = list(worlds.measure_rows(promised_rows, first_seed=seed))
    print(f"seed {seed}", *worlds.format_table(rows), sep="\n")  # noqa: T201
    bad_reports = [
        reports for reports in itertools.chain.from_iterable(rows) if reports.misses_promise
    ]
    assert [
        (reports.row.world.name, reports.shape.name, reports.share) for reports in bad_reports
    ] == []
