"""Intervals of speed-ups: what they are of, when there is none, and that p and ends say the
same."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import special

from tandem.judge.interval import FEWEST_STARTS, compute_interval, estimate_log_ratio
from tandem.judge.quantile_curve import ResidualPool, pool_residuals

RNG = np.random.default_rng(20261121)
LOGS = RNG.normal(0.1, 0.2, 12)


def test_fewer_than_three_prompts_have_no_interval():
    assert estimate_log_ratio(LOGS[:2]) is None


def test_a_prompt_without_a_number_is_absent():
    assert estimate_log_ratio(np.append(LOGS, np.nan)) == estimate_log_ratio(LOGS)


def test_two_numbers_among_many_absent_ones_have_no_interval():
    assert estimate_log_ratio(np.array([0.1, np.nan, 0.2, np.inf])) is None


def test_equal_values_have_an_interval_without_width():
    estimate = estimate_log_ratio(np.full(5, 0.3))
    assert (estimate.low, estimate.high, estimate.p) == (
        pytest.approx(0.3),
        pytest.approx(0.3),
        0.0,
    )


def test_equal_values_of_nothing_are_no_difference():
    estimate = estimate_log_ratio(np.zeros(5))
    assert estimate.p == 1.0


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


def test_the_interval_of_level_p_ends_at_0():
    estimate = estimate_log_ratio(LOGS)
    assert compute_interval(estimate, 1 - estimate.p)[0] == pytest.approx(0, abs=1e-9)


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


def test_an_absent_cell_changes_little():
    cells = by_start(6)
    gappy = cells.copy()
    gappy[3, 2] = np.nan
    complete, estimate = (
        estimate_log_ratio(cells.mean(axis=1), entry, np.arange(6)) for entry in (cells, gappy)
    )
    assert estimate.log == pytest.approx(complete.log, abs=0.3 * complete.se)


def draw_classes(law: str, seed: int) -> list[np.ndarray]:
    """Fourteen classes of eight prompts, of mean 0."""
    rng = np.random.default_rng(seed)
    draws = (
        rng.standard_exponential((14, 8)) - 1 if law == "exponential" else rng.normal(size=(14, 8))
    )
    return list(0.2 * draws)


def test_prompts_of_an_exponential_law_are_skewed():
    pools = [pool_residuals(draw_classes("exponential", seed)) for seed in range(20)]
    assert sum(pool is not None for pool in pools) >= 18


def test_prompts_of_a_normal_law_are_not_skewed():
    pools = [pool_residuals(draw_classes("normal", seed)) for seed in range(50)]
    assert sum(pool is not None for pool in pools) <= 3


def test_classes_of_different_means_are_not_skewed():
    classes = [
        logs + (2.0 if place == 0 else 0.0) for place, logs in enumerate(draw_classes("normal", 3))
    ]
    assert pool_residuals(classes) is None


def test_skewed_prompts_are_called_different_at_their_rate():
    """Of 1,120 classes of mean 0, at a level of 1 in 1,000: a third of what Student's test
    calls."""
    p_values: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(80):
        classes = draw_classes("exponential", seed)
        pool = pool_residuals(classes)
        for logs in classes:
            p_values[True].append(estimate_log_ratio(logs, pool=pool).p)
            p_values[False].append(estimate_log_ratio(logs).p)
    pooled_share, own_share = (np.mean(np.array(p_values[key]) < 0.001) for key in (True, False))
    assert pooled_share < 0.006
    assert pooled_share < own_share / 2


@pytest.mark.parametrize("level", [0.5, 0.95, 0.9999])
def test_p_of_skewed_prompts_says_what_the_interval_says(level):
    classes = draw_classes("exponential", 1)
    pool = pool_residuals(classes)
    for shift in np.linspace(-0.5, 0.5, 41):
        estimate = estimate_log_ratio(classes[0] + shift, pool=pool)
        low, high = compute_interval(estimate, level)
        assert (low > 0 or high < 0) == (estimate.p < 1 - level)


def test_three_prompts_of_few_values_are_no_surer_than_students():
    """Draws of one value have no spread; left out, they make the largest ratios look rare."""
    pool = ResidualPool(np.array([-0.1] * 15 + [0.5] * 3), skewness=1.8)
    (low,) = pool.find_curve(3).convert(special.stdtrit(2, np.array([0.0002])))
    assert low < -30


def test_curve_of_thousands_of_skewed_prompts_takes_little_memory():
    pool = pool_residuals([np.random.default_rng(0).standard_exponential(5_000)])
    assert pool is not None
    tracemalloc.start()
    pool.find_curve(5_000)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 64 * 2**20
