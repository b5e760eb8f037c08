"""The usual ways to compare two servers, on runs of a known truth."""

from __future__ import annotations

import numpy as np
import pytest
import usual_ways
from world_records import QUICK_SHAPE, World, simulate_run

PROMPTS_DIFFER = World(name="prompts normal 20 %", prompt_spread=0.2)


def test_requests_are_paired_by_round_and_prompt():
    twice = World(name="twice", true_speed_up=2.0, request_noise=0.0)
    base_ms, spec_ms = usual_ways.pair_requests(simulate_run(twice, 0, QUICK_SHAPE))
    assert base_ms / spec_ms == pytest.approx(np.full(len(base_ms), 2.0))


def test_intervals_by_request_are_too_short_where_prompts_differ():
    tables = [simulate_run(PROMPTS_DIFFER, seed, QUICK_SHAPE) for seed in range(40)]
    answers = [usual_ways.resample_requests(table, PROMPTS_DIFFER) for table in tables]
    assert sum(bool(answer.is_covered) for answer in answers) < 34  # 95 % would be 38


def test_medians_of_eight_requests_call_equal_servers():
    tables = [simulate_run(PROMPTS_DIFFER, seed, QUICK_SHAPE) for seed in range(40)]
    false = [usual_ways.compare_few(table, PROMPTS_DIFFER).is_false for table in tables]
    assert sum(false) > 10
