"""What the simulator says: the same for the same prompt, ordinary words, an end where its class
ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tandem.bench.suites.content import check_content
from tandem.bench.suites.prompt import Prompt
from tandem.simulator.generation_request import GenerationRequest, read_generation_request
from tandem.simulator.response_plan import ResponsePlan, plan_response
from tandem.simulator.settings import PromptClassSettings, SimulatorSettings
from tandem.simulator.text_generator import END_ID


def asked(
    api: str = "chat", knobs: SimulatorSettings | None = None, **more: Any
) -> GenerationRequest:
    body = {
        "messages": [{"role": "user", "content": "Say something."}],
        "prompt": "Say something.",
        "temperature": 0,
    }
    return read_generation_request(
        json.dumps({**body, **more}).encode(),
        "chat" if api == "chat" else "completions",
        knobs or SimulatorSettings(),
    )


def script(knobs: SimulatorSettings | None = None, room: int = 10_000, **more: Any) -> ResponsePlan:
    return plan_response(asked(knobs=knobs, **more), knobs or SimulatorSettings(), room)


def shown(result: ResponsePlan, part: str = "content") -> str:
    return "".join(token.visible_text for token in result.tokens if token.part == part)


def of_length(tokens: int, **more: Any) -> SimulatorSettings:
    return SimulatorSettings(classes={"default": PromptClassSettings(output_tokens=tokens, **more)})


@pytest.mark.parametrize(
    "second",
    [
        SimulatorSettings(law="nxdi", num_speculative_tokens=7, runtime="nxdi-v0", draft_ms=9),
        SimulatorSettings(step_ms=(1.0,), jitter=0.5, seed=9, max_num_seqs=1),
        SimulatorSettings(classes={"default": PromptClassSettings(acceptance=0.1)}),
    ],
)
def test_the_text_is_the_same_on_every_arm(second):
    assert script(second).tokens == script().tokens


def test_a_seed_changes_the_text_above_temperature_0_alone():
    assert shown(script(seed=1)) == shown(script(seed=2))
    assert shown(script(seed=1, temperature=1.0)) != shown(script(seed=2, temperature=1.0))
    assert shown(script(seed=1, temperature=1.0)) == shown(script(seed=1, temperature=1.0))


@pytest.mark.parametrize("tokens", [1, 2, 128])
def test_an_answer_ends_at_the_length_of_its_class(tokens):
    answer = script(of_length(tokens))
    assert (len(answer.tokens), answer.finish_reason, answer.tokens[-1].id) == (
        tokens,
        "stop",
        END_ID,
    )


def test_lengths_spread_around_that_of_the_class_by_prompt():
    knobs = of_length(100, output_spread=20)
    lengths = {
        len(script(knobs, messages=[{"role": "user", "content": f"Question {number}"}]).tokens)
        for number in range(300)
    }

    assert (min(lengths), max(lengths)) == (80, 120)


def test_ignore_eos_goes_on_to_the_limit():
    answer = script(of_length(100), room=841, ignore_eos=True)
    assert (len(answer.tokens), answer.finish_reason) == (841, "length")
    assert END_ID not in {token.id for token in answer.tokens}


@pytest.mark.parametrize("stops", [["the"], "the", ["zzz", "the", " cottage"]])
def test_a_stop_string_ends_the_answer_and_is_not_shown(stops):
    complete = shown(script())
    answer = script(stop=stops)

    first = min(
        place
        for place in (
            complete.find(entry) for entry in ([stops] if isinstance(stops, str) else stops)
        )
        if place >= 0
    )
    assert shown(answer) == complete[:first]
    assert answer.finish_reason == "stop"
    assert answer.stop_reason is not None
    assert complete[first:].startswith(answer.stop_reason)


def test_a_stop_string_is_found_across_tokens():
    answer = script().tokens
    across = answer[5].piece[-2:] + answer[6].piece + answer[7].piece[:2]
    result = script(stop=[across])
    assert (len(result.tokens), result.stop_reason) == (8, across)


def test_thinking_puts_a_thought_before_the_same_kind_of_answer():
    knobs = of_length(50, reasoning_tokens=20)
    answer = script(knobs, chat_template_kwargs={"enable_thinking": True})

    assert answer.reasoning_tokens == 22  # with the marks around it
    assert len(answer.tokens) == 72
    assert shown(answer, "think") not in {"", shown(answer)}


def test_without_a_parser_thoughts_stand_in_the_content():
    knobs = of_length(50).model_copy(update={"reasoning_parser": False})
    answer = script(knobs, chat_template_kwargs={"enable_thinking": True})

    assert shown(answer).startswith("<think>\n")
    assert "\n</think>\n\n" in shown(answer)
    assert shown(answer, "think") == ""


def test_the_first_class_that_a_prompt_matches_is_its():
    classes = {
        "copy": PromptClassSettings(contains=("Say some", "Repeat")),
        "late": PromptClassSettings(contains=("Say",)),
        "default": PromptClassSettings(),
    }
    knobs = SimulatorSettings(classes=classes)

    assert script(knobs).class_ == "copy"
    assert script(knobs, messages=[{"role": "user", "content": "Say it"}]).class_ == "late"
    assert script(knobs, messages=[{"role": "user", "content": "Well"}]).class_ == "default"


@pytest.mark.parametrize("tokens", [20, 600])
def test_a_class_of_json_answers_json(tokens):
    answer = script(of_length(tokens, form="json"))

    assert json.loads(shown(answer))["answer"]
    assert len(answer.tokens) == tokens
    assert (
        check_content(
            Prompt(id="p", class_="json", prompt="x", check=frozenset({"json"})),
            shown(answer),
            "stop",
        )
        == "ok"
    )


def add(prompt):
    """The text of a server that answers sums."""
    knobs = SimulatorSettings(classes={"default": PromptClassSettings(form="sum")})
    return shown(script(knobs, messages=[{"role": "user", "content": prompt}]))


def test_sum_is_the_answer():
    assert add("What is 417 + 268? Answer with the number alone.") == "685"


def test_prompt_without_a_sum_gets_prose():
    assert len(add("Name three colours.")) > 20
