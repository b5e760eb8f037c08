"""Intervals of speed-ups: what they are of, when there is none, and that p and ends say the
same."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from tandem.judge.interval import FEWEST_STARTS, compute_interval, estimate_log_ratio

RNG = np.random.default_rng(20261121)
LOGS = RNG.normal(0.1, 0.2, 12)


def test_fewer_than_three_prompts_have_no_interval():
    assert estimate_log_ratio(LOGS[:2]) is None


def test_a_prompt_without_a_number_is_absent():
    assert estimate_log_ratio(np.append(LOGS, np.nan)) == estimate_log_ratio(LOGS)


def test_equal_values_have_an_interval_without_width():
    estimate = estimate_log_ratio(np.full(5, 0.3))
    assert (estimate.low, estimate.high, estimate.p) == (
        pytest.approx(0.3),
        pytest.approx(0.3),
        0.0,
    )


def test_the_estimate_is_the_mean_over_prompts():
    estimate = estimate_log_ratio(LOGS)
    assert estimate.log == pytest.approx(LOGS.mean())


@pytest.mark.parametrize("count", [3, 12, 200])
def test_the_interval_of_a_normal_is_near_students(count):
    logs = special.ndtri((np.arange(count) + 0.5) / count)
    estimate = estimate_log_ratio(logs)
    assert (estimate.high - estimate.low) / 2 == pytest.approx(
        special.stdtrit(count - 1, 0.975) * logs.std(ddof=1) / np.sqrt(count), rel=0.08
    )


def test_the_interval_leans_to_where_values_are_far_out():
    estimate = estimate_log_ratio(np.exp(RNG.normal(0, 1, 24)))
    assert estimate.high - estimate.log > estimate.log - estimate.low


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.99, 0.99999])
def test_the_interval_and_p_say_the_same(level):
    for shift in np.linspace(-0.5, 0.5, 41):
        estimate = estimate_log_ratio(LOGS + shift)
        low, high = compute_interval(estimate, level)
        assert (low > 0 or high < 0) == (estimate.p < 1 - level)


def test_shared_noise_of_rounds_makes_the_interval_wider():
    rest = RNG.normal(0, 0.01, (12, 4))
    shared = rest + np.array([0.1, -0.1, 0.1, -0.1])
    alone = estimate_log_ratio(rest.mean(axis=1), rest)
    estimate = estimate_log_ratio(shared.mean(axis=1), shared)
    assert estimate.high - estimate.low > 10 * (alone.high - alone.low)


def test_one_round_says_nothing_of_rounds():
    assert estimate_log_ratio(LOGS, LOGS[:, None]) == estimate_log_ratio(LOGS)


def by_start(starts: int) -> np.ndarray:
    return RNG.normal(0, 0.03, (12, starts)) + RNG.normal(0, 0.1, starts)


def test_six_starts_have_about_five_degrees_of_freedom():
    cells = by_start(FEWEST_STARTS)
    estimate = estimate_log_ratio(cells.mean(axis=1), cells, np.arange(FEWEST_STARTS))
    assert 5 <= estimate.df < 7


def test_what_swapped_placements_differ_by_does_not_widen_the_interval():
    cells = by_start(6)
    placements = np.array([0, 1] * 3)
    moved = cells + 0.5 * (2 * placements - 1)
    estimates = [
        estimate_log_ratio(entry.mean(axis=1), entry, np.arange(6), placements=placements)
        for entry in (cells, moved)
    ]
    assert estimates[1].se == pytest.approx(estimates[0].se)


def test_starts_that_nobody_recorded_are_no_factor():
    cells = by_start(6)
    assert estimate_log_ratio(cells.mean(axis=1), cells, np.full(6, -1)) == estimate_log_ratio(
        cells.mean(axis=1), cells
    )
