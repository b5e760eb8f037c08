"""A record is its place in the run, filled in with what came of the request."""

from __future__ import annotations

import json

import planned
import pytest
from one_request import asking

from tandem.bench.load.loops import complete_record
from tandem.bench.load.reply import ServerReply

DONE = b"data: [DONE]\n\n"


def event(finish: str | None, **delta: str) -> bytes:
    return (
        b"data: "
        + json.dumps({"choices": [{"delta": delta, "finish_reason": finish}]}).encode()
        + b"\n\n"
    )


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        # the connection broke after [DONE]
        (event("stop", content="It is said.") + DONE, (None, None, "ok")),
        (event(None, content="It"), ("closed", "the stream ended after 1 events", None)),
        # thinking took all its tokens
        (event("length", reasoning="First I"), (None, None, "truncated")),
    ],
)
def test_error_and_content_are_those_of_the_answer(stream, expected):
    prompt = next(iter(planned.plan().turns())).items[0].entry.prompt
    reply = ServerReply(
        start_ns=0, reads=[(1, stream)], end_ns=2, status=200, error="closed", error_detail="reset"
    )

    places = complete_record(reply, asking(), (), prompt, {})

    detail = places.error_detail and places.error_detail.partition(",")[0]
    assert (places.error, detail, places.content) == expected
