"""The whole life of a sweep in virtual time: which pairs it measures, what it decides, and what
ends it."""

from __future__ import annotations

import pytest
from sweep_life import HOURS, LARGE, SWEEP, SweepLife
from virtual_world import at_step, list_artifacts


def live(world, **fields):
    """Live a sweep to its end; return the run and its decision."""
    key = world.ask(**{**HOURS, **fields})
    record = world.live()
    assert world.read_answer(key)["is_accepted"], world.read_answer(key)
    return record, world.read_decision()


@pytest.fixture(scope="module")
def life():
    """A sweep in which the large draft is the better one."""
    world = SweepLife()
    live(world)
    return world


def test_sweep_decides(life):
    word = life.read_decision()["word"]
    assert (life.read_run()["state"], word) == ("judged", "decided")


def test_better_draft_wins(life):
    decision = life.read_decision()
    winner = next(row for row in decision["candidates"] if row["variant"] == decision["winner"])
    assert winner["draft"] == LARGE


def test_verdict_is_the_decision(life):
    assert life.read_run()["verdict"] == life.read_decision()["sentence"]


def test_losers_are_not_measured(life):
    decision = life.read_decision()
    assert sum(row["state"] == "measured" for row in decision["candidates"]) < len(
        decision["candidates"]
    )


def test_every_elimination_has_a_reason_and_a_time(life):
    decision = life.read_decision()
    assert all(
        row["reason"] and row["decided_at"]
        for row in decision["candidates"]
        if row["state"] == "eliminated"
    )


def test_compile_minutes_are_counted(life):
    decision = life.read_decision()
    assert 0 < decision["compile_minutes"] < decision["node_minutes"]


def test_only_measured_candidates_are_compiled(life):
    count = sum(row["state"] == "measured" for row in life.read_decision()["candidates"])
    assert len(life.stored & set(list_artifacts(SWEEP).values())) == count + 1


def test_nothing_is_left(life):
    assert life.is_empty


def find_states(decision):
    """Return the state of each candidate by its name."""
    return {row["variant"]: row["state"] for row in decision["candidates"]}


@pytest.fixture(scope="module")
def failing_sweep():
    """A sweep in which the best candidate never compiles."""
    world = SweepLife()
    world.fail_candidate("qwen-sd-qwen3-1-7b-k7")
    return live(world)


def test_candidate_that_never_compiles_is_failed(failing_sweep):
    _, decision = failing_sweep
    assert find_states(decision)["qwen-sd-qwen3-1-7b-k7"] == "failed"


def test_sweep_decides_without_the_failed_candidate(failing_sweep):
    record, decision = failing_sweep
    assert (record["state"], decision["word"], decision["winner"]) == (
        "judged",
        "decided",
        "qwen-sd-qwen3-1-7b-k5",
    )


def test_three_failed_candidates_end_the_sweep():
    world = SweepLife()
    for variant in SWEEP.all_variants()[1:]:
        world.fail_candidate(variant.name)
    world.ask(**HOURS)
    record = world.live()
    assert record["state"] == "failed"
    assert world.is_empty
    assert record["reason"].startswith("3 candidates in a row failed; the last: compile: ")


@pytest.fixture(scope="module", params=[8, 20])
def bounded_sweep(request):
    """A sweep that a budget ends early; the run, its decision and the budget in USD."""
    return *live(SweepLife(), budget_usd=request.param), request.param


def test_budget_holds(bounded_sweep):
    record, decision, budget_usd = bounded_sweep
    assert decision["usd"] <= budget_usd
    assert record["state"] == "judged"


def test_used_budget_is_named(bounded_sweep):
    _, decision, budget_usd = bounded_sweep
    assert decision["word"] == "unfinished"
    assert f"the budget of {budget_usd}.00" in decision["sentence"]


def test_cancel_in_the_last_step_keeps_the_decision():
    world = SweepLife()
    world.ask(**HOURS)
    world.live(until=at_step("judge"))
    world.ask("cancel")
    assert world.live()["verdict"] == world.read_decision()["sentence"]
