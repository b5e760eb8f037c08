"""The output in a choice: whatever part holds it."""

from __future__ import annotations

import pytest

from tandem.bench.load.delta import ChoiceOutput, read_output

CALL = {
    "index": 0,
    "id": "call-1",
    "type": "function",
    "function": {"name": "find", "arguments": '{"x":'},
}


@pytest.mark.parametrize(
    ("delta", "text", "reasoning", "tool_calls"),
    [
        ({"content": ["a", {"type": "text", "text": "b"}]}, "ab", "", ""),
        ({"content": [{"type": "refusal", "refusal": "b"}]}, "b", "", ""),
        ({"content": {"type": "text", "text": {"value": "a"}}}, "a", "", ""),
        ({"content": None, "reasoning_content": "hm"}, "", "hm", ""),
        ({"reasoning_content": "hm", "thinking_blocks": [{"thinking": "hm"}]}, "", "hm", ""),
        ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "xyz"}]}, "", "", ""),
        ({"tool_calls": [CALL]}, "", "", 'find{"x":'),
        ({"function_call": {"name": "find", "arguments": {"x": 1}}}, "", "", 'find{"x":1}'),
        ({"content": [{"type": "tool_use", "name": "find"}]}, "", "", "find"),
        ({"refusal": "no"}, "no", "", ""),
        ({"role": "assistant", "content": ""}, "", "", ""),
    ],
)
def test_output_is_found_in_its_part(delta, text, reasoning, tool_calls):
    assert read_output({"delta": delta}) == ChoiceOutput(text, reasoning, tool_calls)


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ({"text": "a"}, "a"),
        ({"text": "a", "delta": {"role": "assistant"}}, "a"),
        ({"message": {"content": "a"}}, "a"),
    ],
)
def test_text_beside_the_delta_is_found(choice, text):
    assert read_output(choice).text == text


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ({"delta": {"musing": "hm"}}, ["delta.musing"]),
        ({"delta": {"content": [{"type": "poem", "verse": "hm"}]}}, ["content of type poem"]),
        ({"delta": {}, "generated": "hm"}, ["generated"]),
        ({"delta": {"musing": ""}, "stop_reason": "eos", "index": 0}, []),
        (
            {
                "delta": {"extra_content": {"google": {"thought_signature": "x"}}},
                "routed_experts": "AAAA",
            },
            [],
        ),
    ],
)
def test_a_part_that_nobody_knows_is_named(choice, names):
    assert read_output(choice).unknown_parts == names


def test_a_part_nested_without_end_never_raises():
    part: dict = {"text": "hm"}
    for _ in range(500):
        part = {"content": part, "musing": part}

    assert read_output({"delta": {"content": part, "musing": part}}) == ChoiceOutput()
