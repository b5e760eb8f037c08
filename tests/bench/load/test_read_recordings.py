"""What real servers sent, read by us and, in the plainest way, by the tests."""

from __future__ import annotations

import json

import pytest
from recordings import RECORDINGS, REFUSALS, Recording, recorded

from tandem.bench.load.answer import has_running_usage, parse_answer
from tandem.bench.records.record import RequestRecord


def answered(name: str) -> RequestRecord:
    recording = recorded(name)
    return parse_answer(
        recording.reply, recording.ask, {recording.head["request"]["body"]["model"]}
    )


def choices(recording: Recording) -> list[dict]:
    return [choice for event in recording.events for choice in event["choices"]]


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recorded_stream_is_read_as_its_events_say(name):
    recording = recorded(name)
    answer = answered(name)
    usages = [event["usage"] for event in recording.events if event.get("usage")]
    last_usage = usages[-1] if usages else {}
    texts = [
        choice.get("text") or choice.get("delta", {}).get("content") or ""
        for choice in choices(recording)
    ]
    ids = [token_id for choice in choices(recording) for token_id in choice.get("token_ids") or []]
    logprobs = json.loads(bytes(answer.logprobs))
    entries = logprobs["token_logprobs"] if isinstance(logprobs, dict) else logprobs
    times = [
        at_ns / 1e9
        for at_ns, piece in recording.reads
        for _ in range(piece.count(b"data: {"))  # these recordings cut no event in two
    ]

    assert (answer.error, answer.error_detail) == (None, None)
    assert [chunk.at_s for chunk in answer.chunks] == pytest.approx(times)
    assert (answer.text, answer.model) == ("".join(texts), recording.events[0]["model"])
    assert [answer.finish_reason] == [
        c["finish_reason"] for c in choices(recording) if c.get("finish_reason")
    ]
    assert (answer.completion_tokens, answer.prompt_tokens, answer.counted_by) == (
        last_usage.get("completion_tokens"),
        last_usage.get("prompt_tokens"),
        "usage" if usages else None,
    )
    assert answer.token_ids == (tuple(ids) or None)
    assert (entries and len(entries)) == (
        answer.completion_tokens if recording.ask.offers.logprobs else None
    )


@pytest.mark.parametrize("name", RECORDINGS)
def test_tokens_of_chunks_are_the_growth_of_running_usage(name):
    recording = recorded(name)
    is_running = recorded(name).ask.offers.continuous_usage
    running = [
        event["usage"]["completion_tokens"]
        for event in recording.events
        if event["choices"] and is_running
    ]
    bursts = [now - before for before, now in zip([0, *running], running, strict=False)]

    tokens = [chunk.tokens for chunk in answered(name).chunks if chunk.kind != "usage"]

    assert has_running_usage(recording.reply) == is_running
    assert not is_running or (tokens, sum(bursts)) == (bursts, answered(name).completion_tokens)


def test_half_a_character_is_a_chunk_without_text():
    name = "base_completions_split_characters"
    halves = [
        choice
        for choice in choices(recorded(name))
        if choice["text"] == "" and not choice["finish_reason"]
    ]
    assert [chunk.tokens for chunk in answered(name).chunks if chunk.kind == "empty"] == [1] * len(
        halves
    )
    assert halves


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_says_its_status_and_what_the_server_said(name):
    recording = recorded(name)
    answer = answered(name)
    assert answer.error == f"status_{recording.head['status']}"
    assert answer.error_detail == json.loads(recording.body)["error"]["message"][:300]


# Servers that share no code with vLLM
