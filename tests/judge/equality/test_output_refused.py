"""Outputs that the content check refused, pair by pair."""

from __future__ import annotations

import itertools

import pytest
from observed import Asked, observed

from tandem.judge.equality.output_pairs import build_matcher, compare_rejections


def held(*pairs: tuple[str | None, str | None], each: int = 1):
    """The words of baseline and variant, one pair a prompt."""
    requests = [
        Asked(arm=arm, prompt=f"p{place}", repeat=repeat, content=word)
        for place, words in enumerate(pairs)
        for arm, word in zip(("base", "spec"), words, strict=True)
        for repeat in range(each)
    ]
    seen = observed(requests)
    return compare_rejections(seen, build_matcher(seen, "base", "spec").pair_arms("base", "spec"))


@pytest.mark.parametrize("word", ["empty", "garbage", "loop", "refusal", "truncated"])
def test_each_word_but_ok_is_refused_on_either_side(word):
    result = held((word, "ok"), ("ok", word), ("ok", "ok"))
    assert (result.baseline.n, result.variant.n, result.variant.of) == (1, 1, 3)


def test_a_cut_counts_unless_both_sides_are_cut():
    result = held(("truncated", "truncated"))
    assert (result.baseline.n, result.variant.n) == (0, 0)


@pytest.mark.parametrize("word", ["garbage", "loop"])
def test_a_cut_baseline_does_not_excuse_a_broken_answer(word):
    seen = observed(
        [
            Asked(arm=arm, prompt=f"p{place}", content=text, cut=True)
            for place, (arm, text) in itertools.product(
                range(6), (("base", "truncated"), ("spec", word))
            )
        ]
    )
    rejections = compare_rejections(
        seen, build_matcher(seen, "base", "spec").pair_arms("base", "spec")
    )

    assert (rejections.baseline.n, rejections.variant.n) == (0, 6)
    assert rejections.p == pytest.approx(1 / 2**6)


def test_a_pair_with_an_unchecked_side_is_left_out():
    assert held((None, "garbage")) is None
    assert held(("garbage", None)) is None
    assert held((None, "garbage"), ("ok", "ok")).variant.of == 1


def test_prompts_that_only_the_baseline_breaks_speak_for_the_variant():
    assert held(*[("ok", "loop")] * 5, *[("loop", "ok")] * 5).p > 0.5
    assert held(("loop", "ok")).p == 1.0
    assert held(("loop", "loop")).p == 1.0


def test_p_is_of_prompts_and_not_of_requests():
    assert held(*[("ok", "garbage")] * 5).p == pytest.approx(1 / 2**5)
    assert held(*[("ok", "garbage")] * 5, each=4).p == pytest.approx(1 / 2**5)
