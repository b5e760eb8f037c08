"""The plan: every arm the same requests, balanced over time, the same whenever it is made again."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter

import pytest
from measured import arm, run_manifest
from planned import plan, suite

from tandem.bench.plan.request_plan import ALL_CLASSES, RunPlan, plan_blocks
from tandem.bench.plan.schedule import first_order, pass_order

SEEDS = range(6)
ARMS = [("a", "b"), ("a", "b", "c"), ("a", "b", "c", "d"), ("a", "b", "c", "d", "e")]


def arms_of(run_plan: RunPlan, number: int) -> list[str]:
    return [turn.arms[0] for turn in run_plan.round(number)]


@pytest.mark.parametrize("seed", SEEDS)
def test_two_arms_alternate_and_the_next_round_mirrors_them(seed):
    first, second = first_order(("a", "b"), seed)
    assert arms_of(plan(seed=seed), 0) == [first, second, second, first]
    assert arms_of(plan(seed=seed), 1) == [second, first, first, second]
    assert [turn.slot for turn in plan(seed=seed).round(0)] == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("arms", ARMS, ids=len)
def test_every_arm_gets_the_same_requests_in_one_order(arms, seed):
    run_plan = plan(
        arms, {"code": 5, "chat": 3}, seed=seed, repeats=2, rounds=3, concurrency=(1, 2)
    )

    requests: dict[str, list[object]] = {arm: [] for arm in arms}
    for turn in sorted(
        run_plan.turns(), key=lambda turn: (turn.round, turn.block.number)
    ):  # stable: order of the turns
        requests[turn.arms[0]] += [(turn.round, turn.block.number, item) for item in turn.items]

    assert all(requests[arm] == requests[arms[0]] for arm in arms)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("arms", ARMS, ids=len)
def test_a_linear_drift_touches_every_arm_alike(arms, seed):
    turns = plan(arms, seed=seed).round(seed % 3)
    places = {
        arm: sum(place for place, turn in enumerate(turns) if turn.arms == (arm,)) for arm in arms
    }
    assert len(set(places.values())) == 1


@pytest.mark.parametrize("arms", ARMS, ids=len)
def test_every_arm_follows_every_other_equally_often(arms):
    order = [pass_order(arms, number) for number in range(2 * len(arms))]
    behind = Counter(pair for entry in order for pair in itertools.pairwise(entry))
    assert set(behind) == set(itertools.permutations(arms, 2))
    assert len(set(behind.values())) == 1


@pytest.mark.parametrize("schedule", ["interleaved", "simultaneous"])
def test_the_plan_knows_the_count_and_ids_of_requests(schedule):
    run_plan = plan(
        ("a", "b", "c"),
        {"code": 5, "chat": 3},
        schedule=schedule,
        repeats=2,
        rounds=3,
        concurrency=(1, 4),
    )
    ids = [identity for turn in run_plan.turns() for identity in turn.request_ids()]
    assert (
        len(set(ids))
        == len(ids)
        == sum(turn.request_count for turn in run_plan.turns())
        == run_plan.request_count
    )
    assert run_plan.request_count == 3 * 3 * 2 * 2 * 8


def test_a_seed_gives_one_plan_and_another_seed_another_order():
    run_plan = [
        [*plan(classes={"code": 5, "chat": 3}, seed=seed, rounds=3).turns()] for seed in (7, 7, 8)
    ]
    assert run_plan[0] == run_plan[1] != run_plan[2]
    assert {first_order(("a", "b"), seed)[0] for seed in SEEDS} == {"a", "b"}
    assert (
        len(
            {
                tuple(item.entry.prompt.id for item in plan(seed=seed).round(0)[0].items)
                for seed in SEEDS
            }
        )
        > 1
    )


def test_a_list_too_short_for_halves_stays_whole():
    run_plan = plan(classes={"code": 7}, concurrency=(4,))
    assert [len(turn.items) for turn in run_plan.round(0)] == [7, 7]
    assert arms_of(run_plan, 0) == arms_of(run_plan, 1)[::-1]


def test_suites_become_blocks_of_the_stated_size():
    lone = run_manifest(arms=(arm("a"),))
    blocks = plan_blocks(lone, [suite({"repeat": 1}, requests_per_round=8, concurrency=(4,))], None)
    run_plan = RunPlan(manifest=lone, blocks=blocks)
    (first,) = plan_blocks(run_manifest(prompts_per_class=2), [suite({"code": 5})], (1,))
    (mixed,) = plan_blocks(run_manifest(mixed=True), [suite({"code": 2, "chat": 3})], (1,))

    assert sorted(item.repeat for turn in run_plan.turns() for item in turn.items) == list(range(8))
    assert [entry.prompt.id for entry in first.entries] == ["code-0", "code-1"]
    assert (mixed.class_, len(mixed.entries), mixed.requests) == (ALL_CLASSES, 5, 5)


@pytest.mark.parametrize(
    ("flag", "own", "count"), [(None, None, 8), (5, None, 5), (None, 3, 3), (5, 3, 3), (2, 3, 2)]
)
def test_a_prompt_may_lower_the_most_tokens(flag, own, count):
    small_suite = suite({"code": 1})
    prompts = tuple(
        type(prompt)(id="x", class_="code", prompt="say", max_tokens=own)
        for prompt in small_suite.prompts
    )

    asking = type(small_suite)(
        name="small", prompts=prompts, sha256="", defaults=small_suite.defaults
    )
    (block,) = plan_blocks(run_manifest(max_tokens=flag), [asking], (1,))

    assert block.entries[0].max_tokens == count


@pytest.mark.parametrize("seed", SEEDS)
def test_arrivals_are_the_same_for_every_arm(seed):
    turns = plan(seed=seed, concurrency=None, rates_per_s=(5.0,)).round(0)
    by_arm = {arm: [turn.arrivals_s for turn in turns if turn.arms == (arm,)] for arm in "ab"}
    assert sorted(by_arm["a"]) == sorted(by_arm["b"])
    assert all(turn.arrivals_s for turn in turns)


def test_arrivals_are_a_poisson_process_at_the_stated_rate():
    times = (
        0.0,
        *plan(("a",), {"code": 4000}, concurrency=None, rates_per_s=(5.0,)).round(0)[0].arrivals_s,
    )
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]

    assert round(len(gaps) / times[-1]) == 5
    assert min(gaps) > 0
    # 1 for exponential gaps, 0 for a metronome
    assert 0.9 < statistics.pstdev(gaps) / statistics.mean(gaps) < 1.1


def test_a_plan_by_the_clock_has_no_end():
    run_plan = plan(rounds=None)
    assert run_plan.request_count is None
    assert [turn.round for turn in itertools.islice(run_plan.turns(), 12)] == [0] * 4 + [1] * 4 + [
        2
    ] * 4


def test_each_rate_is_a_load_of_its_own():
    blocks = plan(concurrency=None, rates_per_s=(0.5, 2.0)).blocks
    assert [block.load.rate_per_s for block in blocks] == [0.5, 2.0]
