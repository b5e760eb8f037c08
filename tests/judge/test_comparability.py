"""Whether two arms may be compared: not if only survivors are, or neither gives text."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from observed import Asked, headline, observed

from tandem.bench.plan.schedule import LoadLevel
from tandem.judge.comparability import (
    CellFailures,
    FailureBias,
    FailureCounts,
    count_failures,
    explain_invalidity,
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
        ((8, 40, 6, 40), True),
        ((7, 40, 6, 40), False),
        ((1, 4, 0, 4), False),  # one failure is no pattern
        ((6, 40, 8, 40), False),  # fewer
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


def test_survivors_bar_nothing_where_both_arms_fail():
    counts = CellFailures(
        request_counts=np.array([[40, 40], [400, 400]]), failure_counts=np.array([[0, 2], [2, 0]])
    )
    assert counts.find_bias([0, 1]) is None


def check_content(spec, base, of=12):
    """Twelve prompts in four rounds, `spec` twice as fast; the content check refuses the first `of`
    of each arm."""
    return observed(
        [
            Asked(
                arm=arm,
                prompt=f"p{number:02}",
                round=round_,
                e2e_ms=ms + number,
                content=word if number < of else "ok",
            )
            for round_, (arm, ms, word), number in itertools.product(
                range(4), (("base", 1000.0, base), ("spec", 500.0, spec)), range(12)
            )
        ]
    )


@pytest.mark.parametrize("word", ["garbage", "empty"])
def test_a_variant_does_not_win_where_neither_arm_gives_text(word):
    verdict_line = headline(check_content(word, word))
    assert (verdict_line.verdict, verdict_line.faster) == ("no evidence", ())
    assert (
        verdict_line.sentence
        == "End to end, spec is not shown to be faster or slower than base: 48 of 48 answers of"
        " spec and 48 of 48 answers of base are empty or garbage, and a speed is worth nothing"
        " where the text is none."
    )


@pytest.mark.parametrize(("of", "bars"), [(6, False), (7, True)])
def test_more_than_half_of_the_answers_must_be_no_text(of, bars):
    assert (
        bool(
            explain_invalidity(
                RequestPairing(check_content("garbage", "garbage", of)), "base", "spec"
            )
        )
        is bars
    )


@pytest.mark.parametrize(
    ("spec", "base"), [("garbage", "ok"), ("ok", "garbage"), ("garbage", None)]
)
def test_one_arm_with_text_or_unchecked_bars_nothing(spec, base):
    assert explain_invalidity(RequestPairing(check_content(spec, base)), "base", "spec") == ""


@pytest.mark.parametrize("word", ["loop", "refusal"])
def test_loops_and_refusals_bar_nothing(word):
    verdict_line = headline(check_content(word, word, 7))
    assert verdict_line.finding == "faster"
    counts = f"28 of 48 answers of spec (28 {word}) and 28 of 48 answers of base (28 {word})"
    assert f". The content check refused {counts}." in verdict_line.sentence
