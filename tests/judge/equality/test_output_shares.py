"""Shares of pairs whose prompts are the units."""

from __future__ import annotations

import numpy as np
import pytest

from tandem.judge.equality.output_pairs import compute_effective_size, estimate_share


def hits(*by_prompt: str) -> tuple[np.ndarray, np.ndarray]:
    """One prompt a string of 1 and 0."""
    prompts = [place for place, answers in enumerate(by_prompt) for _ in answers]
    return np.array([word == "1" for words in by_prompt for word in words]), np.array(
        prompts, np.intp
    )


def test_no_pair_has_no_share():
    assert estimate_share(*hits()) is None


def test_pairs_that_all_agree_are_as_many_as_their_prompts():
    assert (
        estimate_share(*hits(*["1111"] * 12)).low
        == estimate_share(*hits(*["1"] * 12)).low
        == pytest.approx(12 / (12 + 1.96**2), abs=1e-3)
    )


def test_pairs_that_agree_inside_each_prompt_are_worth_their_prompts():
    assert compute_effective_size(*hits(*["1111", "0000"] * 6)) < 12


def test_uneven_prompts_are_worth_less_than_their_number():
    assert compute_effective_size(*hits("1111111", "1")) == 8**2 / (7**2 + 1)


def test_independent_pairs_are_nearly_worth_their_number():
    assert 36 < compute_effective_size(*hits(*["1100", "0110", "1010", "0111", "1000"] * 3)) <= 60


def test_the_ends_stay_within_nothing_and_all():
    none = estimate_share(*hits(*["0"] * 5))
    every = estimate_share(*hits(*["1"] * 5))
    assert (none.n, none.low, every.n, every.high) == (0, 0.0, 5, 1.0)
    assert 0.0 < every.low < 1.0
    assert none.high == pytest.approx(1 - every.low)


def test_the_interval_holds_the_share_at_its_level():
    rng = np.random.default_rng(3)
    prompts = np.repeat(np.arange(12), 4)
    count = 0
    for _ in range(400):
        # mean 0.8: some prompts nearly always, some nearly never
        of_prompt = rng.beta(2.4, 0.6, 12)
        share = estimate_share(rng.random(48) < of_prompt[prompts], prompts)
        count += share.low <= 0.8 <= share.high

    assert 0.92 <= count / 400 <= 0.995
