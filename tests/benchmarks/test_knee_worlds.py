"""Virtual runs of the cliff at fixed seeds: how near the knees are to what docs/knee.md prints as
the truth, and how many intervals hold it."""

from __future__ import annotations

import pytest
from knee import WORLDS, check_estimate, search_knees

RUNS = 3
TRUTHS = (3.78, 6.50)


@pytest.fixture(scope="module")
def checks():
    """Of each knee of the runs: whether it is within 10 %, and whether its interval holds it."""
    knee_checks = []
    for seed in range(RUNS):
        finding, _ = search_knees(WORLDS[0], seed)
        for arm, truth in zip(finding.arms, TRUTHS, strict=True):
            knee_checks.append(check_estimate(arm.rate_per_s, truth))
    return knee_checks


def test_nearly_every_knee_is_within_ten_percent(checks):
    assert sum(is_within for is_within, _ in checks) >= 2 * RUNS - 1


def test_most_intervals_hold_the_truth(checks):
    assert sum(is_covered for _, is_covered in checks) >= 2 * RUNS - 3
