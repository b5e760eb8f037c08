"""The search of a sweep: its order, what it leaves out, and how often it is right in worlds that
are stated."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sweep_worlds as worlds

from tandem.plan.candidate_search import (
    CandidateResult,
    SweepCandidate,
    bound_score,
    decide_sweep,
    estimate_step_time,
    plan_next,
    score_classes,
)
from tandem.plan.step_tokens import expect_tokens

SEVEN, FIVE, TEN = (SweepCandidate("large", window) for window in (7, 5, 10))
SEED = 10_000
SMALL = SweepCandidate("small", 7)


def result(candidate, *, acceptance=0.9, cost=0.1, position_rates=None):
    tokens = expect_tokens("k", acceptance, candidate.window)
    speed_up = tokens / (1 + candidate.window * cost)
    return CandidateResult(
        candidate=candidate,
        score=speed_up,
        speed_ups={"json": speed_up},
        tokens={"json": tokens},
        log_sd=0.02,
        position_rates=position_rates or {},
    )


def test_the_plans_first_candidate_is_measured_first():
    assert plan_next((SEVEN, SMALL, FIVE), (), "k").next == SEVEN


def test_every_draft_is_measured_once_before_a_second_window():
    assert plan_next((SEVEN, FIVE, SMALL), (result(SEVEN),), "k").next == SMALL


def test_a_shorter_window_is_bounded_by_its_own_score():
    assert bound_score(FIVE, (result(SEVEN),), "k") == pytest.approx(result(FIVE).score, rel=1e-6)


def test_a_longer_window_may_accept_as_before():
    tokens = expect_tokens("k", 0.9, 7)
    most = tokens + 3 * (tokens - 1) / 6
    assert bound_score(TEN, (result(SEVEN),), "k") == pytest.approx(most / 2.0)


def test_counted_positions_bound_a_longer_window_by_the_last_one():
    counts = result(SEVEN, position_rates={"json": [0.9**position for position in range(1, 8)]})
    most = expect_tokens("k", 0.9, 7) + 3 * 0.9**6
    assert bound_score(TEN, (counts,), "k") == pytest.approx(most / 2.0)


@pytest.mark.parametrize("window", [5, 7, 10])
def test_time_of_a_step_follows_from_one_window(window):
    assert estimate_step_time((result(SEVEN, cost=0.23),), window) == pytest.approx(
        1 + window * 0.23
    )


def test_time_of_a_step_between_two_windows_lies_between_theirs():
    results = (result(FIVE, cost=0.1), result(TEN, cost=0.3))
    assert estimate_step_time(results, 7) == pytest.approx(1.5 + 2 / 5 * 2.5)


def test_a_clear_loser_is_left_out_and_says_why():
    state = plan_next(
        (SEVEN, SweepCandidate("large", 15)), (result(SEVEN, acceptance=0.5, cost=0.4),), "k"
    )
    assert state.next is None
    assert [(row.candidate.window, row.bound < row.best) for row in state.eliminated] == [
        (15, True)
    ]


def test_the_window_with_the_highest_bound_is_measured_next():
    state = plan_next((SEVEN, FIVE, TEN), (result(SEVEN, acceptance=0.95, cost=0.05),), "k")
    assert state.next == TEN


def test_plain_decoding_wins_without_any_candidate_above_it():
    decision = decide_sweep((SEVEN,), (result(SEVEN, acceptance=0.4),), "k")
    assert (decision.winner, decision.score, decision.word) == (None, 1.0, "decided")


def test_fast_candidate_that_cannot_win_loses():
    fast = replace(result(SEVEN, acceptance=0.95), can_win=False)
    assert decide_sweep((SEVEN, SMALL), (fast, result(SMALL)), "k").winner == SMALL


def test_candidate_that_cannot_win_leaves_none_out():
    fast = replace(result(SEVEN, acceptance=0.95), can_win=False)
    slow = result(SMALL, acceptance=0.6)
    assert plan_next((SEVEN, SMALL, SweepCandidate("small", 5)), (fast, slow), "k").eliminated == ()


def test_a_lead_that_chance_explains_keeps_plain_decoding():
    slight = CandidateResult(
        candidate=SEVEN, score=1.02, speed_ups={"json": 1.02}, tokens={"json": 3.0}, log_sd=0.03
    )
    assert decide_sweep((SEVEN,), (slight,), "k").winner is None


def test_a_search_that_a_budget_ends_is_unfinished():
    assert decide_sweep((SEVEN, SMALL), (result(SEVEN),), "k").word == "unfinished"


def test_nothing_measured_keeps_plain_decoding():
    assert decide_sweep((SEVEN,), (), "k").winner is None


def test_twice_as_fast_makes_up_for_half_as_fast():
    assert score_classes((2.0, 0.5)) == pytest.approx(1.0)


def print_figures(name, count, figures):
    near, plain, share, worlds = figures
    print(  # noqa: T201
        f"{count} {name}: {near:.1%} near, plain {plain:.1%} of {worlds:.1%}, {share:.1%} of the"
        " grid"
    )


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.proof)])
def test_the_best_of_most_worlds_is_named(count):
    figures = worlds.summarize([worlds.search(SEED + number) for number in range(count)])
    print_figures("worlds of a constant acceptance", count, figures)
    near, plain, share, _ = figures
    assert (near >= 0.95, plain >= 0.95, share <= 0.6) == (True, True, True)


@pytest.mark.parametrize("counts_positions", [False, True])
@pytest.mark.parametrize("count", [40, pytest.param(400, marks=pytest.mark.proof)])
@pytest.mark.parametrize(("kind", "least_near"), [("rising", 0.95), ("mixture", 0.9)])
def test_acceptance_by_position_needs_no_law(kind, least_near, count, counts_positions):
    outcomes = [
        worlds.search(SEED + number, kind, counts_positions=counts_positions)
        for number in range(count)
    ]
    figures = worlds.summarize(outcomes)
    print_figures(
        f"{kind} worlds, positions {'' if counts_positions else 'not '}counted", count, figures
    )
    near, plain, share, _ = figures
    assert (near >= least_near, plain >= 0.95, share <= 0.6) == (True, True, True)
