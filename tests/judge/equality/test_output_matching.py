"""Which outputs are held against each other."""

from __future__ import annotations

from observed import Asked, observed

from tandem.judge.equality.output_pairs import build_matcher


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
