"""What a reply means: text, tokens, counts, and the one word for what is wrong with it."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from pathlib import Path

import msgspec
import pytest
from independent_server import Frames, Request, Schedule
from measured import answer_record
from one_request import asking

from tandem.bench.answer import ServerAnswer, has_output_event, parse_answer
from tandem.bench.record import ERROR_WORDS, RecordWriter, RequestRecord, read_records
from tandem.bench.reply import ServerReply

SEED = 20261121
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def reply(*pieces: bytes, status: int = 200, kind: str = "text/event-stream", **fields) -> ServerReply:
    """A reply whose reads came a second apart, the first a second after the start."""
    reads = [((at + 1) * 10**9, piece) for at, piece in enumerate(pieces)]
    return ServerReply(0, 1, reads, (len(pieces) + 1) * 10**9, status, kind, **fields)


def event(*choice: dict, **fields) -> bytes:
    return b"data: " + json.dumps({"choices": list(choice), **fields}).encode() + b"\n\n"


def said(text: str | None = None, finish: str | None = None, **fields) -> dict:
    delta = {} if text is None else {"content": text}
    return {"index": 0, "delta": delta, "finish_reason": finish, **fields}


def usage(tokens: int, **fields) -> dict:
    return {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens, **fields}


def answered(*pieces: bytes, models: set[str] | None = None, **fields) -> ServerAnswer:
    return parse_answer(reply(*pieces, **fields), asking(), models or ())


def kinds(answer: ServerAnswer) -> list[str]:
    return [chunk.kind for chunk in answer.chunks]


def tokens(answer: ServerAnswer) -> list[int | None]:
    return [chunk.tokens for chunk in answer.chunks]


# Chunks


def test_each_event_has_the_time_of_the_read_that_completed_it() -> None:
    one, two = event(said("a")), event(said("b"))

    answer = answered(one[:9], one[9:] + two + two[:4], two[4:], END)

    assert [chunk.at_s for chunk in answer.chunks] == [2.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("choice", "kind"),
    [
        ({"delta": {"role": "assistant", "content": ""}}, "role"),
        ({"delta": {"role": "assistant"}}, "role"),
        ({"delta": {"role": "assistant", "content": "hi"}}, "text"),
        ({"delta": {"content": "hi"}, "finish_reason": "stop"}, "text"),
        ({"delta": {"reasoning_content": "hm"}}, "reasoning"),
        ({"delta": {"reasoning": "hm"}}, "reasoning"),
        ({"delta": {"content": ""}, "finish_reason": "stop"}, "end"),
        ({"delta": {"content": ""}}, "empty"),
        ({"delta": {"content": None}}, "empty"),
        ({"text": "hi"}, "text"),
        ({"text": ""}, "empty"),
        ({"text": "", "finish_reason": "length"}, "end"),
    ],
)
def test_an_event_is_of_the_kind_that_it_holds(choice: dict, kind: str) -> None:
    assert kinds(answered(event(choice), END))[0] == kind


def test_an_event_without_a_choice_is_usage() -> None:
    assert kinds(answered(event(said("a")), event(usage=usage(1)), END)) == ["text", "usage", "end"]


def test_running_usage_gives_each_chunk_its_tokens() -> None:
    answer = answered(
        event(said(""), usage=usage(0)), event(said("a b c"), usage=usage(3)), event(said(""), usage=usage(4)),
        event(said("d", "stop"), usage=usage(9)), event(usage=usage(9)), b"data: [DONE]\n\n",
    )  # fmt: skip

    assert (tokens(answer), kinds(answer)) == ([0, 3, 1, 5, None], ["role", "text", "empty", "text", "usage"])
    assert (answer.completion_tokens, answer.prompt_tokens, answer.counted_by) == (9, 5, "usage")


def test_usage_that_stands_only_beside_the_end_gives_no_chunk_its_tokens() -> None:
    answer = answered(event(said("a")), event(said("b")), event(said("", "stop"), usage=usage(7)), b"data: [DONE]\n\n")

    assert (tokens(answer), answer.completion_tokens) == ([None, None, None], 7)


def test_running_usage_that_falls_is_not_believed() -> None:
    answer = answered(event(said("a"), usage=usage(3)), event(said("b"), usage=usage(2)), END)

    assert tokens(answer) == [None, None, None]


def test_token_ids_count_where_no_usage_does() -> None:
    answer = answered(event(said("a", token_ids=[4, 5])), event(said("b", token_ids=[6])), END)

    assert (tokens(answer), answer.token_ids) == ([2, 1, None], (4, 5, 6))
    assert (answer.completion_tokens, answer.counted_by) == (3, "token_ids")


def test_token_ids_that_some_chunks_lack_count_nothing() -> None:
    answer = answered(event(said("a", token_ids=[4, 5])), event(said("b")), END)

    assert (tokens(answer), answer.token_ids, answer.completion_tokens) == ([None] * 3, None, None)


def test_usage_that_contradicts_the_token_ids_is_named_and_the_ids_count() -> None:
    answer = answered(event(said("a", token_ids=[4, 5])), event(usage=usage(49)), END)

    assert (answer.completion_tokens, answer.counted_by, answer.error) == (2, "token_ids", None)
    assert answer.error_detail == "usage says 49 output tokens, the stream held 2 token ids"


def test_running_usage_that_contradicts_the_token_ids_gives_no_chunk_its_tokens() -> None:
    answer = answered(event(said("a", token_ids=[4, 5]), usage=usage(9)), event(usage=usage(9)), END)

    assert (tokens(answer), answer.completion_tokens) == ([2, None, None], 2)


def test_usage_that_contradicts_its_own_running_count_is_named() -> None:
    answer = answered(event(said("a"), usage=usage(2)), event(usage=usage(9)), END)

    assert (answer.completion_tokens, answer.error) == (9, None)
    assert answer.error_detail == "usage counted up to 2 tokens and says 9 at the end"


def test_no_usage_is_no_fault() -> None:
    answer = answered(event(said("a")), END)

    assert (answer.completion_tokens, answer.counted_by, answer.error) == (None, None, None)


@pytest.mark.parametrize("count", [-1, 1.5, True, "3", 2**70, None])
def test_a_count_that_is_none_is_not_believed(count: object) -> None:
    answer = answered(event(said("a")), event(usage={"completion_tokens": count, "prompt_tokens": count}), END)

    assert (answer.completion_tokens, answer.prompt_tokens, answer.error) == (None, None, None)


def test_cached_tokens_come_from_the_prompts_details() -> None:
    answer = answered(event(said("a")), event(usage=usage(1, prompt_tokens_details={"cached_tokens": 3})), END)

    assert answer.cached_tokens == 3


def test_text_and_reasoning_are_kept_apart() -> None:
    answer = answered(
        event({"delta": {"reasoning": "hm "}}), event({"delta": {"reasoning": "so"}}), event(said("x")), END
    )

    assert (answer.reasoning, answer.text) == ("hm so", "x")


def test_chats_log_probabilities_are_joined_to_one_list() -> None:
    entries = [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.1}, {"token": "c", "logprob": -0.2}]
    answer = answered(
        event(said("ab", logprobs={"content": entries[:2]})), event(said("c", logprobs={"content": entries[2:]})), END
    )

    assert json.loads(bytes(answer.logprobs)) == entries


def test_completions_log_probabilities_are_joined_by_column() -> None:
    answer = answered(
        event({"text": "ab", "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-0.5, -0.1]}}),
        event({"text": "c", "finish_reason": "stop", "logprobs": {"tokens": ["c"], "token_logprobs": [-0.2]}}),
    )

    assert json.loads(bytes(answer.logprobs)) == {"tokens": ["a", "b", "c"], "token_logprobs": [-0.5, -0.1, -0.2]}


# The end


@pytest.mark.parametrize("last", [b"data: [DONE]\n\n", b"data: [DONE]\n", b"data: [DONE]", b"data:[DONE]\r\n\r\n"])
def test_a_stream_is_whole_with_done(last: bytes) -> None:
    assert answered(event(said("a")), last).error is None


def test_a_stream_is_whole_with_a_finish_reason_alone() -> None:
    assert answered(event(said("a", "stop"))).error is None


def test_a_last_event_without_its_blank_line_counts() -> None:
    answer = answered(event(said("a")), event(said("b", "stop")).rstrip())

    assert (answer.text, answer.error) == ("ab", None)


def test_a_stream_that_ends_before_its_finish_is_closed() -> None:
    answer = answered(event(said("a")), event(said("b"))[:20])

    assert (answer.error, answer.text) == ("closed", "a")
    assert answer.error_detail == "the stream ended after 1 events, before a finish_reason or [DONE]"


def test_an_answer_without_any_byte_is_closed() -> None:
    assert answered().error == "closed"


@pytest.mark.parametrize("word", ["closed", "gap_timeout", "whole_timeout"])
def test_after_done_an_answer_is_whole_whatever_the_connection_does(word: str) -> None:
    assert answered(event(said("a")), END, error=word).error is None


@pytest.mark.parametrize("word", ["gap_timeout", "whole_timeout", "first_token_timeout", "interrupted", "endless"])
def test_what_cut_a_stream_stays_its_word(word: str) -> None:
    answer = answered(event(said("a")), b"data: {oops\n\n", error=word, error_detail="why")

    assert (answer.error, answer.error_detail, answer.text) == (word, "why", "a")


# Faults in what was sent


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n', "decode"),
        (b'data: {"choices":[{"delta":{"content":"\xe2\x82"}}]}\n\n', "decode"),
        (b'data: {"choices":[{"delta":{"content":"\\ud800"}}]}\n\n', "decode"),
        (b'data: {"choices":[{"delta":{"content":"\\ud800 x"}}]}\n\n', "decode"),
        (b'data: {"choices":[{\n\n', "not_json"),
        (b"data: hello\n\n", "not_json"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "not_json"),
        (b"data: {}\n\n", "no_choices"),
        (b"data: 42\n\n", "no_choices"),
        (b"data: null\n\n", "no_choices"),
        (b'data: {"choices":null}\n\n', "no_choices"),
        (b'data: {"error":{"message":"engine died","code":500}}\n\n', "api_error"),
        (b'data: {"error":"engine died"}\n\n', "api_error"),
        (b'data: {"object":"error","message":"engine died","code":500}\n\n', "api_error"),
        (b'event: error\ndata: {"error":{"message":"engine died"}}\n\n', "api_error"),
    ],
)  # fmt: skip
def test_a_bad_event_is_a_word_and_the_others_are_read(bad: bytes, word: str) -> None:
    answer = answered(event(said("a")), bad, event(said("b")), END)

    assert (answer.error, answer.text) == (word, "ab")


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_the_server_broke_off_is_an_error(reason: str) -> None:
    answer = answered(event(said("a")), event(said("", reason)), b"data: [DONE]\n\n")

    assert (answer.error, answer.finish_reason) == ("api_error", reason)
    assert answer.error_detail == f"the server broke the answer off with finish_reason {reason}"


@pytest.mark.parametrize("reason", ["stop", "length", "repetition", "content_filter", "eos"])
def test_an_answer_that_ended_is_none(reason: str) -> None:
    assert answered(event(said("a", reason)), b"data: [DONE]\n\n").error is None


def test_an_error_object_nested_without_end_never_raises() -> None:
    deep = b'{"error":' * 900 + b"1" + b"}" * 900
    plain = b'{"a":' * 900 + b"1" + b"}" * 900

    words = [answered(b"data: " + body + b"\n\n", END).error for body in (deep, plain)]

    assert words == ["api_error", "no_choices"]
    assert answered(deep, status=500, error="status_500").error == "status_500"


def test_what_the_server_says_of_its_error_is_kept() -> None:
    answer = answered(
        event(said("a")), b'data: {"error":{"message":"engine died","code":500}}\n\n', b"data: [DONE]\n\n"
    )

    assert answer.error_detail == "engine died"


@pytest.mark.parametrize(
    "choice",
    [
        None, 3, {}, {"delta": None}, {"delta": []}, {"delta": {"content": 7}}, {"delta": {"content": ["x"]}},
        {"delta": {}, "token_ids": "x"}, {"delta": {}, "token_ids": [None]}, {"delta": {}, "logprobs": 3},
        {"delta": {}, "finish_reason": 3}, {"text": None},
    ],
)  # fmt: skip
def test_a_choice_of_another_form_never_raises(choice: object) -> None:
    answer = answered(
        event(said("a")), b"data: " + json.dumps({"choices": [choice], "usage": 3}).encode() + b"\n\n", END
    )

    assert (answer.error, answer.text) == (None, "a")


@pytest.mark.parametrize(
    ("body", "kind", "word"),
    [
        (b"<!DOCTYPE html><html>Sign in</html>", "text/html", "not_sse"),
        (b"<!DOCTYPE html><html>Sign in</html>", "text/event-stream", "not_sse"),
        (b"upstream timed out", "text/plain", "not_sse"),
        (b'{"status":"ok"}', "application/json", "no_choices"),
        (b'{"status":"ok"}', "text/event-stream", "no_choices"),
        (b'{\n "status": "ok"\n}\n', "application/json", "no_choices"),
        (b"[]", "application/json", "no_choices"),
        (b'{"choices":[', "application/json", "not_json"),
        (b'{"choices":[{"message":{"content":"x"}}]}', "application/json", "not_sse"),
        (b'{"error":{"message":"no"}}', "application/json", "api_error"),
        (b'{"object":"error","message":"no"}', "application/json", "api_error"),
    ],
)
def test_a_body_that_is_no_event_stream_is_a_word(body: bytes, kind: str, word: str) -> None:
    assert answered(body, kind=kind).error == word


def test_a_stream_under_another_content_type_is_read() -> None:
    assert answered(event(said("a")), END, kind="text/plain").error is None


@pytest.mark.parametrize(
    ("coding", "pack"), [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_a_compressed_stream_is_read_though_none_was_asked_for(coding: str, pack) -> None:
    packed = pack(event(said("a")) + event(said("b")) + END)

    answer = answered(packed[:11], packed[11:40], packed[40:], content_encoding=coding)

    assert (answer.text, answer.error) == ("ab", None)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "gzip"])
def test_a_coding_that_cannot_be_undone_is_a_word(coding: str) -> None:
    answer = answered(b"\x01\x02\x03\x04", content_encoding=coding)

    assert answer.error == "decode"


@pytest.mark.parametrize(
    ("name", "error"),
    [("small", None), ("alias", None), ("small-2026-11-21", None), ("small-1b", "wrong_model"), ("big", "wrong_model")],
)
def test_a_model_that_is_neither_asked_nor_an_alias_is_wrong(name: str, error: str | None) -> None:
    answer = answered(event(said("a"), model=name), END, models={"small", "alias"})

    assert (answer.model, answer.error) == (name, error)


def test_without_known_names_any_model_is_right() -> None:
    assert answered(event(said("a"), model="whatever"), END).error is None


def test_more_tokens_than_asked_by_far_are_endless() -> None:
    answer = answered(event(said("a"), usage=usage(97)), END)

    assert (answer.error, asking().max_tokens) == ("endless", 16)


def test_a_few_more_tokens_than_asked_are_not() -> None:
    assert answered(event(said("a"), usage=usage(20)), END).error is None


def test_a_stream_that_ran_out_of_time_far_beyond_its_tokens_is_endless() -> None:
    assert answered(*[event(said("a"))] * 100, error="whole_timeout").error == "endless"


# Refusals


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"error":{"message":"queue is full"}}', "queue is full"),
        (b'{"detail":"queue is full"}', "queue is full"),
        (b'{"detail":[{"loc":["body"],"msg":"extra"}]}', '[{"loc":["body"],"msg":"extra"}]'),
        (b"<html><h1>queue</h1> is full</html>", "queue is full"),
        (b"queue is full", "queue is full"),
        (b"{", "{"),
        (b"\xff", "\N{REPLACEMENT CHARACTER}"),
        (b"{}", None),
        (b"", None),
    ],
)
def test_a_refusal_keeps_what_the_server_said(body: bytes, detail: str | None) -> None:
    answer = answered(body, status=503, error="status_503")

    assert (answer.error, answer.error_detail) == ("status_503", detail)


def test_what_never_came_is_told_by_its_word() -> None:
    answer = parse_answer(ServerReply(0, end_ns=1, error="connect", error_detail="refused"), asking())

    assert (answer.error, answer.error_detail, answer.chunks) == ("connect", "refused", ())


# Whole


def a_stream() -> bytes:
    """A stream with all extras and characters of every length."""
    body = {"max_tokens": 40, "messages": [{"content": "x"}], "stream_options": {
        "include_usage": True, "continuous_usage_stats": True}, "return_token_ids": True, "logprobs": True}  # fmt: skip
    frames = Frames(Request("POST", "/v1/chat/completions", {}, body), Schedule())
    parts = [frames.role(), *(frames.burst(number, size) for number, size in enumerate((1, 3)))]
    choice = {"delta": {"content": "é€\U0001f680"}, "token_ids": [7, 8, 9]}
    rest = json.dumps({"choices": [choice], "usage": usage(7)}, ensure_ascii=False)
    rest = f"data: {rest}\r\n\r\n".encode()
    frames.running = 7
    return b"".join([*parts, rest, b": ping\n\n", frames.finish("stop"), frames.usage(), b"data: [DONE]\n\n"])


def test_an_answer_cut_into_reads_at_every_byte_is_the_same_but_for_times() -> None:
    stream = a_stream()
    whole = _timeless(parse_answer(reply(stream), asking()))

    different = [at for at in range(1, len(stream)) if _timeless(answered(stream[:at], stream[at:])) != whole]

    assert (whole["error"], whole["completion_tokens"], len(whole["token_ids"]), different) == (None, 7, 7, [])


def _timeless(answer: ServerAnswer) -> dict:
    fields = msgspec.structs.asdict(answer)
    chunks = [(chunk.kind, chunk.tokens) for chunk in answer.chunks]
    return fields | {"chunks": chunks, "logprobs": bytes(answer.logprobs)}


def test_a_stream_spoilt_at_any_byte_is_an_answer_that_a_record_takes(tmp_path) -> None:
    stream, generator = a_stream(), random.Random(SEED)  # noqa: S311
    path = tmp_path / "records.jsonl"
    with RecordWriter(path) as writer:
        for _ in range(400):
            spoilt = bytearray(stream)
            for _ in range(generator.randint(1, 8)):
                spoilt[generator.randrange(len(spoilt))] = generator.randrange(256)
            writer.write(answer_record(answered(bytes(spoilt))))

    assert len(list(read_records(path))) == 400


LEAVES = (None, True, 0, -1, 1.5, 2**63, 2**70, "", "x", "stop", [], {})
NAMES = (
    "choices", "delta", "content", "text", "reasoning", "token_ids", "logprobs", "usage", "completion_tokens", "error",
    "prompt_tokens_details", "cached_tokens", "message", "detail", "object", "model", "finish_reason", "role", "tokens",
)  # fmt: skip


def _anything(generator: random.Random, depth: int) -> object:
    if depth == 0 or generator.random() < 0.25:
        return generator.choice(LEAVES)
    if generator.random() < 0.35:
        return [_anything(generator, depth - 1) for _ in range(generator.randint(0, 3))]
    return {generator.choice(NAMES): _anything(generator, depth - 1) for _ in range(generator.randint(0, 5))}


def test_json_of_any_form_is_an_answer_that_a_record_takes() -> None:
    generator = random.Random(SEED)  # noqa: S311
    for _ in range(800):
        fields = {name: _anything(generator, 2) for name in ("token_ids", "logprobs", "finish_reason")}
        fields |= {"delta": {name: _anything(generator, 1) for name in ("content", "reasoning")}}
        likely = {"choices": [fields], "usage": _anything(generator, 2), "model": generator.choice(LEAVES)}
        bodies = [json.dumps(one).encode() for one in (likely, _anything(generator, 5))]
        events = [b"data: " + body + b"\n\n" for body in bodies]
        answers = [answered(*events, models={"x"}), *(answered(body, kind="application/json") for body in bodies)]
        answers += [answered(bodies[1], status=500, error="status_500")]
        has_output_event(reply(*events))
        for answer in answers:
            msgspec.json.decode(msgspec.json.encode(answer_record(answer)), type=RequestRecord)


def test_what_came_so_far_bears_no_tokens_before_its_first_output() -> None:
    role = event({"delta": {"role": "assistant", "content": ""}}, usage=usage(0))

    assert not has_output_event(reply(b": ping\n\n", role, event(said("a"))[:-1]))


@pytest.mark.parametrize(
    "first",
    [event(said("a")), event({"text": "a"}), event({"delta": {"reasoning": "a"}}), event(said("", token_ids=[3])),
     event(said(""), usage=usage(1))],
)  # fmt: skip
def test_what_came_so_far_bears_tokens_with_its_first_output(first: bytes) -> None:
    assert has_output_event(reply(b": ping\n\n", b"data: {oops\n\ndata: {}\n\n", first))


def test_every_error_word_is_proven_by_a_test() -> None:
    here = Path(__file__).parent
    tests = "".join((here / f"test_{name}.py").read_text() for name in ("answer", "certificate", "client", "watch"))

    assert {word for word in ERROR_WORDS if f'"{word}"' not in tests} == set()
