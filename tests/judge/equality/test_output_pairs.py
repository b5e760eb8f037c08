"""Which outputs are held against each other, which the content check refused, and their shares."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from observed import Asked, observed

from tandem.judge.equality.output_pairs import (
    build_matcher,
    compare_rejections,
    compute_effective_size,
    estimate_share,
)


def pairs(*requests: Asked, first: str = "base", second: str = "spec"):
    return build_matcher(observed(requests), first, second).pair_arms(first, second)


def test_a_pair_is_one_prompt_load_round_and_repeat():
    for second in (
        {"prompt": "p1"},
        {"suite": "post"},
        {"concurrency": 8},
        {"concurrency": None, "rate_per_s": 1.0},
        {"round": 1},
        {"repeat": 1},
    ):
        assert len(pairs(Asked(), Asked(arm="spec", **second))) == 0
    assert len(pairs(Asked(), Asked(arm="spec", slot=3))) == 1


def test_a_failed_request_is_in_no_pair_and_counted():
    matches = pairs(
        Asked(),
        Asked(arm="spec", error="closed"),
        Asked(prompt="p1"),
        Asked(arm="spec", prompt="p1"),
    )
    assert (len(matches), matches.failure_count) == (1, 1)


def test_what_one_arm_was_never_asked_is_not_lost():
    assert pairs(Asked(), Asked(round=1), Asked(arm="spec")).failure_count == 0


def test_one_empty_output_differs_and_two_are_no_pair():
    matches = pairs(
        Asked(text=""),
        Asked(arm="spec", text=""),
        Asked(prompt="p1"),
        Asked(arm="spec", prompt="p1", text=""),
    )
    assert (matches.is_same.tolist(), matches.silent_count) == ([False], 1)


def test_a_repeated_request_counts_with_its_last_answer():
    matches = pairs(Asked(text="old"), Asked(arm="spec", text="new"), Asked(text="new"))
    assert matches.is_same.tolist() == [True]


def test_a_failed_repeat_leaves_the_first_answer():
    assert len(pairs(Asked(), Asked(arm="spec"), Asked(error="closed"))) == 1


def test_repeats_of_an_arm_are_paired_in_time():
    seen = observed(
        [Asked(round=2, text="b"), Asked(round=0), Asked(round=1), Asked(concurrency=8, text="c")]
    )
    result = build_matcher(seen, "base").pair_repeats("base")
    assert [
        (seen.round[first], seen.round[second])
        for first, second in zip(result.first, result.second, strict=True)
    ] == [
        (0, 1),
        (1, 2),
    ]
    assert result.is_same.tolist() == [True, False]


def test_ids_are_compared_where_every_output_has_them():
    with_ids = [Asked(ids="1 2"), Asked(arm="spec", ids="1 3"), Asked(prompt="p1", text="")]
    assert build_matcher(observed(with_ids), "base", "spec").uses_token_ids
    assert not build_matcher(
        observed([*with_ids, Asked(prompt="p2")]), "base", "spec"
    ).uses_token_ids
    assert build_matcher(
        observed([*with_ids, Asked(prompt="p2", error="closed")]), "base", "spec"
    ).uses_token_ids
    assert not build_matcher(observed([Asked(), Asked(arm="spec")]), "base", "spec").uses_token_ids


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


def hits(*by_prompt: str) -> tuple[np.ndarray, np.ndarray]:
    """One prompt a string of 1 and 0."""
    prompts = [place for place, answers in enumerate(by_prompt) for _ in answers]
    return np.array([word == "1" for words in by_prompt for word in words]), np.array(
        prompts, np.intp
    )


def test_no_pair_has_no_share():
    assert estimate_share(*hits()) is None


def test_pairs_that_all_agree_are_as_many_as_their_prompts():
    assert (
        estimate_share(*hits(*["1111"] * 12)).low
        == estimate_share(*hits(*["1"] * 12)).low
        == pytest.approx(12 / (12 + 1.96**2), abs=1e-3)
    )


def test_independent_pairs_are_nearly_worth_their_number():
    assert 36 < compute_effective_size(*hits(*["1100", "0110", "1010", "0111", "1000"] * 3)) <= 60


def test_the_interval_holds_the_share_at_its_level():
    rng = np.random.default_rng(3)
    prompts = np.repeat(np.arange(12), 4)
    count = 0
    for _ in range(400):
        # mean 0.8: some prompts nearly always, some nearly never
        of_prompt = rng.beta(2.4, 0.6, 12)
        share = estimate_share(rng.random(48) < of_prompt[prompts], prompts)
        count += share.low <= 0.8 <= share.high

    assert 0.92 <= count / 400 <= 0.995
