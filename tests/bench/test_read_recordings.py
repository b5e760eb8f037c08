"""What real vLLM servers sent, read by us and, in the plainest way, by the tests."""

from __future__ import annotations

import json

import pytest
from recordings import RECORDINGS, REFUSALS, Recording, recorded

from tandem.bench.answer import ServerAnswer, has_output_event, has_running_usage, parse_answer


def answered(name: str) -> ServerAnswer:
    recording = recorded(name)
    return parse_answer(recording.reply, recording.ask, {recording.head["request"]["body"]["model"]})


def choices(recording: Recording) -> list[dict]:
    return [choice for event in recording.events for choice in event["choices"]]


def test_there_are_recordings_of_both_apis_and_of_refusals() -> None:
    paths = {recorded(name).head["request"]["path"] for name in RECORDINGS}

    assert (paths, len(REFUSALS) > 0) == ({"/v1/chat/completions", "/v1/completions"}, True)


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recorded_stream_has_no_fault(name: str) -> None:
    answer = answered(name)

    assert (answer.error, answer.error_detail) == (None, None)


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_event_is_a_chunk_with_the_time_of_its_read(name: str) -> None:
    recording = recorded(name)
    times = [
        at_ns / 1e9
        for at_ns, piece in recording.reads
        for _ in range(piece.count(b"data: {"))  # these recordings cut no event in two
    ]

    assert [chunk.at_s for chunk in answered(name).chunks] == pytest.approx(times)


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_text_is_that_of_the_events(name: str) -> None:
    texts = [choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices(recorded(name))]

    assert answered(name).text == "".join(texts)


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_finish_reason_and_the_model_are_those_of_the_events(name: str) -> None:
    recording = recorded(name)
    reasons = [choice["finish_reason"] for choice in choices(recording) if choice.get("finish_reason")]

    answer = answered(name)

    assert ([answer.finish_reason], answer.model) == (reasons, recording.events[0]["model"])


@pytest.mark.parametrize("name", RECORDINGS)
def test_tokens_are_counted_where_the_server_counts_and_nowhere_else(name: str) -> None:
    usages = [event["usage"] for event in recorded(name).events if event.get("usage")]

    answer = answered(name)

    said = usages[-1] if usages else {}
    assert answer.completion_tokens == said.get("completion_tokens")
    assert answer.prompt_tokens == said.get("prompt_tokens")
    assert answer.counted_by == ("usage" if usages else None)


@pytest.mark.parametrize("name", [name for name in RECORDINGS if recorded(name).ask.offers.continuous_usage])
def test_the_tokens_of_the_chunks_are_the_growth_of_the_running_usage(name: str) -> None:
    running = [event["usage"]["completion_tokens"] for event in recorded(name).events if event["choices"]]
    bursts = [now - before for before, now in zip([0, *running], running, strict=False)]

    chunks = answered(name).chunks

    assert [chunk.tokens for chunk in chunks if chunk.kind != "usage"] == bursts
    assert sum(bursts) == answered(name).completion_tokens
    assert has_running_usage(recorded(name).reply)


@pytest.mark.parametrize("name", [name for name in RECORDINGS if not recorded(name).ask.offers.continuous_usage])
def test_no_running_usage_is_seen_where_none_was_asked_for(name: str) -> None:
    assert not has_running_usage(recorded(name).reply)


@pytest.mark.parametrize("name", RECORDINGS)
def test_token_ids_are_kept_where_they_came(name: str) -> None:
    ids = [one for choice in choices(recorded(name)) for one in choice.get("token_ids") or []]

    assert answered(name).token_ids == (tuple(ids) or None)


@pytest.mark.parametrize("name", RECORDINGS)
def test_log_probabilities_are_kept_one_per_token_where_they_came(name: str) -> None:
    asked = recorded(name).ask.offers.logprobs
    kept = json.loads(bytes(answered(name).logprobs))
    entries = kept["token_logprobs"] if isinstance(kept, dict) else kept

    assert (entries is not None) is asked
    assert not asked or len(entries) == answered(name).completion_tokens


def test_a_burst_of_a_speculating_server_is_one_chunk_with_its_tokens() -> None:
    answer = answered("ngram_chat_running_usage")

    assert [chunk.tokens for chunk in answer.chunks if chunk.bears_tokens] == [1, 1, 1, 8, 8, 8, 7]
    assert [chunk.kind for chunk in answer.chunks] == ["role", *["text"] * 7, "usage"]


def test_a_token_that_ends_inside_a_character_is_a_chunk_with_tokens_and_no_text() -> None:
    answer = answered("base_completions_split_characters")

    assert [chunk.tokens for chunk in answer.chunks if chunk.kind == "empty"] == [1] * sum(
        choice["text"] == "" and not choice["finish_reason"]
        for choice in choices(recorded("base_completions_split_characters"))
    )
    assert any(chunk.kind == "empty" and chunk.bears_tokens for chunk in answer.chunks)


def test_end_of_text_alone_is_the_end_and_bears_its_token() -> None:
    answer = answered("base_chat_usage")

    assert ("end" in [chunk.kind for chunk in answer.chunks], answer.finish_reason) == (True, "stop")


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_first_output_is_seen_with_its_event_and_not_before(name: str) -> None:
    reply = recorded(name).reply
    first = next(chunk.at_s for chunk in answered(name).chunks if chunk.bears_tokens)
    reads = reply.reads

    seen = next(at_ns for number, (at_ns, _) in enumerate(reads, 1) if _seen(reply, reads[:number]))

    assert seen / 1e9 == pytest.approx(first)


def _seen(reply, reads) -> bool:
    reply.reads = reads
    return has_output_event(reply)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_says_its_status_and_what_the_server_said(name: str) -> None:
    recording = recorded(name)
    said = json.loads(recording.body)["error"]["message"]

    answer = answered(name)

    assert answer.error == f"status_{recording.head['status']}"
    assert answer.error_detail == said[:300]
