"""Answers to claims, from cells that a test states and from requests that it makes."""

import dataclasses
import itertools

import measured
import msgspec
import numpy as np
import pytest
from observed import Asked, observed, table

from tandem.bench.plan.schedule import FEWEST_ROUNDS, LoadLevel
from tandem.bench.records.manifest import Speculation
from tandem.judge.pairs import RequestPairing
from tandem.judge.quality import compare_quality
from tandem.judge.schema import (
    CellVerdict,
    ClassAcceptance,
    OutputEquality,
    RatioEstimate,
    RunControls,
    Verdict,
)
from tandem.post.answers import ANSWER_FUNCTIONS, answer_claims
from tandem.post.register import read_register

C4 = LoadLevel(concurrency=4)


def cell(class_, metric, word, ratio=(1.0, 0.9, 1.1), prompts=12, **changes):
    value, low, high = ratio
    fields = {
        "variant": "spec",
        "load": C4,
        "prompts": prompts,
        "rounds": 6,
        "baseline": 100.0,
        "measured": 100.0 / value,
        "speed_up": RatioEstimate(value=value, low=low, high=high),
        "verdict": word,
        "why": "as the test says",
    }
    return CellVerdict(class_=class_, metric=metric, **{**fields, **changes})


def faster(class_, metric, **changes):
    return cell(class_, metric, "faster", (2.0, 1.9, 2.1), **changes)


def same(class_, metric, **changes):
    return cell(class_, metric, "same", (1.0, 0.98, 1.02), **changes)


def unsure(class_, metric, **changes):
    return cell(class_, metric, "no evidence", (1.1, 0.9, 1.3), **changes)


def slower(class_, metric, **changes):
    return cell(class_, metric, "slower", (0.5, 0.45, 0.55), **changes)


def run(**changes):
    """Twelve prompts in each of two classes, four at a time."""
    both = {"base": [1000.0] * 12, "spec": [1000.0] * 12}
    plain = table({"repetition": both, "open-ended": both})
    return observed(
        [
            Asked(
                arm=plain.arms[arm],
                class_=plain.classes[class_],
                prompt=plain.prompts[prompt].prompt_id,
            )
            for arm, class_, prompt in zip(plain.arm, plain.class_, plain.prompt, strict=True)
        ],
        **changes,
    )


def posts(variant="spec", window=7, **changes):
    """An arm as the post's experiment states it; nothing of it was measured on the post's
    hardware."""
    return measured.arm(
        variant,
        model="Qwen/Qwen3-32B",
        runtime="nxdi-v0",
        image="i@sha256:1",
        server_version="0.9.1",
        artifact_key=f"qwen3-32b-fused-k{window}",
        speculation=Speculation(method="fused", num_speculative_tokens=window),
        **changes,
    )


POST_BASE = measured.arm(
    "base",
    role="baseline",
    model="Qwen/Qwen3-32B",
    runtime="nxdi-v0",
    image="i@sha256:1",
    server_version="0.9.1",
    artifact_key="qwen3-32b-none",
    speculation=Speculation(method=None),
)
DRAFT = "Qwen/Qwen3-1.7B"


def judged(seen, cells, equality=(), **changes):
    """A verdict that says what a test states."""
    fields = {
        "version": "0",
        "run": "r",
        "folder": "r",
        "created_utc": "2026-11-01T00:00:00Z",
        "simulated": False,
        "baseline": seen.baseline,
        "variants": seen.variants,
        "requests": len(seen),
        "failed": 0,
        "margin": 0.05,
        "headlines": (),
        "controls": RunControls(),
    }
    return Verdict(cells=tuple(cells), equality=tuple(equality), **{**fields, **changes})


def answers(seen, cells=(), *, drafts=None, **changes):
    verdict = judged(seen, cells, **changes)
    return list(
        answer_claims(
            RequestPairing(seen, verdict.controls.marked_rounds),
            verdict,
            dict.fromkeys(seen.variants, DRAFT) if drafts is None else drafts,
            read_register().claim,
            seen.variants,
        )
    )


def answer(claim, *cells, seen=None, **changes):
    claims = answers(run() if seen is None else seen, cells, **changes)
    return next(entry for entry in claims if entry.claim == claim)


def of_the_post(**changes):
    """The same requests in a run whose manifest states the post's set-up."""
    return observed_with((POST_BASE, posts()), **changes)


def observed_with(arms, requests=None, **changes):
    seen = run() if requests is None else observed(requests, arms=tuple(arm.name for arm in arms))
    return dataclasses.replace(
        seen, run=msgspec.structs.replace(seen.run, arms=tuple(arms), **changes)
    )


def test_every_claim_is_answered_once():
    claims = answers(run())
    assert {claim.asks for claim in read_register().claim} == set(ANSWER_FUNCTIONS)
    assert [entry.claim for entry in claims] == [claim.id for claim in read_register().claim]
    assert {item.variant for item in claims} == {"spec", None}


def test_each_of_two_variants_has_its_own_answer():
    seen = observed(
        [Asked(arm=arm) for arm in ("base", "spec", "other")], arms=("base", "spec", "other")
    )
    variants = [claim.variant for claim in answers(seen) if claim.claim == "C4"]
    assert variants == ["spec", "other"]


# C4, C5, C6: equality


@pytest.mark.parametrize(
    ("claim", "cells", "word", "words"),
    [
        (
            "C4",
            [unsure("open-ended", "e2e_ms")],
            "no evidence",
            "0 of 1 cells are shown to be the same",
        ),
        ("C4", [same("open-ended", "e2e_ms")], "confirmed", ""),
        (
            "C4",
            [faster("open-ended", "e2e_ms")],
            "contradicted",
            "open-ended at concurrency 4: E2E",
        ),
        (
            "C6",
            [same("repetition", "ttft_ms"), unsure("open-ended", "ttft_ms")],
            "no evidence",
            "1 of 2 cells",
        ),
        (
            "C7",
            [
                faster("repetition", "e2e_ms"),
                same("repetition", "tpot_ms"),
                same("repetition", "ttft_ms"),
            ],
            "confirmed",
            "",
        ),
        (
            "C7",
            [
                faster("repetition", "e2e_ms"),
                unsure("repetition", "tpot_ms"),
                same("repetition", "ttft_ms"),
            ],
            "no evidence",
            "",
        ),
    ],
)
def test_answer_by_the_words_of_cells(claim, cells, word, words):
    claim_answer = answer(claim, *cells)
    assert claim_answer.answer == word
    assert words in claim_answer.why


def test_a_class_that_is_missing_is_not_comparable():
    claim = answer("C8", faster("repetition", "tpot_ms"))
    assert claim.answer == "not comparable"
    assert "creative, reasoning" in claim.why


def test_the_load_of_the_post_answers_where_present():
    second = LoadLevel(concurrency=1)
    seen = observed(
        [
            Asked(arm=arm, class_="open-ended", concurrency=load)
            for arm, load in itertools.product(("base", "spec"), (1, 4))
        ]
    )
    claim = answer(
        "C4", same("open-ended", "e2e_ms"), slower("open-ended", "e2e_ms", load=second), seen=seen
    )
    assert claim.answer == "confirmed"


@pytest.mark.parametrize(("measured_ms", "word"), [(16.0, "confirmed"), (30.0, "contradicted")])
def test_milliseconds_of_the_post_need_its_set_up(measured_ms, word):
    cells = [
        faster("repetition", "tpot_ms", measured=measured_ms),
        same("open-ended", "tpot_ms", measured=45.0),
    ]
    assert answer("C2", *cells, seen=of_the_post()).answer == word


# C1: how much


@pytest.mark.parametrize(
    ("ratio", "word"),
    [
        ((3.5, 3.3, 3.7), "confirmed"),
        ((2.0, 1.8, 2.2), "contradicted"),
        ((2.9, 2.5, 3.4), "no evidence"),
    ],
)
def test_the_best_class_answers_up_to_three_times(ratio, word):
    cells = [cell("json", "tpot_ms", "faster", ratio), same("chat", "tpot_ms")]
    assert answer("C1", *cells, seen=of_the_post()).answer == word


@pytest.mark.parametrize(
    ("rounds", "word"), [(FEWEST_ROUNDS - 1, "no evidence"), (FEWEST_ROUNDS, "contradicted")]
)
def test_a_claim_of_speed_needs_the_rounds_of_a_verdict(rounds, word):
    claim = answer(
        "C1",
        cell("json", "tpot_ms", "no evidence", (2.0, 1.8, 2.2), rounds=rounds),
        seen=of_the_post(),
    )
    assert claim.answer == word
    assert (f"{FEWEST_ROUNDS - 1} rounds cannot tell a difference" in claim.why) is (
        word == "no evidence"
    )


# C3, and single prompts: over rounds


BASE_MS = (1000, 1010, 990, 1005, 995, 1000, 1002, 998)


def one_prompt(spec_ms):
    return observed(
        [
            Asked(arm=arm, class_="repeat", prompt="repeat", round=number, e2e_ms=ms)
            for arm, every in (("base", BASE_MS), ("spec", spec_ms))
            for number, ms in enumerate(every)
        ]
    )


AHEAD = (500, 510, 490, 505, 495, 500, 502, 498)
ONE = cell("repeat", "e2e_ms", "no evidence", prompts=1, speed_up=None)


def test_the_posts_single_prompt_is_judged_over_rounds():
    claim = answer("C3", ONE, seen=one_prompt(AHEAD))
    assert claim.answer == "confirmed"
    assert "the least of 8 windows" in claim.why


def test_a_curve_that_crosses_once_does_not_stay_below():
    times_ms = (*AHEAD[:5], 1400, *AHEAD[6:])
    claim = answer("C3", ONE, seen=one_prompt(times_ms))
    assert claim.answer == "contradicted"


def test_a_single_prompt_inside_its_noise_floor_is_not_called():
    ahead = [ms * 0.97 for ms in BASE_MS]
    control = [ms * 1.06 for ms in BASE_MS]
    requests = [
        Asked(arm=arm, class_="open", prompt="open", round=number, e2e_ms=ms)
        for arm, every in (("base", BASE_MS), ("spec", ahead), ("base#2", control))
        for number, ms in enumerate(every)
    ]
    bare = [request for request in requests if request.arm != "base#2"]
    floor = cell("open", "e2e_ms", "no evidence", prompts=1, speed_up=None)
    by_run = [answers(observed(some), [floor], margin=0.01) for some in (bare, requests)]
    words = [next(entry for entry in every if entry.claim == "C4").answer for every in by_run]
    assert words == ["contradicted", "no evidence"]


def test_a_single_prompt_is_corrected_for_every_cell():
    behind = (1060, 1200, 1010, 1150, 980, 1040, 1130, 1090)  # p 0.01 alone
    alone = cell("repeat", "tpot_ms", "no evidence", prompts=1, speed_up=None)
    others = [same(f"class-{number}", "tpot_ms") for number in range(20)]
    unasked = [
        cell(f"class-{number}", "tpot_ms", "no evidence", prompts=0, speed_up=None)
        for number in range(20)
    ]
    seen = one_prompt(behind)
    assert answer("C2", alone, seen=seen).answer == "contradicted"
    assert answer("C2", alone, *unasked, seen=seen).answer == "contradicted"
    assert answer("C2", alone, *others, seen=seen).answer == "no evidence"


# what no gain survives


def test_a_gain_with_other_output_is_not_comparable():
    equality = OutputEquality(
        variant="spec", by="characters", result="differs", sentence="3 of 24 pairs are identical."
    )
    claim = answer("C8", faster("creative", "tpot_ms"), equality=[equality])
    assert claim.answer == "not comparable"


def test_a_gain_of_an_arm_that_failed_is_not_comparable():
    requests = [
        Asked(
            arm=arm,
            class_="creative",
            prompt=f"p{number}",
            error="closed" if arm == "spec" and number % 2 else None,
        )
        for arm, number in itertools.product(("base", "spec"), range(24))
    ]
    claim = answer("C8", faster("creative", "tpot_ms"), seen=observed(requests))
    assert claim.answer == "not comparable"
    assert "12 of 24 requests of spec failed" in claim.why


def test_a_void_run_says_nothing_of_speed():
    void = RunControls(void=("the baseline differs from itself",))
    claim = answer("C2", faster("repetition", "tpot_ms"), controls=void)
    assert (claim.answer, claim.why.partition(".")[0]) == (
        "no evidence",
        "the run is void: the baseline differs from itself",
    )


def test_answers_without_text_answer_no_claim_of_figures():
    requests = [
        Asked(arm=arm, prompt=f"p{number}", content="garbage")
        for arm, number in itertools.product(("base", "spec"), range(24))
    ]
    claims = answers(observed(requests), [faster("repeat", "tpot_ms")])
    words = {claim.answer for claim in claims if claim.claim in {"C1", "C6", "C12", "C13"}}
    assert words == {"no evidence"}


# C11, C12, C13


def test_cost_falls_where_throughput_rises():
    requests = [
        Asked(arm=arm, class_="repetition", prompt=f"p{number}", e2e_ms=ms)
        for (arm, ms), number in itertools.product((("base", 1000), ("spec", 500)), range(12))
    ]
    seen = observed_with((POST_BASE, posts()), requests)
    rises = faster("repetition", "output_tokens_per_s")
    claim = answer("C11", rises, seen=seen)
    assert claim.answer == "confirmed"
    assert "15,625 to 7,812" in claim.why


@pytest.mark.parametrize(
    ("result", "word"),
    [("the same", "confirmed"), ("differs", "contradicted"), ("no evidence", "no evidence")],
)
def test_equal_output_is_answered_by_the_comparison_of_outputs(result, word):
    equality = OutputEquality(
        variant="spec", by="token ids", result=result, sentence="24 of 24 pairs."
    )
    assert answer("C12", equality=[equality]).answer == word


@pytest.mark.parametrize(
    ("words", "word"), [(["same", "worse"], "contradicted"), (["no evidence"], "confirmed")]
)
def test_task_that_is_answered_worse_contradicts_equal_output(words, word):
    equality = OutputEquality(
        variant="spec", by="token ids", result="the same", sentence="24 of 24 pairs."
    )
    tasks = [
        msgspec.structs.replace(
            compare_quality("spec", {"a": True}, {"a": True}, chance=0, task="letters"), word=entry
        )
        for entry in words
    ]
    claim = answer("C12", equality=[equality], quality=tuple(tasks))
    assert (claim.answer, f"letters {words[-1]}" in claim.why) == (word, True)


def steps(spec):
    return [
        ClassAcceptance(arm=arm, class_="all", method="counters", target_steps_per_token=entry)
        for arm, entry in (("base", 1.0), ("spec", spec))
    ]


# half the time a token at 0.4 steps: 1.25 a step
STEP = cell("repetition", "tpot_ms", "faster", (2.0, 1.9, 2.1))
QUICK_STEP = cell("repetition", "tpot_ms", "faster", (4.0, 3.9, 4.1))


@pytest.mark.parametrize(
    ("per_token", "step", "ttft", "word"),
    [
        (0.4, STEP, same, "confirmed"),
        (0.4, STEP, unsure, "no evidence"),
        (None, STEP, same, "no evidence"),
        (1.0, STEP, same, "contradicted"),
        (0.4, QUICK_STEP, same, "contradicted"),
    ],
)
def test_fewer_target_steps_without_faster_ones_confirm_the_claim(per_token, step, ttft, word):
    assert (
        answer(
            "C13", step, ttft("repetition", "ttft_ms"), acceptance=tuple(steps(per_token))
        ).answer
        == word
    )


# set-up


def test_arms_of_one_image_differ_in_decoding_alone():
    assert answer("C15", seen=of_the_post(experiment="post")).answer == "confirmed"


def test_another_image_contradicts_an_equal_set_up():
    second = msgspec.structs.replace(posts(), image="i@sha256:2")
    claim = answer("C15", seen=observed_with((POST_BASE, second), experiment="post"))
    assert claim.answer == "contradicted"
    assert "i@sha256:2" in claim.why


def test_configuration_alone_is_confirmed_with_the_artifacts_that_it_needs():
    claim = answer("C17", seen=of_the_post())
    assert claim.answer == "confirmed"
    assert "compiled before, as artifacts qwen3-32b-none and" in claim.why


# C10: between variants


def windows(times_ms):
    names = {7: "w7", 5: "w5", 15: "w15"}
    requests = [Asked(arm="base", prompt=f"p{number}", e2e_ms=2000) for number in range(12)]
    rng = np.random.default_rng(1)
    requests += [
        Asked(
            arm=names[size],
            prompt=f"p{number}",
            e2e_ms=ms * float(np.exp(rng.normal(0, 0.02))),
        )
        for (size, ms), number in itertools.product(times_ms.items(), range(12))
    ]
    return observed_with(
        (POST_BASE, *(posts(name, window=size) for size, name in names.items())), requests
    )


@pytest.mark.parametrize(
    ("times_ms", "word"),
    [
        ({7: 800, 5: 1000, 15: 1200}, "confirmed"),
        ({7: 800, 5: 1000, 15: 600}, "contradicted"),
        ({7: 800, 5: 800, 15: 1200}, "no evidence"),
    ],
)
def test_variants_of_other_windows_answer_the_best_one(times_ms, word):
    assert answer("C10", seen=windows(times_ms)).answer == word


@pytest.mark.parametrize(
    ("small_ms", "accepted", "word"),
    [
        (1000, (4.0, 2.2), "confirmed"),
        (600, (4.0, 2.2), "contradicted"),
        (1000, (2.2, 4.0), "contradicted"),
        (1000, (4.0, None), "no evidence"),
    ],
)
def test_drafts_are_answered_by_variants_that_differ_in_them(small_ms, accepted, word):
    rng = np.random.default_rng(1)
    requests = [
        Asked(arm=arm, prompt=f"p{number}", e2e_ms=ms * float(np.exp(rng.normal(0, 0.01))))
        for (arm, ms), number in itertools.product(
            (("base", 2000), ("large", 1000), ("small", small_ms)), range(12)
        )
    ]
    acceptance = [
        ClassAcceptance(arm=arm, class_="all", method="counters", acceptance_length=length)
        for arm, length in zip(("large", "small"), accepted, strict=True)
    ]
    cells = [unsure("chat", "tpot_ms", variant=arm) for arm in ("large", "small")]
    seen = observed_with((POST_BASE, posts("large"), posts("small")), requests)
    drafts = {"large": DRAFT, "small": "Qwen/Qwen3-0.6B"}
    claim = answer("C9", *cells, seen=seen, acceptance=tuple(acceptance), drafts=drafts)
    assert claim.answer == word


def test_the_targets_own_token_is_not_accepted():
    # of 4.0 and 2.2 tokens a step the draft gave 3.0 and 1.2, which is 60 % less
    acceptance = [
        ClassAcceptance(arm=arm, class_="all", method="counters", acceptance_length=length)
        for arm, length in (("large", 4.0), ("small", 2.2))
    ]
    seen = observed_with((POST_BASE, posts("large"), posts("small")), [Asked()])
    drafts = {"large": DRAFT, "small": "Qwen/Qwen3-0.6B"}
    claim = answer("C9", seen=seen, acceptance=tuple(acceptance), drafts=drafts)
    assert ": 3.00 to 1.20 from the larger to the smaller draft, 60 % less" in claim.why


def test_a_prompt_at_two_loads_is_one_value():
    # 4 times as fast at one load and half as fast at the other: faster for each prompt by the mean
    best_ms = {1: 1000, 2: 4000}
    other_ms = {1: 4000, 2: 2000}
    requests = [
        Asked(arm=arm, concurrency=load, prompt=f"p{number}", e2e_ms=times_ms[load] + number)
        for arm, times_ms in (("w7", best_ms), ("w5", other_ms), ("w15", other_ms))
        for load, number in itertools.product((1, 2), range(6))
    ]
    arms = [posts(f"w{size}", window=size) for size in (7, 5, 15)]
    seen = observed_with((POST_BASE, *arms), requests)
    assert answer("C10", seen=seen).answer == "confirmed"


def test_one_window_compares_no_windows():
    claim = answer("C10", seen=of_the_post())
    assert claim.answer == "not comparable"
    assert "no variant with 5, 15" in claim.why
