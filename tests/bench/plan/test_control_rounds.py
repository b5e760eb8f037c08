"""Rounds of the baseline against itself: where they stand, what they ask; no summary takes them for
a variant."""

from __future__ import annotations

from collections import Counter

import pytest
from planned import plan
from running import measure

from tandem.bench.figures import summary
from tandem.bench.figures.datapoints import read_rounds
from tandem.bench.plan.estimate import estimate_run_s
from tandem.bench.plan.schedule import assign_starts, control_numbers

pytestmark = pytest.mark.xdist_group("bench-control")  # its run is made once
PROMPTS = {"code": ["a", "b", "c", "d"]}


@pytest.mark.parametrize(
    ("rounds", "controls", "starts", "expected"),
    [
        (4, 1, 1, (1, 1, 1, 1, 1)),
        (4, 1, 2, (1, 1, 1, 2, 2)),
        (6, 1, 6, (1, 2, 3, 3, 4, 5, 6)),
        (5, 0, 3, (1, 1, 2, 2, 3)),
        (1, 3, 1, (1, 1, 1, 1)),
    ],
)
def test_rounds_are_dealt_to_the_starts(rounds, controls, starts, expected):
    assert assign_starts(rounds, controls, starts) == expected


@pytest.mark.parametrize(
    ("rounds", "controls", "numbers"),
    [
        (1, 1, (1,)),
        (2, 1, (1,)),
        (3, 1, (2,)),
        (4, 2, (1, 4)),
        (1, 2, (0, 2)),
        (2, 2, (1, 3)),
        (None, 3, (1, 4, 9)),
    ],
)
def test_control_rounds_are_spread_over_the_run(rounds, controls, numbers):
    assert control_numbers(rounds, controls) == numbers


@pytest.mark.parametrize("schedule", ["interleaved", "simultaneous"])
def test_a_control_round_pairs_the_baseline_with_itself(schedule):
    run_plan = plan(("base", "spec", "other"), rounds=2, control_rounds=1, schedule=schedule)
    first, second, third, fourth = (
        turn.arms for turn in run_plan.round(run_plan.control_round_numbers[0])
    )
    assert {first, second} == {("base",), ("base#2",)}
    assert (first, second) == (fourth, third)


def test_control_rounds_leave_the_other_rounds_as_they_were():
    without = plan(rounds=2, seed=5)
    among = plan(rounds=2, seed=5, control_rounds=3)
    others = [number for number in range(5) if number not in among.control_round_numbers]

    for number, place in enumerate(others):
        first = without.round(number)
        second = among.round(place)
        assert [(turn.arms, turn.items, turn.slot) for turn in first] == [
            (turn.arms, turn.items, turn.slot) for turn in second
        ]


def test_a_plan_counts_its_control_rounds():
    run_plan = plan(rounds=2, control_rounds=1)
    without = plan(rounds=2)
    lone = plan(("base",), rounds=1, control_rounds=1)
    ids = [identity for turn in run_plan.turns() for identity in turn.request_ids()]

    assert len(set(ids)) == len(ids) == run_plan.request_count == (2 + 1) * 2 * 4
    assert lone.request_count == 4 + 2 * 4
    assert estimate_run_s(run_plan) == pytest.approx(1.5 * estimate_run_s(without))


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    return measure(
        tmp_path_factory.mktemp("control"), PROMPTS, concurrency=(1,), rounds=2, control_rounds=1
    )


def test_both_sides_of_a_control_have_records_and_counters(ran):
    counts = Counter((record.arm, record.round) for record in ran.records)
    seen = {truth["request_id"].partition(".")[0] for truth in ran.servers[1].posted}
    scraped = Counter(
        (line["arm"], line["when"]) for line in ran.lines("counters.jsonl") if line["round"] == 1
    )

    assert counts == dict.fromkeys(
        [("a", 0), ("b", 0), ("a", 1), ("a#2", 1), ("a", 2), ("b", 2)], 4
    )
    assert {arm for arm in seen if not arm.startswith("probe-")} == {"b"}
    assert scraped == {
        ("a", "before"): 2,
        ("a", "after"): 2,
        ("a#2", "before"): 2,
        ("a#2", "after"): 2,
    }
    assert {record.start for record in ran.records} == {"1"}


def test_no_figure_of_a_summary_holds_a_control_round(ran):
    run_summary = summary.summarize_run(ran.folder)

    assert run_summary.arms == ("a", "b")
    assert {(request.arm, request.requests) for request in run_summary.requests} == {
        ("a", 8),
        ("b", 8),
    }
    assert {cell.n for cell in run_summary.cells if cell.metric == "e2e_ms"} == {8}
    assert any(
        "control rounds asked the baseline against itself: 8 requests, 0 failed" in note
        for note in run_summary.notes
    )
    assert not any("planned requests" in note for note in run_summary.notes)


def test_control_rounds_are_recorded_and_not_published(ran):
    rounds = list(read_rounds(ran.folder, "post"))

    assert [bool(figures.values) for figures in rounds] == [True, False, True]
    assert {dict(key.dimensions)["Variant"] for entry in rounds for key in entry.values} == {
        "a",
        "b",
    }
    assert all(item.is_complete for item in rounds)
    assert rounds[1].ranges
