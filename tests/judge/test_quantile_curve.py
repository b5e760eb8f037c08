"""Where prompts are skewed, and what the curve of their mean then says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from tandem.judge.interval import compute_interval, estimate_log_ratio
from tandem.judge.quantile_curve import ResidualPool, pool_residuals


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
    """Of 560 classes of mean 0, at a level of 1 in 1,000: a third of what Student's test calls."""
    p_values: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(40):
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
