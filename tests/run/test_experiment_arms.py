"""Arms of a run: which variants, in which order, at which addresses."""

from __future__ import annotations

from committed import environment, experiment, known

from tandem.run.experiment_arms import build_arms, build_pair

POST = experiment("post")
SWEEP = experiment("post-drafts-windows")


def test_a_pair_is_plain_decoding_and_its_candidate():
    candidate = SWEEP.all_variants()[-1].name
    pair = build_pair(SWEEP, candidate)

    assert [variant.name for variant in pair.all_variants()] == ["qwen-vllm", candidate]


def test_plain_decoding_is_the_baseline_wherever_it_stands():
    reversed_post = POST.model_copy(update={"variants": POST.variants[::-1]})
    arms = build_arms(environment("post-us-east-2"), reversed_post, known())

    assert [(arm.name, arm.role) for arm in arms] == [
        ("qwen-vllm", "baseline"),
        ("qwen-sd-vllm", "variant"),
    ]
