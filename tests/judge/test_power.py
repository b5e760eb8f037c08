import math

import numpy as np
import pytest
from observed import Truth, drawn
from scipy import special

from tandem.judge.interval import estimate_log_ratio
from tandem.judge.pairs import RequestPairing
from tandem.judge.power import (
    DecisionTargets,
    VarianceParts,
    compute_detectable_effect,
    plan_samples,
    split_variance,
)

MARGIN = math.log(1.05)


def asked(log=0.0, floor=0.0, margin=MARGIN):
    return DecisionTargets(
        logs=np.array([log]),
        floors=np.array([floor]),
        alpha=np.array([0.05]),
        margin=margin,
    )


def only(sd=0.2):
    return [VarianceParts(12, 0, sd**2, 0.0, 0.0)]


def plan_prompts(spreads, targets):
    return [prompts for prompts, _ in plan_samples(spreads, targets)]


def plan_rounds(spreads, targets):
    return [rounds for _, rounds in plan_samples(spreads, targets)]


def test_a_noise_floor_must_be_passed_at_80_percent():
    se = np.array([0.01])
    df = np.array([11.0])
    assert compute_detectable_effect(se, df, asked(floor=0.5))[0] == pytest.approx(
        0.5 + 0.8755 * 0.01, abs=1e-5
    )


def test_the_fewest_prompts_that_find_half_a_standard_deviation():
    # two-sided at 0.05, by scipy.stats.nct: 33 prompts find it with 0.795, 34 with 0.808
    assert plan_prompts(only(sd=0.4), asked(0.2, margin=0.01)) == [34]


def test_prompts_for_a_word_of_same_bring_the_interval_inside():
    (number,) = plan_prompts(only(), asked(0.0))
    rng = np.random.default_rng(2)
    for count, share in ((number, 0.8), (number - 30, 0.69)):
        draws = rng.normal(0, 0.2, (4_000, count))
        reach = special.stdtrit(count - 1, 0.975) * draws.std(axis=1, ddof=1) / math.sqrt(count)
        inside = np.mean(np.abs(draws.mean(axis=1)) + reach < math.log(1.05))
        assert inside == pytest.approx(share, abs=0.025)


def test_no_number_decides_a_speed_up_within_the_floor():
    assert plan_prompts(only(), asked(0.2, floor=0.21)) == [None]
    assert plan_prompts(only(), asked(0.2, floor=0.1)) != [None]


def test_too_wide_a_spread_has_no_number():
    assert plan_prompts(only(sd=20.0), asked(0.01)) == [None]


def test_more_prompts_do_not_narrow_what_differs_between_starts():
    of_starts = [
        VarianceParts(12, 6, prompt_variance=0.001, round_variance=0.02, residual_variance=0.001)
    ]
    assert plan_prompts(of_starts, asked(0.04)) == [None]
    (rounds,) = plan_rounds(of_starts, asked(0.04))
    assert 6 < rounds < 200


def test_more_rounds_do_not_narrow_what_differs_between_prompts():
    of_prompts = [
        VarianceParts(12, 3, prompt_variance=0.04, round_variance=0.0, residual_variance=0.0001)
    ]
    assert plan_rounds(of_prompts, asked(0.1)) == [None]
    assert plan_prompts(of_prompts, asked(0.1)) != [None]


def test_one_round_cannot_say_how_many_would_do():
    assert plan_rounds(only(), asked(0.1)) == [None]
    assert plan_rounds(only(), asked(5.0)) == [None]


def test_where_variance_comes_from_is_found_again():
    truth = Truth(
        ratio={"spec": {"a": 1.0}}, prompts=300, rounds=8, slots=1, spread=0.2, noise=0.1, start=0.1
    )
    seen = drawn(truth, 5)
    result = RequestPairing(seen).pairs(("base", "spec"), 0, "e2e_ms")
    sure = estimate_log_ratio(result.logs, result.by_round, result.starts)
    parts = split_variance(result, sure)
    assert (parts.prompt_count, parts.round_count) == (300, 8)
    assert math.sqrt(parts.residual_variance) == pytest.approx(0.1 * math.sqrt(2), rel=0.1)
    assert math.sqrt(parts.prompt_variance) == pytest.approx(0.2, rel=0.15)
    assert 0.05 < math.sqrt(parts.round_variance) < 0.35
    total = parts.prompt_variance / 300 + parts.round_variance / 8 + parts.residual_variance / 2400
    assert total == pytest.approx(sure.se**2)
