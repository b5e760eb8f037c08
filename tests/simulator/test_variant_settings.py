"""The settings of an experiment's simulators: what spec and runtime's data say, and sources for the
rest."""

from __future__ import annotations

import json

import pytest
from committed import experiment

from tandem.bench.suites.content import check_content
from tandem.bench.suites.suite import BUILT_IN, load_suite
from tandem.cli.simulate import list_sketches
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.faults import SpecError
from tandem.simulator.generation_request import read_generation_request
from tandem.simulator.response_plan import classify_prompt, plan_response
from tandem.simulator.settings import SimulatorSettings
from tandem.simulator.variant_settings import build_variant_settings

SKETCHES = dict(list_sketches())


def of(name: str) -> dict[str, SimulatorSettings]:
    return build_variant_settings(experiment(name), load_catalogue(), SKETCHES)


def test_the_posts_pair_differs_in_its_speculation_alone():
    base, draft_arm = (knobs.model_dump() for knobs in of("post").values())
    differing = {name for name in base if base[name] != draft_arm[name]}

    assert differing == {"law", "num_speculative_tokens", "draft_ms", "classes"}
    acceptance = [
        {name: {**item, "acceptance": 0} for name, item in entry["classes"].items()}
        for entry in (base, draft_arm)
    ]
    assert acceptance[0] == acceptance[1]


@pytest.mark.parametrize(
    ("name", "variant", "law", "window", "runtime", "counters"),
    [
        ("post", "qwen-vllm", "none", 0, "nxdi-v0", "flat"),
        ("post", "qwen-sd-vllm", "nxdi", 7, "nxdi-v0", "flat"),
        ("llama-eagle3", "llama-eagle3", "vllm", 3, "native", "live"),
    ],
)
def test_law_window_and_counters_are_those_of_runtime_and_variant(
    name, variant, law, window, runtime, counters
):
    knobs = of(name)[variant]
    result = (knobs.law, knobs.num_speculative_tokens, knobs.runtime, knobs.spec_counters)
    assert result == (law, window, runtime, counters)


def test_thinking_stays_in_the_text_as_rendered_servers_leave_it():
    assert not any(knobs.reasoning_parser for knobs in of("post").values())


def test_the_posts_figures_come_out_as_it_prints_them():
    """45 ms plain, and 15 ms where everything is accepted: 7 tokens in a step of 45 ms and 7
    drafts."""
    base, costs = of("post").values()
    step_ms = costs.step_ms[0] + 7 * costs.draft_ms

    assert base.step_ms == (45.0,)
    assert step_ms / 7 == pytest.approx(15, abs=0.1)
    assert costs.classes["repeat"].acceptance == 1.0


def test_qwen3_thinks_by_default_and_llama_does_not():
    assert [knobs.thinking for knobs in of("post").values()] == [True, True]
    assert {knobs.thinking for knobs in of("llama-eagle3").values()} == {False}


def test_rejects_a_model_without_figures_and_names_the_file():
    second = experiment("post").model_copy(update={"target": "meta-llama/Llama-3.2-1B-Instruct"})
    with pytest.raises(SpecError, match="calibration"):
        build_variant_settings(second, load_catalogue(), SKETCHES)


@pytest.mark.parametrize("suite", sorted(BUILT_IN))
def test_every_prompt_is_known_by_its_class(suite):
    knobs = of("post")["qwen-vllm"]
    assert [
        (prompt.id, classify_prompt(prompt.as_text(), knobs))
        for prompt in load_suite(suite).prompts
    ] == [(prompt.id, prompt.class_) for prompt in load_suite(suite).prompts]


@pytest.mark.parametrize("suite", sorted(BUILT_IN))
def test_every_prompt_of_a_suite_gets_content(suite):
    knobs = of("post")["qwen-vllm"]
    words = {}
    for prompt in load_suite(suite).prompts:
        body = {
            "messages": prompt.as_messages(),
            "max_tokens": prompt.max_tokens or load_suite(suite).defaults.max_tokens,
            "temperature": 0,
            "chat_template_kwargs": {"enable_thinking": True},
        }
        requests = read_generation_request(json.dumps(body).encode(), "chat", knobs)
        answer = plan_response(requests, knobs, requests.max_tokens or 1)
        content = "".join(token.visible_text for token in answer.tokens if token.part == "content")
        words[prompt.id] = check_content(prompt, content, answer.finish_reason)

    assert {name: word for name, word in words.items() if word != "ok"} == {}
