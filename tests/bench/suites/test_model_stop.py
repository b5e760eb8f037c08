"""The content check of an answer that was forced on past the model's own stop."""

from __future__ import annotations

import json

import msgspec
import pytest

from tandem.bench.records.record import SCHEMA, RequestRecord
from tandem.bench.suites.model_stop import check_answer
from tandem.bench.suites.prompt import Prompt

PROMPT = Prompt(id="p", class_="c", prompt="Tell me about it.")
LOOP = "and so on " * 60
CHAT_LOGPROBS = [{"token": token, "logprob": -0.1} for token in ("A ", "dry day.", "<|im_end|>")]
COLUMNS = {"tokens": ["A ", "dry day.", "</s>"], "token_logprobs": [-0.1, -0.1, -0.1]}


def answer(text: str, finish_reason: str = "length", **fields) -> RequestRecord:
    return RequestRecord(
        schema=SCHEMA,
        request_id="r",
        arm="a",
        class_="c",
        suite="s",
        prompt_id="p",
        start_s=0,
        end_s=1,
        reconnected=0,
        text=text,
        finish_reason=finish_reason,
        **fields,
    )


@pytest.mark.parametrize(
    ("record", "word"),
    [
        (answer(f"A dry day.<|im_end|>{LOOP}"), "ok"),
        (answer(f"{LOOP}<|eot_id|>A dry day."), "loop"),
        (answer(f"A dry day.{LOOP}", logprobs=msgspec.Raw(json.dumps(CHAT_LOGPROBS))), "ok"),
        (answer(f"A dry day.{LOOP}", logprobs=msgspec.Raw(json.dumps(COLUMNS))), "ok"),
        (answer(LOOP), None),
        (answer(LOOP, "stop"), "loop"),
        (answer("A dry day.<|im_end|>", error="closed"), None),
    ],
    ids=[
        "stop in the text",
        "loop before the stop",
        "stop in chat's log-probabilities",
        "stop in those of completions",
        "no stop",
        "the server stopped",
        "failed",
    ],
)
def test_a_forced_answer_is_checked_up_to_its_own_stop(record, word):
    assert check_answer(record, PROMPT, is_forced=True) == word


def test_an_answer_that_was_not_forced_is_checked_whole():
    assert check_answer(answer(f"A dry day.<|im_end|>{LOOP}"), PROMPT, is_forced=False) == "loop"
