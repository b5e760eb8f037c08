"""A record is its place in the run, filled in with what came of the request."""

from __future__ import annotations

import planned
import pytest
from measured import record

from tandem.bench.answer import ServerAnswer
from tandem.bench.recorder import complete_record
from tandem.bench.reply import ServerReply


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        # the connection broke after [DONE]
        (ServerAnswer(text="It is said.", finish_reason="stop"), (None, None, "ok")),
        (ServerAnswer(text="It", error="closed", error_detail="why"), ("closed", "why", None)),
        # thinking took all its tokens
        (ServerAnswer(text="", reasoning="First I", finish_reason="length"), (None, None, "truncated")),
    ],
)
def test_error_and_content_are_those_of_the_answer(answer: ServerAnswer, expected: tuple) -> None:
    prompt = next(iter(planned.plan().turns())).items[0].entry.prompt
    reply = ServerReply(start_ns=0, end_ns=1, status=200, error="closed", error_detail="reset after [DONE]")

    completed = complete_record(record(content=None), prompt, reply, answer)

    assert (completed.error, completed.error_detail, completed.content) == expected
