"""The one decision: which word, and on what ground."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tandem.judge.decision import (
    adjust_groups,
    adjust_p_values,
    compare_lengths,
    decide_speed_up,
)
from tandem.judge.interval import LogRatioEstimate
from tandem.judge.schema import RatioEstimate


def estimate(low, value, high):
    return LogRatioEstimate(math.log(value), 0.1, 5.0, low=math.log(low), high=math.log(high))


@pytest.mark.parametrize(
    ("ends", "adjusted_p", "floor", "word", "ground"),
    [
        ((0.96, 1.0, 1.04), 0.9, None, "same", "margin"),
        ((1.01, 1.02, 1.04), 0.001, 1.01, "same", "margin"),
        ((1.01, 1.04, 1.06), 0.001, None, "faster", "difference"),
        ((0.94, 0.99, 1.01), 0.2, None, "no evidence", "chance"),
        ((1.2, 1.5, 1.8), 0.051, None, "no evidence", "chance"),
        ((1.2, 1.5, 1.8), 0.049, 1.49, "faster", "difference"),
        ((1.2, 1.5, 1.8), 0.001, 1.5, "no evidence", "floor"),
    ],
)
def test_word_and_ground(ends, adjusted_p, floor, word, ground):
    assert decide_speed_up(estimate(*ends), adjusted_p, floor=floor, margin=0.05) == (word, ground)


@pytest.mark.parametrize(("ratio", "adjusted_p"), [(None, 0.001), (estimate(1.2, 1.5, 1.8), None)])
def test_without_an_estimate_there_is_no_evidence(ratio, adjusted_p):
    assert decide_speed_up(ratio, adjusted_p, floor=None, margin=0.05).ground == "absent"


def test_holm_by_hand():
    np.testing.assert_allclose(
        adjust_p_values(np.array([0.01, 0.04, 0.03, 0.005])), [0.03, 0.06, 0.06, 0.02]
    )
    np.testing.assert_allclose(adjust_p_values(np.array([0.9, 0.8])), [1.0, 1.0])


def test_holm_with_weights_by_hand():
    p_values = adjust_p_values(np.array([0.02, 0.01, 0.03]), np.array([1.0, 2.0, 1.0]))
    np.testing.assert_allclose(p_values, [0.04, 0.02, 0.04])


def fall_back(overall, cells, level_share=1.0):
    p_values = np.array([*overall, *cells])
    is_overall = np.arange(len(p_values)) < len(overall)
    adjusted = adjust_groups(p_values, np.ones(len(p_values)), is_overall, level_share)
    return [adjusted[is_overall].tolist(), adjusted[~is_overall].tolist()]


def test_each_group_has_its_share_of_the_level():
    overall, cells = fall_back([0.1], [0.02, 0.9])
    assert (overall, cells) == ([pytest.approx(0.5)], [pytest.approx(0.05), pytest.approx(0.9)])


def test_a_pooled_success_hands_its_share_to_cells():
    assert fall_back([0.001], [0.024, 0.9])[1] == [pytest.approx(0.048), pytest.approx(0.9)]


def test_cells_that_all_succeed_hand_their_share_on():
    assert fall_back([0.03], [0.001, 0.002])[0] == [pytest.approx(0.03)]


def test_one_cell_without_success_keeps_the_share():
    assert fall_back([0.03], [0.001, 0.9])[0] == [pytest.approx(0.15)]


def test_an_empty_group_leaves_the_whole_level():
    assert fall_back([], [0.02, 0.9]) == [[], [pytest.approx(0.04), pytest.approx(0.9)]]
    assert fall_back([0.04], []) == [[pytest.approx(0.04)], []]


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(0.8, 0.95, "shorter"), (0.8, 0.96, "alike"), (1.04, 1.3, "alike"), (1.06, 1.3, "longer")],
)
def test_lengths_differ_where_the_whole_interval_does(low, high, word):
    assert compare_lengths(RatioEstimate(value=1.0, low=low, high=high), 0.05) == word


def test_tests_beside_the_two_groups_take_a_part_of_their_level():
    assert fall_back([0.5], [0.003, 0.9], 0.8) == [[1.0], [pytest.approx(0.003 * 2 / 0.6), 1.0]]
