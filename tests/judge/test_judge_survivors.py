import itertools

import numpy as np
import pytest
from observed import Asked, observed

from tandem.bench.plan.schedule import LoadLevel
from tandem.judge.comparability import (
    CellFailures,
    FailureBias,
    FailureCounts,
    count_failures,
    is_more_frequent,
)
from tandem.judge.pairs import RequestPairing


@pytest.mark.parametrize(
    ("counts", "result"),
    [
        ((0, 60, 0, 60), False),
        ((6, 200, 0, 200), True),  # one side of Fisher's test: 0.0151
        ((5, 200, 0, 200), False),  # 0.0304
        ((2, 40, 0, 40), True),  # 5 points more
        ((2, 41, 0, 41), False),
        ((1, 4, 0, 4), False),  # one failure is no pattern
        ((8, 40, 6, 40), True),
        ((7, 40, 6, 40), False),
        ((6, 40, 8, 40), False),  # fewer
        ((30, 30, 0, 0), False),
    ],
)
def test_failing_more_often_is_more_than_chance_or_far_more(counts, result):
    assert is_more_frequent(*counts) is result


def test_either_arm_may_be_the_one_that_fails():
    counts = (
        FailureCounts(60, 12, 60, 0),
        FailureCounts(60, 0, 60, 12),
        FailureCounts(60, 12, 60, 12),
    )
    assert [count.is_biased for count in counts] == [True, True, False]


def test_failures_are_counted_in_rounds_of_both_arms():
    rows = [
        Asked(arm=arm, class_=name)
        for arm, name in itertools.product(("base", "spec"), ("repeat", "chat"))
    ]
    rows += [
        Asked(arm="spec", class_="repeat", error="closed"),
        # the baseline was not asked so
        Asked(arm="spec", class_="chat", concurrency=1, error="closed"),
        Asked(arm="base", round=3, error="closed"),  # nor the variant then
    ]
    seen = observed(rows)
    counts = count_failures(RequestPairing(seen), "base", "spec")
    at_4 = seen.loads.index(LoadLevel(concurrency=4))
    assert counts.count(seen.classes.index("repeat") * len(seen.loads) + at_4) == FailureCounts(
        1, 0, 2, 1
    )
    assert counts.count() == FailureCounts(2, 0, 3, 1)


def test_failures_of_one_class_bar_that_class_alone():
    counts = CellFailures(
        request_counts=np.array([[40, 40], [400, 400]]), failure_counts=np.array([[0, 2], [0, 0]])
    )
    assert counts.find_bias([0]) == FailureBias(FailureCounts(40, 0, 40, 2), 0)
    assert counts.find_bias([1]) is None


def test_failures_that_no_class_shows_alone_bar_all_of_them():
    counts = CellFailures(
        request_counts=np.full((20, 2), 40), failure_counts=np.array([[0, 1]] * 12 + [[0, 0]] * 8)
    )
    assert {counts.find_bias([cell]) for cell in range(20)} == {
        FailureBias(FailureCounts(800, 0, 800, 12), None)
    }


def test_survivors_of_a_class_bar_all_without_other_failures():
    counts = CellFailures(
        request_counts=np.array([[40, 40], [400, 400]]), failure_counts=np.array([[0, 2], [0, 0]])
    )
    assert counts.find_bias([0, 1]) == FailureBias(FailureCounts(40, 0, 40, 2), 0)


def test_survivors_bar_nothing_where_both_arms_fail():
    counts = CellFailures(
        request_counts=np.array([[40, 40], [400, 400]]), failure_counts=np.array([[0, 2], [2, 0]])
    )
    assert counts.find_bias([0, 1]) is None
