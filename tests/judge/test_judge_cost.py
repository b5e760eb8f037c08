import pytest
from observed import Asked, observed

from tandem.judge.cost import compute_costs
from tandem.judge.schema import BottleneckRound, RunControls


def asked(arm, prompt, start_s, **changes):
    return Asked(
        arm=arm,
        prompt=prompt,
        start_s=start_s,
        e2e_ms=10_000,
        tokens=1000,
        concurrency=1,
        **changes,
    )


def of(requests, usd_per_hour=36.0, **changes):
    seen = observed(requests, **changes)
    return next(
        cost
        for cost in compute_costs(seen, usd_per_hour=usd_per_hour, controls=RunControls())
        if cost.arm == "base"
    )


# two requests of 10 s each, 5 s apart, then 85 s in which the arm was not asked, then one of 10 s:
# 25 s
THREE = [
    asked("base", "p0", 0),
    asked("base", "p1", 5),
    asked("base", "p2", 100),
    asked("spec", "p0", 50),
]


def test_an_arm_pays_its_share_for_busy_time():
    costs = of(THREE)
    # 36 USD an hour is 1 cent a second; half of it for 25 s is 12.5 cents for 3,000 tokens
    assert (costs.busy_s, costs.good_tokens) == (25.0, 3000)
    assert costs.usd_per_million_good_tokens == pytest.approx(0.125 / 3000 * 1e6)
    assert "one of 2 equal shares" in costs.sentence


def test_a_run_of_one_arm_is_charged_the_whole_price():
    costs = of(THREE[:3], arms=("base",))
    assert costs.usd_per_million_good_tokens == pytest.approx(0.25 / 3000 * 1e6)
    assert "the whole of it" in costs.sentence


def test_the_control_is_no_server_of_its_own():
    seen = observed([*THREE, asked("base#2", "p0", 200)])
    costs = compute_costs(seen, usd_per_hour=36.0, controls=RunControls())
    assert [cost.arm for cost in costs] == ["base", "spec"]
    assert "one of 2 equal shares" in costs[0].sentence


def test_without_a_price_a_sentence_says_so():
    costs = of(THREE, usd_per_hour=None)
    assert costs.usd_per_million_good_tokens is None
    assert costs.good_tokens == 3000
    assert "--price" in costs.sentence


@pytest.mark.parametrize(
    "changes", [{"content": "garbage"}, {"content": "loop"}, {"error": "closed"}]
)
def test_tokens_of_broken_answers_are_paid_and_not_counted(changes):
    good = of(THREE)
    bad = of([*THREE[:2], asked("base", "p2", 100, **changes), THREE[3]])
    assert (bad.busy_s, bad.good_tokens) == (good.busy_s, 2000)


@pytest.mark.parametrize("changes", [{"content": "truncated", "cut": True}, {"content": None}])
def test_an_answer_that_was_cut_or_that_nobody_checked_counts(changes):
    assert of([asked("base", "p0", 0, **changes)]).good_tokens == 1000


def test_an_answer_beyond_a_stated_limit_is_not_counted():
    late = asked("base", "p2", 100, figures={"ttft_ms": 900.0})
    costs = of([*THREE[:2], late, THREE[3]], goodput={"ttft_ms": 500.0})
    assert costs.good_tokens == 2000
    assert "1 of 3 answers" in costs.sentence


def test_an_arm_without_one_good_token_has_no_cost():
    costs = of([asked("base", "p0", 0, content="garbage")])
    assert costs.usd_per_million_good_tokens is None
    assert "no output token of this arm counts" in costs.sentence


def test_answers_whose_tokens_nobody_counted_make_the_cost_a_bound():
    silent = Asked(
        arm="base", prompt="p3", start_s=105, e2e_ms=5000, tokens=float("nan"), concurrency=1
    )
    costs = of([*THREE, silent])
    assert costs.good_tokens == 3000
    assert "true cost is lower" in costs.sentence


def test_rounds_with_a_busy_client_are_left_out():
    seen = observed([*THREE, asked("base", "p9", 300, round=1)])
    marks = RunControls(marked=(BottleneckRound(round=1, sentence="the client was busy"),))
    assert compute_costs(seen, usd_per_hour=36.0, controls=marks)[0].good_tokens == 3000


def test_a_control_round_is_in_no_cost():
    asked_again = [
        asked(arm, "p0", start_s, round=1) for arm, start_s in (("base", 200), ("base#2", 300))
    ]
    costs = of([*THREE, *asked_again])
    assert (costs.busy_s, costs.good_tokens) == (25.0, 3000)
