import math

import numpy as np
import pytest
from observed import Truth, drawn
from scipy import special

from tandem.bench.judge.interval import Estimate, estimate
from tandem.bench.judge.pairs import pairs
from tandem.bench.judge.power import Asked, Spread, detectable, prompts_to_decide, rounds_to_decide, spread

MARGIN = math.log(1.05)


def asked(log=0.0, floor=0.0, alpha=0.05, margin=MARGIN):
    return Asked(logs=np.array([log]), floors=np.array([floor]), alpha=np.array([alpha]), margin=margin, level=0.95)


def only(prompts=12, sd=0.2):
    return [Spread(prompts=prompts, rounds=0, between=sd**2, starts=0.0, rest=0.0)]


def test_the_smallest_speed_up_is_found_four_times_out_of_five():
    rng, count, alpha = np.random.default_rng(1), 12, 0.01
    least = detectable(np.array([0.2 / math.sqrt(count)]), np.array([count - 1.0]), asked(alpha=alpha))[0]
    draws = rng.normal(least, 0.2, (20_000, count))
    t = draws.mean(axis=1) / (draws.std(axis=1, ddof=1) / math.sqrt(count))
    assert np.mean(t > 3.1058) == pytest.approx(0.8, abs=0.01)  # Student's 0.995 with 11 degrees of freedom


def test_a_noise_floor_must_be_passed_four_times_out_of_five():
    se, df = np.array([0.01]), np.array([11.0])
    assert detectable(se, df, asked(floor=0.5))[0] == pytest.approx(0.5 + 0.8755 * 0.01, abs=1e-5)


def test_the_fewest_prompts_that_find_half_a_standard_deviation():
    # two-sided at 0.05, by scipy.stats.nct: 33 prompts find it with 0.795, 34 with 0.808
    assert prompts_to_decide(only(sd=0.4), asked(0.2, margin=0.01)) == [34]


def test_a_speed_up_inside_the_margin_takes_as_many_as_bring_the_interval_inside():
    (number,) = prompts_to_decide(only(), asked(0.0))
    rng = np.random.default_rng(2)
    for count, share in ((number, 0.8), (number - 30, 0.69)):
        draws = rng.normal(0, 0.2, (4_000, count))
        reach = special.stdtrit(count - 1, 0.975) * draws.std(axis=1, ddof=1) / math.sqrt(count)
        inside = np.mean(np.abs(draws.mean(axis=1)) + reach < math.log(1.05))
        assert inside == pytest.approx(share, abs=0.025)


def test_a_speed_up_within_the_noise_floor_is_decided_by_no_number():
    assert prompts_to_decide(only(), asked(0.2, floor=0.21)) == [None]
    assert prompts_to_decide(only(), asked(0.2, floor=0.1)) != [None]


def test_a_speed_up_just_beyond_the_noise_floor_must_stay_beyond_it_four_times_out_of_five():
    (number,) = prompts_to_decide(only(), asked(0.21, floor=0.2))
    assert number == pytest.approx((0.842 * 0.2 / 0.01) ** 2, rel=0.02)


def test_a_spread_that_ten_thousand_prompts_do_not_narrow_has_no_number():
    assert prompts_to_decide(only(sd=20.0), asked(0.01)) == [None]


def test_more_prompts_do_not_narrow_what_differs_between_starts():
    of_starts = [Spread(prompts=12, rounds=6, between=0.001, starts=0.02, rest=0.001)]
    assert prompts_to_decide(of_starts, asked(0.04)) == [None]
    (rounds,) = rounds_to_decide(of_starts, asked(0.04))
    assert 6 < rounds < 200


def test_more_rounds_do_not_narrow_what_differs_between_prompts():
    of_prompts = [Spread(prompts=12, rounds=3, between=0.04, starts=0.0, rest=0.0001)]
    assert rounds_to_decide(of_prompts, asked(0.1)) == [None]
    assert prompts_to_decide(of_prompts, asked(0.1)) != [None]


def test_a_run_of_one_round_cannot_say_how_many_would_do():
    assert rounds_to_decide(only(), asked(0.1)) == [None]
    assert rounds_to_decide(only(), asked(5.0)) == [None]


def test_what_must_stand_beside_more_cells_takes_more_prompts():
    few, many = (prompts_to_decide(only(), asked(0.2, alpha=alpha))[0] for alpha in (0.05, 0.0005))
    assert few < many


def test_where_variance_comes_from_is_found_again():
    truth = Truth(ratio={"spec": {"a": 1.0}}, prompts=300, rounds=8, slots=1, spread=0.2, noise=0.1, start=0.1)
    seen = drawn(truth, 5)
    found = pairs(seen, baseline="base", variant="spec", class_=0, load=0, metric="e2e_ms")
    sure = estimate(found.logs, found.by_round, found.starts)
    parts = spread(found, sure)
    assert (parts.prompts, parts.rounds) == (300, 8)
    assert math.sqrt(parts.rest) == pytest.approx(0.1 * math.sqrt(2), rel=0.1)
    assert math.sqrt(parts.between) == pytest.approx(0.2, rel=0.15)
    assert 0.05 < math.sqrt(parts.starts) < 0.35
    total = parts.between / 300 + parts.starts / 8 + parts.rest / 2400
    assert total == pytest.approx(sure.se**2)


def test_an_estimate_without_width_has_no_spread():
    seen = drawn(Truth(ratio={"spec": {"a": 1.0}}, spread=0.0, noise=0.0))
    found = pairs(seen, baseline="base", variant="spec", class_=0, load=0, metric="e2e_ms")
    assert spread(found, Estimate(log=0.0, se=0.0, df=11, low=0.0, high=0.0, p=1.0))[2:] == (0.0, 0.0, 0.0)
