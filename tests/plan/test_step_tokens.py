"""Tokens of a step: closed forms, limits, simulation, and the acceptance that gives so many."""

from __future__ import annotations

import numpy as np
import pytest

from tandem.plan.step_tokens import (
    count_drafted,
    expect_tokens,
    extend_positions,
    find_acceptance,
    sum_positions,
)


@pytest.mark.parametrize("law", ["k", "k+1"])
@pytest.mark.parametrize("acceptance", [0.3, 0.858])
@pytest.mark.parametrize("window", [1, 7])
def test_the_mean_is_that_of_steps_drawn_one_by_one(law, acceptance, window):
    accepts = np.random.default_rng(7).random((400_000, count_drafted(law, window))) < acceptance
    tokens = 1 + np.cumprod(accepts, axis=1).sum(axis=1)
    assert tokens.mean() == pytest.approx(expect_tokens(law, acceptance, window), rel=4e-3)


@pytest.mark.parametrize(("law", "most"), [("k", 7), ("k+1", 8)])
def test_full_acceptance_commits_the_most_that_the_law_allows(law, most):
    assert (expect_tokens(law, 1.0, 7), expect_tokens(law, 0.0, 7)) == (most, 1)


def test_position_rates_are_summed_as_vllm_counts_them():
    assert sum_positions("k+1", (0.8649, 0.7247, 0.6346), 3) == pytest.approx(3.2242)


@pytest.mark.parametrize("law", ["k", "k+1"])
def test_the_acceptance_of_a_mean_gives_that_mean(law):
    acceptance = find_acceptance(law, 2.33, 7)
    assert acceptance is not None
    assert expect_tokens(law, acceptance, 7) == pytest.approx(2.33)


@pytest.mark.parametrize("tokens", [0.9, 8.1])
def test_a_mean_that_no_step_can_commit_has_no_acceptance(tokens):
    assert find_acceptance("k+1", tokens, 7) is None


def test_positions_beyond_the_counted_ones_go_on_as_the_last():
    low, mean = extend_positions("k+1", (0.8, 0.4), 4)
    assert (low, mean) == (pytest.approx(2.2), pytest.approx(1 + 0.8 + 0.4 + 0.2 + 0.1))


def test_counted_positions_of_a_constant_acceptance_are_the_closed_form():
    rates = [0.9**position for position in range(1, 4)]
    assert extend_positions("k", rates, 7)[1] == pytest.approx(expect_tokens("k", 0.9, 7))
