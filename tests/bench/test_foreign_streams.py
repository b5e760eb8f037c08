"""What servers that share no code with vLLM sent, each in a form of its own."""

from __future__ import annotations

from collections import Counter

import pytest
from recordings import recorded

from tandem.bench.answer import ServerAnswer, parse_answer

LLAMA_CPP = ("foreign/llama_cpp_plain", "foreign/llama_cpp_ngram")


def answered(name: str) -> ServerAnswer:
    recording = recorded(name)
    return parse_answer(recording.reply, recording.ask)


@pytest.mark.parametrize(
    ("name", "tokens", "finish"),
    [(LLAMA_CPP[0], 48, "length"), (LLAMA_CPP[1], 48, "length"), ("foreign/xpyd_sim", 36, "stop")],
)
def test_usage_counts_one_token_for_each_text_event(name: str, tokens: int, finish: str) -> None:
    answer = answered(name)

    assert (answer.completion_tokens, answer.counted_by, answer.finish_reason) == (tokens, "usage", finish)
    assert Counter(chunk.kind for chunk in answer.chunks) == {"role": 1, "text": tokens, "end": 1, "usage": 1}


@pytest.mark.parametrize("name", [*LLAMA_CPP, "foreign/xpyd_sim", "foreign/mock_llm"])
def test_no_chunk_says_its_tokens(name: str) -> None:
    assert {chunk.tokens for chunk in answered(name).chunks} == {None}


def test_llama_cpp_sends_a_burst_as_events_of_one_read() -> None:
    reads = [len(recorded(name).reads) for name in LLAMA_CPP]
    texts = [answered(name).text for name in LLAMA_CPP]

    assert texts[0] == texts[1]
    assert reads == [50, 30]


def test_llama_cpp_says_how_much_was_cached() -> None:
    assert [answered(name).cached_tokens for name in LLAMA_CPP] == [0, 0]


def test_mock_llm_ends_with_text_and_without_usage() -> None:
    answer = answered("foreign/mock_llm")

    assert [chunk.kind for chunk in answer.chunks] == ["text"] * 7
    assert (answer.completion_tokens, answer.counted_by, answer.finish_reason) == (None, None, "stop")
    assert answer.text == "Repeat: one two three one two three one two three"
