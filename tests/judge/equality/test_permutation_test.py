"""The test that exchanges names: exact where it can be counted by hand, honest where servers are
unsteady."""

from __future__ import annotations

import numpy as np
import pytest

from tandem.judge.equality import permutation_test
from tandem.judge.equality.permutation_test import OutputStrata, run_permutation_test


def side(*outputs: str) -> OutputStrata:
    """One prompt a string, one output a letter."""
    strata = [place for place, letters in enumerate(outputs) for _ in letters]
    digests = [ord(letter) for letters in outputs for letter in letters]
    return OutputStrata(np.array(strata, np.intp), np.array(digests, np.uint64))


def test_the_statistic_is_the_excess_over_the_baselines_own():
    # of outputs a and b
    of_each = np.array([2, 2])
    baselines = np.array([[2, 1], [1, 2], [2, 0]])
    statistic = permutation_test._compute_statistic(baselines, of_each)
    assert statistic == pytest.approx([2 / 3 - 2 / 3, 2 / 3 - 2 / 3, 1 - 0])


def test_one_of_three_is_the_variants_in_a_third():
    result = run_permutation_test(side("aa", "aa"), side("b", "b"))
    assert result.p == pytest.approx(1 / 9, abs=0.025)
    assert result.least_p == pytest.approx(1 / 9, abs=0.025)


def test_a_baseline_that_was_asked_once_is_no_yardstick():
    assert run_permutation_test(side(*["a"] * 12), side(*["b"] * 12)) is None


def test_a_prompt_that_the_variant_was_never_asked_says_nothing():
    baseline = side("aa", "aa", "cd")
    variant = side("b", "b")
    assert run_permutation_test(baseline, variant) == run_permutation_test(
        side("aa", "aa"), variant
    )


def test_unsteady_servers_differ_no_more_often_than_stated():
    rng = np.random.default_rng(8)
    strata = np.repeat(np.arange(6), 4)
    wrongly = 0
    for seed in range(120):
        points = rng.choice(3, size=(2, len(strata)), p=(0.6, 0.3, 0.1)).astype(np.uint64)
        result = run_permutation_test(
            OutputStrata(strata, points[0]), OutputStrata(strata, points[1]), seed
        )
        wrongly += result.p <= 0.05

    assert 0 < wrongly <= 13  # 6 expected; more than 13 in one of 250 such tests


def test_of_many_outputs_and_prompts_a_part_is_taken(monkeypatch):
    sides = side(*["aaaa"] * 6), side(*["bbbb"] * 6)
    result = run_permutation_test(*sides)
    monkeypatch.setattr(permutation_test, "_OUTPUTS", 2)
    monkeypatch.setattr(permutation_test, "_PROMPTS", 2)
    part = run_permutation_test(*sides)
    assert result.p == 1 / 2000
    assert part.p == pytest.approx((2 / 6) ** 2, abs=0.025)  # two prompts of two and two
