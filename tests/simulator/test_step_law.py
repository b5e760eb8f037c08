"""How many tokens a step commits: the closed formulas, and that what is drawn follows them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tandem.simulator.acceptance_model import compute_mean_step_tokens, draw_step_tokens


@pytest.mark.parametrize(
    ("law", "acceptance", "window", "tokens"),
    [
        ("vllm", 0.858, 3, 3.226),  # an acceptance length of 3.224, from published rates by position
        ("nxdi", 0.9, 7, 5.217),
        ("nxdi", 0.58, 7, 2.328),  # what a step must commit to break even at 2.33 times its cost
        ("nxdi", 1.0, 7, 7.0),
        ("vllm", 1.0, 7, 8.0),
        ("vllm", 0.0, 7, 1.0),
        ("none", 0.9, 0, 1.0),
    ],
)
def test_the_expected_tokens_of_a_step(law, acceptance, window, tokens):
    assert compute_mean_step_tokens(law, acceptance, window) == pytest.approx(tokens, abs=0.001)


@pytest.mark.parametrize("law", ["nxdi", "vllm"])
@pytest.mark.parametrize("window", [1, 3, 7, 15])
@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.58, 0.9, 1.0])
def test_what_is_drawn_has_the_expected_mean(law, window, acceptance):
    steps = 40_000
    drawn = draw_step_tokens(np.random.default_rng(2), law, acceptance, window, steps)
    error = drawn.std() / steps**0.5
    assert drawn.mean() == pytest.approx(compute_mean_step_tokens(law, acceptance, window), abs=5 * error + 1e-9)


def test_each_place_of_a_draft_is_accepted_with_the_same_chance_after_the_one_before():
    accepted = draw_step_tokens(np.random.default_rng(3), "vllm", 0.7, 4, 100_000) - 1
    reached = [np.count_nonzero(accepted >= place) for place in range(5)]
    rates = [after / before for before, after in itertools.pairwise(reached)]
    assert rates == pytest.approx([0.7] * 4, abs=0.02)
