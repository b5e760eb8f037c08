"""Arms of a run: which variants, in which order, at which addresses."""

from __future__ import annotations

from committed import environment, experiment, known

from tandem.run.experiment_arms import build_arms, build_pair

POST = experiment("post")
SWEEP = experiment("post-drafts-windows")


def name_arms(arms):
    return [(arm.name, arm.role) for arm in arms]


def test_a_pair_is_plain_decoding_and_its_candidate():
    candidate = SWEEP.all_variants()[-1].name
    pair = build_pair(SWEEP, candidate)

    assert [variant.name for variant in pair.all_variants()] == ["qwen-vllm", candidate]


def test_plain_decoding_is_the_baseline_wherever_it_stands():
    reversed_post = POST.model_copy(update={"variants": POST.variants[::-1]})
    arms = build_arms(environment("post-us-east-2"), reversed_post, known())

    assert name_arms(arms) == [("qwen-vllm", "baseline"), ("qwen-sd-vllm", "variant")]


def test_the_first_of_the_chosen_names_is_the_baseline():
    chosen_names = ("qwen-sd-vllm", "qwen-vllm")
    arms = build_arms(environment("post-us-east-2"), POST, known(), chosen_names)

    assert name_arms(arms) == [("qwen-sd-vllm", "baseline"), ("qwen-vllm", "variant")]


def test_an_arms_address_is_its_service_in_the_experiments_namespace():
    baseline = build_arms(environment("post-us-east-2"), POST, known())[0]

    assert baseline.url == "http://qwen-vllm.tandem-post.svc:8000"
