"""The bound of the tokens of a window: no acceptance by position exceeds it; counted positions make
it exact."""

from __future__ import annotations

import numpy as np
import pytest

from tandem.plan.step_tokens import expect_tokens, sum_positions
from tandem.plan.window_bound import WindowTokens, bound_tokens

WORLDS = 300
RISING = (0.38, 0.43, 0.54, 0.86, 1.0)


def measure(law, rates, window, *, counts_positions=False):
    """What a window commits."""
    tokens = sum_positions(law, rates, window)
    return WindowTokens(
        window=window, tokens=tokens, position_rates=rates[:window] if counts_positions else ()
    )


def draw_rates(seed):
    """Shares of drafts accepted at 15 positions, of acceptances drawn one by one."""
    return tuple(np.cumprod(np.random.default_rng(seed).random(15)))


@pytest.mark.parametrize("law", ["k", "k+1"])
def test_no_acceptance_commits_more_in_a_longer_window(law):
    for seed in range(WORLDS):
        rates = draw_rates(seed)
        bound = bound_tokens(law, [measure(law, rates, 5)], 12)
        assert sum_positions(law, rates, 12) <= bound + 1e-9


@pytest.mark.parametrize("law", ["k", "k+1"])
def test_no_acceptance_commits_more_between_two_windows(law):
    for seed in range(WORLDS):
        rates = draw_rates(seed)
        bound = bound_tokens(law, [measure(law, rates, window) for window in (3, 11, 15)], 7)
        assert sum_positions(law, rates, 7) <= bound + 1e-9


@pytest.mark.parametrize("law", ["k", "k+1"])
def test_no_rising_acceptance_commits_more_in_a_shorter_window(law):
    for seed in range(WORLDS):
        rates = tuple(np.cumprod(np.sort(np.random.default_rng(seed).random(15))))
        bound = bound_tokens(law, [measure(law, rates, 15)], 4)
        assert sum_positions(law, rates, 4) <= bound + 1e-6


@pytest.mark.parametrize("law", ["k", "k+1"])
@pytest.mark.parametrize("window", [1, 2, 4])
def test_counted_positions_give_a_shorter_window_itself(law, window):
    rates = tuple(np.cumprod(RISING))
    counts = measure(law, rates, 5, counts_positions=True)
    assert bound_tokens(law, [counts], window) == pytest.approx(sum_positions(law, rates, window))


def test_a_position_that_a_step_never_commits_bounds_nothing():
    counts = WindowTokens(window=3, tokens=1.7, position_rates=(0.5, 0.2, 0.0))
    assert bound_tokens("k", [counts], 5) == pytest.approx(1.7 + 2 * 0.2)


def test_two_measurements_of_a_window_are_averaged():
    counts = [WindowTokens(window=3, tokens=tokens) for tokens in (2.0, 3.0)]
    assert bound_tokens("k", counts, 3) == pytest.approx(2.5)


def test_a_window_that_commits_no_draft_bounds_nothing():
    assert bound_tokens("k", [WindowTokens(window=1, tokens=1.0)], 4) == 4.0


def test_noise_beyond_what_a_step_can_commit_is_full_acceptance():
    assert bound_tokens("k", [WindowTokens(window=5, tokens=5.2)], 3) == expect_tokens("k", 1.0, 3)
