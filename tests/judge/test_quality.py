"""Quality of two arms on the same items: closed forms, coverage, and how often a word is wrong."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tandem.bench.records.quality_rows import QualityRow
from tandem.judge.quality import (
    compare_quality,
    compute_tango_score,
    find_tango_interval,
    judge_quality,
)

ITEMS = 200


def answers(seed, share=0.7, count=ITEMS):
    rng = np.random.default_rng(seed)
    return {f"item-{number}": bool(right) for number, right in enumerate(rng.random(count) < share)}


def test_ends_of_the_interval_have_the_quantile_as_score():
    low, high = find_tango_interval(9, 4, 32)
    scores = [compute_tango_score(9, 4, 32, end) for end in (low, high)]
    assert scores == pytest.approx([1.959964, -1.959964], abs=1e-4)


@pytest.mark.parametrize("shares", [(0.05, 0.05), (0.10, 0.02)])
def test_the_interval_holds_the_truth_as_often_as_it_says(shares):
    rng = np.random.default_rng(7)
    count = 1000
    hits = 0
    for _ in range(count):
        first, second, _ = rng.multinomial(ITEMS, [*shares, 1 - sum(shares)])
        low, high = find_tango_interval(int(first), int(second), ITEMS)
        hits += low <= shares[0] - shares[1] <= high
    assert hits / count > 0.93


@pytest.mark.parametrize(
    ("items", "pairs", "word"),
    [(200, 0, "same"), (200, 1, "no evidence"), (1000, 50, "same"), (1000, 51, "no evidence")],
)
def test_same_takes_more_pairs_that_differ_with_more_items(items, pairs, word):
    baseline = {f"item-{number}": number >= pairs for number in range(items)}
    variant = {f"item-{number}": not pairs <= number < 2 * pairs for number in range(items)}
    assert compare_quality("spec", baseline, variant, chance=0.0).word == word


def test_a_baseline_near_chance_shows_nothing():
    right = answers(2, share=0.3)
    quality = compare_quality("spec", right, dict.fromkeys(right, False), chance=0.25)
    assert (quality.word, "guessing 25 %" in quality.why) == ("no evidence", True)


def test_fewer_items_than_200_show_nothing():
    right = answers(3, count=199)
    assert compare_quality("spec", right, right, chance=0.0).word == "no evidence"


def test_each_task_is_judged_alone():
    rows = [
        QualityRow(task=task, item=item, arm=arm, right=right)
        for task, arm, (item, right) in itertools.product(
            ("sums", "words"), ("base", "spec"), answers(1).items()
        )
    ]
    assert [(result.task, result.word) for result in judge_quality(rows, "base", ["spec"])] == [
        ("sums", "same"),
        ("words", "same"),
    ]


def test_task_that_one_arm_alone_answered_is_left_out():
    rows = [
        QualityRow(task="sums", item=item, arm="base", right=right)
        for item, right in answers(1).items()
    ]
    assert list(judge_quality(rows, "base", ["spec"])) == []


def test_fault_is_the_reason_of_no_evidence():
    row = QualityRow(
        task="letters", item="", arm="base", right=False, fault="the servers were gone"
    )
    (task,) = judge_quality([row], "base", ["spec"])
    assert (task.word, task.why) == ("no evidence", "the servers were gone")


def test_tasks_share_the_risk_of_a_false_word():
    first = {str(n): n >= 8 for n in range(200)}
    second = {str(n): n >= 1 for n in range(200)}
    words = [
        compare_quality("spec", second, first, chance=0, task_count=count).word for count in (1, 2)
    ]
    assert words == ["worse", "no evidence"]


INDEPENDENT = "no item names a group, so all were taken as independent"


def list_rows(items, *, groups=None):
    """Rows of two arms that answer all items right."""
    names = groups or [""] * len(items)
    return [
        QualityRow(task="sums", item=item, arm=arm, right=True, group=group)
        for arm, (item, group) in itertools.product(
            ("base", "spec"), zip(items, names, strict=True)
        )
    ]


def judge_rows(rows):
    (quality,) = judge_quality(rows, "base", ["spec"])
    return quality


def test_items_without_groups_are_told_as_independent():
    quality = judge_rows(list_rows(["one", "two"]))
    assert (quality.groups, quality.limits) == (2, (INDEPENDENT,))


def test_the_items_without_a_group_are_counted():
    quality = judge_rows(list_rows(["one", "two", "three"], groups=["a", "a", ""]))
    assert quality.limits == ("taken as independent: 1 item without a group",)


def test_an_item_of_a_group_s_name_is_another_unit():
    assert judge_rows(list_rows(["one", "two"], groups=["", "one"])).groups == 2


def test_a_repeated_item_counts_and_is_told():
    quality = judge_rows(list_rows(["one", "two", "one"]))
    assert (quality.items, quality.groups) == (3, 2)
    assert (
        quality.limits[-1] == "1 item with the name of another one; items of one name are one group"
    )


def test_both_answers_to_a_repeated_item_count():
    answers = {"base": (True, True), "spec": (True, False)}
    rows = [
        QualityRow(task="sums", item="one", arm=arm, right=right)
        for arm, both in answers.items()
        for right in both
    ]
    quality = judge_rows(rows)
    assert (quality.baseline_right, quality.variant_right, quality.only_baseline) == (2, 1, 1)
