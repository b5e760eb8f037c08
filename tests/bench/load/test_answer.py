"""What a reply means: text, tokens, counts, and the one word for what is wrong with it."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from independent_server import Frames, Request, Schedule
from one_request import asking

from tandem.bench.load.answer import has_tokens, parse_answer
from tandem.bench.load.answer_parser import MAX_PART_NAME, MAX_UNKNOWN_PARTS
from tandem.bench.load.reply import ServerReply
from tandem.bench.plan.server_access import ServerAccess
from tandem.bench.records.record import RecordWriter, RequestRecord, read_records

SEED = 20261121
DONE = b"data: [DONE]\n\n"
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n' + DONE


def reply(
    *pieces: bytes, status: int = 200, kind: str = "text/event-stream", **fields
) -> ServerReply:
    """A reply whose reads came a second apart, the first a second after the start."""
    reads = [((at + 1) * 10**9, piece) for at, piece in enumerate(pieces)]
    return ServerReply(
        0, 1, reads, (len(pieces) + 1) * 10**9, status, {"Content-Type": kind}, **fields
    )


def event(*choice: dict, **fields) -> bytes:
    return b"data: " + json.dumps({"choices": list(choice), **fields}).encode() + b"\n\n"


def said(text: str, finish: str | None = None, *, tokens: int | None = None, **fields) -> bytes:
    """An event of chat; `tokens` are its running usage."""
    return event(
        {"index": 0, "delta": {"content": text}, "finish_reason": finish, **fields},
        **({} if tokens is None else used(tokens)),
    )


def used(tokens: int, **fields) -> dict:
    return {
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": tokens,
            "total_tokens": 5 + tokens,
            **fields,
        }
    }


def answered(*pieces: bytes, models: set[str] | None = None, **fields) -> RequestRecord:
    return parse_answer(reply(*pieces, **fields), asking(), models or ())


def look(answer: RequestRecord, names: Any) -> dict[str, Any]:
    """Fields of an answer; `kinds`, `tokens` and `times` are those of its chunks."""
    columns = {
        "kinds": [chunk.kind for chunk in answer.chunks],
        "tokens": [chunk.tokens for chunk in answer.chunks],
        "times": [chunk.at_s for chunk in answer.chunks],
        "logprobs": json.loads(bytes(answer.logprobs)),
    }
    return {name: columns[name] if name in columns else getattr(answer, name) for name in names}


FIRST_CHOICE = {"index": 0, "delta": {"content": "a"}}
ONE = said("a")
TWO = said("b")
ENTRIES = [{"token": token, "logprob": -0.5} for token in "abc"]
THOUGHT = event({"delta": {"reasoning": "hm"}})
REASONING_BESIDE = used(7, total_tokens=15, completion_tokens_details={"reasoning_tokens": 3})
STREAMS: dict[str, tuple[tuple[bytes, ...], dict[str, Any]]] = {
    "an event has the time of the read that completed it": (
        (ONE[:9], ONE[9:] + TWO + TWO[:4], TWO[4:], END),
        {"times": [2.0, 2.0, 3.0, 4.0]},
    ),
    "running usage gives each chunk its tokens": (
        (
            said("", tokens=0),
            said("a b", tokens=3),
            said("", tokens=4),
            said("d", "stop", tokens=9),
            event(**used(9)),
        ),
        {
            "tokens": [0, 3, 1, 5, None],
            "kinds": ["role", "text", "empty", "text", "usage"],
            "completion_tokens": 9,
            "prompt_tokens": 5,
            "counted_by": "usage",
        },
    ),
    "reasoning that is counted beside the answer is output": (
        (THOUGHT, ONE, said("", "stop"), event(**REASONING_BESIDE)),
        {"completion_tokens": 10},
    ),
    "reasoning that is counted beside the answer and never came is no output": (
        (ONE, said("", "stop"), event(**REASONING_BESIDE)),
        {"completion_tokens": 7},
    ),
    "reasoning that is counted in the answer is not counted twice": (
        (
            THOUGHT,
            ONE,
            said("", "stop"),
            event(**used(7, completion_tokens_details={"reasoning_tokens": 3})),
        ),
        {"completion_tokens": 7},
    ),
    "a usage of 0 beside each text is no count": (
        (said("a", tokens=0), said("b", tokens=0), said("", "stop", tokens=7)),
        {"tokens": [None] * 3, "completion_tokens": 7, "error_detail": None},
    ),
    "a usage that is the same in each chunk is no count": (
        (said("a", tokens=7), said("b", tokens=7), said("", "stop", tokens=7)),
        {"tokens": [None] * 3, "completion_tokens": 7},
    ),
    "a stop token that only the last usage counts is no contradiction": (
        (said("a", tokens=1), said("b", tokens=2), said("", "stop"), event(**used(3)), DONE),
        {"tokens": [1, 1, None, None], "completion_tokens": 3, "error_detail": None},
    ),
    "token ids count where no usage does": (
        (said("a", token_ids=[4, 5]), said("b", token_ids=[6]), END),
        {
            "tokens": [2, 1, None],
            "token_ids": (4, 5, 6),
            "completion_tokens": 3,
            "counted_by": "token_ids",
        },
    ),
    "ids that some chunks lack count nothing": (
        (said("a", token_ids=[4, 5]), TWO, END),
        {"tokens": [None] * 3, "token_ids": None, "completion_tokens": None},
    ),
    "ids count where usage contradicts them": (
        (said("a", token_ids=[4, 5]), event(**used(49)), END),
        {
            "completion_tokens": 2,
            "counted_by": "token_ids",
            "error": None,
            "error_detail": "usage says 49 output tokens, the stream held 2 token ids",
        },
    ),
    "usage that contradicts its running count is named": (
        (said("a", tokens=2), event(**used(9)), END),
        {
            "completion_tokens": 9,
            "error": None,
            "error_detail": "usage counted up to 2 tokens and says 9 at the end",
        },
    ),
    "chat's log-probabilities become one list": (
        (
            said("ab", logprobs={"content": ENTRIES[:2]}),
            said("c", logprobs={"content": ENTRIES[2:]}),
            END,
        ),
        {"logprobs": ENTRIES},
    ),
    "completions' log-probabilities are joined by column": (
        (
            event(
                {"text": "ab", "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-0.5, -0.1]}}
            ),
            event(
                {
                    "text": "c",
                    "finish_reason": "stop",
                    "logprobs": {"tokens": ["c"], "token_logprobs": [-0.2]},
                }
            ),
        ),
        {"logprobs": {"tokens": ["a", "b", "c"], "token_logprobs": [-0.5, -0.1, -0.2]}},
    ),
    "what comes after a finish reason and done changes nothing": (
        (ONE, END, b'data: closing\n\ndata: {"error":"client left"}\n\nBad Gateway\n\n'),
        {"error": None, "text": "a"},
    ),
    "an error after done alone is a failure": (
        (ONE, DONE, b'data: {"error":"no memory"}\n\n'),
        {"error": "api_error"},
    ),
    "a finish reason in each chunk ends no stream": (
        (said("a", "stop"), said("b", "stop")),
        {
            "error": "closed",
            "text": "ab",
            "error_detail": (
                "the stream ended after 2 events, before [DONE], and text came after its"
                " finish_reason"
            ),
        },
    ),
    "a last event without its blank line counts": (
        (ONE, said("b", "stop").rstrip()),
        {"text": "ab", "error": None},
    ),
    "a stream that ends before its finish": (
        (ONE, TWO[:20]),
        {
            "error": "closed",
            "text": "a",
            "error_detail": "the stream ended after 1 events, before a finish_reason or [DONE]",
        },
    ),
    "far more tokens than asked": ((*[ONE] * 97, END), {"error": "endless"}),
    "a count of more tokens than asked stays in the record and ends nothing": (
        (ONE, event(**used(970)), END),
        {"error": None, "error_detail": None, "completion_tokens": 970, "max_tokens": 16},
    ),
    "an error outside of the events is a failure": (
        (ONE, b'{"error":{"message":"engine died"}}\n', END),
        {"error": "api_error", "error_detail": "engine died"},
    ),
    "an error in the choice is a failure": (
        (event({"delta": {"content": "a"}, "error": {"message": "upstream"}}), END),
        {"error": "api_error", "error_detail": "upstream"},
    ),
    "text outside of the events explains an answer that nothing ends": (
        (ONE, b"Internal Server Error\n\n", DONE),
        {
            "error": "api_error",
            "error_detail": (
                "no finish_reason ends the answer, and the server says 'Internal Server Error'"
            ),
        },
    ),
    "an event of text without choices explains an answer that nothing ends": (
        (ONE, b'data: {"detail":"worker died"}\n\n', DONE),
        {
            "error": "api_error",
            "error_detail": (
                'no finish_reason ends the answer, and the server says \'{"detail":"worker died"}\''
            ),
        },
    ),
    "an end that is no good one is a failure with the server's words": (
        (
            ONE,
            event({"delta": {}, "finish_reason": "error", "error": {"message": "no memory"}}),
            DONE,
        ),
        {
            "error": "api_error",
            "error_detail": "the server broke the answer off with finish_reason error: no memory",
            "finish_reason": "error",
        },
    ),
    "pings and comments change nothing": (
        (
            ONE,
            b'event: ping\ndata: {"type":"ping"}\n\n',
            b": wait\n\n",
            b'data: {"id":"7"}\n\n',
            END,
        ),
        {"error": None, "text": "a", "unknown_parts": (), "kinds": ["text", "end"]},
    ),
    "choices of one index in one event are one answer": (
        (
            event(FIRST_CHOICE, {"index": 0, "delta": {"content": "b"}}),
            END,
        ),
        {"text": "ab"},
    ),
    "another choice is no part of the answer and is named": (
        (
            event(FIRST_CHOICE, {"index": 1, "delta": {"content": "b"}}),
            END,
        ),
        {"text": "a", "unknown_parts": ("a second choice",)},
    ),
    "a failure of another choice is one": (
        (
            event(
                FIRST_CHOICE,
                {"index": 1, "delta": {}, "finish_reason": "error"},
            ),
            END,
        ),
        {"error": "api_error"},
    ),
    "infinite log-probabilities are no fault": (
        (
            (
                b"data:"
                b' {"choices":[{"delta":{"content":"a"},"logprobs":{"content":[{"logprob":-Infinity}]}}]}\n\n'
            ),
            END,
        ),
        {"error": None, "text": "a", "logprobs": [{"logprob": None}]},
    ),
    "a whole message after the deltas repeats them": (
        (
            ONE,
            TWO,
            event(
                {"message": {"content": "ab"}, "finish_reason": "stop"}, object="chat.completion"
            ),
            DONE,
        ),
        {"text": "ab", "kinds": ["text", "text", "end"]},
    ),
    "an event of another API is named": (
        (ONE, b'data: {"type":"response.output_text.delta","delta":"b"}\n\n', END),
        {"unknown_parts": ("an event of type response.output_text.delta without choices",)},
    ),
}


@pytest.mark.parametrize("case", STREAMS)
def test_a_stream_is_read(case):
    pieces, expected = STREAMS[case]
    assert look(answered(*pieces), expected) == expected


@pytest.mark.parametrize(
    ("choice", "kind"),
    [
        ({"delta": {"role": "assistant", "content": ""}}, "role"),
        ({"delta": {"role": "assistant", "content": "hi"}}, "text"),
        ({"delta": {"reasoning": "hm"}}, "reasoning"),
        ({"delta": {"content": None}}, "empty"),
        ({"delta": {"function_call": {"name": "f", "arguments": ""}}}, "tool"),
    ],
)
def test_an_event_is_of_the_kind_that_it_holds(choice, kind):
    assert answered(event(choice), END).chunks[0].kind == kind


@pytest.mark.parametrize("count", [-1, None])
def test_a_count_that_is_none_is_not_believed(count):
    answer = answered(ONE, event(usage={"completion_tokens": count, "prompt_tokens": count}), END)
    assert (answer.completion_tokens, answer.prompt_tokens, answer.error) == (None, None, None)


@pytest.mark.parametrize("word", ["closed", "gap_timeout", "whole_timeout"])
def test_after_done_an_answer_is_whole_unless_it_is_endless(word):
    assert answered(ONE, END, error=word).error is None
    assert answered(*[ONE] * 100, error=word).error == "endless"


@pytest.mark.parametrize("word", ["gap_timeout", "interrupted"])
def test_what_cut_a_stream_stays_its_word(word):
    answer = answered(ONE, b"data: {oops\n\n", error=word, error_detail="why")
    assert (answer.error, answer.error_detail, answer.text) == (word, "why", "a")


def test_a_few_names_of_unknown_parts_are_kept():
    delta = {f"part-{number:02}{'x' * MAX_PART_NAME}": "hm" for number in range(20)}
    answer = answered(event({"delta": delta}), END)
    assert len(answer.unknown_parts) == MAX_UNKNOWN_PARTS
    assert {len(name) for name in answer.unknown_parts} == {MAX_PART_NAME}


def test_a_secret_in_pieces_is_in_no_part_of_an_answer():
    pieces = (
        said("key-of-", token_ids=[4], logprobs={"content": ENTRIES[:1]}),
        said("server-1", "stop", token_ids=[5], logprobs={"content": ENTRIES[1:]}),
    )
    answer = answered(*pieces, access=ServerAccess(api_key="key-of-server-1"))
    expected = {"text": "[hidden]", "token_ids": None, "logprobs": None, "completion_tokens": 2}
    assert look(answer, expected) == expected


# Faults in what was sent


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n', "decode"),
        (b'data: {"choices":[{"delta":{"content":"\\ud800"}}]}\n\n', "not_json"),
        (b'data: {"choices":[{\n\n', "not_json"),
        (b"data: 42\n\n", "no_choices"),
        (b'data: {"choices":null}\n\n', None),
        (b'data: {"error":{"message":"engine died","code":500}}\n\n', "api_error"),
    ],
)
def test_a_bad_event_is_named_and_the_rest_read(bad, word):
    answer = answered(ONE, bad, TWO, END)
    assert (answer.error, answer.text) == (word, "ab")


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b'{"error":' * 900 + b"1" + b"}" * 900, "api_error"),
        (b'{"error":' + b'{"a":' * 900 + b"1" + b"}" * 901, "api_error"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, None),
    ],
)
def test_an_object_nested_without_end_never_raises(body, word):
    assert answered(b"data: " + body + b"\n\n", END).error == word
    assert answered(body, status=500, error="status_500").error == "status_500"


@pytest.mark.parametrize(
    ("body", "kind", "word"),
    [
        (b"<!DOCTYPE html><html>Sign in</html>", "text/event-stream", "not_sse"),
        (b'{"status":"ok"}', "text/event-stream", "no_choices"),
        (b'{"choices":[', "application/json", "not_json"),
        (b'{"choices":[{"message":{"content":"x"}}]}', "application/json", "not_sse"),
        (b'{"error":{"message":"no"}}', "application/json", "api_error"),
        (ONE + END, "text/plain", None),
    ],
)
def test_a_body_that_is_no_event_stream_is_a_word(body, kind, word):
    assert answered(body, kind=kind).error == word


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("small", None),
        ("alias", None),
        ("small-2026-11-21", None),
        ("small-1b", "wrong_model"),
        ("big", "wrong_model"),
    ],
)
def test_a_model_neither_requested_nor_an_alias_is_wrong(name, error):
    answer = answered(
        event({"delta": {"content": "a"}}, model=name), END, models={"small", "alias"}
    )
    assert (answer.model, answer.error) == (name, error)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"error":{"message":"queue is full"}}', "queue is full"),
        (b"<html><h1>queue</h1> is full</html>", "queue is full"),
        (b"\xff", "\N{REPLACEMENT CHARACTER}"),
        (b"{}", None),
        (b"", None),
    ],
)
def test_a_refusal_keeps_what_the_server_said(body, detail):
    answer = answered(body, status=503, error="status_503")
    assert (answer.error, answer.error_detail) == ("status_503", detail)


# Whole


def a_stream() -> bytes:
    """A stream with all extras and characters of every length."""
    body = {
        "max_tokens": 40,
        "messages": [{"content": "x"}],
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_token_ids": True,
        "logprobs": True,
    }
    frames = Frames(Request("POST", "/v1/chat/completions", {}, body), Schedule())
    parts = [frames.role(), frames.burst(1), frames.burst(3)]
    choice = {"delta": {"content": "é€\U0001f680"}, "token_ids": [7, 8, 9]}
    rest = json.dumps({"choices": [choice], **used(7)}, ensure_ascii=False)
    frames.running = 7
    return b"".join(
        [
            *parts,
            f"data: {rest}\r\n\r\n: ping\n\n".encode(),
            frames.finish("stop"),
            frames.usage(),
            DONE,
        ]
    )


def test_an_answer_cut_at_any_byte_differs_in_times_alone():
    stream = a_stream()
    names = [
        *msgspec.structs.asdict(answered(stream)).keys() - {"chunk_s", "end_s"},
        "kinds",
        "tokens",
    ]
    complete = look(answered(stream), names)

    different = [
        at
        for at in range(1, len(stream))
        if look(answered(stream[:at], stream[at:]), names) != complete
    ]

    assert (
        complete["error"],
        complete["completion_tokens"],
        len(complete["token_ids"]),
        different,
    ) == (None, 7, 7, [])


def test_a_stream_spoilt_anywhere_still_makes_a_record(tmp_path):
    stream = a_stream()
    generator = random.Random(SEED)  # noqa: S311
    path = tmp_path / "records.jsonl"
    with RecordWriter(path) as writer:
        for _ in range(400):
            spoilt = bytearray(stream)
            for _ in range(generator.randint(1, 8)):
                spoilt[generator.randrange(len(spoilt))] = generator.randrange(256)
            writer.write(answered(bytes(spoilt)))

    assert len(list(read_records(path))) == 400


@pytest.mark.parametrize(
    ("first", "has_output"),
    [
        (ONE, True),
        (said("", token_ids=[3]), True),
        (said("", tokens=0), False),
        (event({"delta": {"role": "assistant", "content": ""}}), False),
        (said("", "stop"), False),
    ],
)
def test_the_first_output_is_seen_in_what_came_so_far(first, has_output):
    assert has_tokens(reply(b": ping\n\n", b"data: {oops\n\ndata: {}\n\n", first)) is has_output
