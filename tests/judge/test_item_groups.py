"""Groups of items: closed forms, and how often a word is wrong if the answers to a group depend on
each other."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from tandem.bench.records.quality_rows import QualityRow
from tandem.judge.item_groups import ItemGroup, compute_design_effect, compute_flip_p
from tandem.judge.quality import judge_quality

FAMILY = 10  # items
MOST_FALSE = 0.05
SEED = 46


def list_single(only_baseline, only_variant, alike):
    """Groups of one item each."""
    counts = ((only_baseline, (1, 1, 0)), (only_variant, (1, 0, 1)), (alike, (1, 0, 0)))
    return [ItemGroup(*values) for count, values in counts for _ in range(count)]


@pytest.mark.parametrize(
    ("only_baseline", "only_variant"), [(0, 0), (0, 6), (3, 11), (40, 60), (700, 800)]
)
def test_of_single_items_the_test_is_mcnemars(only_baseline, only_variant):
    expected = (
        stats.binomtest(only_baseline, only_baseline + only_variant).pvalue if only_variant else 1.0
    )
    assert compute_flip_p(list_single(only_baseline, only_variant, 5)) == pytest.approx(
        expected, rel=1e-9
    )


def test_the_chance_of_a_sum_is_that_of_all_signs():
    differences = (5, -2, 2, 1, 1, 0, 3)
    groups = [ItemGroup(9, max(-value, 0), max(value, 0)) for value in differences]
    sums = [
        sum(map(math.prod, zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=7)
    ]
    share = np.mean([abs(value) >= sum(differences) for value in sums])
    assert compute_flip_p(groups) == pytest.approx(share)


def test_of_single_items_the_design_effect_is_1():
    assert compute_design_effect(list_single(3, 5, 200)) == 1.0


def test_groups_without_a_difference_count_as_one_item():
    students = (stats.t.ppf(0.975, 199) / stats.norm.ppf(0.975)) ** 2
    effect = compute_design_effect([ItemGroup(FAMILY, 0, 0)] * 200)
    assert effect == pytest.approx(FAMILY * 200 / 199 * students)


def test_items_that_differ_on_their_own_count_nearly_each():
    rng = np.random.default_rng(SEED)
    groups = [
        ItemGroup(FAMILY, *rng.multinomial(FAMILY, (0.2, 0.2, 0.6))[:2].tolist())
        for _ in range(2000)
    ]
    assert 1 <= compute_design_effect(groups) < 1.2


def test_one_group_is_worth_no_item():
    assert compute_design_effect([ItemGroup(200, 10, 0)]) == math.inf


def alike(rng, is_own, baseline):
    """A server answers a family of its own all right or all wrong."""
    return np.where(is_own, rng.random(baseline.shape[0])[:, None] < 0.7, baseline)


def partly(rng, is_own, baseline):
    """Most answers of a family of its own are right, or most are wrong."""
    outcome = rng.random(baseline.shape[0])[:, None] < 0.7
    return np.where(is_own & (rng.random(baseline.shape) < 0.8), outcome, baseline)


KINDS = {"alike": alike, "partly": partly}


def draw_equal(rng, kind, groups, own_share):
    """Answers of two equal servers, each of which answers a share of the families in its own
    way."""
    shared = rng.random((groups, FAMILY)) < rng.beta(4, 2, groups)[:, None]
    return [KINDS[kind](rng, rng.random(groups)[:, None] < own_share, shared) for _ in range(2)]


def draw_uneven(rng, groups, family, own_share):
    """Answers of two servers as good as each other: one loses whole families, the other as many
    items one by one."""
    right = [np.ones((groups, family), dtype=bool) for _ in range(2)]
    chance = rng.random(groups)
    right[1][chance < own_share / family] = False
    right[0][chance > 1 - own_share, 0] = False
    return right


def judge(right):
    """The comparison of two arms' answers, a row an item."""
    rows = []
    for arm, answers in zip(("plain", "spec"), right, strict=True):
        for passage, values in enumerate(answers.tolist()):
            group = f"passage {passage}"
            rows += [
                QualityRow(
                    task="passages", item=f"{passage}-{number}", arm=arm, right=value, group=group
                )
                for number, value in enumerate(values)
            ]
    (quality,) = judge_quality(rows, "plain", ["spec"])
    return quality


def count_words(draws, draw, *shape):
    """How often each word is said."""
    rng = np.random.default_rng(SEED)
    return Counter(judge(draw(rng, *shape)).word for _ in range(draws))


def print_words(draws, name, words):
    print(f"{draws} draws, {name}: {dict(words)}")  # noqa: T201


@pytest.mark.parametrize("draws", [20, pytest.param(100, marks=pytest.mark.proof)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "groups", [50, *(pytest.param(count, marks=pytest.mark.proof) for count in (20, 100))]
)
@pytest.mark.parametrize("own_share", [0.2, pytest.param(0.05, marks=pytest.mark.proof)])
def test_equal_servers_are_rarely_called_by_families(draws, kind, groups, own_share):
    words = count_words(draws, draw_equal, kind, groups, own_share)
    print_words(draws, f"{groups} families, {own_share:.0%} {kind}", words)
    assert words["better"] + words["worse"] <= MOST_FALSE * draws


@pytest.mark.parametrize("draws", [20, pytest.param(100, marks=pytest.mark.proof)])
@pytest.mark.parametrize("groups", [50, pytest.param(100, marks=pytest.mark.proof)])
@pytest.mark.parametrize("own_share", [0.5, pytest.param(0.1, marks=pytest.mark.proof)])
def test_servers_that_lose_in_other_ways_are_rarely_called(draws, groups, own_share):
    words = count_words(draws, draw_uneven, groups, FAMILY, own_share)
    print_words(draws, f"{groups} families, {own_share:.0%} uneven", words)
    assert words["better"] + words["worse"] <= MOST_FALSE * draws


@pytest.mark.parametrize("draws", [20, pytest.param(100, marks=pytest.mark.proof)])
@pytest.mark.parametrize(("groups", "family"), [(2, 100), (5, 50), (8, 30), (12, 20)])
def test_few_groups_of_equal_servers_have_no_word(draws, groups, family):
    words = count_words(draws, draw_uneven, groups, family, 0.8)
    print_words(draws, f"{groups} groups of {family}", words)
    assert words == {"no evidence": draws}


@pytest.mark.parametrize("draws", [20, pytest.param(100, marks=pytest.mark.proof)])
@pytest.mark.parametrize(("groups", "least"), [(50, 0.7), (100, 0.97)])
def test_every_tenth_answer_wrong_is_found_in_families(draws, groups, least):
    def draw_worse(rng):
        right = rng.random((groups, FAMILY)) < 0.9
        return right, right & (rng.random((groups, FAMILY)) > 0.1)

    words = count_words(draws, draw_worse)
    print_words(draws, f"{groups} families, one answer in ten wrong", words)
    assert words["worse"] >= least * draws


def test_a_judge_that_sees_no_groups_is_caught(monkeypatch):
    monkeypatch.setattr("tandem.judge.quality._name_groups", lambda _: {})
    with pytest.raises(AssertionError):
        test_equal_servers_are_rarely_called_by_families(20, "alike", 50, 0.2)


@pytest.mark.parametrize(("groups", "word"), [(20, "no evidence"), (200, "same")])
def test_the_same_answers_are_the_same_with_enough_groups(groups, word):
    right = np.ones((groups, FAMILY), dtype=bool)
    assert judge((right, right)).word == word


def test_six_groups_say_that_they_are_too_few():
    right = np.ones((6, 50), dtype=bool)
    assert judge((right, ~right)).why == "the items belong to 6 groups: too few for a word"
