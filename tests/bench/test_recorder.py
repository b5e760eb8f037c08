import planned
import pytest

from tandem.bench.answer import ServerAnswer
from tandem.bench.completion_request import CompletionRequest
from tandem.bench.recorder import SentRequest, build_record
from tandem.bench.reply import ServerReply


@pytest.fixture
def asked() -> SentRequest:
    turn = next(iter(planned.plan().turns()))
    item = turn.items[0]
    ask = CompletionRequest(request_id="one", prompt="say it", max_tokens=8)
    return SentRequest(arm="a", turn=turn, item=item, worker=0, request=ask, models=frozenset())


def test_an_answer_that_was_whole_before_its_connection_broke_is_no_failure(asked) -> None:
    reply = ServerReply(start_ns=0, end_ns=1, status=200, error="closed", error_detail="reset after [DONE]")

    made = build_record(asked, reply, ServerAnswer(text="It is said.", finish_reason="stop"))

    assert (made.error, made.error_detail, made.content) == (None, None, "ok")


def test_a_failed_answer_has_no_word_for_its_content(asked) -> None:
    made = build_record(
        asked,
        ServerReply(start_ns=0, end_ns=1, status=200),
        ServerAnswer(text="It", error="closed", error_detail="why"),
    )

    assert (made.error, made.error_detail, made.content) == ("closed", "why", None)


def test_an_answer_whose_thought_took_all_its_tokens_is_truncated_and_not_empty(asked) -> None:
    answer = ServerAnswer(text="", reasoning="First I should", finish_reason="length")

    assert build_record(asked, ServerReply(start_ns=0, end_ns=1, status=200), answer).content == "truncated"
